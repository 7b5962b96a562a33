"""The two federations of the debugging task: clients believed to be sound, and suspect ones.

Source: Augenstein et al. 2020 (arXiv 1911.06679), section 6; GS-WGAN (arXiv 2006.08265), appendix
C.2. A CNN reads the records of all clients. Those whom it reads best are believed to be sound (866
of 3,400 writers); then half of all clients invert their images, and those whom it reads worst are
suspect (2,136, of whom 1,720 invert). Here the bounds are the quartiles of the accuracies without
the fault, unless they are named.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flax.serialization import msgpack_restore, msgpack_serialize, to_state_dict

from benchmarks import training
from dpgen_jax import data, presets
from dpgen_jax.accountant import events
from dpgen_jax.accountant.ledger import account, read
from dpgen_jax.core.config import Budget
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.types import EMPTY
from dpgen_jax.data import clients
from dpgen_jax.data.clients import Classifier, Range
from dpgen_jax.evaluation import fidelity
from dpgen_jax.run import lifecycle, planning

CHOICES = ("halves", "private", "public", "bought")
"""How clients are chosen: by number alone; by a CNN trained on their records, as the papers do,
which no epsilon covers; by a CNN trained on public images; by one trained on what a share of
epsilon bought."""
FAULTY = {"halves": 0.8, "private": 0.5, "public": 0.5, "bought": 0.5}
"""The share of clients with the fault: of the suspect half, or of all clients."""
READER_SAMPLES = 10_000
"""Synthetic images from which a bought CNN learns."""


@dataclasses.dataclass(frozen=True)
class Federation:
    """The clients of one run.

    Attributes:
        name: "sound" or "suspect".
        dataset: Their records.
        clients: How many take part with their records.
        faulty: How many of these invert their images.
    """

    name: str
    dataset: data.Dataset
    clients: int
    faulty: int


@dataclasses.dataclass(frozen=True)
class Options:
    """How clients are chosen.

    Attributes:
        choice: One of CHOICES.
        accuracy: The most of suspect clients and the least of sound ones; None for the quartiles,
            which are read from the clients' records.
        public: The images that a public CNN learns from.
        epsilon: What a bought CNN may cost.
        delta: Of the same promise.
        reader: Where the run that pays for a bought CNN is kept.
        preset: The preset of Fed-Avg GAN for that run.
        course: How a CNN is trained.
    """

    choice: str
    accuracy: tuple[float, float] | None = None
    public: data.Dataset | None = None
    epsilon: float = 1.0
    delta: float = 1e-5
    reader: Path | None = None
    preset: str = "femnist"
    course: fidelity.Course = fidelity.FULL


def named(dataset: data.Dataset, count: int) -> data.Dataset:
    """Return the data set with clients: those that it names, or `count` simulated ones."""
    return dataset if dataset.clients is not None else clients.split(dataset, count, None, seed=0)


def federations(dataset: data.Dataset, options: Options, cnn: fidelity.Judge) -> dict[str,
                                                                                      Federation]:
    """Choose the clients of both federations.

    Args:
      dataset: Images whose clients are named, without the fault.
      options: How clients are chosen.
      cnn: A classifier trained on the clients' records.

    Returns:
      The federations by name.

    Raises:
      UserError: Too few clients are chosen, or the bounds are missing.
    """
    if options.choice == "halves":
        return _halves(dataset, FAULTY["halves"])
    with_fault, faulty = clients.flipped(dataset, FAULTY[options.choice], seed=0)
    worlds = {"sound": (dataset, faulty[:0]), "suspect": (with_fault, faulty)}
    if options.choice == "private":
        return _private(worlds, options, _reads(cnn))
    if options.accuracy is None:
        raise UserError("without a look at private records the accuracies by which clients are "
                        "chosen must be named: pass --accuracy LOW HIGH")
    reads, origin, rows = _reader(dataset, options)
    ranges = _ranges(*options.accuracy)
    return {name: _federation(name, clients.emptied(world, reads, ranges[name], origin, rows),
                              faulty) for name, (world, faulty) in worlds.items()}


def _halves(dataset: data.Dataset, share: float) -> dict[str, Federation]:
    """Deal clients to both by a public seed; some of the second half invert their images."""
    count = int(dataset.clients.max()) + 1
    first = np.random.default_rng(0).permutation(count) < count // 2
    suspect, faulty = clients.flipped(clients.part_of(dataset, ~first), share, seed=0)
    return {"sound": _federation("sound", clients.part_of(dataset, first), faulty[:0]),
            "suspect": _federation("suspect", suspect, faulty)}


def _private(worlds: dict[str, tuple[data.Dataset, np.ndarray]], options: Options,
             reads: Classifier) -> dict[str, Federation]:
    """Choose as the papers do, which every run states as not covered."""
    accuracy = {name: clients.accuracies(world, reads) for name, (world, _) in worlds.items()}
    low, high = options.accuracy or np.nanquantile(accuracy["sound"], (0.25, 0.75)).tolist()
    result = {}
    for name, (world, faulty) in worlds.items():
        taking_part = _ranges(low, high)[name]
        stays = taking_part.contains(accuracy[name])
        part = clients.left_out(world, stays, "those whose records a classifier reads with "
                                f"an accuracy {taking_part}")
        result[name] = Federation(name, part, int(stays.sum()), int(stays[faulty].sum()))
    return result


def _ranges(low: float, high: float) -> dict[str, Range]:
    """Return the accuracies of both federations."""
    return {"sound": Range(least=high), "suspect": Range(most=low)}


def _federation(name: str, part: data.Dataset, faulty: np.ndarray) -> Federation:
    """Count the clients with records, all told and faulty."""
    present = np.unique(part.clients[part.y_train != EMPTY])
    return Federation(name, part, len(present), int(np.isin(faulty, present).sum()))


def _reads(cnn: fidelity.Judge) -> Classifier:
    return lambda x: cnn.see(x)[1].argmax(1)


def _reader(dataset: data.Dataset, options: Options
            ) -> tuple[Classifier, str, tuple[dict[str, Any], ...]]:
    """Return a classifier that no private record decided about, its origin, and what it cost."""
    if options.choice == "public":
        public = options.public
        if public is None:
            raise UserError("a public classifier needs public images: pass --public DATASET")
        if public.spec != dataset.spec or public.x_test is None:
            raise UserError(f"{public.name} is {public.spec}, the clients' records {dataset.spec}; "
                            "public images need the same schema, and a held-out part")
        cnn = fidelity.train_judge((public.x_train, public.y_train), (public.x_test, public.y_test),
                                   options.course)
        return _reads(cnn), f"trained on {public.name}, which is public", ()
    release, rows = _bought(dataset, options)
    x, y = release.sample(READER_SAMPLES, seed=0)
    cut = READER_SAMPLES // 10
    cnn = fidelity.train_judge((x[cut:], y[cut:]), (x[:cut], y[:cut]), options.course)
    return _reads(cnn), (f"trained on samples of a release of Fed-Avg GAN on these clients, for "
                         f"epsilon {options.epsilon:g}"), rows


def _bought(dataset: data.Dataset, options: Options
            ) -> tuple[lifecycle.Release, tuple[dict[str, Any], ...]]:
    """Train Fed-Avg GAN over all clients; also return the events that this costs."""
    config = presets.get("fedavg_gan", options.preset)[1].config
    everyone, config = planning.federated(dataset, config)
    release = trained(lifecycle.Request(
        "fedavg_gan", options.preset, config, Budget(options.epsilon, options.delta),
        out=options.reader), everyone)
    spent = account(read(RunFolder(options.reader).ledger)).spent()
    return release, tuple(events.to_json(spent))


def trained_once(path: Path, train: Callable[[], fidelity.Judge]) -> fidelity.Judge:
    """Return the CNN of a file, or train it and write the file: a choice by it stays the same.

    Args:
      path: The file; it is as private as the records that the CNN learnt from.
      train: Trains the CNN.

    Returns:
      The CNN.
    """
    if not path.exists():
        cnn = train()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_bytes(msgpack_serialize(to_state_dict(vars(cnn))))
        part.replace(path)
    return fidelity.Judge(**msgpack_restore(path.read_bytes()))


def trained(request: lifecycle.Request, dataset: data.Dataset) -> lifecycle.Release:
    """Run a request, or go on with it; one that is finished is loaded.

    Args:
      request: What is asked for, with the folder of the run.
      dataset: The records.

    Returns:
      The release.
    """
    if training.is_finished(request.out):
        return lifecycle.load(request.out)
    with training.unfinished(request.out):
        return training.run(dataclasses.replace(request, accept_uncovered=True), dataset)
