"""Attacks on the promise of a run: the call `dpgen_jax.audit(...)`, and the command."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dpgen_jax.core.errors import option

if TYPE_CHECKING:
    from dpgen_jax.audit.findings import Log, Report
    from dpgen_jax.audit.mechanism import Attack, Target
    from dpgen_jax.core.config import DataOptions
    from dpgen_jax.data import Dataset


def of_method(target: Target, attack: Attack, log: Log) -> Report:
    """Attacks the mechanism of a method, compiled as in a run, or a whole training.

    Raises:
        UserError: Arguments exclude each other; also raised by the audits.
    """
    from dpgen_jax import data
    from dpgen_jax.audit import mechanism, training
    from dpgen_jax.core.errors import UserError

    dataset, canaries = attack.dataset, attack.canaries
    if attack.black_box and dataset is None:
        raise UserError(f"{option('black_box')} attacks the samples of a training; name "
                        f"{option('dataset')} and {option('canaries')}")
    if (dataset is None) != (canaries is None):
        raise UserError(f"a training is audited with both {option('dataset')} and "
                        f"{option('canaries')}; leave out both to audit the mechanism")
    if not 0 < attack.seconds < math.inf:
        raise UserError(f"{option('seconds')} is {attack.seconds}; give a number above 0")
    if dataset is None or canaries is None:
        return mechanism.of_preset(target, attack.seconds, log)
    if isinstance(dataset, str):
        dataset = data.load(dataset, **vars(attack.options))
    views = training.of_both if attack.black_box else training.of_releases
    return views(target, dataset, canaries, log)


class _Audit(ModuleType):
    """This package, which can also be called, as `dpgen_jax.audit(...)`."""

    def __call__(self, what: str | Path, *, preset: str | None = None,
                 epsilon: float | None = None, delta: float | None = None,
                 seconds: float | None = None, dataset: str | Dataset | None = None,
                 options: DataOptions | None = None, canaries: int | None = None,
                 black_box: bool = False, verbose: bool = True, **fields: Any) -> Report:
        """Attacks the promise of a method, or checks the statements of a run folder.

        `audit("dpmerf")` attacks a mechanism and reads no data, `audit("dpmerf", dataset="glyphs",
        canaries=500)` a whole training, and `audit("runs/first")` checks a run folder.

        Args:
            what: The name of a method, or a folder of a run or a release.
            preset: The preset of a method, which gives the other arguments their defaults.
            epsilon: The epsilon of the promise.
            delta: The delta of the promise.
            seconds: The time for attacks on a mechanism: by default 100 for a method, 0 for a run.
            dataset: The records that a method trains on, or those that a run was trained on, of
                which one is replaced. For a run it is a string, as `load_dataset` takes it.
            options: How the data set is read.
            canaries: The number of canaries among the records of `dataset`, for a method.
            black_box: Whether to attack samples of a release too, with `canaries`.
            verbose: Whether to print each finding as soon as it is made.
            **fields: Any field of the method's `Config`.

        Returns:
            The report: a list of findings, and what no check of this audit covers.

        Raises:
            UserError: Arguments exclude each other, the folder is not a run, or data cannot be
                read.
        """
        from dpgen_jax.audit.findings import quiet
        from dpgen_jax.audit.folder import of_folder
        from dpgen_jax.audit.mechanism import Attack, Target
        from dpgen_jax.core.config import DataOptions
        from dpgen_jax.core.console import tell
        from dpgen_jax.core.errors import UserError, worded
        from dpgen_jax.run import costs

        log, options = tell if verbose else quiet, options or DataOptions()
        for_methods = {**fields, "preset": preset, "epsilon": epsilon, "delta": delta,
                       "canaries": canaries, "black_box": black_box or None}
        with worded(on_command_line=False):
            if not costs.is_method(what, [k for k, v in for_methods.items() if v is not None]):
                if not isinstance(dataset, str | None):
                    raise UserError("dataset of a run must be a string, as load_dataset takes it")
                return of_folder(Path(what), dataset, options, log, seconds or 0.0)
            _, chosen, config = costs.configured(str(what), preset, fields)
            target = Target(str(what), chosen, config,
                            chosen.epsilon if epsilon is None else epsilon,
                            chosen.delta if delta is None else delta)
            attack = Attack(Attack.seconds if seconds is None else seconds, dataset, options,
                            canaries, black_box)
            return of_method(target, attack, log)


sys.modules[__name__].__class__ = _Audit


def command(argv: list[str]) -> int | None:
    """Runs the command; returns its exit code.

    Raises:
        UserError: Bad arguments; also raised by the audits.
    """
    from dpgen_jax.audit import __main__

    return __main__.command(argv)
