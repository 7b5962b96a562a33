"""The protocol of measures, for images and for tables alike: what they take and return.

A measure compares synthetic with real records and returns a `Part`: findings, which are scores at a
place in metrics.json, and facts, which are everything else. Records are images [n, H, W, ch], uint8
or float in [0, 1], or encoded rows float [n, F] in [0, 1]; labels are integers from 0.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from dpgen_jax.core import arrays
from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Spec, Subjects, UserError
from dpgen_jax.release.bundle import Release

T = TypeVar("T")

TASKS = ("gen2real", "real2gen", "real2real")
"""Trained on the first kind of records and tested on the second; gen is synthetic."""
Records = tuple[np.ndarray, np.ndarray]
"""Images or encoded rows, and their labels int [n]."""
Draw = Callable[[int, int], Records]
"""From (n, seed) to n synthetic records; a smaller draw of a seed is the beginning of a larger."""
Log = Callable[[str], None]
"""A function that takes a line of progress, such as `print`."""
Key = tuple[str | int, ...]
"""The place of a value in metrics.json: names of objects, and numbers of entries of lists."""


def silent(line: str) -> None:
    """Discard a line of progress: the default of every `log` parameter."""


@dataclasses.dataclass(frozen=True)
class Score:
    """A number over the seeds of an evaluation, or over several trainings."""

    mean: float
    std: float | None = None
    """The deviation of a sample (n - 1), 0 for a single value; None where it is not known."""
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray) -> Score:
        """Summarise one value a seed, at least one."""
        std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), std, tuple(float(v) for v in values))

    def json(self) -> Json:
        """Return {"mean", "std", "values"}, without those that are not known."""
        spread = {} if self.std is None else {"std": self.std}
        return {"mean": self.mean, **spread, **({"values": [*self.values]} if self.values else {})}


def summary(values: Sequence[float] | np.ndarray) -> Json:
    """Summarise one value a seed as {"mean", "std", "values"}; see `Score`."""
    return Score.of(values).json()


class Severity(enum.IntEnum):
    """How much a user of the synthetic records has to mind a finding."""

    FINE = 0
    CAUTION = 1
    ALARM = 2


@dataclasses.dataclass(frozen=True)
class Finding:
    """A score of synthetic records, beside what it is to be compared with."""

    key: Key
    value: Score
    real: Score | None = None
    """The same of real training records in the place of the synthetic ones."""
    chance: float | None = None
    """The same of a guess, or of noise only."""
    allowed: float | None = None
    """The most that the privacy guarantee allows."""
    from_real: bool = True
    """Whether it is computed from real records, so that epsilon does not cover it."""
    severity: Severity = Severity.FINE
    text: str = ""
    """The meaning, as a part of a sentence."""
    advice: str = ""
    """Something that a user can do about it."""
    details: tuple[Finding, ...] = ()
    """The findings that it sums up: of each classifier, column or attack."""
    size: float = 0.0
    """How much a user has to mind it, in units that compare across kinds (`losses`)."""

    @property
    def name(self) -> str:
        """The name of what was measured."""
        return str(self.key[-1])

    @property
    def path(self) -> str:
        """The key with dots between its parts."""
        return ".".join(map(str, self.key))


@dataclasses.dataclass(frozen=True)
class Part:
    """The result of one measure."""

    findings: tuple[Finding, ...] = ()
    facts: Json = dataclasses.field(default_factory=dict)
    """Other values, nested as in metrics.json."""
    real_facts: tuple[str, ...] = ()
    """The dotted keys of facts that follow from real records."""
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] | None = None
    """The time of each of its parts; None for the time of the whole."""


@dataclasses.dataclass(frozen=True)
class Real:
    """The real records of an evaluation."""

    spec: Spec
    test: Records
    """Held-out records, which are in no training set."""
    train: Records | None = None
    """Training records; None to leave out what needs them."""
    subjects: Subjects | None = None
    """Who has which record, where subjects are protected."""

    def alike(self, n: int) -> Real:
        """Return the same with n training records picked at random, or all if there are fewer.

        What is learned from them, or how far they are off, compares with a draw of n records.
        """
        if self.train is None:
            return self
        picked = np.random.default_rng(0).permutation(len(self.train[1]))[:n]
        return dataclasses.replace(self, train=(self.train[0][picked], self.train[1][picked]))


@dataclasses.dataclass(frozen=True)
class Synthetic:
    """The synthetic records of an evaluation."""

    draw: Draw
    release: Release | None = None
    """The release that draws them, if there is one."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How much an evaluation does; nothing in it depends on what is measured."""

    name: str
    """"full" or "fast"."""
    description: str
    """The start of the text that metrics.json has on the setting."""
    n_samples: int
    """Synthetic records of a seed, and the most real ones to train on."""
    seeds: int
    compared: int = 10_000
    """The most synthetic records of a seed that attacks read and distances compare."""
    options: Evaluation = Evaluation()
    log: Log = dataclasses.field(default=silent, compare=False)

    def draws(self, synthetic: Synthetic, most: int | None = None) -> list[Records]:
        """Return the draw of each seed, of `n_samples` records or `most` if that is fewer."""
        n = self.n_samples if most is None else min(most, self.n_samples)
        return [synthetic.draw(n, seed) for seed in range(self.seeds)]


class Measure(Protocol):
    """A measure, for images or for tables."""

    def __call__(self, real: Real, synthetic: Synthetic, setting: Setting) -> Part:
        """Compare synthetic with real records."""


def once(draw: Draw) -> Draw:
    """Return a function that draws once for a seed; a smaller draw is the beginning of it."""
    cache: dict[int, Records] = {}

    def cached(n: int, seed: int) -> Records:
        if seed not in cache or len(cache[seed][1]) < n:
            cache[seed] = draw(n, seed)
        x, y = cache[seed]
        return x[:n], y[:n]

    return cached


def percent(share: float) -> str:
    """Return a share in [0, 1] as text, with as many digits as a small one needs."""
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.2g} %"


def checked(part: str, x: object, y: object, at_least: int) -> Records:
    """Return images [n, H, W, ch], uint8 or float32 in [0, 1], and labels int32 [n].

    Args:
      part: The name of these images in error messages, such as "test" or "synthetic".
      x: Images [n, H, W] or [n, H, W, ch] with 1 or 3 channels.
      y: Labels [n], integers from 0.
      at_least: The fewest images that are accepted.

    Raises:
      UserError: The arrays have another shape or dtype, values that are not finite or out of range,
        or too few images.
    """
    x, y = np.asarray(x), np.asarray(y)
    x = arrays.check_images(part, x)
    arrays.check_labels(part, y, len(x))
    if len(y) < at_least:
        raise UserError(f"{len(y)} {part} images; at least {at_least} needed")
    if x.dtype == np.uint8:
        return x, y.astype(np.int32)
    if not np.issubdtype(x.dtype, np.floating):
        raise UserError(f"{part} images are {x.dtype}, expected uint8 or float in [0, 1]")
    check_finite(part, x, "images")
    arrays.check_unit_range(part, x)
    return x.astype(np.float32), y.astype(np.int32)


def check_finite(part: str, x: np.ndarray, what: str) -> None:
    """Raise a UserError that counts the records with NaN or infinite values."""
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        bad = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))
        mend = ("the generator diverged: lower its learning rate and train again"
                if part == "synthetic" else "leave them out")
        raise UserError(f"{len(bad)} {part} {what} hold NaN or infinite values, the first at row "
                        f"{bad[0]}; {mend}")


def pick(kind: str, choices: Mapping[str, T], name: str) -> T:
    """Return choices[name], or raise a UserError that names the kind and all choices."""
    if name not in choices:
        raise UserError(f"unknown {kind} {name!r}; known: {', '.join(choices)}")
    return choices[name]
