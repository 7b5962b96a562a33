"""Privacy events: what a mechanism tells the accountant about its rounds.

Everywhere in this folder `events` is a tuple of pairs (event, count): a release that happened, or
may happen, `count` times.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import TypeVar

from dpgen_jax.accountant.plain_events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    RenyiEvent,
)
from dpgen_jax.accountant.sampled_events import PoissonGaussianEvent, SampledGaussianEvent
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.strict_json import Json

__all__ = ["EpsilonDeltaEvent", "Event", "Events", "GaussianEvent", "LaplaceEvent",
           "NonPrivateEvent", "PoissonGaussianEvent", "RenyiEvent", "SampledGaussianEvent",
           "from_json", "ideal_noise", "merge", "of_kind", "to_json"]

Event = (GaussianEvent | SampledGaussianEvent | PoissonGaussianEvent | LaplaceEvent
         | EpsilonDeltaEvent | RenyiEvent | NonPrivateEvent)
Events = tuple[tuple[Event, int], ...]
Kind = TypeVar("Kind", bound=Event)

_KINDS: dict[str, type[Event]] = {
    "gaussian": GaussianEvent, "sampled-gaussian": SampledGaussianEvent,
    "poisson-gaussian": PoissonGaussianEvent, "laplace": LaplaceEvent,
    "epsilon-delta": EpsilonDeltaEvent, "renyi": RenyiEvent, "non-private": NonPrivateEvent}

# In files a sampled event has the fields of its Gaussian event beside its own, without nesting, and
# some have another name there.
_GAUSSIAN_FIELDS = ("sigma", "squared_sensitivity", "grid", "total_variation")
_NAMES_IN_FILES: dict[type[Event], dict[str, str]] = {
    SampledGaussianEvent: {"sample_size": "drawn"},
    PoissonGaussianEvent: {"squared_sensitivity": "squared_norm"}}


def of_kind(kind: type[Kind], events: Events) -> tuple[tuple[Kind, int], ...]:
    """Returns the pairs (event, count) whose event is of one kind, in their order."""
    return tuple((event, count) for event, count in events if isinstance(event, kind))


def merge(events: Events) -> Events:
    """Adds up the counts of equal events and leaves out those of count 0.

    Args:
        events: Pairs (event, count), in any order.

    Returns:
        One pair for each different event, in the order of first appearance.

    Raises:
        UserError: A count that is no whole number >= 0, or an object that is no event.
    """
    counts: dict[Event, int] = {}
    for event, count in events:
        if not isinstance(event, tuple(_KINDS.values())):
            raise UserError(f"{event!r} is no privacy event")
        # bool is an int to Python, but "True rounds" is a slip
        if isinstance(count, bool) or (count := operator.index(count)) < 0:
            raise UserError(f"the count of an event must be a whole number >= 0, got {count!r}")
        counts[event] = counts.get(event, 0) + count
    return tuple((event, count) for event, count in counts.items() if count)


def ideal_noise(events: Events) -> Events:
    """Returns the events as if their noise were ideal.

    For comparison only: no run has such noise.

    Args:
        events: Pairs (event, count).

    Returns:
        The same pairs with every distance between sampled and ideal law set to 0.
    """
    return tuple((_ideal(event), count) for event, count in events)


def _ideal(event: Event) -> Event:
    match event:
        case SampledGaussianEvent() | PoissonGaussianEvent():
            ideal = dataclasses.replace(event.gaussian, total_variation=0.0)
            return dataclasses.replace(event, gaussian=ideal)
        case GaussianEvent() | LaplaceEvent() | RenyiEvent():
            return dataclasses.replace(event, total_variation=0.0)
    return event


def to_json(events: Events) -> list[Json]:
    """Returns the events as plain dicts, as ledgers and schema files hold them.

    Args:
        events: Pairs (event, count).

    Returns:
        One dict per different event: `kind`, `count` and the fields, without nesting.

    Raises:
        UserError: As `merge` does.
    """
    kinds = {cls: kind for kind, cls in _KINDS.items()}
    return [{"kind": kinds[type(event)], "count": count, **_flat(event)}
            for event, count in merge(events)]


def _flat(event: Event) -> Json:
    fields = dataclasses.asdict(event)
    if gaussian := fields.pop("gaussian", None):
        fields = {name: gaussian[name] for name in _GAUSSIAN_FIELDS} | fields
    names = _NAMES_IN_FILES.get(type(event), {})
    return {names.get(name, name): value for name, value in fields.items()}


def from_json(rows: list[Json]) -> Events:
    """Returns the events of dicts that `to_json` made.

    Args:
        rows: Dicts as `to_json` returns them, read from a file.

    Returns:
        Pairs (event, count), merged.

    Raises:
        ValueError: A value that no event can have.
        KeyError: A kind that is not known, or no kind or count.
        TypeError: A field that the kind does not have, or one that is missing.
    """
    pairs = []
    for row in rows:
        fields = dict(row)
        cls, count = _KINDS[fields.pop("kind")], fields.pop("count")
        pairs.append((_nested(cls, fields), count))
    return merge(tuple(pairs))


def _nested(cls: type[Event], fields: Json) -> Event:
    """Returns the event of fields as `_flat` returns them."""
    names = {in_file: name for name, in_file in _NAMES_IN_FILES.get(cls, {}).items()}
    if unknown := fields.keys() & {"gaussian", *names.values()}:
        raise TypeError(f"{cls.__name__} has no field {unknown} in files")
    fields = {names.get(name, name): value for name, value in fields.items()}
    if cls in _NAMES_IN_FILES:
        gaussian = {name: fields.pop(name) for name in _GAUSSIAN_FIELDS if name in fields}
        fields = {**fields, "gaussian": GaussianEvent(**gaussian)}
    return cls(**fields)
