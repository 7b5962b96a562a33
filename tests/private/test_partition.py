"""Disjoint, equal sizes up to one, a function of ids and key alone."""

import numpy as np
import pytest

from dpgen_jax.private import partition
from dpgen_jax.types import UserError


@pytest.mark.parametrize(("n", "units"), [(50, 11), (60, 4), (7, 7), (1000, 1), (12, 5)])
def test_every_record_has_one_unit_and_sizes_differ_by_at_most_one(n, units):
    dealt = partition.assign(n, units, b"key")
    owners = [set(row) for row in dealt.index]
    assert sorted(i for ids in owners for i in ids) == list(range(n))
    assert max(dealt.sizes) - min(dealt.sizes) <= 1 and dealt.sizes.sum() == n
    assert [len(ids) for ids in owners] == dealt.sizes.tolist()


def test_a_short_unit_repeats_its_own_record_only():
    dealt = partition.assign(5, 3, b"key")
    for row, size in zip(dealt.index, dealt.sizes, strict=True):
        assert set(row) == set(row[:size])


def test_the_key_decides_and_repeats():
    a, b, c = (partition.assign(100, 10, key).index for key in (b"one", b"one", b"two"))
    assert np.array_equal(a, b) and not np.array_equal(a, c)


def test_assignment_is_unrelated_to_the_order_of_ids():
    # Contiguous or strided slices would put neighbours in one unit, or in units i and i + 1.
    unit_of = np.empty(1000, int)
    dealt = partition.assign(1000, 10, b"key")
    for unit, row in enumerate(dealt.index):
        unit_of[row] = unit
    steps = np.diff(unit_of) % 10
    assert np.bincount(steps, minlength=10).max() < 160  # 100 expected, 6 standard deviations


@pytest.mark.parametrize(("n", "units", "match"), [
    (10, 11, "10 records cannot be dealt to 11 teachers"), (10, 0, "at least 1")])
def test_counts_that_cannot_work_are_named(n, units, match):
    with pytest.raises(UserError, match=match):
        partition.assign(n, units, b"key")
