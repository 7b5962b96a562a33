"""How a data set is read: its place and flags, with what was added to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dpgen_jax import presets
from dpgen_jax.accountant.events import Events
from dpgen_jax.core import cli
from dpgen_jax.core.config import Budget
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Spec
from dpgen_jax.data import held_out
from dpgen_jax.presets import choice
from dpgen_jax.run.flags import Train


@dataclasses.dataclass(frozen=True)
class Supposed:
    """A rehearsal that ends before the data are typed, and data as they could be.

    Attributes:
        kind: `table` or `images`.
        what: What is supposed of them, in words.
        spec: Their schema, if it is so.
        records: The public number of training records.
        budget: The budget of the run, without class counts.
        events: What the purchase costs, with what was bought before it.
        prices: Lines on what would be bought.
    """

    kind: str
    what: str
    spec: Spec
    records: int
    budget: Budget
    events: Events
    prices: tuple[str, ...]


Refuse = Callable[[Supposed], None]
"""Raises UserError where a run on such data would be refused."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a data set is read.

    Attributes:
        place: KIND or KIND:PLACE.
        words: The flags, with what was added to them.
        remarks: Lines on what was added.
        bought: What was bought, as `Dataset.bought` holds it.
        supposed: In a rehearsal, what would be bought, without which nothing more is known of the
            data.
    """

    place: str
    words: list[str]
    remarks: tuple[str, ...] = ()
    bought: tuple[Json, ...] = ()
    supposed: Supposed | None = None


def budget_for(reading: Reading, method: str, args: Train[Any], spec: Spec, n: int) -> Budget:
    """Returns the budget of a run whose data are not typed yet.

    Where the flags do not say, it is that of the preset that will serve the data.

    Args:
        reading: The reading.
        method: The method that will be trained.
        args: The flags of `train`, parsed.
        spec: A schema of the kind that the data will have.
        n: The public number of all records.

    Returns:
        The budget, without class counts.

    Raises:
        UserError: No preset of the method is for such data.
    """
    epsilon, delta = args.epsilon, args.delta
    if cli.peek(reading.words, "--preset") is None:
        stated = epsilon if cli.peek(reading.words, "--epsilon") is not None else None
        tuned = args.config != presets.get(method, args.preset)[1].config
        preset = choice.preset_for(method, choice.Facts("", spec, n), stated, tuned).preset
        epsilon = preset.epsilon if stated is None else stated
        delta = delta if cli.peek(reading.words, "--delta") is not None else preset.delta
    return Budget(epsilon, delta)


def trained_on(args: Train[Any], n: int, tested: bool) -> int:
    """Returns the number of records that are left for the training, before the data are typed.

    Args:
        args: The flags of `train`, parsed.
        n: The public number of all records, without those of a held-out part that the data bring.
        tested: Whether they bring one.

    Raises:
        UserError: As `held_out.hold_out`.
    """
    share = args.data.test_fraction
    if share is None:
        share = 0.0 if tested or n < held_out.FEWEST else held_out.SHARE
    if not share:
        return n
    held_out.check(share, tested, "the data set")
    return n - held_out.count(share, n)
