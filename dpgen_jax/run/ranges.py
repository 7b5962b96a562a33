"""The range, the few values and the special values of a column, from released noisy counts.

Everything here is post-processing of the answers of a `Survey`: of the counts of magnitudes, by
which a question about the values is chosen (`question_for`), and of the counts of its bins, from
which the entries of a schema are made (`described`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.single_releases import FALSE_CORE, Answer, Numbers
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Private, UserError
from dpgen_jax.data.table import readings, transform
from dpgen_jax.data.table.columns import column as checked
from dpgen_jax.data.table.columns import distinguishable
from dpgen_jax.data.table.draft import AMONG, MAX_CATEGORIES, SPIKE, TAIL
from dpgen_jax.data.table.readings import OCTAVES, SIGNED, YEARS, Reading

SCALES = (1, 2, 4, 8, 16)
"""How many bins are merged, where a single one does not stand out of the noise."""
KEPT = 0.95
"""The share of the values that bounds must contain, or more bins are merged."""
NEAR = 0.1
"""Bounds that begin below this share of their end begin at zero."""
DIGITS = 3
"""The digits of a bound; it is rounded outward."""
MOST_EXACT = 1024
"""The most values between the bounds of a column that have a bin each."""
FEWEST_BINS, MOST_BINS = 16, 256
"""The bins of a column of more values; in between, as many as stand out of the noise."""
LEVEL = 0.02
"""The number of values that noise adds to those of a column, at most, on average."""
DENSE = 0.5
"""Values that fill this part of their range are whole numbers or decimals; else they are levels."""
LARGEST, WIDEST = 1e300, 2.0**63
"""The largest bound; and the widest range that has a linear scale."""
REST = 0.01
"""The part of the values that are not among few ones, from which these may not be all."""
SMALL_PART = 8
"""A range is small where it is less than this part of the magnitudes that hold it."""
TAIL_PART = 0.005
"""The part of the values beyond a range for which it is made wider."""
MARGIN, MOST_MARGIN, TAILS = 0.05, 0.5, 40
"""The part of a range that is added on both sides: more where noise hides its tails."""
SMALL = 1024
"""Numbers up to it are more common than others: their magnitudes need stand out of the noise less.
"""
CLEAR_ZEROS = 4
"""Zero is a special value if its count is so many standard deviations of its noise above 0."""
GAP, FAR = 1, 0.1
"""Special values lie outside of a range: more than so many magnitudes without values are between
them, which are at least this part of the range."""
APART_YEARS = 5
"""Likewise, years."""
SHORT_YEARS = (8 + 69, 8 + 168)
"""The bins of the years that two digits may mean: 1969 to 2068."""
FEWEST_YEARS = 3
"""Dates of more years than this may have more that drown in noise."""
FIRST_YEAR, LAST_YEAR = 8, len(YEARS) - 7
"""The bins of the years 1900 to 2099, of which most dates are."""


MOST_SPECIAL, SETTLED = 5, 0.5
"""Special values outside of a range are at most so many, and have this part of the cells there."""


def least(sigma: float, chance: float) -> int:
    """Returns the count that rounded Gaussian noise reaches with this chance at most."""
    return math.ceil(0.5 - sigma * ndtri(chance))


@dataclasses.dataclass(frozen=True)
class Question:
    """Public bins of the values of a column.

    Attributes:
        reading: How its cells are read; one that is not has no bin.
        edges: The edges of the bins, float64 [bins + 1]; of dates in days.
        step: The distance of values that have a bin each; 0 where bins are wider.
        outside: Ranges of values that may be special, with the noisy number of cells in each; those
            cells are asked for by name.
        zeros: The noisy number of zeros, if zero is a special value: it has no bin then.
        seen: The part of the range whose magnitudes stand out of the noise.
    """

    reading: Reading
    edges: np.ndarray
    step: float = 0.0
    outside: tuple[tuple[float, float, float], ...] = ()
    zeros: float = 0.0
    seen: tuple[float, float] = (-math.inf, math.inf)

    def query(self, texts: list[str]) -> Numbers:
        """Returns the query."""
        values = self._values(texts)
        inside = (values >= self.edges[0]) & (values <= self.edges[-1])
        inside &= (values != 0) | (not self.zeros)
        inside |= len(self.edges) in (len(SIGNED), len(YEARS))  # their ends hold what lies beyond
        return Numbers(Private(np.where(inside, readings.binned(self.edges, values), -1)),
                       len(self.edges) - 1)

    def names_outside(self, texts: list[str]) -> single_releases.Names:
        """Returns the query of the texts whose values lie outside of the range."""
        values = self._values(texts)
        out = np.zeros(len(values), bool)
        for low, high, _ in self.outside:
            out |= (values >= low) & (values < high)
        return single_releases.Names(Private([text if one else None for text, one in zip(
            texts, out.tolist(), strict=True)]))

    def specials(self, names: Mapping[str, int]) -> tuple[list[str], list[tuple[float, float]]]:
        """Returns the special values among names outside, and the ranges that have too few."""
        special, ranges = list[str](), list[tuple[float, float]]()
        for low, high, mass in self.outside:
            inside = [text for text, value in zip(names, self._values(list(names)), strict=True)
                      if low <= value < high]
            if len(inside) <= MOST_SPECIAL and sum(
                    names[text] for text in inside) >= SETTLED * mass:
                special += inside
            else:
                ranges.append((low, high))
        return special, ranges

    def _values(self, texts: list[str]) -> np.ndarray:
        """Values float64 [n], dates in days; NaN for cells that are not read."""
        read: Callable[[str], float | None] = transform.reader(self.reading.column)
        known = {text: read(text) for text in dict.fromkeys(texts)}
        one = day(self.reading)
        return np.array([np.nan if (value := known[text]) is None else value / one
                         for text in texts], np.float64)


def is_date(reading: Reading) -> bool:
    """Returns whether a column that is read so holds dates."""
    return reading.entries["kind"] in ("date", "datetime")


def day(reading: Reading) -> int:
    """Returns the code of one day."""
    return transform.DAY if reading.entries["kind"] == "datetime" else 1


def decimals(reading: Reading) -> int | None:
    """Returns the decimals of a column of numbers; None where they are not known."""
    if reading.entries["kind"] == "integer":
        return 0
    found = reading.entries.get("decimals")
    return None if found is None else int(str(found))


@dataclasses.dataclass(frozen=True)
class Region:
    """Bins next to each other that stand out of the noise: first to last, and their count."""

    first: int
    last: int
    mass: float


def regions(noisy: np.ndarray, sigma: float, gap: int, among: int | None = None,
            usual: np.ndarray | None = None) -> list[Region]:
    """Returns the runs of bins with values; empty bins, `gap` at most, are within a run.

    Args:
        noisy: Noisy counts int [bins].
        sigma: The standard deviation of their noise.
        gap: See above.
        among: The bins among which these are looked at; None for these.
        usual: Bins bool [bins] that need stand out by themselves only.
    """
    core = np.flatnonzero((noisy >= least(sigma, FALSE_CORE / (among or noisy.size))) | (
        False if usual is None else usual & (noisy >= least(sigma, FALSE_CORE))))
    full = noisy >= least(sigma, single_releases.FALSE_STEP)
    grown: list[tuple[int, int]] = []
    for place in core.tolist():
        first = last = place
        while first > 0 and full[first - 1]:
            first -= 1
        while last < noisy.size - 1 and full[last + 1]:
            last += 1
        if grown and first - grown[-1][1] <= gap + 1:
            grown[-1] = (grown[-1][0], max(last, grown[-1][1]))
        else:
            grown.append((first, last))
    return [Region(first, last, float(noisy[first:last + 1].sum())) for first, last in grown]


def question_for(reading: Reading, magnitudes: np.ndarray | None, sigma: float, present: float,
             among: float) -> Question | None:
    """Returns what is asked about the values of a column.

    Args:
        reading: How its cells are read.
        magnitudes: The noisy counts of the bins of `OCTAVES`; None where they were not counted.
        sigma: The standard deviation of their noise.
        present: The noisy number of values.
        among: How many records stand out of the noise of the answer.

    Returns:
        The question; None where nothing stands out of the noise.
    """
    if magnitudes is None:
        return Question(reading, YEARS if is_date(reading) else SIGNED)
    places = _kept(reading)
    noisy = magnitudes[places]
    found = regions(noisy, sigma, GAP, usual=np.abs(OCTAVES[places]) <= SMALL)
    if sum(one.mass for one in found) < KEPT * present - 2 * sigma * math.sqrt(noisy.size):
        together = _ends(noisy, sigma, present)  # a little in each of many magnitudes
        if together is not None:
            first = min([together[0], *(one.first for one in found)])
            last = max([together[1], *(one.last for one in found)])
            found = [Region(first, last, float(noisy[first:last + 1].sum()))]
    if not found:
        return None
    edges = np.append(OCTAVES[places], OCTAVES[places[-1] + 1])
    zero = int(np.flatnonzero(places == len(OCTAVES) // 2 - 1)[0])
    ends = [(float(edges[one.first] * (one.first != zero)),
             float(edges[one.last + 1] * (one.last != zero))) for one in found]
    records = present / max(among, 1.0)
    for low, high in (_wider(ends[0][0], ends[-1][1]), (ends[0][0], ends[-1][1])):
        if (whole := _within(reading, low, high, records)).step:
            return dataclasses.replace(whole, seen=(ends[0][0], ends[-1][1]))
    zeros = float(noisy[zero])
    others = [one for one in found if not one.first == one.last == zero]
    rest = [end for end, one in zip(ends, found, strict=True) if one in others]
    if rest and zeros >= max(SPIKE * present, CLEAR_ZEROS * sigma) and max(
            -rest[0][0], rest[-1][1]) > AMONG:
        found, ends = others, rest
    else:
        zeros = 0.0
    low, high = ends[max(range(len(found)), key=lambda i: found[i].mass)]
    outside: list[tuple[float, float]] = []
    for _ in found:  # those near by are within the range, which may bring others near
        far = [end for end in ends if max(end[0] - high, low - end[1]) > FAR * (high - low)]
        near = [end for end in ends if end not in far]
        low, high, outside = min(near)[0], max(end for _, end in near), far
    made = _within(reading, *_wider(low, high), records, tuple(
        (*end, one.mass) for end, one in zip(ends, found, strict=True) if end in outside))
    return dataclasses.replace(made, zeros=zeros, seen=(low, high))


def _wider(low: float, high: float) -> tuple[float, float]:
    """A range of several magnitudes with the next ones, whose few values drown in noise."""
    if high > 0 and high > 2.5 * low:
        high *= 2
    if low < 0 and low < 2.5 * high:
        low *= 2
    return (low / 2 if 0 < 2.5 * low < high else low, high / 2 if 0 > 2.5 * high > low else high)


def _kept(reading: Reading) -> np.ndarray:
    """The bins of OCTAVES that a number of so many decimals may have."""
    digits = decimals(reading)
    smallest = 0.0 if digits is None else 2.0**math.floor(math.log2(10.0**-digits))
    low, high = OCTAVES[:-1], OCTAVES[1:]
    return np.flatnonzero((low >= smallest) | (high <= -smallest) | ((low < 0) & (high > 0)))


def _within(reading: Reading, low: float, high: float, records: float,
            outside: tuple[tuple[float, float, float], ...] = ()) -> Question:
    """A question about the values from low to high."""
    digits = decimals(reading)
    low, high = (min(max(end, -LARGEST), LARGEST) for end in (low, high))
    if digits is not None:
        step = 10.0**-digits
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if first >= 0 and last <= 1:
            first, last = 0, 1  # a rare one may drown in noise
        if last - first < MOST_EXACT:
            grid = (np.arange(first, last + 2) - 0.5) * step
            return Question(reading, grid, step, outside)
    count = int(min(max(records, FEWEST_BINS), MOST_BINS))
    edges = np.linspace(low, high, count + 1)
    return Question(reading, edges, 0.0, outside)


def closer(question: Question, answer: Answer, present: float, among: float) -> Question | None:
    """Returns a question about the bins that hold nearly all values; None where they are many."""
    if question.step or is_date(question.reading) or len(question.edges) == len(SIGNED):
        return None
    ends = _ends(answer.counts, answer.sigma, present)
    if ends is None or ends[1] - ends[0] > 2:
        return None
    low, high = question.edges[max(ends[0] - 1, 0)], question.edges[min(ends[1] + 2,
                                                                  len(question.edges) - 1)]
    made = _within(question.reading, float(low), float(high), present / max(among, 1.0),
                   question.outside)
    return dataclasses.replace(made, zeros=question.zeros, seen=question.seen)


@dataclasses.dataclass(frozen=True)
class Description:
    """The entries of a column.

    Attributes:
        entries: Its entries.
        middle: The code of a value from its middle.
    """

    entries: Json
    middle: float


def described(question: Question, answer: Answer, present: float, names: Mapping[str, int]
              ) -> Description | None:
    """Returns the entries of a column of numbers, dates or durations.

    Args:
        question: The question about its values.
        answer: The noisy counts of its bins.
        present: The noisy number of values.
        names: Texts of values outside of its range, with their noisy counts.

    Returns:
        None where no bounds stand out of the noise.
    """
    special, more = question.specials(names)
    present = max(present - sum(names[text] for text in special) - question.zeros, 1.0)
    special = [*["0"] * bool(question.zeros), *special]
    if is_date(question.reading):
        return _dates(question, answer, present, special)
    levels = _levels(question, answer, present) if question.step else None
    if levels is not None and (len(levels) <= AMONG or not _spikes(
            question, answer.counts, answer.sigma, present)):
        rest = max(present - answer.counts[levels].sum(), 0.0) / present
        return _of_levels(question, answer, levels, rest > REST, special)
    return _numbers(question, answer, present, special, more)


def _levels(question: Question, answer: Answer, present: float) -> np.ndarray | None:
    """The places of the few values of a column, if these are all; else None."""
    noisy, sigma = answer.counts, answer.sigma
    seen = np.flatnonzero(noisy >= least(sigma, min(0.5, LEVEL / noisy.size)))
    core = noisy[noisy >= least(sigma, FALSE_CORE / noisy.size)].sum()
    rest = present - noisy[seen].sum()
    few = 0 < len(seen) <= MAX_CATEGORIES
    slack = 2 * sigma * math.sqrt(len(seen) + 1)
    return seen if few and core >= 0.5 * present and rest <= max(
        (1 - KEPT) * present, min(slack, 2 * (1 - KEPT) * present)) else None


def _of_levels(question: Question, answer: Answer, seen: np.ndarray, more: bool, special: list[str]
               ) -> Description:
    """The entries of a column of few values; `more`: there may be others that drown in noise."""
    values = (question.edges[seen] + question.edges[seen + 1]) / 2
    counts = answer.counts[seen]
    common = float(values[counts.argmax()])
    width = seen[-1] - seen[0] + 1
    if len(seen) < 3 and set(np.rint(values / question.step).tolist()) <= {0.0, 1.0}:
        return Description(_bounded(question.reading, 0.0, question.step, special), common)
    if len(seen) >= DENSE * width or special:
        grow = math.ceil(width / 4) * more
        first, last = max(seen[0] - grow, 0), min(seen[-1] + grow, len(question.edges) - 2)
        middles = (question.edges[:-1] + question.edges[1:]) / 2
        low, high = float(middles[first]), float(middles[last])
        return Description(_bounded(question.reading, low, high, special), common)
    return Description({"kind": "ordinal", "levels": values.tolist()}, common)


def _numbers(question: Question, answer: Answer, present: float, special: list[str],
             more: list[tuple[float, float]]) -> Description | None:
    """The entries of a column of numbers, or of durations in seconds; `more` is in its range."""
    noisy, sigma, edges = answer.counts.copy(), answer.sigma, question.edges
    apart = [*special]
    zero = int(np.searchsorted(edges, 0.0, "right")) - 1
    spikes = _spikes(question, noisy, sigma, present)
    for place in spikes:
        present -= noisy[place]
        noisy[place] = 0
    near_zero = len(edges) == len(SIGNED)
    part = min(MOST_MARGIN, MARGIN + TAILS * sigma / present)
    wide = _ends if near_zero else _wide_ends
    ends = wide(noisy, sigma, present)
    if ends is None:
        for place in spikes:
            noisy[place] = answer.counts[place]
        spikes, ends = [], wide(noisy, sigma, present)
    if ends is None and near_zero:
        return None
    if ends is None:  # what the magnitudes tell
        bins = readings.binned(edges, np.clip(question.seen, edges[0], edges[-1]))
        ends, part = (int(bins[0]), int(bins[1])), 0.0
    apart += [_text_of(question, place) for place in spikes]
    first, last = ends
    if not near_zero:
        bins = readings.binned(edges, np.clip(question.seen, edges[0], edges[-1]))
        missing = present - noisy[ends[0]:ends[1] + 1].sum()
        width = ends[1] - ends[0] + 1
        trusted = missing <= (1 - KEPT) * present + 2 * sigma * math.sqrt(width)
        first, last = _not_cut(ends, (int(bins[0]), int(bins[1])), sigma if trusted else math.inf,
                               present)
        grow = math.ceil(part * (last - first + 1))
        first, last = max(first - grow, 0), min(last + grow, noisy.size - 1)
        if first < zero <= ends[0]:
            first = zero
    median = _middle(noisy, first, last)
    low, high, middle = (
        float(edges[first] * (not near_zero or first != zero)),
        float(edges[last + 1] * (not near_zero or last != zero)),
        float((edges[median] + edges[median + 1]) / 2))
    if question.step:
        low, high = low + question.step / 2, high - question.step / 2
    low = max(min([low, *(first for first, _ in more)]), -LARGEST)
    high = min(max([high, *(last for _, last in more)]), LARGEST)
    if 0 < low < NEAR * high and not apart and middle - low >= TAIL * (high - low):
        low = 0.0
    return _scaled(question.reading, low, high, middle, apart)


def _middle(noisy: np.ndarray, first: int, last: int) -> int:
    """The bin of the median, as far as the noise lets it be seen."""
    below = np.cumsum(np.maximum(noisy[first:last + 1], 0))
    return min(first + int(np.searchsorted(below, below[-1] / 2)), last)


def _not_cut(ends: tuple[int, int], seen: tuple[int, int], sigma: float, present: float
             ) -> tuple[int, int]:
    """The ends of a range; those of its magnitudes where noise may hide tails between both.

    They stay where they are a small part of the magnitudes, as years are, and hold the values: else
    sigma is infinite.
    """
    if math.isfinite(sigma) and (
            ends[1] - ends[0] + 1) * SMALL_PART < seen[1] - seen[0] + 1:
        return ends
    kept = [end if 2 * sigma * math.sqrt(abs(end - far) + 1) <= TAIL_PART * present else far
            for end, far in zip(ends, seen, strict=True)]
    return min(ends[0], kept[0]), max(ends[1], kept[1])


def _scaled(reading: Reading, low: float, high: float, middle: float, special: list[str]
            ) -> Description:
    """The entries of a column with these bounds, on a log scale where most values are small."""
    made = _bounded(reading, low, high, special)
    if middle - low < TAIL * (high - low) or high - low > WIDEST:
        try:
            checked("", made | {"scale": "log"})
            made["scale"] = "log"
        except UserError:  # whole numbers that a log scale would not keep apart
            pass
    whole = decimals(reading) == 0
    return Description(made, min(max(math.floor(middle) if whole else middle, low), high))


def _spikes(question: Question, noisy: np.ndarray, sigma: float, present: float) -> list[int]:
    """The places of values that many cells have, among many other values."""
    if len(question.edges) == len(SIGNED):
        zero = len(SIGNED) // 2 - 1
        rest = noisy.copy()
        rest[zero] = 0
        ends = _ends(rest, sigma, present - noisy[zero])
        spike = ends is not None and noisy[zero] >= max(SPIKE * present, 3 * sigma) and (
            max(-SIGNED[ends[0]], SIGNED[ends[1] + 1]) > AMONG)
        return [zero] if spike else []
    if not question.step:
        return []
    seen = np.flatnonzero(noisy >= max(SPIKE * present, least(sigma, FALSE_CORE / noisy.size)))
    others = [place for place in range(noisy.size) if place not in seen]
    many = len(others) > AMONG and noisy[others].sum() > SPIKE * present
    return seen.tolist() if many and len(seen) <= 2 else []


def _text_of(question: Question, place: int) -> str:
    """The text of a special value, as a schema has it."""
    if len(question.edges) == len(SIGNED):
        return "0"
    value = (question.edges[place] + question.edges[place + 1]) / 2
    return repr(round(float(value), decimals(question.reading) or 0)) if decimals(
        question.reading) else str(round(float(value)))


def _bounded(reading: Reading, low: float, high: float, special: list[str]) -> Json:
    """The entries of a column with these bounds, which are rounded outward."""
    column = reading.column
    if column.written == "duration":
        ends = transform.bounds_texts(column, low, high)
        made = {**reading.entries, "min": ends[0], "max": ends[1]}
        special = transform.texts(column, np.array(list(map(float, special))))  # zero alone
        return made | ({"special": special} if special else {})
    digits = decimals(reading)
    if digits == 0:
        low, high = math.floor(low), max(math.floor(low), math.ceil(high))
        whole = distinguishable(low, high)
        made = {**reading.entries, "kind": "integer" if whole else "continuous", "min": str(low),
                "max": str(high)} | ({} if whole else {"decimals": "0"})
    else:
        low, high = (_outward(end, direction, 15 if digits is None else digits) for end, direction
                     in ((low, math.floor), (high, math.ceil)))
        made = {**reading.entries, "kind": "continuous", "min": repr(low), "max": repr(high)}
    return made | ({"special": special} if special else {})


def _outward(value: float, direction: Any, most: int) -> float:
    """Rounds a bound to few digits, of which no more than `most` follow the point."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    digits = min(most, DIGITS - 1 - math.floor(math.log10(abs(value))))
    if most < 15:
        digits = max(digits, 0)
    if not -300 < digits < 300:
        return value
    near = round(value * 10.0**digits, 6)
    return float(round(direction(near) / 10.0**digits, max(digits, 0)))


def _dates(question: Question, answer: Answer, present: float, special: list[str]) -> Description:
    """The entries of a column of dates."""
    reading, noisy = question.reading, answer.counts.copy()
    for low, high, _ in question.outside * bool(special):
        inside = (question.edges[:-1] >= low) & (question.edges[:-1] < high)
        noisy[inside] = 0
    ends = _ends(noisy, answer.sigma, present, (*SCALES, 32, 64)) or (FIRST_YEAR, LAST_YEAR - 1)
    grow = math.ceil(min(MOST_MARGIN, MARGIN + TAILS * answer.sigma / present)
                     * (ends[1] - ends[0] + 1)) if ends[1] - ends[0] > FEWEST_YEARS else 0
    usual = ends[0] >= FIRST_YEAR and ends[1] < LAST_YEAR
    first, last = max(ends[0] - grow * usual, 0), min(ends[1] + grow * usual, noisy.size - 1)
    if "%y" in str(reading.entries.get("format", "")):
        first, last = (min(max(end, SHORT_YEARS[0]), SHORT_YEARS[1]) for end in (first, last))
    one = day(reading)
    start, end = float(question.edges[first] * one), float(question.edges[last + 1] * one - 1)
    if one > 1:  # a moment of a zone has its day in the years 1 to 9999, too
        start, end = max(start, (YEARS[0] + 1) * one), min(end, (YEARS[-1] - 1) * one - 1)
    least_text, most_text = transform.bounds_texts(reading.column, start, end)
    median = min(max(_middle(noisy, first, last), FIRST_YEAR), LAST_YEAR)
    made = {**reading.entries, "min": least_text, "max": most_text}
    return Description(made | ({"special": special} if special else {}),
                float(question.edges[median] * one))


def _wide_ends(noisy: np.ndarray, sigma: float, present: float) -> tuple[int, int] | None:
    """The first and the last bin of the values, by bins of equal width.

    They are those of single bins, and of blocks of bins that have some more values.
    """
    ends: tuple[int, int] | None = None
    for scale in (*SCALES, 32, 64, 128):
        found = None if 1 < scale > noisy.size / 8 else single_releases.interval(
            np.add.reduceat(noisy, np.arange(0, noisy.size, scale)),
            partial(least, sigma * math.sqrt(scale)))
        if found is None:
            continue
        first, last = found[0] * scale, min((found[1] + 1) * scale, noisy.size) - 1
        if ends is None:
            ends = first, last
            continue
        first, last = min(first, ends[0]), max(last, ends[1])
        more = [noisy[first:ends[0]], noisy[ends[1] + 1:last + 1]]
        grown = [part.sum() > max(2 * sigma * math.sqrt(part.size), TAIL_PART * present)
                 for part in more]
        ends = first if grown[0] else ends[0], last if grown[1] else ends[1]
    return ends


def with_special_dates(question: Question, answer: Answer) -> Question:
    """Returns a question about dates with the years far from most others, which may be special."""
    found = regions(answer.counts, answer.sigma, APART_YEARS)
    if len(found) < 2:
        return question
    usual = [one for one in found if one.first >= FIRST_YEAR and one.last < LAST_YEAR]
    main = max(usual or found, key=lambda region: region.mass)
    return dataclasses.replace(question, outside=tuple(
        (float(question.edges[one.first]), float(question.edges[one.last + 1]), one.mass)
        for one in found if one is not main))


def _ends(noisy: np.ndarray, sigma: float, present: float, scales: tuple[int, ...] = SCALES
          ) -> tuple[int, int] | None:
    """The first and the last bin of most values; where bins are too fine, of blocks of them."""
    widest = None
    for scale in scales:
        blocks = np.add.reduceat(noisy, np.arange(0, noisy.size, scale))
        found = single_releases.interval(blocks, partial(least, sigma * math.sqrt(scale)))
        if found is None:
            continue
        first, last = found[0] * scale, min((found[1] + 1) * scale, noisy.size) - 1
        mass = noisy[first:last + 1].sum()
        if mass >= KEPT * present - 2 * sigma * math.sqrt(last - first + 1):
            return first, last
        if widest is None or last - first > widest[1] - widest[0]:
            widest = (first, last)
    return widest
