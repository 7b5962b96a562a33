"""Public tables with packaged schemas: `breast_cancer` (scikit-learn ships it) and `adult:DIR`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from dpgen_jax.core.types import UserError
from dpgen_jax.data import csv_files, schema, tables
from dpgen_jax.data.base import Dataset, locate
from dpgen_jax.data.parsing import Cells, Coded, coded

TRAIN_PART = 0.8
PUBLIC = ("public data",)


def breast_cancer() -> Dataset:
    """Loads scikit-learn's Wisconsin Diagnostic data.

    It has 455 train and 114 test rows of 30 numbers, by a fixed random split; the classes are
    malignant and benign.
    """
    from sklearn.datasets import load_breast_cancer  # slow to import

    source = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(source.data))
    train, test = ([Coded(source.data[rows], source.target[rows])]
                   for rows in np.split(order, [int(TRAIN_PART * len(order))]))
    return tables.table("breast_cancer", schema.packaged("breast_cancer"), train, test, PUBLIC)


def adult(path: str) -> Dataset:
    """Loads the UCI layout: adult.data and adult.test, plain or .gz; classes <=50K and >50K.

    Args:
        path: The folder.

    Raises:
        UserError: Naming the file and line.
    """
    folder, declared = locate(path), schema.packaged("adult")
    names = [column.name for column in declared.spec.columns] + [declared.spec.label.name]
    train, test = ([coded(declared, _adult_part(folder, name, names))]
                   for name in ("adult.data", "adult.test"))
    return tables.table("adult", declared, train, test, PUBLIC)


def _adult_part(folder: Path, name: str, names: list[str]) -> Cells:
    """Reads a part, without the remark of adult.test's first line and the dots of its labels."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            cells = csv_files.read(path, names, remark="|")
            label = [text.removesuffix(".") for text in cells.columns[names[-1]]]
            return dataclasses.replace(cells, columns={**cells.columns, names[-1]: label})
    raise UserError(f"{folder / name}[.gz] is missing; put it there or mend the folder")
