"""Simulated federations, and `npz:` files that say who holds which record."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from dpgen_jax.core.arrays import pick
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data import from_arrays, load
from dpgen_jax.data.base import Dataset
from dpgen_jax.data.clients import flipped, split, with_declared_clients
from dpgen_jax.private.records import by_client

CLASSES = 4
ROWS = Dataset(
    "rows", TableSpec((Column("age", "integer", 0, 9),), Column("y", "categorical",
                                                                categories=("no", "yes")), 1),
    np.linspace(0, 1, 10, dtype=np.float32)[:, None], np.arange(10, dtype=np.int32) % 2)
NAMED = np.array([0, 2, 1, 1, 0, 2, 0, 0, 0, 0, 0, 0], np.int32)


def federation(n: int = 1000, classes: int = CLASSES, clients: np.ndarray | None = None
               ) -> Dataset:
    rng = np.random.default_rng(1)
    data = from_arrays(rng.integers(0, 256, (n, 4, 4), dtype=np.uint8),
                       rng.integers(0, classes, n), classes)
    return dataclasses.replace(data, clients=clients)


def sizes(data: Dataset) -> np.ndarray:
    return np.bincount(data.clients)


def shares(data: Dataset) -> np.ndarray:
    """The share of each class [C] that each client [U] has."""
    counts = np.zeros((data.spec.classes, data.clients.max() + 1))
    np.add.at(counts, (data.y_train, data.clients), 1)
    return counts / counts.sum(1, keepdims=True)


@given(st.integers(2, 40), st.integers(0, 40), st.sampled_from([None, 1e-300, 0.01, 1.0, 1e6]),
       st.integers(0, 2**32))
def test_every_record_has_a_client_and_every_client_a_record(clients, more, alpha, seed):
    data = federation(clients + more)
    dealt = split(data, clients, alpha, seed)
    assert dealt.clients.dtype == np.int32 and not dealt.clients.flags.writeable
    assert dealt.clients.shape == data.y_train.shape
    assert len(sizes(dealt)) == clients and sizes(dealt).min() >= 1
    by_client(dealt.clients, clients)
    if alpha is None:
        assert np.ptp(sizes(dealt)) <= 1
    np.testing.assert_array_equal(dealt.x_train, data.x_train)


def test_the_seed_decides_and_repeats():
    for alpha in (None, 0.5):
        a, b, c = (split(federation(), 10, alpha, seed).clients for seed in (1, 1, 2))
        assert np.array_equal(a, b) and (a != c).any()


def test_an_even_split_does_not_look_at_the_records():
    data = federation()
    other = dataclasses.replace(data, x_train=255 - data.x_train, y_train=data.y_train[::-1])
    np.testing.assert_array_equal(split(data, 7, None, 0).clients, split(other, 7, None, 0).clients)


def test_an_even_split_is_unrelated_to_the_order_of_records():
    dealt = split(federation(), 10, None, 0).clients
    steps = np.bincount(np.diff(dealt) % 10, minlength=10)
    assert steps.max() < 160  # 100 expected, 6 standard deviations


@pytest.mark.parametrize("alpha", [0.3, 2.0])
def test_shares_of_a_class_are_dirichlet(alpha):
    """Mean 1 / U and variance (1 / U)(1 - 1 / U) / (alpha U + 1) over 2,000 draws; the shares are
    rounded to records, 1 / 100 of a class."""
    clients, classes = 4, 2000
    y = np.repeat(np.arange(classes), 100)
    data = from_arrays(np.zeros((len(y), 4, 4), np.uint8), y, classes)
    dealt = shares(split(data, clients, alpha, 0))
    variance = 3 / 16 / (4 * alpha + 1)
    np.testing.assert_allclose(dealt.mean(0), 1 / clients, atol=5 * (variance / classes) ** 0.5)
    np.testing.assert_allclose(dealt.var(0), variance, rtol=0.1)


def test_a_large_alpha_is_even_and_a_small_one_gives_a_class_to_one_client():
    np.testing.assert_allclose(shares(split(federation(), 5, 1e6, 0)), 0.2, atol=0.01)
    few = shares(split(federation(), 5, 1e-6, 0))
    assert (few.max(1) > 0.98).all()


def test_a_client_does_not_get_neighbours_of_a_class():
    dealt = split(federation(classes=1), 2, 1e6, 0).clients
    assert 400 < np.abs(np.diff(dealt)).sum() < 600  # 1 if cut in the order of the records


def test_an_empty_client_gets_a_record_of_the_largest():
    data = federation(60, classes=1)
    dealt = split(data, 6, 1e-6, 0)
    assert sorted(sizes(dealt)) == [1, 1, 1, 1, 1, 55]
    # each time the last record that the largest client still has
    assert (dealt.clients[:55] == dealt.clients[0]).all()
    assert dealt.clients[55:].tolist() == sorted(dealt.clients[55:], reverse=True)
    (line,) = dealt.private_notes
    assert "5 of 6 clients were dealt no record" in line
    assert dealt.notes[-1] == "6 simulated clients: records are dealt by class, Dirichlet(1e-06)"
    assert "by their labels" in dealt.simulated


def test_an_even_split_is_noted():
    dealt = split(federation(), 6, None, 0)
    assert dealt.notes[-1].startswith("6 simulated clients: ") and not dealt.private_notes


@pytest.mark.parametrize(("clients", "alpha", "match"), [
    (1, None, "one client is a central run: leave out --federated"),
    (0, None, "--clients 0 is too small"), (-3, 1.0, "--clients -3 is too small"),
    (13, None, "12 records cannot be split over 13 clients"),
    (None, None, "pass --clients N"),
    (3, 0.0, "Dirichlet alpha 0: give a number above 0"), (3, -1.0, "alpha -1"),
    (3, float("nan"), "alpha nan"), (3, float("inf"), "alpha inf")])
def test_a_split_that_cannot_be(clients, alpha, match):
    refused(match, split, federation(12), clients, alpha, 0)


def test_named_clients_stay():
    data = federation(12, clients=NAMED)
    for clients in (None, 3):
        dealt = with_declared_clients(data, clients, None)
        np.testing.assert_array_equal(dealt.clients, NAMED)
        assert "their number, 3, is public" in dealt.notes[-1]
    refused("names 3 clients itself, --clients 4 was given", with_declared_clients, data, 4, None)
    refused("alpha 0.5 does not apply", with_declared_clients, data, None, 0.5)
    with pytest.raises(UserError, match="one client is a central run"):
        with_declared_clients(federation(12, clients=0 * NAMED), None, None)


def test_flipped_clients_are_inverted_and_no_others():
    data = split(federation(), 9, 0.5, 0)
    faulty, chosen = flipped(data, 0.5, 0)
    assert len(set(chosen.tolist())) == 5 and (np.diff(chosen) > 0).all()  # 4.5, rounded up
    rows = np.isin(data.clients, chosen)
    np.testing.assert_array_equal(faulty.x_train[rows], 255 - data.x_train[rows])
    np.testing.assert_array_equal(faulty.x_train[~rows], data.x_train[~rows])
    assert not faulty.x_train.flags.writeable and faulty.x_train.dtype == np.uint8
    np.testing.assert_array_equal(faulty.clients, data.clients)
    assert faulty.notes[-1] == "simulated clients: pixel intensities are flipped at 5 of 9 clients"
    again, other = (flipped(data, 0.5, seed)[1] for seed in (0, 1))
    assert np.array_equal(again, chosen) and not np.array_equal(other, chosen)
    np.testing.assert_array_equal(flipped(data, 1.0, 0)[0].x_train, 255 - data.x_train)
    lying = dataclasses.replace(data, x_train=pick(data.x_train, np.ones(1000, bool)))
    np.testing.assert_array_equal(flipped(lying, 0.5, 0)[0].x_train, faulty.x_train)


def test_a_fault_that_cannot_be():
    data = split(federation(), 9, None, 0)
    for share in (0.0, -0.1, 1.1, float("nan")):
        refused("give a number above 0 and up to 1", flipped, data, share, 0)
    refused("share 0.05 of 9 clients means no client", flipped, data, 0.05, 0)
    refused("split it first", flipped, federation(), 0.5, 0)
    refused("rows is a table", flipped, split(ROWS, 3, None, 0), 0.5, 0)


def test_rows_of_a_table_are_split_too():
    assert sorted(sizes(split(ROWS, 4, None, 0))) == [2, 2, 3, 3]
    assert len(sizes(split(ROWS, 4, 0.1, 0))) == 4


@pytest.fixture
def save(tmp_path):
    def write(count: int = 4, **arrays) -> Dataset:
        np.savez(tmp_path / "some.npz", x_train=np.zeros((count, 4, 4), np.uint8),
                 y_train=np.zeros(count, int), classes=1, **arrays)
        return load(f"npz:{tmp_path / 'some.npz'}")
    return write


@pytest.mark.parametrize("names", [
    [30, -5, 30, 7], ["b", "B", "b", "a"], [b"b", b"B", b"b", b"a"],
    np.array([2**64 - 1, 0, 2**64 - 1, 7], np.uint64)])
def test_npz_names_are_ranked(save, names):
    data = save(client_id=np.array(names))
    assert data.clients.tolist() == [2, 0, 2, 1] and data.clients.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        data.clients[0] = 1


def test_npz_without_names(save):
    assert save().clients is None and load("digits").clients is None


@pytest.mark.parametrize(("names", "match"), [
    (np.zeros(3, int), r"4 training images but client_id of shape \(3,\)"),
    (np.zeros((4, 1), int), r"client_id of shape \(4, 1\)"),
    (np.int64(3), r"client_id of shape \(\)"),
    (np.array([0.0, np.nan, 1, 2]), "client_id is float64; store integers or strings"),
    (np.zeros(4, bool), "client_id is bool"),
    (np.array(["a", None, "b", "c"]), "without pickles")])
def test_npz_with_bad_names(save, names, match):
    refused(match, save, client_id=names)
