"""Completes rows of a table: their missing cells are drawn, conditioned on those that are there.

The model is conditioned on the cells of each row, but for columns that constraints compute or that
are learned by how far they lie above another one. Of a number it is the cell of its histogram. What
is drawn must then keep the constraints together with the cells that are there.

Completed rows hold real cells, so no epsilon covers them. To complete training rows of which a cell
was removed is an attribute attack on the release.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import listed, nearest
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, TableSpec, UserError, Wanted
from dpgen_jax.data.table import constraints, frames, parsing, transform
from dpgen_jax.release import bundle, contents
from dpgen_jax.release import frames as synthetic
from dpgen_jax.release.bundle import Release
from dpgen_jax.release.sampling import CHUNK, finished, key_at

if TYPE_CHECKING:
    import pandas as pd

STAMP = "not covered: these rows hold real cells, which no epsilon covers"
OTHER = "other"
"""The category of a bought schema that takes all texts that were not found."""
TRIES = 4
"""Chunks of drawn rows among which those that keep the constraints are looked for."""


def complete(release: Release, frame: pd.DataFrame, *, seed: int | None = None,
             out: str | Path | None = None) -> pd.DataFrame:
    """Draws the missing cells of rows, conditioned on the cells that are there.

    What comes out holds the real cells of `frame`: it is not a release, and no epsilon covers it.

    Args:
        release: A release of a table whose model can be conditioned, as that of `marginals`.
        frame: Rows with some or all columns of the table. Missing cells and columns are drawn;
            null is a missing cell, and is drawn as a value.
        seed: Repeats a draw.
        out: A folder to write, which must not exist and not lie in a release: completed.csv, and
            a README.txt with the stamp.

    Returns:
        The rows in the types of the schema; `attrs["guarantee"]` says that they are not covered.

    Raises:
        UserError: The release cannot be conditioned, or a cell or column does not fit its schema.
    """
    spec = release.spec
    method = bundle.built_model(release.method, release.config, spec)
    if not isinstance(spec, TableSpec) or method.conditional is None:
        raise UserError(f"complete needs a model that can be conditioned, and {release.method} "
                        "draws whole records only: train `marginals` on the table")
    place = None if out is None else Path(out)
    if place is not None:
        contents.refuse_shared(place, "completed rows hold real cells")
        if place.exists():
            raise UserError(f"{place} exists; name another folder")
    known = _codes(spec, frame)
    completed, unmet = _completed(release, spec, known, secrets.randbits(31) if seed is None
                                  else int(seed))
    if unmet:
        tell(f"private: {unmet:,} of {len(known):,} rows: nothing that was drawn keeps the "
             "constraints of the schema together with the cells that are there; their missing "
             "cells stay missing", sys.stderr)
    made = _merged(spec, frame, completed)
    made.attrs["guarantee"] = STAMP
    if place is not None:
        _write(place, made)
    return made


def _codes(spec: TableSpec, frame: pd.DataFrame) -> np.ndarray:
    """Returns the codes of a frame, float64 [n, columns and the label], NaN where a cell misses."""
    names = frames.names_of_frame(frame)
    columns = {column.name: column for column in spec.all_columns}
    apart = {*spec.left_out, *(identifier.name for identifier in spec.identifiers)}
    for name in names:
        if name not in columns and name not in apart:
            raise UserError(f"frame: column {name!r} is not a column of the "
                            f"release{nearest(name, columns)}; it has: {listed(columns)}")
    read = frame.iloc[:, [i for i, name in enumerate(names) if name in columns]]
    cells = frames.cells_of_frame("frame", read, spec)
    codes = np.full((len(frame), len(spec.columns) + 1), np.nan)
    for place, column in [*enumerate(spec.columns), (len(spec.columns), spec.label)]:
        if column.name in cells.columns:
            codes[:, place] = parsing.parse(
                dataclasses.replace(column, nullable=True), cells,
                OTHER if OTHER in column.categories else None)
    return codes


def _completed(release: Release, spec: TableSpec, known: np.ndarray, seed: int
               ) -> tuple[np.ndarray, int]:
    """Returns the codes of completed rows, and how many rows nothing was found for."""
    completed, unmet = known.copy(), 0
    key = jax.random.key(seed)
    alike: dict[bytes, list[int]] = {}
    for place, row in enumerate(known):
        if np.isnan(row[:len(spec.all_columns)]).any():
            alike.setdefault(row.tobytes(), []).append(place)
    for number, places in enumerate(alike.values()):
        found = list(_drawn(release, spec, known[places[0]], len(places),
                            jax.random.fold_in(key, number)))
        for place, made in zip(places, found, strict=False):
            completed[place] = made
        unmet += len(places) - len(found)
    return completed, unmet


def _drawn(release: Release, spec: TableSpec, row: np.ndarray, count: int, key: jax.Array
           ) -> Iterator[np.ndarray]:
    """Yields rows that hold the cells of a row, and keep the constraints; `count` at most."""
    model, shares = _conditioned(release, spec, row)
    sample = bundle.compiled_model(release.method, release.config, spec)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    there, left = ~np.isnan(row), count
    names = [column.name for column in spec.columns]
    for start in range(0, (TRIES + count // CHUNK) * CHUNK, CHUNK):
        y = rng.choice(len(shares), CHUNK, p=shares).astype(np.int32)
        x = np.asarray(sample(model, key_at(jax.random.fold_in, key, start), y))
        table = np.column_stack([finished(spec, x, y).codes, y])
        for low, high in spec.gaps:  # the higher one stays as far above the lower one
            low_at, high_at = names.index(low), names.index(high)
            if there[low_at] and not there[high_at]:
                table[:, high_at] = np.clip(
                    table[:, high_at] + row[low_at] - table[:, low_at],
                    spec.columns[high_at].low, spec.columns[high_at].high)
        table[:, there] = row[there]
        if spec.constraints:
            made = constraints.mended(spec, table[:, :-1], table[:, -1].astype(np.int32)).codes
            # Numbers there are rounded to six digits.
            kept = np.isclose(made[:, there[:-1]], row[:-1][there[:-1]], rtol=1e-5).all(1)
            table[:, :-1] = np.where(there[:-1], row[:-1], made)
            table = table[kept]
        yield from table[:left]
        left -= min(left, len(table))
        if not left:
            return


def _conditioned(release: Release, spec: TableSpec, row: np.ndarray) -> tuple[Json, np.ndarray]:
    """Returns the model conditioned on a row's cells, and the shares of the classes [C].

    A value that the model never makes together with those before it is left out of the condition.
    """
    method = bundle.built_model(release.method, release.config, spec)
    assert method.conditional is not None and method.class_shares is not None
    apart = {*spec.derived, *(high for _, high in spec.gaps)}
    wanted = {column.name: _wanted(column, code) for column, code in zip(
        spec.columns, row[:-1], strict=True) if column.name not in apart and (
            not np.isnan(code) or column.nullable)}
    if spec.labelled and not np.isnan(row[-1]):
        wanted[spec.label.name] = Wanted((float(row[-1]),))
    try:
        model, _ = method.conditional(release.model, wanted)
    except UserError:  # one value at a time, the label first
        model = release.model
        kept: dict[str, Wanted] = {}
        for name in sorted(wanted, key=lambda name: name != spec.label.name):
            try:
                model, _ = method.conditional(release.model, kept | {name: wanted[name]})
                kept[name] = wanted[name]
            except UserError:
                continue
    prior = release.class_shares
    before, after = (np.asarray(method.class_shares(arrays), np.float64)
                     for arrays in (release.model, model))
    if prior is None:
        prior = np.full(spec.classes, 1 / spec.classes)
    weights = prior * np.divide(after, before, where=before > 0, out=np.zeros(len(before)))
    if spec.labelled and not np.isnan(row[-1]):
        weights = np.arange(spec.classes) == row[-1]
    return model, np.asarray(weights / weights.sum(), np.float64)


def _wanted(column: Column, code: float) -> Wanted:
    """Returns what a cell that is there may be: its value; of one that misses, any but null."""
    if np.isnan(code):
        codes = range(len(column.categories)) if column.categories else column.special
        return Wanted(tuple(map(float, codes)), *(() if column.categories else (0.0, 1.0)))
    if column.categories or code in column.special:
        return Wanted((float(code),))
    at = float(transform.unit(column, np.clip([code], column.low, column.high))[0])
    return Wanted((), at, at)


def _merged(spec: TableSpec, frame: pd.DataFrame, codes: np.ndarray) -> pd.DataFrame:
    """Returns completed rows as a frame, in which numbers that were there keep all digits."""
    label = np.nan_to_num(codes[:, -1]).astype(np.int32)
    made = synthetic.to_frame(spec, codes[:, :-1], label)
    came = dict(zip(frames.names_of_frame(frame), range(frame.shape[1]), strict=True))
    for column in spec.all_columns:
        null = np.isnan(codes[:, -1 if column is spec.label else spec.columns.index(column)])
        if null.any() and not column.nullable:  # nothing was found for them
            made[column.name] = made[column.name].mask(null)
        if column.kind == "continuous" and transform.is_plain(column) and column.name in came:
            there = frame.iloc[:, came[column.name]]
            if there.dtype.kind == "f":
                made[column.name] = np.where(there.isna(), made[column.name], there)
    return made.set_axis(frame.index)


def _write(place: Path, made: pd.DataFrame) -> None:
    """Writes completed rows and their stamp, into a folder that nobody else may read."""
    place.mkdir(mode=0o700, parents=True)
    (place / "README.txt").write_text(f"Guarantee: {STAMP}. Never share them as synthetic.\n")
    with os.fdopen(os.open(place / "completed.csv", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
                   "w", encoding="utf-8", newline="") as file:
        made.to_csv(file, index=False)
