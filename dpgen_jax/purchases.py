"""What a run buys besides its steps: the entries of a schema, and noisy class counts.

Each is charged in the ledger before it is drawn, once, and the steps get what is left.
"""

from __future__ import annotations

from collections.abc import Callable

from dpgen_jax.accountant.events import Events
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation import discrete_laplace
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.private import records as sealing
from dpgen_jax.run.folder import RunFolder, read_json, write_json
from dpgen_jax.types import Method, Private, Records, Spec, UserError


def planned(bought: Events, class_epsilon: float) -> Events:
    """All purchases of a run, for planning its steps."""
    counts = ((discrete_laplace.class_counts_event(class_epsilon), 1),) if class_epsilon else ()
    return (*bought, *counts)


def refuse_useless(method: Method, class_epsilon: float) -> None:
    """Raises UserError where class counts are to be bought for a classifier, which draws no labels.
    """
    if class_epsilon and method.predict is not None:
        raise UserError(f"class_epsilon is {class_epsilon:g}, and a classifier draws no labels for "
                        "which class counts would be of use; leave out --class-epsilon")


def charge_once(ledger: Ledger, bought: Events) -> None:
    """Charges what was bought with the schema, unless this run's ledger already holds it."""
    held = {event for event, _ in ledger.spent()}
    missing = tuple((event, count) for event, count in bought if event not in held)
    if missing:
        ledger.charge(missing)


def class_counts(files: RunFolder, ledger: Ledger, records: Private[Records], spec: Spec,
                 epsilon: float, bits: BitSource, say: Callable[[str], None]
                 ) -> tuple[int, ...] | None:
    """The noisy class counts, bought at the first start and read back by a resume; None where
    epsilon is 0. A crash between charge and file costs the charge, and they are bought again.
    Errors: UserError for a damaged file, and for one that this ledger never paid for."""
    if not epsilon:
        return None
    cost = discrete_laplace.class_counts_event(epsilon)
    if not files.class_counts.exists():
        ledger.charge(((cost, 1),))
        counts = discrete_laplace.class_counts(sealing.labels(records), spec.classes, epsilon, bits)
        write_json(files.class_counts, {"epsilon": epsilon, "counts": [int(c) for c in counts]})
    held = read_json(files.class_counts)
    counts = held.get("counts")
    if not (isinstance(counts, list) and len(counts) == spec.classes
            and all(type(count) is int for count in counts)):
        raise UserError(f"{files.class_counts} is damaged: it does not hold {spec.classes} counts; "
                        "bring back the file that belongs to this run")
    if held.get("epsilon") != epsilon or cost not in dict(ledger.spent()):
        raise UserError(f"{ledger.path} charges no class counts of epsilon {epsilon:g}, which "
                        f"{files.class_counts} should hold: bring back the files that belong to "
                        "this run")
    _warn(tuple(counts), spec, epsilon, say)
    return tuple(counts)


def _warn(counts: tuple[int, ...], spec: Spec, epsilon: float, say: Callable[[str], None]) -> None:
    """Names the classes whose released count could be noise."""
    scale = (1 if spec.classes == 2 else 2) / epsilon
    names = spec.class_names or [str(i) for i in range(spec.classes)]
    for name, count in zip(names, counts, strict=True):
        if count < 3 * scale:
            say(f"note: class {name!r}: its noisy count is {count}, and noise of +-{scale:.0f} was "
                "added; raise --class-epsilon, or draw its records with `sample --label`")
