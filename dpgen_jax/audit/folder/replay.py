"""Replays non-interference on the records of a run: one record changes, and only one unit does.

The records are read as in the run, and recognised by the keyed fingerprint in private/. Then one of
them is replaced, and units are run on both sets of records.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax import methods
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.audit.findings import Findings
from dpgen_jax.audit.folder.leaks import Word
from dpgen_jax.audit.folder.reading import Folder
from dpgen_jax.core.config import DataOptions, to_json
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.core.types import EMPTY, ImageSpec, Method, Private, Records, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.data.table import parsing
from dpgen_jax.data.table.schema import dialect_of_header
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private import interference
from dpgen_jax.private import records as sealing
from dpgen_jax.private.records import Partition
from dpgen_jax.release import contents
from dpgen_jax.run import planning, reading

CHANGED, OTHERS, ROUNDS = 3, 2, 2
"""Number of records that are changed in turn, of units run in addition to theirs, and of rounds."""
SEARCHED = 40
"""most records and names of subjects to search for in the release"""
LONG_ENOUGH = 6
"""The fewest letters of a name to search for; a shorter one may be part of any word or number."""


def on_data(folder: Folder, place: str, options: DataOptions, findings: Findings) -> list[Word]:
    """Changes records of the run's data set, one at a time, and compares everything.

    Args:
        place: The data set, as for `data.load`.
        options: How it is read, if different from the run.

    Returns:
        What must not be in the release: some records, and names of subjects.

    Raises:
        UserError: The data cannot be read.
    """
    if folder.of_server:
        findings.unchecked("one record moves only its own unit", "a server has no records",
                           "audit the folders of its clients")
        return []
    dataset, config = as_read(folder, place, options)
    words = [*_records(dataset), *_subjects(dataset, place)]
    sealed = sealing.seal(dataset.x_train, dataset.y_train, dataset.spec)
    identity = read_json(folder.files.identity)
    if folder.of_client:
        known = sealing.fingerprint(sealed, bytes.fromhex(identity["key"]))
        findings.found("the records are those of this client", known == identity["fingerprint"])
        return words
    method = methods.get(folder.config["method"]).build(config, dataset.spec)
    key = bytes.fromhex(identity["partition_key"])
    dealt = planning.dealt(method, config, dataset, key)
    same = sealing.fingerprint(sealed, key, dealt) == identity["fingerprint"]
    findings.found("the records are those of the start of the run", same, "" if same else
                   f"{place} has other records, or they are read in another way")
    if same:
        _described(folder, dataset, method, findings)
        _disjoint(dealt, findings)
        _replayed(dataset, config, method, key, findings)
    return words


def as_read(folder: Folder, place: str, options: DataOptions) -> tuple[Dataset, Any]:
    """The data set as the run read it, and its configuration."""
    place = reading.with_kind(place)
    options = reading.stated_options(folder.root, folder.request, options)
    dataset = reading.load_as_noted(place, options, reading.noted_options(folder.root),
                                    contents.spec(folder.config["spec"]))
    if dataset.clients is None and folder.method_config.protects_clients:
        return planning.federated(dataset, folder.method_config,
                                  folder.mechanism.n_units, folder.request.alpha)
    return dataset, folder.method_config


def _described(folder: Folder, dataset: Dataset, method: Method, findings: Findings) -> None:
    """Compares the description of the data in config.json with that of the loader."""
    who = planning.protected_by(method, dataset)
    spec = to_json(dataset.spec)
    pairs = {"spec": ({k: v for k, v in spec.items() if k not in ("class_names", "targets")},
                      folder.config["spec"]),
             "not_covered": (list(who.uncovered), folder.config.get("not_covered")),
             "data_notes": (list(dataset.notes), folder.config.get("data_notes")),
             "records": (who.counts.get("records"), folder.config.get("records"))}
    wrong = [name for name, (one, other) in pairs.items() if one != other]
    findings.found("config.json describes the data as the loader does", not wrong,
                   f"{', '.join(wrong)} differ" if wrong else "schema, number, and notes")


def _disjoint(dealt: Partition, findings: Findings) -> None:
    """Checks that no record is in two units."""
    each = [np.unique(row) for row in dealt.index]
    everyone = np.concatenate(each)
    twice = len(everyone) - len(np.unique(everyone))
    findings.found("no record belongs to two units", not twice,
                   f"{twice} records belong to more than one unit" if twice else
                   f"{len(each):,} units of at most {dealt.index.shape[1]:,} records")


def _replayed(dataset: Dataset, config: MethodConfig, method: Method, key: bytes, findings: Findings
              ) -> None:
    """Changes records, one at a time, and runs their units and others."""
    public = jax.jit(method.init)(jax.random.key(0))
    query = jax.jit(method.ask)(jax.random.key(1), public)
    visit = interference.visitor(method, query, ROUNDS)
    private_input = told_to_a_unit(method)
    limit, first = method.mechanism.bound.squared_sensitivity(), _dealt(dataset, config, method,
                                                                        key)
    wrong, moved_at_all, most = "", 0, 0
    filled = np.flatnonzero(dataset.y_train != EMPTY)
    for record in (int(filled[secrets.randbelow(len(filled))]) for _ in range(CHANGED)):
        other = _dealt(neighbour(dataset, record), config, method, key)
        owners = set(np.flatnonzero((first[0].index == record).any(1)).tolist())
        others = {secrets.randbelow(method.mechanism.n_units) for _ in range(OTHERS)}
        for moved in interference.moved(visit, first[1], other[1], sorted(owners | others),
                                       private_input):
            changed = moved.state or moved.squared
            moved_at_all, most = moved_at_all + bool(changed), max(most, moved.squared)
            if changed and moved.unit not in owners:
                wrong = wrong or f"unit {moved.unit} changed, although it does not have the record"
            if moved.squared > limit:
                wrong = wrong or (f"a message moved by a squared distance of {moved.squared}, and "
                                  f"the bound says {limit}")
        if not np.array_equal(np.delete(first[0].index, sorted(owners), 0),
                              np.delete(other[0].index, sorted(owners), 0)):
            wrong = wrong or "records of other units were dealt again"
    findings.found("one record moves only its own unit, within the bound", not wrong, wrong or (
        f"{CHANGED} records replaced, each visited in {ROUNDS} rounds; {moved_at_all} visits "
        f"differed, by at most {most} of {limit} (squared); nothing else receives records"))


def told_to_a_unit(method: Method) -> np.ndarray:
    """Returns the private input of a unit that counts in a round; noise bits of a client are 0."""
    inputs = method.mechanism.private_inputs(SeededBits(0), np.zeros(1, np.int32), 0)
    return np.full(inputs.shape[2:], inputs.dtype != np.uint32, inputs.dtype)


def neighbour(dataset: Dataset, record: int) -> Dataset:
    """Returns the data set with the content and the label of one record replaced."""
    x, y = np.array(dataset.x_train), np.array(dataset.y_train)
    x[record] = (255 if x.dtype == np.uint8 else 1) - x[record]
    y[record] = (y[record] + 1) % dataset.spec.classes
    return dataclasses.replace(dataset, x_train=x, y_train=y)


def _dealt(dataset: Dataset, config: MethodConfig, method: Method, key: bytes
           ) -> tuple[Partition, Private[Records]]:
    partition = planning.dealt(method, config, dataset, key)
    sealed = sealing.seal(dataset.x_train, dataset.y_train, dataset.spec)
    return partition, sealing.deal(sealed, partition)


def _records(dataset: Dataset) -> list[Word]:
    """Some images of the training part, in the forms in which a file could contain them."""
    if not isinstance(dataset.spec, ImageSpec) or not len(dataset.y_train):
        return []
    chosen = {secrets.randbelow(len(dataset.y_train)) for _ in range(SEARCHED)}
    words: list[Word] = []
    for image in (np.ravel(dataset.x_train[i]) for i in sorted(chosen)):
        if len(np.unique(image)) > 8:  # an image of one colour may occur by chance
            words += [("a record", image.tobytes()),
                      ("a record", (image / np.float32(255)).astype("<f4").tobytes())]
    return words


def _subjects(dataset: Dataset, place: str) -> list[Word]:
    """Names of some subjects, from the file itself."""
    path = Path(place.partition(":")[2])
    if dataset.subjects is None or not path.is_file():
        return []
    with contextlib.suppress(UserError):
        names = {name for block in parsing.csv_blocks(path, dialect=dialect_of_header(path))
                 for name in block.columns.get(dataset.subjects.column, ())}
        long = sorted(name for name in names if len(name) >= LONG_ENOUGH)
        return [("the name of a subject", name.encode()) for name in long[:10 * SEARCHED]]
    return []
