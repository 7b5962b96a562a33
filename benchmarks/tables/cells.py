"""Cells: one table, one method and one epsilon each, with a results file of its own."""

import dataclasses
import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from benchmarks.tables import data, methods
from benchmarks.tables.methods import UNPAID, Failed, Method, Spent, timed
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.types import TableSpec
from dpgen_jax.data.base import Dataset
from dpgen_jax.evaluation import marginals, prediction
from dpgen_jax.evaluation.marginals import query_error
from dpgen_jax.evaluation.results import Records, summary

# Measures of synthetic rows: the use of classifiers, and the distance of column pairs.
#
# All of it reads real rows, and none of it is covered by an epsilon: it belongs to public tables.

MOST_ROWS = 10_000
"""The most rows, synthetic or real, that a classifier learns from."""
RARE = 0.01
"""The share of a class below which `MOST_ROWS` rows hold too few of it to learn from: of frauds
that are 0.17 % they hold 17, and gradient boosting on real rows is then no better than chance."""
CLASSIFIERS = tuple(prediction.COMMON)
"""Logistic regression, a random forest and gradient boosting."""
ABOUT = ("AUROC of logistic regression, a forest with 5 rows a leaf and gradient boosting of "
         "histograms; mean total variation distance of pairs of columns, 20 bins of a number")
"""The description of the scores: results of other measures are measured anew."""
FURTHER = ("F1, the mean over classes and these classifiers; mean error of random queries of three "
           "columns")
"""The description of scores that were added later: runs that lack them are kept, and stay so."""


def with_rare_class(y: np.ndarray) -> bool:
    """Return whether a class of a table is rare, and all rows of it are to be learned from."""
    return bool(np.bincount(y).min() < RARE * len(y))


def learned(rows: Records, seed: int) -> Records:
    """Return what a classifier learns from: at most `MOST_ROWS`, all of rare classes among them.

    What it predicts is judged by ranks (AUROC), which the shares of the classes do not move.
    """
    x, y = rows
    if len(y) <= MOST_ROWS:
        return rows
    order = np.random.default_rng(seed).permutation(len(y))
    is_common = np.bincount(y)[y[order]] >= RARE * len(y)
    chosen = order[np.argsort(is_common, kind="stable")][:MOST_ROWS]
    return x[chosen], y[chosen]


def measured(rows: Records, test: Records, spec: TableSpec, seed: int) -> dict[str, float]:
    """Measure rows.

    Args:
      rows: The rows, encoded; classifiers learn from what `learned` chooses.

    Returns:
      The AUROC of each classifier on the test rows (of more than two classes the mean over them);
      `pairs`, the mean total variation distance of pairs of columns from the test rows; `f1`, the
      mean F1 of the classifiers; and `queries`, the error of random queries.
    """
    tables = marginals.cells(spec, rows), marginals.cells(spec, test), marginals.columns(spec)
    chosen = learned(rows, seed)
    scores = {name: prediction.score(name, chosen, test, spec.classes, seed)
              for name in CLASSIFIERS}
    return {name: score.auroc for name, score in scores.items()} | {
        "pairs": marginals.two_way_tvd(*tables),
        "f1": statistics.fmean(score.f1 for score in scores.values()),
        "queries": query_error(*tables)}


PROGRAMS = Path(__file__).parent / "peers"
DELTA = 1e-5
"""The delta of all cells but those of so many rows that it would protect none."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
      epsilon: Its budget; 0 for real rows, which have none.
      part: "test", or "validation" as in `data.load`.
    """

    table: str
    method: Method
    epsilon: float
    part: str = "test"

    @property
    def name(self) -> str:
        """The name of its results file, without the ending."""
        budget = "" if self.method.name == "real" else f"-eps{self.epsilon:g}"
        return f"{self.table}-{self.method.slug}{budget}"


@dataclasses.dataclass(frozen=True)
class Places:
    """Folders.

    Attributes:
      work: Of tables, run folders and synthetic rows; what is in it can be made again.
      limit: The CPU seconds that one run may take.
    """

    results: Path
    work: Path
    limit: int


def delta(dataset: Dataset) -> float:
    """Return the delta of a table: `DELTA`, or of 1 / DELTA rows and more a tenth of 1 / rows."""
    rows = len(dataset.y_train)
    return DELTA if DELTA * rows < 1 else 1 / (10 * rows)


def run(cell: Cell, index: int, places: Places) -> dict[str, Any]:
    """Run a cell once, with its number as the seed of the classifiers and of sampling.

    Returns:
      The scores, what it took and what was promised; or `error`, one line.
    """
    dataset = data.load(cell.table, cell.part)

    def scores(rows: Records) -> dict[str, float]:
        return measured(rows, (dataset.x_test, dataset.y_test), dataset.spec, index)

    if cell.method.name == "real":
        order = np.random.default_rng(index).permutation(len(dataset.y_train))
        rows = order[:wanted(dataset)]
        return {"scores": scores((dataset.x_train[rows], dataset.y_train[rows]))}
    folder = places.work / cell.part / cell.name
    shutil.rmtree(folder, ignore_errors=True)
    data.write(dataset, folder)
    try:
        made = _peer if cell.method.peer else _ours
        spent, facts = made(cell, dataset, folder, index, places)
        rows = data.read(folder / "synthetic.csv", dataset.spec)
        return {"scores": scores(rows), **facts, **dataclasses.asdict(spent)}
    except (Failed, UserError) as error:
        return {"error": str(error).replace(str(folder), "RUN")}


def wanted(dataset: Dataset) -> int:
    """Return the number of synthetic rows: as many as there are, at most `MOST_ROWS`.

    Where a class is rare there is no such limit, so that there are some of it to learn from.
    """
    rows = len(dataset.y_train)
    return rows if with_rare_class(dataset.y_train) else min(rows, MOST_ROWS)


def _ours(cell: Cell, dataset: Dataset, folder: Path, index: int, places: Places
          ) -> tuple[Spent, dict[str, Any]]:
    """Train and sample by the commands of a user, with a journal of the benchmark's own."""
    assert cell.method.flags is not None
    flags = cell.method.flags(dataset)
    if "--preset" not in flags:
        flags = ["--preset", "table", *flags]
    env = {"DPGEN_STATE": str(folder / "journal")}
    method, out = cell.method.name.split()[0], folder / "run"
    train = timed([sys.executable, "-m", "dpgen_jax.train", method,
                   "--dataset", f"csv:{folder / 'train.csv'}",
                   "--schema", str(folder / "schema.yaml"), "--epsilon", str(cell.epsilon),
                   "--delta", str(delta(dataset)), "--test-fraction", "0", "--out", str(out),
                   *flags], folder / "train.log", places.limit, env)
    sample = timed([sys.executable, "-m", "dpgen_jax.sample", str(out), "--n",
                    str(wanted(dataset)), "--seed", str(index), "--out",
                    str(folder / "synthetic.csv")], folder / "sample.log", places.limit, env)
    privacy = json.loads((out / "release" / "privacy.json").read_text())
    promised = {name: privacy[name] for name in ("guarantee", "epsilon", "delta", "relation",
                                                 "unit", "steps", "preset", "accountant")}
    return train.plus(sample), {"privacy": promised}


def _peer(cell: Cell, dataset: Dataset, folder: Path, index: int, places: Places
          ) -> tuple[Spent, dict[str, Any]]:
    """Train and sample in the peer's environment."""
    peer = cell.method.peer
    assert peer is not None
    job = {"epsilon": cell.epsilon, "delta": delta(dataset), "n": wanted(dataset), "seed": index,
           "label": dataset.spec.label.name, **peer.options}
    (folder / "job.json").write_text(json.dumps(job))
    spent = timed([str(methods.python(peer)), str(PROGRAMS / f"{peer.program}.py"),
                   str(folder)], folder / "peer.log", places.limit,
                  {"PYTHONPATH": "", "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"})
    report = folder / "report.json"
    return spent, json.loads(report.read_text()) if report.exists() else {}


def about(cell: Cell) -> dict[str, Any]:
    """Return what a reader must know of a cell: its table, its promise, what is not paid for."""
    dataset = data.load(cell.table, cell.part)
    facts = {"table": cell.table, "about": data.SOURCES[cell.table].about, "part": cell.part,
             "rows": len(dataset.y_train), "test_rows": len(dataset.y_test),
             "columns": len(dataset.spec.columns), "classes": dataset.spec.classes,
             "method": cell.method.name, "measures": ABOUT,
             "further_measures": FURTHER}
    if with_rare_class(dataset.y_train):
        facts["learned_from"] = (f"of as many rows as the training rows, all of classes below "
                                 f"{RARE:.0%} and at most {MOST_ROWS:,} in all")
    if cell.method.name == "real":
        return facts
    facts |= {"epsilon": cell.epsilon, "delta": delta(dataset)}
    peer = cell.method.peer
    if peer is None:
        assert cell.method.flags is not None
        return facts | {"flags": cell.method.flags(dataset), "reads": UNPAID}
    return facts | {"relation": peer.relation, "reads": peer.reads, "note": peer.note,
                    "requirements": list(peer.requirements), "options": peer.options}


def known(cell: Cell, places: Places) -> dict[str, Any]:
    """Return the results of a cell so far; without runs where what is asked has changed."""
    path = places.results / f"{cell.name}.json"
    if not path.exists():
        return {"runs": []}
    results: dict[str, Any] = json.loads(path.read_text())["results"]
    facts = json.loads(json.dumps(about(cell)))
    before = {name: value for name, value in results.items() if name not in ("runs", "scores")}
    # Runs that were made before a measure was added lack it, and are what they were.
    return results if {"further_measures": FURTHER} | before == facts else {"runs": []}


def write(cell: Cell, runs: list[dict[str, Any]], places: Places, where: dict[str, Any]) -> Path:
    """Write the results file of a cell."""
    scores = [made["scores"] for made in runs if "scores" in made]
    merged = {name: summary([score[name] for score in scores if name in score])
              for name in dict.fromkeys(name for score in scores for name in score)}
    flags = ["--tables", cell.table, "--methods", repr(cell.method.name), "--epsilon",
             f"{cell.epsilon:g}", "--runs", str(len(runs)), "--part", cell.part]
    rec = common.record("tables", flags, range(len(runs)),
                        about(cell) | {"scores": merged, "runs": runs}, where)
    if cell.method.peer and scores:
        rec["versions"] |= methods.versions(cell.method.peer)
    return common.write(rec, places.results / f"{cell.name}.json")
