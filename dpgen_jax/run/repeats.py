"""Several trainings of one configuration on the same records: one run says little of a method."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpgen_jax.accountant.rounding import add_up, as_written
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError
from dpgen_jax.release import guarantee
from dpgen_jax.release.bundle import Release
from dpgen_jax.run import fitting, folder


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Trainings of one configuration on the same records.

    Each release states its own epsilon alone: whoever sees all of them sees what the sums promise.

    Attributes:
        releases: One for each training.
        folders: Their run folders.
        epsilon: The sum of their epsilons; inf where one of them promises nothing.
        delta: The sum of their deltas.
    """

    releases: tuple[Release, ...]
    folders: tuple[Path, ...]
    epsilon: float
    delta: float

    def __str__(self) -> str:
        return (f"{len(self.releases)} trainings on the same records, which spent epsilon "
                f"{at_most(self.epsilon)}, delta {at_most(self.delta)} together")


def repeat(n: int, method: Any, x: Any = None, y: Any = None, *, out: str | Path | None = None,
           seed: int | None = None, log: Callable[[str], None] = tell, **options: Any) -> Repeats:
    """Trains `n` times on the same records: for a mean over trainings, and how far they differ.

    Each training spends an epsilon of its own, and they add up. The sum is said before anything is
    spent; with `total_epsilon` it is refused where it is more.

    Args:
        n: The number of trainings, 2 or more.
        method: The name of a method, or what else `fit` takes in its place.
        x: As `fit` takes it.
        y: Likewise.
        out: A folder, for the run folders OUT/0, OUT/1 and so on; `dpgen compare OUT OTHER`, once
            each is evaluated, shows means and deviations over them. By default one in runs.
        seed: Repeats the trainings, with seeds from this one on, and without a privacy claim.
        log: Prints a line.
        **options: As `fit` takes them.

    Returns:
        The trainings.

    Raises:
        UserError: As `fit`, and for a number of trainings that is none.
        BudgetExceeded: As `fit`; trainings before it are done and stay.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 2:
        raise UserError(f"{n!r} trainings; give a whole number from 2 on, as in "
                        "dg.repeat(3, 'mixture', x, y)")
    epsilon, most = options.get("epsilon"), options.get("total_epsilon")
    if epsilon is not None and most is not None and (
            math.isinf(epsilon) or n * as_written(epsilon) > as_written(most)):
        raise UserError(f"{n} trainings of epsilon {epsilon:g} spend {n * epsilon:g} on the same "
                        f"records, more than total_epsilon={most:g}; lower one of them")
    each = "its own epsilon" if epsilon is None else f"epsilon {at_most(epsilon)}"
    total = f"{n} times that" if epsilon is None else f"epsilon {at_most(n * epsilon)}"
    if seed is not None:
        each, total = "epsilon inf", "nothing that bounds, as the noise is made from seeds"
    log(f"{n} trainings on the SAME records: each spends {each}, all together {total}; a release "
        "states what it spent itself")
    name = method if isinstance(method, str) else "best"
    root = folder.default_root(name, "repeats") if out is None else Path(out)
    releases = []
    for i in range(n):
        log(f"training {i + 1} of {n}")
        releases.append(fitting.fit(method, x, y, out=root / str(i),
                                      seed=None if seed is None else seed + i, **options))
    spent = [tuple(float(release.privacy.get(name, math.inf)) for name in ("epsilon", "delta"))
             if guarantee.of(release.privacy).kind == "valid" else (math.inf, 0.0)
             for release in releases]
    repeats = Repeats(tuple(releases), tuple(root / str(i) for i in range(n)),
                      add_up((epsilon, 1) for epsilon, _ in spent),
                      add_up((delta, 1) for _, delta in spent))
    log(str(repeats))
    return repeats
