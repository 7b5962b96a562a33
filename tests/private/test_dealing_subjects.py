"""One person, many rows: all of them lie in one unit, and move a sum as far as one record does."""

import dataclasses

import numpy as np
import pytest
from planted import toy as adversary

from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.aggregation.single_releases import class_counts, class_counts_sensitivity
from dpgen_jax.core.types import Subjects, UserError, unseal
from dpgen_jax.data.table import subjects as reading
from dpgen_jax.private import records
from dpgen_jax.run import loop

KEY, K, UNITS, CHANGED = b"partition key of the tests", 3, 4, "p5"
SIZES = [1, 4, 2, 7, 3, 5, 1, 2, 6, 3]
Table = tuple[list[str], np.ndarray, np.ndarray]


def table(changed: int = 5, name: str = CHANGED, value: int = 200, label: int = 1) -> Table:
    """Names, images and labels; p5 has other rows, as many as `changed`, and another name."""
    sizes = {f"p{i}": size for i, size in enumerate(SIZES)} | {CHANGED: changed}
    x, y, names = [], [], []
    for owner, size in sizes.items():
        rng = np.random.default_rng(int(owner[1:]))
        own = owner == CHANGED
        x.append(np.full((size, *adversary.SPEC.shape), value) if own else
                 rng.integers(64, 192, (size, *adversary.SPEC.shape)))
        y.append(np.full(size, label) if own else rng.integers(0, 2, size))
        names += [name if own else owner] * size
    return names, np.concatenate(x).astype(np.uint8), np.concatenate(y)


def dealt(data: Table, units: int = UNITS, k: int = K) -> records.Partition:
    names, x, y = data
    return records.by_subject(reading.numbered("who", k, names), x, y, units, KEY)


def of_units(data: Table, deal: records.Partition):
    _, x, y = data
    return unseal(records.deal(records.seal(x, y, adversary.SPEC), deal))


def changed_units(one, other) -> set[int]:
    assert one.x.shape == other.x.shape and one.y.shape == other.y.shape
    return {u for u in range(len(one.y)) if not (
        np.array_equal(one.x[u], other.x[u]) and np.array_equal(one.y[u], other.y[u]))}


NEIGHBOURS = [table(1000, value=90), table(1, "p77", 201), table(2, "", 7, 0), table(5, "p5", 0, 0)]


@pytest.mark.parametrize("units", [UNITS, len(SIZES)])
def test_a_person_replaced_whole_changes_one_unit_and_no_shape(units):
    before = of_units(table(), dealt(table(), units))
    for other in NEIGHBOURS:
        assert len(changed_units(before, of_units(other, dealt(other, units)))) == 1


def test_rows_that_are_dealt_one_by_one_are_caught():
    """The planted fault: each row is its own subject."""
    def by_row(data: Table):
        return of_units(data, records.assign(len(data[0]), UNITS, KEY))

    same_size = table(5, value=0)
    assert len(changed_units(by_row(table()), by_row(same_size))) > 1
    with pytest.raises(AssertionError):
        changed_units(by_row(table()), by_row(table(1000)))


def test_at_most_k_rows_are_kept_in_any_order_of_the_file():
    names, x, y = table(1000)
    order = np.random.default_rng(1).permutation(len(names))
    shuffled = [names[i] for i in order], x[order], y[order]
    rows = {}
    for data in ((names, x, y), shuffled):
        found = reading.numbered("who", K, data[0])
        slots = records.kept(found, data[1], data[2], KEY)
        assert slots.shape == (len(SIZES), K)
        sizes = np.minimum(np.bincount(found.train), K)
        np.testing.assert_array_equal((slots >= 0).sum(1), sizes)
        first = dict(zip(found.train.tolist(), data[0], strict=True))
        rows[len(rows)] = {first[s]: [bytes(data[1][i]) for i in row if i >= 0]
                           for s, row in enumerate(slots)}
    assert rows[0] == rows[1]


def test_each_row_of_a_person_has_the_same_chance():
    names, x, y = ["a"] * 8 + ["b"], np.arange(9.0)[:, None], np.zeros(9, int)
    found = reading.numbered("who", 2, names)
    taken = [records.kept(found, x, y, i.to_bytes(2))[0] for i in range(2000)]
    times = np.bincount(np.ravel(taken), minlength=8)
    assert times[8:].sum() == 0 and np.abs(times - 500).max() < 5 * np.sqrt(500 * 0.75)


def test_empty_places_are_filled_by_rows_of_the_same_unit_in_turn():
    units = len(SIZES)
    deal = dealt(table(), units)
    assert sorted(deal.sizes) == sorted(np.minimum(SIZES, K)) and deal.index.shape == (units, K)
    owners = np.repeat(np.arange(units), SIZES)[deal.index]
    assert (owners == owners[:, :1]).all() and {*owners[:, 0].tolist()} == {*range(units)}
    for row, size in zip(deal.index, deal.sizes, strict=True):
        assert row.tolist() == [row[i % size] for i in range(K)] and len({*row}) == size
    dealt_units = of_units(table(), dealt(table()))  # three people a unit, or two
    assert dealt_units.y.shape == (UNITS, 3 * K) and (dealt_units.y >= 0).all()


def test_more_units_than_people_are_refused():
    with pytest.raises(UserError, match="10 subjects cannot be dealt to 11 teachers"):
        dealt(table(), units=11)


def seen(data: Table, deal: records.Partition) -> np.ndarray:
    """The sum that the real loop releases in its first round, with noise of 0."""
    where = adversary.layout(chunk=2)
    method = adversary.build()
    bits = np.zeros((adversary.STEPS, *adversary.SHAPE, 3), np.uint32)
    state = adversary.call(compiled(method, where), adversary.start(where),
                           adversary.placed(data[1:], where, deal), where, bits, 1)[0]
    return np.asarray(state.seen[0], np.int64)


def compiled(method, where):
    if not CACHE:
        CACHE.append(loop.compile_block(method, where))
    return CACHE[0]


CACHE: list = []


def in_two_units(data: Table) -> records.Partition:
    """The planted fault: a row of the person lies in a second unit too."""
    first, last = sum(SIZES[:5]), len(data[0]) - sum(SIZES[6:])  # the person's rows in the file
    index = dealt(data).index.copy()
    owner = int(np.argwhere((index >= first) & (index < last))[0, 0])
    index[(owner + 1) % UNITS, 0] = first
    return dataclasses.replace(dealt(data), index=index)


@pytest.mark.slow
def test_a_person_of_a_thousand_rows_moves_the_sum_as_far_as_is_declared_and_no_further():
    many, none = table(1000, value=255), table(1, "p99", value=0)
    moved = int(((seen(many, dealt(many)) - seen(none, dealt(none)))**2).sum())
    assert moved == adversary.mechanism().bound.squared_sensitivity()
    fault = seen(many, in_two_units(many)) - seen(none, in_two_units(none))
    assert int((fault**2).sum()) == 4 * moved


def test_class_counts_move_by_twice_k_at_most_and_by_that_much():
    def counts(data: Table, classes: int):
        deal = dealt(data)
        spec = dataclasses.replace(adversary.SPEC, classes=classes)
        sealed = records.seal(data[1], data[2], spec)
        return class_counts(records.labels(sealed, deal), classes, 1.0, SeededBits(0), K)

    for classes in (2, 3):
        one, other = table(1000, label=0), table(7, "q", label=1)
        moved = np.abs(counts(one, classes) - counts(other, classes)).sum()
        assert moved == class_counts_sensitivity(classes, K) == 2 * K
        # Two classes without subjects need one count; with them both are drawn.
        total = sum(min(size, K) for size in SIZES)
        assert counts(table(), classes).sum() != total


def test_the_fingerprint_of_a_grouping_is_of_who_has_which_row():
    one, renamed = (reading.numbered("who", 2, names).train for names in ("aab", "ccd"))
    other = reading.numbered("who", 2, "abb").train
    assert records.grouping(None, KEY) == ""
    assert records.grouping(one, KEY) == records.grouping(renamed, KEY)
    assert records.grouping(np.array([7, 7, 2]), KEY) == records.grouping(one, KEY)
    assert len({records.grouping(one, KEY), records.grouping(other, KEY),
                records.grouping(one, b"another")}) == 3


def test_the_number_of_people_is_that_of_names():
    assert isinstance(found := reading.numbered("who", 2, "abca"), Subjects) and found.count == 3
