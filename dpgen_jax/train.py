"""python -m dpgen_jax.train [METHOD] [--dataset D] [--preset NAME] [--epsilon E] [--out DIR] ..."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from dpgen_jax import methods, presets, schema
from dpgen_jax.core import cli
from dpgen_jax.core.config import Budget, MonitorOptions, Runtime
from dpgen_jax.core.data_options import DataOptions

Config = TypeVar("Config")
DESCRIPTION = ("Trains a generator under differential privacy. Every field of the method's "
               "configuration is a flag; the defaults are those of the preset.")


@dataclasses.dataclass(frozen=True)
class Train(Generic[Config]):
    """The flags."""

    preset: str
    """whose values are the defaults"""
    epsilon: float
    """the promise; inf: no privacy"""
    delta: float
    """must lie below 1 / records"""
    class_epsilon: float
    """of epsilon, for noisy class counts by which labels are sampled; 0: classes in equal shares"""
    config: Annotated[Config, cli.FLAT]
    dataset: str = "glyphs"
    """what to train on: glyphs, or SOURCE:PLACE as the documentation lists data sets"""
    out: Path | None = None
    """run folder; runs/METHOD-DATASET-TIME if left out"""
    total_epsilon: float | None = None
    """refuse a run with which all runs on these records, as far as this machine's journal knows
    them, would go beyond this epsilon"""
    resume: bool = False
    """go on with the run in --out"""
    seed: int | None = None
    """repeats a run bit for bit; then there is NO privacy claim"""
    accept_uncovered: bool = False
    """release public fields that were read from private records, and say so in the statement"""
    clients: int | None = None
    """simulated clients to deal the records to: with --federated, or for a method of clients"""
    alpha: float | None = None
    """with --clients: how much they differ, Dirichlet(alpha) by class; evenly if left out"""
    data: Annotated[DataOptions, cli.FLAT] = DataOptions()
    monitor: Annotated[MonitorOptions, cli.FLAT] = MonitorOptions()
    runtime: Annotated[Runtime, cli.FLAT] = Runtime()


@dataclasses.dataclass(frozen=True)
class TrainClients(Train[Config], Generic[Config]):
    """The flags for a method whose configuration has the number of clients itself."""

    clients: Annotated[int | None, tyro.conf.Suppress] = None


def parse(method: str, argv: list[str]) -> Train[Any]:
    """Parses the flags, whose defaults are those of the preset, or of the data set's default one.

    The configuration of the method is a type parameter of the flags and not a tyro subcommand:
    subcommands would load all methods and all presets, whichever is trained.

    Args:
        method: The name of the method.
        argv: The arguments behind it.

    Raises:
        UserError: For an unknown method or preset, and from the parser.
    """
    module = methods.get(method)
    dataset = "federated" if "--federated" in argv else cli.peek(argv, "--dataset") or "glyphs"
    name, preset = presets.get(method, cli.peek(argv, "--preset"), dataset)
    clients = any(field.name == "clients" for field in dataclasses.fields(module.Config))
    kind: Any = TrainClients if clients else Train
    defaults = kind(name, preset.epsilon, preset.delta, preset.class_epsilon, preset.config)
    if cli.peek(argv, "--preset") is not None:
        from dpgen_jax.run import preset_data

        place = cli.peek(argv, "--dataset") or defaults.dataset
        defaults = dataclasses.replace(defaults, data=preset_data.options(preset, place))
    known = ", ".join(presets.all_of(method))
    parsed = cli.parse(kind[module.Config], argv, f"python -m dpgen_jax.train {method}",
                       f"{DESCRIPTION} Presets of {method}: {known}.", defaults)
    return dataclasses.replace(parsed, preset=name)  # an old name is reported once


def command(argv: list[str]) -> int | None:
    """Runs the command; returns its exit code. Raises: UserError, BudgetExceeded."""
    if cli.peek(argv, "--init-schema") is not None:
        cli.renamed("train --init-schema", "schema")
        schema.command(cli.without_flag(argv, "--init-schema"))
        return None
    method, argv = cli.split_method(argv, "datalens")
    args = parse(method, argv)
    cli.use_all_cores()
    from dpgen_jax import data
    from dpgen_jax.run import lifecycle, preset_data, protection
    from dpgen_jax.run.progress import Notices

    if cli.peek(argv, "--preset") is None:
        dataset = data.load(args.dataset, **vars(args.data))
    else:
        _, preset = presets.get(method, args.preset)
        dataset = preset_data.load(args.preset, preset, args.dataset, args.data)
    clients = args.clients
    if isinstance(args, TrainClients) and cli.peek(argv, "--clients") is not None:
        clients = args.config.clients  # asked for, and not a preset's
    dataset, config = protection.federated(dataset, args.config, clients, args.alpha)
    request = lifecycle.Request(
        method, args.preset, config, Budget(args.epsilon, args.delta, args.class_epsilon),
        args.runtime, args.out, args.resume, args.seed, args.monitor, args.accept_uncovered,
        args.total_epsilon)
    notices = Notices()
    lifecycle.run(request, dataset, notices=notices)
    return cli.INCOMPLETE if notices.failures else None


if __name__ == "__main__":
    cli.main(command)
