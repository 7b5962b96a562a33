"""The tables of the benchmark, each a `Dataset` with a held-out part and a public schema."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import laws
from dpgen_jax import data
from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data.base import Dataset
from dpgen_jax.data.parts import held_out_hashes
from dpgen_jax.data.table import schema, tables, transform
from dpgen_jax.data.table.parsing import Coded
from dpgen_jax.release import export

SEED = 20_2611
TRAIN_PART, VALIDATION_PARTS = 0.8, 4


@dataclasses.dataclass(frozen=True)
class Source:
    """A table: what it is, and a function that loads it.

    Attributes:
      about: What a reader of the results should know.
      load: A function without arguments.
    """

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
    columns: laws.Columns = getattr(laws, name)(np.random.default_rng([SEED, n]), n)
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
      name: A name of `SOURCES`.
      part: "test" for all training rows and the test rows; "validation" for three quarters of the
        training rows and, in place of the test rows, the others: settings are chosen there.

    Returns:
      The data set.
    """
    return SOURCES[name].load() if part == "test" else validation(name, 0)


def validation(name: str, index: int) -> Dataset:
    """Load one of the validation parts of a table: together they are its training rows.

    Args:
      name: A name of `SOURCES`.
      index: Its number, below `VALIDATION_PARTS`.

    Returns:
      The training rows of the other parts, and those of this one in place of test rows.
    """
    found = SOURCES[name].load()
    ranks = np.ascontiguousarray(held_out_hashes(found.x_train,
                                                 found.y_train)[:, :8]).view("<u8")[:, 0]
    outside = ranks % VALIDATION_PARTS == index
    return dataclasses.replace(
        found, x_train=found.x_train[~outside], y_train=found.y_train[~outside],
        x_test=found.x_train[outside], y_test=found.y_train[outside])


def write(dataset: Dataset, folder: Path) -> None:
    """Write the training rows as train.csv, and the schema as schema.yaml (JSON, which is YAML).

    Args:
      dataset: The data set.
      folder: Where; it is made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    codes = transform.decode(dataset.spec, dataset.x_train)
    export.write_csv(folder / "train.csv", codes, dataset.y_train, dataset.spec)
    (folder / "schema.yaml").write_text(json.dumps(document(dataset.spec), indent=1))


def document(spec: TableSpec) -> dict[str, Any]:
    """Return a schema as its file has it.

    Args:
      spec: The schema.
    """
    columns = list(spec.columns)
    columns.insert(spec.label_position, spec.label)
    return {"label": spec.label.name, "columns": {c.name: _entries(c) for c in columns}}


def _entries(column: Column) -> dict[str, Any]:
    nullable = {"nullable": True} if column.nullable else {}
    if column.categories:
        return {"kind": column.kind, "categories": list(column.categories)} | nullable
    return {"kind": column.kind, "min": column.low, "max": column.high} | nullable


def read(path: Path, spec: TableSpec) -> tuple[np.ndarray, np.ndarray]:
    """Read synthetic rows back by the schema.

    Args:
      path: A CSV file.
      spec: The schema.

    Returns:
      Encoded rows float32 [n, F] and labels int32 [n].

    Raises:
      UserError: A row breaks the schema.
    """
    declared = schema.read(str(path.with_name("schema.yaml")))
    found = tables.csv(str(path), dataclasses.replace(declared, spec=spec))
    return found.x_train, found.y_train
