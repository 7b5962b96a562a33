"""The judge of a run's generator: public records, or samples of an earlier release.

An earlier release tells of records. A generator that was picked by it tells what it tells, so that
all it cost is charged to this run as well, before the first step, and the steps get what is left.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from dpgen_jax import data
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core.config import MonitorOptions
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.data import Dataset, parts
from dpgen_jax.data.base import Uncovered
from dpgen_jax.release import contents, guarantee
from dpgen_jax.release.bundle import load
from dpgen_jax.run.folder import RunFolder, read_json

PREFIX = "release:"
NAMED = "release that judges: "
"""The start of the names of the events of the run whose release judges."""
SAMPLES = 2000
"""Records to test on."""
SEED = 7
"""The seed of the samples of a release."""
SAME = 0.5
"""The share of the records that judge from which on they are taken for those of the run itself."""

Rows = tuple[np.ndarray, np.ndarray]


def earlier(options: MonitorOptions) -> RunFolder | None:
    """Returns the run whose release judges, if one does."""
    place = options.public_dataset or ""
    return RunFolder(Path(place.removeprefix(PREFIX))) if place.startswith(PREFIX) else None


def cost(options: MonitorOptions, protects_clients: bool) -> Events:
    """Returns the events of the run whose release judges: those of all that it charged.

    They have names of their own. Where both runs have rounds of the same noise, or bought the same,
    equal events would pass for what the run that is judged has paid for already.

    Args:
        options: What the user wants to see.
        protects_clients: Whether the run that is judged promises something to clients.

    Raises:
        UserError: For a run without a release or a ledger, for one that guarantees nothing, for
            the release of another run, and for one that protects somebody else.
    """
    run = earlier(options)
    if run is None:
        return ()
    stamp = guarantee.of(load(run.root).privacy)
    if stamp.kind != "valid":
        raise UserError(f"the release of {run.root} cannot judge: its statement is '{stamp.text}', "
                        "and the promise of this run could be no better")
    if not run.ledger.is_file():
        raise UserError(f"{run.root} holds no {run.ledger.name}, which says what its release cost; "
                        f"name the folder of the run: {PREFIX}RUN")
    _require_own(run)
    totals = books.account(books.read(run.ledger))
    if protects_clients or totals.header["unit"] != Unit.RECORD:
        raise UserError(f"{run.root} protects a {totals.header['unit']}, and this run "
                        f"{'a client' if protects_clients else 'a record'}; a release judges where "
                        "both protect records")
    return tuple((dataclasses.replace(event, mechanism=NAMED + event.mechanism), count)
                 for event, count in totals.spent())


def _require_own(run: RunFolder) -> None:
    """Refuses a release that another run has made, of which earlier versions have kept no trace."""
    if not run.released.is_file():
        return
    there = contents.described(run.release / "config.json").get("generator_sha256")
    if read_json(run.released).get("generator_sha256") != there:
        raise UserError(f"the release in {run.root} is not the one that this run has made, so its "
                        f"{run.ledger.name} does not say what that cost; bring its own back")


def require_same_relation(options: MonitorOptions, mechanism: Mechanism) -> None:
    """Refuses to add up costs under two neighbouring relations.

    Args:
        options: What the user wants to see.
        mechanism: That of the run that is judged.

    Raises:
        UserError: Where the run whose release judges has another relation.
    """
    run = earlier(options)
    if run is None:
        return
    relation = books.account(books.read(run.ledger)).header["relation"]
    if relation != mechanism.relation:
        raise UserError(f"{run.root} promises {relation}, and this run {mechanism.relation}: their "
                        "costs do not add up; train both under one relation")


def identity(options: MonitorOptions) -> str:
    """Returns the id of the run whose release judges; empty where none does."""
    run = earlier(options)
    return run.run_id() if run else ""


def rows(options: MonitorOptions, spec: Spec) -> Rows | None:
    """Returns the records on which a classifier of samples is tested.

    Args:
        options: What the user wants to see.
        spec: The schema of the run's records.

    Returns:
        Images uint8 [n, H, W, ch] and labels [n], or None where nothing is named.

    Raises:
        UserError: For a table, and for records of another shape or classes.
    """
    place, run = options.public_dataset, earlier(options)
    if place is None:
        return None
    if isinstance(spec, TableSpec):
        raise UserError("--public-dataset works for images; a table is judged by its own samples")
    if run is not None:
        release = load(run.root)
        _require_alike(place, release.spec, spec)
        return release.sample(SAMPLES, seed=SEED)
    loaded = data.load(place, image_size=spec.height if spec.height == spec.width else None)
    _require_alike(place, loaded.spec, spec)
    x, y = loaded.x_train, loaded.y_train
    if loaded.x_test is not None and loaded.y_test is not None:
        x, y = loaded.x_test, loaded.y_test
    picked = np.random.default_rng(0).permutation(len(y))[:SAMPLES]
    return x[picked], y[picked]


def checked(options: MonitorOptions, dataset: Dataset, public: Rows | None) -> Dataset:
    """Returns the data set, which says so where its own records would judge the run.

    What they tell of a generator, and which one is kept, would be published, and no epsilon covers
    it. They are its own if they are read from the same files, or if most are the same; a few may be
    so by chance, as empty images are.

    Args:
        options: What the user wants to see.
        dataset: The records of the run.
        public: Those that judge, as `rows` returns them.
    """
    if public is None or earlier(options):
        return dataset
    lies_there = data.content(options.public_dataset or "")  # however it is read
    if not (lies_there and lies_there == dataset.content) and (
            parts.share_of(public[0], dataset) < SAME):
        return dataset
    what = (f"what --public-dataset {options.public_dataset} tells of generators, as it holds "
            "records of this run's own data set")
    return dataclasses.replace(dataset, uncovered=(*dataset.uncovered, Uncovered(
        what, "name a public data set of other records")))


def _require_alike(place: str, found: Spec, spec: ImageSpec) -> None:
    if found != spec:
        raise UserError(f"--public-dataset {place} holds {found}, the run makes {spec}; name one "
                        "of the same shape and classes")
