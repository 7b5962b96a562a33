"""The tables of the benchmark, each a `Dataset` with a held-out part and a public schema."""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax import data
from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data.base import Dataset
from dpgen_jax.data.parts import held_out_hashes
from dpgen_jax.data.table import schema, tables, transform
from dpgen_jax.data.table.parsing import Coded
from dpgen_jax.release import files

# Tables whose law is known: public functions of a public seed, so that no row is anybody's.
#
# Each law has a difficulty that tables of people have: skewed numbers with nulls that tell
# something, a rare class, columns that all hang together.

Columns = dict[str, tuple[dict[str, Any], np.ndarray]]
"""Name -> the entries of its schema, and its codes float64 [n] (categories as their index)."""


def _integer(low: int, high: int, values: np.ndarray, nullable: bool = False
             ) -> tuple[dict[str, Any], np.ndarray]:
    entries = {"kind": "integer", "min": str(low), "max": str(high)}
    return (entries | ({"nullable": "true"} if nullable else {}),
            np.clip(np.rint(values), low, high))


def _continuous(low: float, high: float, values: np.ndarray, nullable: bool = False
                ) -> tuple[dict[str, Any], np.ndarray]:
    entries = {"kind": "continuous", "min": str(low), "max": str(high)}
    return (entries | ({"nullable": "true"} if nullable else {}),
            np.clip([float(f"{value:.5g}") for value in values.tolist()], low, high))


def _category(names: str, values: np.ndarray, nullable: bool = False
              ) -> tuple[dict[str, Any], np.ndarray]:
    entries: dict[str, Any] = {"kind": "categorical", "categories": names.split()}
    return entries | ({"nullable": "true"} if nullable else {}), values.astype(np.float64)


def _missing(rng: np.random.Generator, values: np.ndarray, share: float | np.ndarray) -> np.ndarray:
    return np.where(rng.random(len(values)) < share, np.nan, values)


def _logistic(score: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-score))


def loans(rng: np.random.Generator, n: int) -> Columns:
    """Draw loans: heavy tails, counts with spikes at 0, nulls that tell of risk, 20 % defaulted."""
    wealth, care = rng.normal(size=(2, n))
    job = rng.choice(6, n, p=[.42, .22, .16, .12, .05, .03])
    value = np.exp(11.4 + 0.45 * wealth + 0.25 * rng.normal(size=n))
    mortgage = value * rng.beta(7, 3, n)
    loan = np.exp(9.6 + 0.3 * wealth + 0.5 * rng.normal(size=n))
    derogatory = rng.poisson(np.exp(-2.2 - 1.1 * care))
    delinquent = rng.poisson(np.exp(-1.8 - 1.2 * care))
    inquiries = rng.poisson(np.exp(-0.1 - 0.4 * care))
    ratio = 34 - 3 * care + 8 * rng.standard_t(4, n)
    age = rng.gamma(4, 45, n) * np.exp(0.15 * care)
    risk = (-2.35 + 0.75 * derogatory + 0.7 * delinquent + 0.16 * inquiries + 0.07 * (ratio - 34)
            - 0.004 * (age - 180) - 0.3 * wealth + np.array([0, .1, -.5, .3, .9, 1.2])[job])
    default = rng.random(n) < _logistic(risk)
    untold = np.where(default, 0.45, 0.12)  # the ratio of those who default is often missing
    return {
        "loan": _integer(1000, 90000, loan),
        "mortgage": _integer(0, 400000, _missing(rng, mortgage, 0.09), True),
        "value": _integer(8000, 900000, _missing(rng, value, 0.02), True),
        "reason": _category("debts home", _missing(rng, (rng.random(n) < 0.3 + 0.1 * (loan > 2e4)),
                                                   0.04), True),
        "job": _category("other office manager self sales military", job),
        "years_in_job": _continuous(0, 45, _missing(rng, rng.exponential(9, n), 0.09), True),
        "derogatory": _integer(0, 10, _missing(rng, derogatory, 0.12), True),
        "delinquent": _integer(0, 15, _missing(rng, delinquent, 0.1), True),
        "oldest_line": _continuous(0, 1200, age),
        "inquiries": _integer(0, 17, inquiries),
        "lines": _integer(0, 70, rng.gamma(4, 5, n) + 2 * wealth),
        "debt_ratio": _continuous(0, 200, _missing(rng, ratio, untold), True),
        "defaulted": _category("no yes", default)}


def rare(rng: np.random.Generator, n: int) -> Columns:
    """Draw records of which 2 % are positive: four numbers and a category differ, ten do not."""
    positive = rng.random(n) < 0.02
    columns: Columns = {}
    for i in range(10):
        moved = 1.6 * positive * (i < 4) * (-1) ** i
        columns[f"x{i}"] = _continuous(-8, 8, rng.normal(size=n) + moved)
    kinds = np.where(positive, rng.choice(5, n, p=[.1, .1, .1, .2, .5]),
                     rng.choice(5, n, p=[.4, .3, .15, .1, .05]))
    columns["kind"] = _category("a b c d e", kinds)
    columns["visits"] = _integer(0, 40, rng.geometric(0.25, n) - 1)
    columns["region"] = _category("n e s w", rng.integers(0, 4, n))
    columns["age"] = _integer(18, 95, rng.normal(50, 16, n))
    columns["positive"] = _category("no yes", positive)
    return columns


def dense(rng: np.random.Generator, n: int) -> Columns:
    """Draw 16 columns that all hang on three hidden causes, so that no tree holds their law.

    Returns:
      The columns; the label is `outcome`, which two of the causes decide together.
    """
    causes = rng.normal(size=(3, n))
    weights = np.random.default_rng(11).normal(size=(15, 3))  # of the law, not of the draw
    columns: Columns = {}
    for i, weight in enumerate(weights / np.linalg.norm(weights, axis=1)[:, None]):
        value = weight @ causes + 0.35 * rng.normal(size=n)
        if i % 3 == 0:
            columns[f"level{i}"] = _category("a b c d e", np.digitize(value, [-1.2, -.4, .4, 1.2]))
        elif i % 3 == 1:
            columns[f"size{i}"] = _continuous(0, 60, 3 * np.exp(value))
        else:
            columns[f"count{i}"] = _integer(0, 20, 7 + 3 * value)
    score = 1.2 * causes[0] * causes[1] + 1.5 * causes[2] - 0.4
    columns["outcome"] = _category("no yes", rng.random(n) < _logistic(2 * score))
    return columns


def scale(rng: np.random.Generator, n: int) -> Columns:
    """Draw 20 columns for timings: twelve numbers, seven categories and a label."""
    hidden = rng.normal(size=n)
    columns: Columns = {
        f"x{i}": _integer(0, 999, 500 + 120 * (hidden * (i % 3) / 2 + rng.normal(size=n)))
        for i in range(12)}
    columns |= {f"c{i}": _category("a b c d e f g h", np.clip(np.rint(
        3.5 + hidden * (i % 2) + 1.5 * rng.normal(size=n)), 0, 7)) for i in range(7)}
    columns["label"] = _category("no yes", rng.random(n) < _logistic(2 * hidden - 1))
    return columns


LAWS = {"loans": loans, "rare": rare, "dense": dense, "scale": scale}


SEED = 20_2611
TRAIN_PART, VALIDATION_PARTS = 0.8, 4


@dataclasses.dataclass(frozen=True)
class Source:
    """A table: what it is, and a function that loads it."""

    about: str
    load: Callable[[], Dataset]


def _split(name: str, document: dict[str, Any], codes: np.ndarray, y: np.ndarray) -> Dataset:
    """Return a data set of which a fifth of the rows, drawn by a public seed, is held out."""
    order = np.random.default_rng(0).permutation(len(y))
    train, test = ([Coded(codes[rows], y[rows].astype(np.int32), name)]
                   for rows in np.split(order, [int(TRAIN_PART * len(order))]))
    return tables.table(name, schema.parse(document, name), train, test, ("public data",))


def _of_a_law(name: str, n: int) -> Dataset:
    """Return a data set of n rows of a law; the label is its last column."""
    columns = LAWS[name](np.random.default_rng([SEED, n]), n)
    *_, label = columns
    document = {"label": label, "columns": {c: entries for c, (entries, _) in columns.items()}}
    *features, y = (values for _, values in columns.values())
    return _split(name, document, np.stack(features, 1), y)


def _of_scikit_learn(name: str) -> Dataset:
    """Return a table that scikit-learn ships, with round public bounds."""
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    x, y, classes = bunch.data, bunch.target, [str(c) for c in getattr(bunch, "target_names", [])]
    names = [str(c).replace("/", "_") for c in bunch.feature_names]
    if name == "digits":
        entries = [{"kind": "integer", "min": "0", "max": "16"}] * 64
    elif name == "wine":
        # Twice the largest value of the published table, to one digit.
        entries = [{"kind": "continuous", "min": "0", "max": f"{2 * top:.0e}"} for top in x.max(0)]
    else:  # diabetes, whose columns are standardised, and whose target is a number from 25 to 346
        entries = [{"kind": "continuous", "min": "-0.2", "max": "0.2"}] * x.shape[1]
        y, classes = y > 140, ["slow", "fast"]
    columns = dict(zip(names, entries, strict=True))
    columns["class"] = {"kind": "categorical", "categories": classes}
    return _split(name, {"label": "class", "columns": columns}, x, y)


def _credit() -> Dataset:
    found = data.load("csv:creditcard_20pct/train.csv.gz", schema="creditcard",
                      test_csv="creditcard_20pct/test.csv.gz")
    return dataclasses.replace(found, name="credit")


SOURCES = {
    "adult": Source("Adult (UCI census income)", lambda: data.load("adult:adult")),
    "credit": Source("credit card frauds, a fifth of the published file, 78 frauds", _credit),
    "breast_cancer": Source("Wisconsin breast cancer", lambda: data.load("breast_cancer")),
    "digits": Source("handwritten digits as 64 columns, ten classes",
                     lambda: _of_scikit_learn("digits")),
    "diabetes": Source("diabetes progression above 140", lambda: _of_scikit_learn("diabetes")),
    "wine": Source("wines of three growers", lambda: _of_scikit_learn("wine")),
    "loans": Source("a law: skewed numbers, nulls that tell something, a fifth positive",
                    lambda: _of_a_law("loans", 7450)),
    "rare": Source("a law: 2 % positive", lambda: _of_a_law("rare", 20_000)),
    "dense": Source("a law: 16 columns that all hang together", lambda: _of_a_law("dense", 12_500)),
    "scale": Source("a law: a million rows of 20 columns, for timings",
                    lambda: _of_a_law("scale", 1_250_000)),
}
COMPARED = tuple(name for name in SOURCES if name != "scale")


@functools.cache
def load(name: str, part: str = "test") -> Dataset:
    """Load a table.

    Args:
      part: "test" for all training rows and the test rows; "validation" for three quarters of the
        training rows and, in place of the test rows, the others: settings are chosen there.
    """
    return SOURCES[name].load() if part == "test" else validation(name, 0)


def validation(name: str, index: int) -> Dataset:
    """Load a table with one of four parts of its training rows, by index, in place of test rows."""
    found = SOURCES[name].load()
    ranks = np.ascontiguousarray(held_out_hashes(found.x_train,
                                                 found.y_train)[:, :8]).view("<u8")[:, 0]
    outside = ranks % VALIDATION_PARTS == index
    return dataclasses.replace(
        found, x_train=found.x_train[~outside], y_train=found.y_train[~outside],
        x_test=found.x_train[outside], y_test=found.y_train[outside])


def write(dataset: Dataset, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    codes = transform.decode(dataset.spec, dataset.x_train)
    files.write_csv(folder / "train.csv", codes, dataset.y_train, dataset.spec)
    (folder / "schema.yaml").write_text(json.dumps(document(dataset.spec), indent=1))


def document(spec: TableSpec) -> dict[str, Any]:
    """Return a schema as its file has it."""
    columns = list(spec.columns)
    columns.insert(spec.label_position, spec.label)
    return {"label": spec.label.name, "columns": {c.name: _entries(c) for c in columns}}


def _entries(column: Column) -> dict[str, Any]:
    nullable = {"nullable": True} if column.nullable else {}
    if column.categories:
        return {"kind": column.kind, "categories": list(column.categories)} | nullable
    return {"kind": column.kind, "min": column.low, "max": column.high} | nullable


def read(path: Path, spec: TableSpec) -> tuple[np.ndarray, np.ndarray]:
    """Read synthetic rows by the schema: encoded float32 [n, F], and labels int32 [n]."""
    declared = schema.read(str(path.with_name("schema.yaml")))
    found = tables.csv(str(path), dataclasses.replace(declared, spec=spec))
    return found.x_train, found.y_train
