"""python -m dpgen_jax.evaluate RUN_OR_RELEASE --dataset D [--fast] [--out DIR] [...]

    python -m dpgen_jax.evaluate --compare RUN1 RUN2 ... [--out PAGE.html]

Measures how useful and how like real records the synthetic ones are, and what attacks learn from
them; writes metrics.json and report.html, or one page that compares runs.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dpgen_jax import cli, guarantee
from dpgen_jax.config import DataOptions, Evaluation
from dpgen_jax.errors import UserError

if TYPE_CHECKING:
    from dpgen_jax.data import Dataset
    from dpgen_jax.run.bundle import Release

TASKS = ("gen2real", "real2gen", "real2real")


FLAT = tyro.conf.arg(name="")


@dataclasses.dataclass(frozen=True)
class Evaluate:
    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_RELEASE")]
    """a run folder or a release folder"""
    asked: Annotated[Evaluation, FLAT]
    data: Annotated[DataOptions, FLAT]
    dataset: str = "glyphs"
    """the data set that was trained on, whose held-out part is tested on"""
    out: Path | None = None
    """folder for metrics.json, report.html and private/; RUN/evaluation if left out, or
    `evaluation` beside a release"""


@dataclasses.dataclass(frozen=True)
class Compare:
    compare: tuple[Path, ...]
    """run folders that were evaluated, or folders that `evaluate --out` wrote"""
    out: Path = Path("comparison.html")
    """the page"""


def command(argv: list[str]) -> None:
    description = __doc__.split("\n\n")[2]
    if cli.peek(argv, "--compare") is not None:
        return _compare(cli.parse(Compare, argv, "python -m dpgen_jax.evaluate", description))
    given = cli.parse(Evaluate, argv, "python -m dpgen_jax.evaluate", description)
    from dpgen_jax import assessment
    from dpgen_jax.run import bundle

    release = bundle.load(given.source)
    # Not into a release: numbers from real records are not to be shared with it.
    run = given.source if (given.source / "release").is_dir() else None
    out = given.out or (run or given.source.resolve().parent) / "evaluation"
    if out.exists() and not out.is_dir():  # said now: minutes would be lost
        raise UserError(f"--out {out} is a file; name a folder")
    if any((path / "generator.safetensors").exists() for path in (out, *out.resolve().parents)):
        raise UserError(f"--out {out} lies in a release, which is shared, and an evaluation holds "
                        "real records; name another folder")
    held = _held_out(given, release)
    started = time.monotonic()
    found = assessment.assess(release, held, given.asked, lambda line: print(line, flush=True))
    report = assessment.write(found, release, held, out, run)
    print(f"guarantee: {guarantee.line(release.privacy)}")
    if release.classifies:
        return print(f"accuracy on {found['n_test']:,} held-out records: {found['accuracy']:.4f}"
                     f"\n{report}\nnumbers from real records are not covered by epsilon")
    show(found)
    print(f"{out / 'metrics.json'} ({found['seeds']} seeds, {time.monotonic() - started:.0f} s)"
          f"\n{report}\n{out / 'private' / 'neighbours.html'} holds REAL records: never share it\n"
          "numbers from real records are not covered by epsilon")


def _held_out(given: Evaluate, release: Release) -> Dataset:
    from dpgen_jax import data
    from dpgen_jax.types import ImageSpec

    options = given.data
    if (given.dataset == "glyphs" and options.image_size is None
            and isinstance(release.spec, ImageSpec)):
        options = dataclasses.replace(options, image_size=release.spec.height)
    return data.load(given.dataset, **vars(options))


def _compare(given: Compare) -> None:
    from dpgen_jax.report import compare

    page = compare.compare([_entry(path) for path in given.compare])
    out = given.out if given.out.suffix == ".html" else given.out / "comparison.html"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")
    print(out)


def _entry(path: Path) -> Any:
    """What an evaluation wrote. Errors: UserError where there is none."""
    from dpgen_jax import reading
    from dpgen_jax.report.compare import Entry
    from dpgen_jax.report.render import Figure
    from dpgen_jax.run import contents

    held = next((f for f in (path / "evaluation", path) if (f / "metrics.json").is_file()), None)
    if held is None:
        raise UserError(f"{path} holds no evaluation/metrics.json; run python -m "
                        f"dpgen_jax.evaluate {path} --dataset D first")
    found = contents.metrics(held / "metrics.json")
    if found["kind"] == "classifier":
        raise UserError(f"{path} is a classifier: it makes no records to compare; its accuracy is "
                        f"in {held / 'metrics.json'}")
    picture = held / "samples.png"
    grid = Figure("Synthetic images", "One row a class.", reading.read_bytes(picture)
                  ) if picture.is_file() else None
    return Entry(path.resolve().name, found, found["release"], grid)


def show(found: dict[str, Any]) -> None:
    """A line for each classifier and metric, the tasks side by side; then the likeness, the attacks
    and the notes."""
    print(found["setting"]["text"])
    tasks = [task for task in TASKS if task in found]
    for name, scores in found[tasks[0]].items() if tasks else ():
        for metric in (m for m in ("auroc", "auprc", "accuracy") if m in scores):
            parts = [f"{task} {_number(found[task][name][metric])}" for task in tasks
                     if name in found[task]]
            print(f"{name:19} {metric:8}  {'   '.join(parts)}")
    for name, score in found.get("fidelity", {}).items():
        if "mean" in score:
            floor = score.get("floor")
            beside = "" if floor is None else f"   real against real {floor:.4f}"
            print(f"{name.replace('_', ' '):22}  {_number(score)}{beside}")
    if "schema_violations" in found:
        print(f"share of cells that break the schema: {found['schema_violations']['mean']:.2g}")
    if "membership" in found:
        print(found["membership"]["sentence"])
    for note in found.get("notes", []):
        print(f"note: {note}")


def _number(score: dict[str, Any]) -> str:
    return f"{score['mean']:.4f} +- {score['std']:.4f}"


if __name__ == "__main__":
    cli.main(command)
