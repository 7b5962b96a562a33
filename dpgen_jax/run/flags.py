"""Train: the flags of a training, which its stages read before there is a request."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import tyro

from dpgen_jax.core import cli
from dpgen_jax.core.config import MonitorOptions, Runtime
from dpgen_jax.core.data_options import DataOptions
from dpgen_jax.core.hosts import Hosts

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Train(Generic[Config]):
    """The flags of `python -m dpgen_jax.train`, for a method whose configuration is a `Config`."""

    preset: str
    """whose values are the defaults; chosen for the data if left out"""
    epsilon: float
    """the promise; inf: no privacy"""
    delta: float
    """must lie below 1 / records"""
    class_epsilon: float
    """of epsilon, for noisy class counts by which labels are sampled; 0: classes in equal shares"""
    config: Annotated[Config, cli.FLAT]
    dataset: str = "glyphs"
    """what to train on: a file or folder, glyphs, or SOURCE:PLACE as the documentation lists data
    sets"""
    out: Path | None = None
    """run folder; runs/METHOD-DATASET-TIME if left out"""
    release_to: str | None = None
    """an address (gs://BUCKET/FOLDER, s3://BUCKET/FOLDER) that the finished release is copied to"""
    total_epsilon: float | None = None
    """refuse a run with which all runs on these records, as far as this machine's journal knows
    them, would go beyond this epsilon"""
    resume: bool = False
    """go on: `--resume RUN` needs nothing else; without RUN, with the run in --out"""
    dry_run: bool = False
    """say what would be trained, and with what noise; nothing is written or spent"""
    seed: int | None = None
    """repeats a run bit for bit; then there is NO privacy claim"""
    schema_share: float = 0.1
    """of epsilon and delta, for kinds, bounds and categories of a csv that nobody declared"""
    accept_uncovered: bool = False
    """release public fields that were read from private records, and say so in the statement"""
    clients: int | None = None
    """simulated clients to deal the records to: with --federated, or for a method of clients"""
    alpha: float | None = None
    """with --clients: how much they differ, Dirichlet(alpha) by class; evenly if left out"""
    data: Annotated[DataOptions, cli.FLAT] = DataOptions()
    monitor: Annotated[MonitorOptions, cli.FLAT] = MonitorOptions()
    runtime: Annotated[Runtime, cli.FLAT] = Runtime()
    meeting: Annotated[Hosts, cli.FLAT] = Hosts()


@dataclasses.dataclass(frozen=True)
class TrainClients(Train[Config], Generic[Config]):
    """The flags for a method whose configuration has the number of clients itself."""

    clients: Annotated[int | None, tyro.conf.Suppress] = None
