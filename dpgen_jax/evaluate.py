"""Measures how useful and how like real ones synthetic records are, and what attacks learn.

    python -m dpgen_jax.evaluate RUN_OR_RELEASE [--dataset D] [--fast] [--out DIR] [...]
    python -m dpgen_jax.evaluate --synthetic FILE --dataset FILE [--label COLUMN] [...]

It writes metrics.json and report.html.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dpgen_jax import compare
from dpgen_jax.cli import parser, runs, terminal
from dpgen_jax.core import storage
from dpgen_jax.core.config import DataOptions, Evaluation
from dpgen_jax.core.errors import UserError, speaking_python
from dpgen_jax.core.request import Request
from dpgen_jax.core.run_folder import RunFolder, read_json
from dpgen_jax.release import guarantee

if TYPE_CHECKING:

    from dpgen_jax.data import Dataset
    from dpgen_jax.evaluation.assessment import Assessment
    from dpgen_jax.evaluation.two_tables import Source
    from dpgen_jax.release.bundle import Release

DESCRIPTION = ("Measures how useful synthetic records are, how similar they are to real ones, and "
               "what attacks learn from them; writes metrics.json and report.html.")
EMBEDDED = ("glyphs", "digits", "breast_cancer")
PARTS = frozenset({"all", "data", "dataset", "records", "rows", "table", "train", "training"})
"""names of files that say nothing of what the data are"""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """The flags."""

    evaluation: Annotated[Evaluation, parser.FLAT]
    data: Annotated[DataOptions, parser.FLAT]
    source: Annotated[Path | None, tyro.conf.Positional,
                      tyro.conf.arg(metavar="RUN_OR_RELEASE")] = None
    """a run folder or a release folder"""
    synthetic: str | None = None
    """in its place: a CSV or Parquet file of synthetic rows, from whatever generator; --dataset is
    then a file of real rows, whose types are read from it"""
    dataset: str | None = None
    """the data set of the training, whose held-out part is used for testing; by default that of the
    run"""
    out: Path | None = None
    """folder for metrics.json, report.html and private/; by default RUN/evaluation, or `evaluation`
    next to a release"""


def command(argv: list[str]) -> None:
    """Runs the command. Raises: UserError."""
    if parser.peek(argv, "--compare") is not None:
        terminal.renamed("evaluate --compare", "compare")
        return compare.command(parser.without_flag(argv, "--compare"))
    args = parser.parse(Evaluate, argv, "python -m dpgen_jax.evaluate", DESCRIPTION)
    if args.synthetic is not None:
        return _tables(args, args.synthetic)
    source = args.source
    if source is None:
        raise UserError("name a run or a release; or --synthetic FILE and --dataset FILE, to "
                        "compare two tables")
    if address := storage.url(source):
        raise UserError(f"{address}: an evaluation is written next to its release; copy "
                        "the folder to this machine first")
    if args.out:
        storage.require_local(args.out)
    if args.dataset is None:
        args = with_data_set(args)
    from dpgen_jax.evaluation import assess, assessment
    from dpgen_jax.release import bundle, contents

    release = bundle.load(source)
    # Not into a release: numbers from real records are not to be shared with it.
    run = source if (source / "release").is_dir() else None
    out = args.out or (run or source.resolve().parent) / "evaluation"
    if out.exists() and not out.is_dir():  # said now: minutes would be lost
        raise UserError(f"--out {out} is a file; name a folder")
    contents.refuse_shared(out, "an evaluation contains real records")
    dataset = _held_out(args, release, run)
    if (name := _named(dataset.name, args.dataset or "")) != dataset.name:
        dataset = dataclasses.replace(dataset, name=name)
    started = time.monotonic()
    found = assess.evaluate(release, dataset, settings=args.evaluation,
                            log=lambda line: print(line, flush=True))
    report = assess.write(found, release, dataset, out, run)
    print(f"guarantee: {guarantee.line(release.privacy)}")
    if release.classifies:
        print(f"accuracy on {found.facts['n_test']:,} held-out records: "
              f"{found.facts['accuracy']:.4f}\n"
              f"{report}\nnumbers from real records are not covered by epsilon")
        return
    for line in assessment.terminal_lines(found):
        print(line)
    print(f"{out / 'metrics.json'} ({found.facts['seeds']} seeds, {time.monotonic() - started:.0f} "
          f"s)\n{report}\n{out / 'private' / 'neighbours.html'} contains REAL records: never share "
          "it\nnumbers from real records are not covered by epsilon")


def _tables(args: Evaluate, synthetic: str) -> None:
    """Evaluates synthetic rows of a file. Raises: UserError."""
    if args.source is not None or args.dataset is None:
        raise UserError("--synthetic FILE goes with --dataset FILE, and without a run or release")
    from dpgen_jax.evaluation import assess, assessment, two_tables
    from dpgen_jax.release import contents

    place = Path(synthetic.rpartition(":")[2])
    out = args.out or place.parent / f"{place.name.partition('.')[0]}-evaluation"
    storage.require_local(out)
    if out.exists() and not out.is_dir():  # said now: minutes would be lost
        raise UserError(f"--out {out} is a file; name a folder")
    contents.refuse_shared(out, "an evaluation holds numbers from real records")
    started = time.monotonic()
    compared = two_tables.read(synthetic, args.dataset, args.data.label, args.data.test_csv)
    found = assess.of_tables(compared, args.evaluation, lambda line: print(line, flush=True))
    report = assess.write_tables(found, compared, out)
    for line in assessment.terminal_lines(found):
        print(line)
    print(f"{out / 'metrics.json'} ({found.facts['seeds']} seeds, "
          f"{time.monotonic() - started:.0f} s)\n{report}\n"
          "numbers from real records are not covered by epsilon")


def with_data_set(args: Evaluate) -> Evaluate:
    """Returns the flags with the data set that the run was trained on, and how it was read.

    Args:
        args: The flags, which name no data set.

    Raises:
        UserError: The run does not say.
    """
    from dpgen_jax.release import bundle
    from dpgen_jax.run import reading

    run = args.source
    assert run is not None
    known = Request()
    config = RunFolder(run).config
    if (run / "release").is_dir() and config.is_file() and (
            {"request", "typed"} & read_json(config).keys()):
        known = runs.request_of(run)
    source = known.source or next(
        (name for name in EMBEDDED if name == _trained_on(run, "dataset", "")), None)
    if source is None:
        bundle.load(run)  # anything else is an error here
        raise UserError(f"{run} does not record its data set; name it with --dataset")
    options = reading.stated_options(run, known, args.data)
    return dataclasses.replace(args, dataset=source, data=options)


def _held_out(args: Evaluate, release: Release, run: Path | None) -> Dataset:
    """The data set that is tested on, read as the run read it where the user does not say how.

    Images without a fixed size are read in the size of the release.
    """
    from dpgen_jax.run import reading

    source = args.dataset or ""
    noted = dict(_trained_on(run, "data_options", {})) if run else {}
    if release.privacy.get("unit") == guarantee.SUBJECT and source.startswith("csv:"):
        noted = {"kind": "csv", "unit": release.privacy.get("unit_column"),
                 "rows_per_unit": release.privacy.get("rows_per_unit"), **noted}
    return reading.load_as_noted(source, args.data, noted, release.spec)


def _named(name: str, source: str) -> str:
    """The name of a data set: that of its folder where its file is called after a part of data."""
    from dpgen_jax.data.base import safe_name

    kind, _, place = source.partition(":")
    folder = Path(place).resolve().parent.name
    if kind in ("csv", "npz", "parquet") and name.lower() in PARTS and folder:
        return safe_name(folder)
    return name


def _trained_on(run: Path, name: str, default: object) -> Any:
    """A field of a run's config.json on its data set; earlier versions left some out."""
    from dpgen_jax.release import contents

    config = run / "config.json"
    if not config.is_file():
        return default
    return contents.described(config).get(name) or default


def _evaluated(release: Release | Source, real: Dataset | Source, *, label: str | None = None,
               settings: Evaluation = Evaluation(), log: Callable[[str], None] = print
               ) -> Assessment:
    """Measures a release, or a synthetic table, on real records: `evaluation.assess.evaluate`."""
    from dpgen_jax.evaluation import assess

    return assess.evaluate(release, real, label=label, settings=settings, log=log)


class _Command(ModuleType):
    """The module, which is also the function `dpgen_jax.evaluate`."""

    __call__ = staticmethod(speaking_python(_evaluated, "evaluate"))


sys.modules[__name__].__class__ = _Command

if __name__ == "__main__":
    terminal.main(command)
