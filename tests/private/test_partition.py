"""Teachers: disjoint, equal sizes up to one, a function of ids and key alone. Clients: a row is a
function of the client's own records alone."""


import cpu_limit
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgen_jax.core.types import UserError
from dpgen_jax.private import records


@pytest.mark.parametrize(("n", "units"), [(50, 11), (60, 4), (7, 7), (1000, 1), (12, 5)])
def test_every_record_has_one_unit_and_sizes_differ_by_at_most_one(n, units):
    dealt = records.assign(n, units, b"key")
    owners = [set(row) for row in dealt.index]
    assert sorted(i for ids in owners for i in ids) == list(range(n))
    assert max(dealt.sizes) - min(dealt.sizes) <= 1 and dealt.sizes.sum() == n
    assert [len(ids) for ids in owners] == dealt.sizes.tolist()


def test_a_short_unit_repeats_its_own_record_only():
    dealt = records.assign(5, 3, b"key")
    for row, size in zip(dealt.index, dealt.sizes, strict=True):
        assert set(row) == set(row[:size])


def test_the_key_decides_and_repeats():
    a, b, c = (records.assign(100, 10, key).index for key in (b"one", b"one", b"two"))
    assert np.array_equal(a, b) and not np.array_equal(a, c)


def test_assignment_is_unrelated_to_the_order_of_ids():
    # Contiguous or strided slices would put neighbours in one unit, or in units i and i + 1.
    unit_of = np.empty(1000, int)
    dealt = records.assign(1000, 10, b"key")
    for unit, row in enumerate(dealt.index):
        unit_of[row] = unit
    steps = np.diff(unit_of) % 10
    assert np.bincount(steps, minlength=10).max() < 160  # 100 expected, 6 standard deviations


@pytest.mark.parametrize(("n", "units", "match"), [
    (10, 11, "10 records cannot be dealt to 11 teachers"), (10, 0, "at least 1")])
def test_counts_that_cannot_work_are_named(n, units, match):
    with pytest.raises(UserError, match=match):
        records.assign(n, units, b"key")


def test_clients_repeat_their_own_records_in_turn():
    dealt = records.by_client(np.array([1, 0, 1, 1, 0], np.int32), 2, 4)
    assert dealt.index.tolist() == [[1, 4, 1, 4], [0, 2, 3, 0]] and dealt.sizes.tolist() == [2, 3]
    assert dealt.index.dtype == dealt.sizes.dtype == np.int64


def test_a_large_client_contributes_evenly_spaced_records():
    dealt = records.by_client(np.array([0] * 10 + [1]), 2, 4)
    assert dealt.index.tolist() == [[0, 2, 5, 7], [10] * 4] and dealt.sizes.tolist() == [4, 1]


federations = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(federations, st.integers(1, 12), st.randoms(use_true_random=False))
def test_rows_hold_what_each_client_brought(sizes, most, shuffle):
    brought = np.repeat(np.arange(len(sizes)), sizes).tolist()
    shuffle.shuffle(brought)
    clients = np.array(brought)
    dealt = records.by_client(clients, len(sizes), most)
    assert dealt.index.shape == (len(sizes), most)
    assert dealt.sizes.tolist() == np.minimum(sizes, most).tolist()
    for client, (row, size) in enumerate(zip(dealt.index, dealt.sizes, strict=True)):
        own = np.flatnonzero(clients == client)
        assert len(set(row)) == len(set(row[:size])) == size and set(row) <= set(own)
        assert (np.diff(row[:size]) > 0).all()
        np.testing.assert_array_equal(row, np.resize(row[:size], most))


@given(federations, st.integers(1, 9), st.data())
def test_replacing_a_client_leaves_the_other_rows_as_they_were(sizes, other_size, data):
    """Also where its number of records changes, and with it the ids of all records after it."""
    changed = data.draw(st.integers(0, len(sizes) - 1))
    others = [*sizes[:changed], other_size, *sizes[changed + 1:]]

    def rows(sizes):
        clients = np.repeat(np.arange(len(sizes)), sizes)
        content = np.concatenate([100 * i + np.arange(n) for i, n in enumerate(sizes)])
        return content[records.by_client(clients, len(sizes), 5).index]

    keep = np.arange(len(sizes)) != changed
    np.testing.assert_array_equal(rows(sizes)[keep], rows(others)[keep])


def test_the_width_is_the_public_number_by_default_too():
    widths = {records.by_client(np.array([0] * n + [1]), 2).index.shape for n in (1, 50, 1000)}
    assert widths == {(2, records.MOST)}


@pytest.mark.parametrize(("clients", "n_clients", "most", "match"), [
    ([0, 1, 2, 4], 5, 9, "client 3 has no records: leave it out of the federation"),
    ([0, 0], 2, 9, "client 1 has no records"),
    ([], 1, 9, "client 0 has no records"),
    ([0, 2, 1], 2, 9, r"record 1 belongs to client 2, outside 0\.\.1"),
    ([0, -1, 1], 2, 9, "record 1 belongs to client -1"),
    ([0, 1], 2, 0, "may contribute 0 records"),
    ([[0, 1]], 2, 9, r"int64 of shape \(1, 2\)")])
def test_federations_that_cannot_work_are_named(clients, n_clients, most, match):
    with pytest.raises(UserError, match=match) as caught:
        records.by_client(np.array(clients, np.int64), n_clients, most)
    assert "\n" not in str(caught.value)


def test_clients_are_integers():
    with pytest.raises(UserError, match="clients are float64"):
        records.by_client(np.array([0.0, 1.0]), 2)


def test_many_clients_take_no_time():
    clients = np.random.default_rng(0).permutation(100_000) % 3400
    with cpu_limit.at_most(2):  # 0.1 s measured
        dealt = records.by_client(clients.astype(np.int32), 3400)
    assert dealt.sizes.sum() == 100_000
