"""The README's picture and table: real records and synthetic ones at epsilon 1.

    python -m benchmarks.showcase

It trains `mixture` on MNIST and `marginals` on Adult, each once and by the command of a user, and
writes results/showcase.png and results/showcase.json. No record is picked by how it looks: the real
ones are the first of the training data, the synthetic ones the first that the release draws with
sampling seed 0. Both data sets are public; private records must not be shown like this.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import common, training
from dpgen_jax import data
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.data.table import transform
from dpgen_jax.release import frames, plots
from dpgen_jax.release.bundle import load

EPSILON = 1
EACH = 2
"""Images that are shown of each class."""
ROWS = 3
"""Rows of the table that are shown of each kind."""
COLUMNS = ("age", "workclass", "education", "occupation", "hours-per-week", "income")
RUNS = {"images": ("mixture", "idx:mnist"), "table": ("marginals", "adult:adult")}


def first_of_each(labels: np.ndarray, classes: int, count: int) -> np.ndarray:
    """Return the positions of the first `count` records of each class, class by class."""
    return np.concatenate([np.flatnonzero(labels == k)[:count] for k in range(classes)])


def images(run: Path, path: Path) -> Path:
    """Draw two rows of real images above two rows of synthetic ones, a column for each class."""
    dataset, release = data.load(RUNS["images"][1]), load(run)
    classes = release.spec.classes
    where = first_of_each(dataset.y_train, classes, EACH)
    x, y = release.arrays(EACH * classes, labels=range(classes), seed=0)
    chosen = np.asarray(x)[first_of_each(np.asarray(y), classes, EACH)]

    def by_row(of: np.ndarray) -> np.ndarray:
        return of.reshape(classes, EACH, *of.shape[1:]).swapaxes(0, 1).reshape(of.shape)

    shown = np.concatenate([by_row(np.asarray(dataset.x_train)[where]), by_row(chosen)])
    labels = ["real"] * EACH + ["synthetic"] * EACH
    return plots.samples_grid(shown, path, 2 * EACH, labels)


def table(run: Path) -> dict[str, Any]:
    """Return the first real rows and the first synthetic ones, as texts; a null is empty."""
    dataset, release = data.load(RUNS["table"][1]), load(run)
    codes = transform.decode(release.spec, np.asarray(dataset.x_train[:ROWS], np.float64))
    real = frames.to_frame(release.spec, codes, np.asarray(dataset.y_train[:ROWS]))
    synthetic = release.frame(ROWS, seed=0)
    return {kind: [["" if pd.isna(cell) else str(cell) for cell in row]
                   for row in frame[list(COLUMNS)].to_numpy(object)]
            for kind, frame in (("real", real), ("synthetic", synthetic))}


def main(argv: list[str] | None = None) -> None:
    script = common.Script("showcase", __doc__)
    script.add_argument("--run", type=Path, default=Path("runs", "showcase"),
                        help="folder of the two run folders")
    args = script.begin(argv)
    results: dict[str, Any] = {}
    for kind, (method, name) in RUNS.items():
        run = training.finish(args.run / kind, method, "--dataset", name, "--epsilon", EPSILON)
        privacy = read_json(run / "release" / "privacy.json")
        results[kind] = {"method": method, "dataset": name, **{
            key: privacy[key] for key in ("guarantee", "epsilon", "delta", "preset")}}
    results["images"]["file"] = images(args.run / "images", common.RESULTS / "showcase.png").name
    results["table"] |= {"columns": COLUMNS, **table(args.run / "table")}
    print(script.save(results, [0]))


if __name__ == "__main__":
    main()
