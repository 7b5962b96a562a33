"""The side releases of a run: the entries of a schema, and noisy class counts.

Each is charged in the ledger before it is made, once, and the steps get what is left. The events of
a purchase name the run, or the command, that made it: if two bought the same, equal events could
not be distinguished, and a run would mistake its own purchase for the cost of its schema.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from dpgen_jax.accountant import events
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import Events, add_up
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import BitSource
from dpgen_jax.core.config import Budget
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json
from dpgen_jax.core.run_folder import RunFolder, read_json, write_json
from dpgen_jax.core.types import Method, Private, Records, Spec, UserError
from dpgen_jax.private import records as sealing
from dpgen_jax.private.records import Partition


def purchases(rows: Iterable[Json]) -> Events:
    """Returns the events of a schema, to be charged by every run on the same records.

    Raises:
        UserError: Where a row is not an event.
    """
    try:
        return events.from_json([{key: value for key, value in row.items() if key != "records"}
                                 for row in rows])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("the schema's block `bought` was changed; finish the draft again, or "
                        "declare its entries") from error


def records(rows: Iterable[Json]) -> int:
    """Returns the largest number of records that one of these purchases was made from; 0: unknown.

    Earlier versions did not note it.

    Raises:
        UserError: A row does not hold a number of records.
    """
    numbers = [row["records"] for row in rows if "records" in row]
    if not all(type(number) is int and number > 0 for number in numbers):
        raise UserError("the schema's block `bought` was changed: `records` is not a number of "
                        "records; restore the block as it was written")
    return max(numbers, default=0)


BY = " (bought by "
"""Between the name of an event and the name of who bought."""


def shorter(name: str) -> str:
    """Returns the beginning of a random id, by which a purchase is named."""
    return name[:16]


def named(bought: Events, name: str) -> Events:
    """Returns the events of a purchase with the name of who bought."""
    return tuple((dataclasses.replace(event, mechanism=f"{event.mechanism}{BY}{shorter(name)})"),
                  count) for event, count in bought)


def without_name(event: events.Event) -> str:
    """Returns the mechanism of an event, without the name of who bought."""
    return event.mechanism.partition(BY)[0]


def buyers(bought: Events) -> frozenset[str]:
    """Returns the names of who bought; purchases of earlier versions have none."""
    return frozenset(event.mechanism.partition(BY)[2].removesuffix(")")
                     for event, _ in bought if BY in event.mechanism)


def cost(bought: Events, name: str) -> Budget:
    """Returns what one purchase costs, as far as these events are its own."""
    pairs = [(event, count) for event, count in events.of_kind(events.EpsilonDeltaEvent, bought)
             if name in buyers(((event, count),))]
    return Budget(add_up((event.epsilon, count) for event, count in pairs),
                  add_up((event.delta, count) for event, count in pairs))


def bought_by(files: RunFolder) -> Events:
    """Returns what a run has bought itself, with whatever schema it goes on.

    Raises:
        UserError: A damaged ledger.
    """
    if not books.begun(files.ledger):
        return ()
    name = shorter(files.run_id())
    return tuple((event, count) for event, count in books.account(books.read(files.ledger)).spent()
                 if name in buyers(((event, count),)))


def planned(bought: Events, class_epsilon: float) -> Events:
    """Returns the events of all side releases of a run."""
    counts = ((single_releases.class_counts_event(class_epsilon), 1),) if class_epsilon else ()
    return (*bought, *counts)


def refuse_useless(method: Method, class_epsilon: float) -> None:
    """Refuses to buy class counts for a classifier, which draws no labels.

    Raises:
        UserError: Where they are to be bought for nothing.
    """
    if class_epsilon and method.predict is not None:
        raise UserError(f"class_epsilon is {class_epsilon:g}, and a classifier draws no labels, so "
                        f"class counts are useless; leave out {option('class_epsilon')}")


def charge_once(ledger: Ledger, bought: Events) -> None:
    """Charges what was bought with the schema, unless the ledger already charges it."""
    charged = dict(ledger.spent())
    missing = tuple((event, count - charged.get(event, 0)) for event, count in bought
                    if count > charged.get(event, 0))
    if missing:
        ledger.charge(missing)


@dataclasses.dataclass(frozen=True)
class Counted:
    """The records whose classes are counted.

    Attributes:
        rows_per_unit: Of subjects, the most records of one that are counted.
        dealt: Of subjects, the records that are counted.
    """

    records: Private[Records]
    spec: Spec
    rows_per_unit: int = 0
    dealt: Partition | None = None


def class_counts(files: RunFolder, ledger: Ledger, counted: Counted, epsilon: float,
                 bits: BitSource, log: Callable[[str], None]) -> tuple[int, ...] | None:
    """Buys the noisy class counts at the first start, and reads them back in a resumed run.

    A crash between charge and file costs the charge, and they are bought again.

    Returns:
        A count for each class, which may be negative; None where epsilon is 0.

    Raises:
        UserError: For a damaged file, and for one that this ledger never paid for.
    """
    if not epsilon:
        return None
    cost, spec = single_releases.class_counts_event(epsilon), counted.spec
    if not files.class_counts.exists():
        ledger.charge(((cost, 1),))
        noisy = single_releases.class_counts(
            sealing.labels(counted.records, counted.dealt), spec.classes, epsilon, bits,
            counted.rows_per_unit)
        write_json(files.class_counts, {"epsilon": epsilon, "counts": [int(c) for c in noisy]})
    stored = read_json(files.class_counts)
    counts = stored.get("counts")
    if not (isinstance(counts, list) and len(counts) == spec.classes
            and all(type(count) is int for count in counts)):
        raise UserError(f"{files.class_counts} is damaged: it does not have {spec.classes} counts; "
                        "restore the file that belongs to this run")
    if stored.get("epsilon") != epsilon or cost not in dict(ledger.spent()):
        raise UserError(f"{ledger.path} charges no class counts of epsilon {epsilon:g}, which "
                        f"{files.class_counts} should hold: restore the files that belong to this "
                        "run")
    _warn(tuple(counts), spec, epsilon, log, counted.rows_per_unit)
    return tuple(counts)


def _warn(counts: tuple[int, ...], spec: Spec, epsilon: float, log: Callable[[str], None],
          rows_per_unit: int) -> None:
    """Names the classes whose released count could be noise."""
    scale = single_releases.class_counts_sensitivity(spec.classes, rows_per_unit) / epsilon
    names = spec.class_names or [str(i) for i in range(spec.classes)]
    for name, count in zip(names, counts, strict=True):
        if count < 3 * scale:
            log(f"note: class {name!r}: its noisy count is {count}, and noise of +-{scale:.0f} was "
                f"added; raise {option('class_epsilon')}, or draw its records with `sample "
                f"{option('label')}`")
