"""Shows what a configuration would cost, or what a run has spent.

    python -m dpgen_jax.account METHOD [--preset NAME] [--epsilon E | --steps N] [--json]
    python -m dpgen_jax.account METHOD --presets       its presets, and what differs from the papers
    python -m dpgen_jax.account RUN                    what a run has spent, from its ledger
    python -m dpgen_jax.account RUN --cross-check      the same, compared with dp_accounting
    python -m dpgen_jax.account RUN --data-dependent   the cost by its votes; for the data holder

A bound on the data-dependent epsilon is published, once and at a cost, by dpgen_jax.publish.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Generic, TypeVar

import tyro

from dpgen_jax import methods, presets
from dpgen_jax.cli import parser, runs, terminal
from dpgen_jax.cli.terminal import print_record
from dpgen_jax.core.errors import UserError, worded
from dpgen_jax.run import costs

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class OfMethod(Generic[Config]):
    """The flags of `account METHOD`; the method's configuration is part of them."""

    preset: str
    """a preset of the method, which gives the defaults of all other flags"""
    delta: float
    """target"""
    config: Annotated[Config, tyro.conf.arg(name="")]
    epsilon: float | None = None
    """target; the preset's if left out"""
    presets: bool = False
    """list the presets, their sources and what differs from these"""
    json: bool = False
    """print JSON"""


@dataclasses.dataclass(frozen=True)
class OfRun:
    """The flags of `account RUN`."""

    cross_check: bool = False
    """show the epsilon of the dp_accounting package next to ours"""
    data_dependent: bool = False
    """show what the run's votes imply; as private as the records, for the data holder only"""
    sanitise: bool = False
    """the old spelling of: python -m dpgen_jax.publish RUN"""
    json: bool = False
    """print JSON"""


def command(argv: list[str]) -> None:
    """Prints what a configuration would cost, or what a run has spent.

    Args:
        argv: The arguments after the command's name.

    Raises:
        UserError: Bad arguments, or a run that cannot be read.
        BudgetExceeded: A budget that allows no step.
    """
    name, rest = parser.split_method(argv, "datalens")
    root = runs.folder_of(name)
    if root is None:
        _print_configuration(name, rest)
    else:
        _print_run(root, rest)


def _print_configuration(method: str, argv: list[str]) -> None:
    flags: Any = OfMethod  # the configuration's type is known only at run time
    module = methods.get(method)
    name, preset = presets.get(method, parser.peek(argv, "--preset"))
    args = parser.parse(
        flags[module.Config], argv, f"python -m dpgen_jax.account {method}",
        "What a configuration costs: proven for the code that runs, and as the paper counts it. No "
        f"data are read. Presets: {', '.join(presets.all_of(method))}.",
        default=OfMethod(name, preset.delta, preset.config))
    if args.presets:
        print(*presets.listed(method), sep="\n")
        return
    record = costs.of_configuration(method, name, args.config, args.epsilon, args.delta).record()
    if record["as_published"] is None and not args.json:
        del record["as_published"]  # no paper counts it
    print_record(record, args.json)


def _print_run(root: Path, argv: list[str]) -> None:
    args = parser.parse(OfRun, argv, "python -m dpgen_jax.account RUN",
                     "What a run has spent, from its ledger; at most one of --cross-check, "
                     "--data-dependent.")
    if args.cross_check + args.data_dependent + args.sanitise > 1:
        raise UserError("a run takes --json and one of --cross-check, --data-dependent, "
                        f"--sanitise, got {' '.join(argv)}")
    if args.cross_check:
        opinions = costs.cross_check(root)
        if not args.json:
            print(*opinions.lines(), sep="\n")
            return
        record = opinions.record()
    elif args.data_dependent:
        record = costs.data_dependent_reading(root).record()
        if not args.json:
            record.pop("by round", None)  # hundreds of numbers; the last ones are in words
    elif args.sanitise:
        terminal.renamed(f"account {root} --sanitise", f"publish {root}")
        record = costs.publish(root)
    else:
        record = costs.of_run(root).record()
    print_record(record, args.json)


class _Account(ModuleType):
    """This module, which can also be called, as `dpgen_jax.account(...)`."""

    def __call__(self, what: str | Path, *, preset: str | None = None,
                 epsilon: float | None = None, delta: float | None = None, **fields: Any
                 ) -> costs.Cost | costs.Spent:
        """Computes what a configuration would cost, or reads what a run has spent: `costs.of`."""
        with worded(on_command_line=False):
            return costs.of(what, preset=preset, epsilon=epsilon, delta=delta, **fields)


sys.modules[__name__].__class__ = _Account

if __name__ == "__main__":
    terminal.main(command)
