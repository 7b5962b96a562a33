"""python -m dpgen_jax.evaluate RUN_OR_RELEASE --dataset D [--schema FILE.yaml] [--out DIR]

Trains classifiers on synthetic records and tests them on real ones that no training saw; of tables
it also compares the marginals.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dpgen_jax import cli
from dpgen_jax.errors import UserError

if TYPE_CHECKING:
    from dpgen_jax.data import Dataset
    from dpgen_jax.run.bundle import Release
    from dpgen_jax.types import Spec


@dataclasses.dataclass(frozen=True)
class Evaluate:
    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_RELEASE")]
    """a run folder or a release folder"""
    dataset: str = "glyphs"
    """the data set whose held-out part is tested on; as for training"""
    metrics: tuple[Literal["gen2real", "real2gen", "real2real"], ...] = ("gen2real", "real2real")
    """gen2real: trained on synthetic, tested on real; real2real: its upper bound"""
    classifiers: tuple[Literal["cnn", "mlp", "lr", "adaboost", "bagging"], ...] = ()
    """images: cnn mlp; tables: lr adaboost bagging mlp; all of the kind if left out"""
    samples: int = 10_000
    """synthetic records to train on, and as many real ones"""
    seeds: int = 3
    schedule: Literal["fast", "full"] = "fast"
    """images: fixed training schedule; the last epoch counts. fast: for laptops"""
    out: Path | None = None
    """folder for metrics.json; if left out RUN/evaluation, or `evaluation` beside a release"""
    classes: int | None = None
    image_size: int | None = None
    schema: str | None = None
    """csv: the schema of training, a YAML file"""
    test_csv: str | None = None
    """csv: the file of the held-out part"""


def command(argv: list[str]) -> None:
    given = cli.parse(Evaluate, argv, "python -m dpgen_jax.evaluate", __doc__.split("\n\n")[1])
    from dpgen_jax.run import bundle, folder
    from dpgen_jax.types import TableSpec

    release = bundle.load(given.source)
    held = _held_out(given, release.spec)
    started = time.monotonic()
    found = (_table if isinstance(release.spec, TableSpec) else _images)(given, release, held)
    # Not into a release: numbers from real records are not to be shared with it.
    is_run = (given.source / "release").is_dir()
    out = given.out or (given.source if is_run else given.source.resolve().parent) / "evaluation"
    out.mkdir(parents=True, exist_ok=True)
    folder.write_json(out / "metrics.json", found | {
        "dataset": held.name, "release": {k: release.privacy[k] for k in (
            "method", "preset", "epsilon", "delta", "relation", "unit", "noise_source")}})
    show(found)
    seconds = time.monotonic() - started
    print(f"{out / 'metrics.json'} ({given.seeds} seeds, {seconds:.0f} s)\n"
          "numbers from real records are not covered by epsilon")


def _held_out(given: Evaluate, spec: Spec) -> Dataset:
    from dpgen_jax import data
    from dpgen_jax.types import ImageSpec

    side = spec.height if given.dataset == "glyphs" and isinstance(spec, ImageSpec) else None
    held = data.load(given.dataset, classes=given.classes, image_size=given.image_size or side,
                     schema=given.schema, test_csv=given.test_csv)
    if held.spec != spec:
        raise UserError(f"{given.dataset} holds {_words(held.spec)}, the release makes "
                        f"{_words(spec)}{_difference(held.spec, spec)}; name the data set it was "
                        "trained on, with the same --image-size or --schema")
    if held.x_test is None:
        raise UserError(f"{given.dataset} has no held-out part to test on; add one (csv: "
                        "--test-csv FILE; npz: x_test and y_test)")
    return held


def _words(spec: Spec) -> str:
    from dpgen_jax.types import ImageSpec

    if isinstance(spec, ImageSpec):
        size = f"{spec.height} x {spec.width} x {spec.channels}"
        return f"images of {size} in {spec.classes} classes"
    return f"a table of {len(spec.columns)} columns and {spec.classes} classes"


def _difference(held: Spec, spec: Spec) -> str:
    """The first column that two schemas of tables declare differently."""
    from dpgen_jax.types import TableSpec

    if not (isinstance(held, TableSpec) and isinstance(spec, TableSpec)):
        return ""
    pairs = zip((*held.columns, held.label), (*spec.columns, spec.label), strict=False)
    names = [ours.name for ours, theirs in pairs if ours != theirs]
    return f" (the schemas differ from column {names[0]!r} on)" if names else ""


def _images(given: Evaluate, release: Release, held: Dataset) -> dict[str, Any]:
    from dpgen_jax.evaluation import utility

    return utility.utility(
        lambda n, seed: release.sample(n, seed=seed), (held.x_test, held.y_test),
        (held.x_train, held.y_train), tasks=given.metrics, seeds=given.seeds,
        n_samples=given.samples, classifiers=given.classifiers or tuple(utility.CLASSIFIERS),
        schedule=utility.SCHEDULES[given.schedule])


def _table(given: Evaluate, release: Release, held: Dataset) -> dict[str, Any]:
    from dpgen_jax.evaluation import tables

    return tables.utility(
        release.encoded, (held.x_test, held.y_test), (held.x_train, held.y_train), release.spec,
        given.seeds, tasks=given.metrics, n_samples=given.samples,
        classifiers=given.classifiers or tuple(tables.CLASSIFIERS))


def show(found: dict) -> None:
    """A line for each classifier and metric, the tasks side by side; of tables also the distances
    and the notes."""
    tasks = [task for task in ("gen2real", "real2gen", "real2real") if task in found]
    for name, scores in found[tasks[0]].items() if tasks else ():
        for metric in (m for m in ("auroc", "auprc", "accuracy") if m in scores):
            parts = [f"{task} {_number(found[task][name][metric])}" for task in tasks]
            print(f"{name:8} {metric:8}  {'   '.join(parts)}")
    for name, score in found.get("fidelity", {}).items():
        floor = "" if score["floor"] is None else f"   real against real {score['floor']:.4f}"
        print(f"{name.replace('_', ' '):22}  {_number(score)}{floor}")
    if "schema_violations" in found:
        print(f"share of cells that break the schema: {found['schema_violations']['mean']:.2g}")
    for note in found.get("notes", []):
        print(f"note: {note}")


def _number(score: dict[str, Any]) -> str:
    return f"{score['mean']:.4f} +- {score['std']:.4f}"


if __name__ == "__main__":
    cli.main(command)
