"""`--test-fraction`: one record changes one slot, in whatever order the records come."""

import collections
import dataclasses

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core import arrays
from dpgen_jax.core.types import EMPTY, Column, TableSpec
from dpgen_jax.data import Dataset, from_arrays, load
from dpgen_jax.data import parts as data_parts
from dpgen_jax.data.images import digits

SPEC = TableSpec((Column("a", "continuous", 0, 1), Column("b", "continuous", 0, 1)),
                 Column("label", "categorical", categories=("0", "1")), 2)
N, SHARE = 400, 0.25


def table(x, y) -> Dataset:
    return Dataset("people", SPEC, np.asarray(x, np.float32), np.asarray(y, np.int32))


@pytest.fixture
def people(rng):
    """Few different rows, so that many are equal to another."""
    return rng.integers(0, 6, (N, 2)).astype(np.float32) / 5, rng.integers(0, 2, N)


def members(data: Dataset) -> collections.Counter:
    """The training records, without their order."""
    return collections.Counter(
        (row.tobytes(), int(label)) for row, label in zip(data.x_train, data.y_train, strict=True))


def differ(one: Dataset, other: Dataset) -> int:
    """How many training records of one are not in the other, which has as many."""
    assert len(one.y_train) == len(other.y_train) and one.notes == other.notes
    return sum((members(one) - members(other)).values())


def test_the_share_is_held_out_and_all_else_trained_on(people):
    whole, data = table(*people), data_parts.hold_out(table(*people), SHARE)
    assert len(data.y_test) == SHARE * N and len(data.y_train) == N - SHARE * N
    tested = dataclasses.replace(data, x_train=data.x_test, y_train=data.y_test)
    assert members(data) + members(tested) == members(whole)
    assert data.notes[-1] == (
        "held out for tests: a share of 0.25 of all records, by a public hash of their values and "
        "labels")


def exported(rows) -> Dataset:
    """A table in the order of its content, as of an export that is sorted by age."""
    rows = rows[np.lexsort(rows.T)]
    return table(rows[:, :2], rows[:, 2])


@pytest.mark.parametrize("values", [3, 6, 1000])
def test_one_record_changes_one_training_record_whatever_the_order(rng, values):
    """Few values: many equal records. Many: all are different."""
    rows = np.concatenate([rng.integers(0, values, (60, 2)) / values,
                           rng.integers(0, 2, (60, 1))], 1)
    before, moved = data_parts.hold_out(exported(rows), SHARE), 0
    for _ in range(200):
        changed = rows.copy()
        changed[rng.integers(60)] = [*rng.integers(0, values, 2) / values, rng.integers(0, 2)]
        distance = differ(before, data_parts.hold_out(exported(changed), SHARE))
        assert distance <= 1
        moved += distance
    assert moved > 0


def test_a_deal_by_place_is_seen(rng, monkeypatch):
    """The planted fault: by place, a record that is replaced and sorted in moves many others."""
    monkeypatch.setattr(data_parts, "held_out_hashes", lambda x, y: np.tile(
        (np.arange(len(y)) % 4).astype(np.uint8)[:, None], 8))
    rows = np.concatenate([rng.uniform(size=(60, 2)), rng.integers(0, 2, (60, 1))], 1)
    changed = rows.copy()
    changed[np.lexsort(rows.T)[0]] = [1, 1, 1]
    before, after = (data_parts.hold_out(exported(r), SHARE) for r in (rows, changed))
    assert differ(before, after) > 1


def test_a_hash_that_other_records_enter_is_seen(rng, monkeypatch):
    """The planted fault: a hash of the whole table deals all records anew."""
    alone = data_parts.held_out_hashes
    monkeypatch.setattr(data_parts, "held_out_hashes", lambda x, y: arrays.digests_of(
        (h.tobytes() + x.tobytes() for h in alone(x, y)), 24))
    rows = np.concatenate([rng.uniform(size=(60, 2)), rng.integers(0, 2, (60, 1))], 1)
    changed = rows.copy()
    changed[0] = [1, 1, 1]
    assert differ(*(data_parts.hold_out(exported(r), SHARE) for r in (rows, changed))) > 1


def test_parts_do_not_depend_on_the_order_and_grow_with_the_share(people, rng):
    x, y = people
    rows = np.unique(np.concatenate([x, y[:, None]], 1), axis=0)  # all different

    def tested(rows, share=SHARE):
        data = data_parts.hold_out(table(rows[:, :2], rows[:, 2]), share)
        return {(*row.tolist(), int(label))
                for row, label in zip(data.x_test, data.y_test, strict=True)}

    assert tested(rows) == tested(rows[rng.permutation(len(rows))])
    assert tested(rows) < tested(rows, 0.6)


def test_no_class_is_favoured():
    data = data_parts.hold_out(digits.glyphs(n_train=3000, n_test=0), 0.2)
    shares = np.bincount(data.y_test, minlength=10) / 300
    assert np.all(np.abs(shares - 0.2) < 5 * np.sqrt(0.2 * 0.8 / 300))


def test_the_deal_stays_what_it_was():
    """A release says 0.25, and what that means may never change."""
    x = np.arange(24, dtype=np.float32).reshape(12, 2) / 24
    hashes = data_parts.held_out_hashes(x, np.zeros(12, np.int32))
    assert sorted(range(12), key=lambda i: hashes[i].tobytes()) == [
        4, 0, 5, 6, 8, 9, 11, 2, 10, 3, 7, 1]


@pytest.mark.parametrize(("share", "words"), [
    (0.0, "between 0 and 1"), (1.0, "between 0 and 1"), (float("nan"), "between 0 and 1"),
    (0.001, "of 400 records is 0; each part"), (0.999, "of 400 records is 400; each part")])
def test_shares_that_leave_a_part_empty_are_refused(people, share, words):
    refused(words, data_parts.hold_out, table(*people), share)


def test_other_data_are_refused_in_one_line(people):
    data = table(*people)
    twice = data_parts.hold_out(data, SHARE)
    clients = dataclasses.replace(data, clients=np.zeros(N, np.int32))
    for other, words in ((twice, "already has a held-out part"), (clients, "hold out clients")):
        refused(words, data_parts.hold_out, other, SHARE)
    refused("already has a held-out part", load, "glyphs", test_fraction=0.2)


def test_an_evaluation_has_the_share_of_its_training(people):
    data, whole = data_parts.hold_out(table(*people), SHARE), table(*people)
    data_parts.check_same_held_out(["other line", *data.notes], data)
    data_parts.check_same_held_out(["other line"], whole)
    for trained, tested in ((data.notes, whole), ((), data),
                            (data.notes, data_parts.hold_out(whole, 0.3))):
        refused("test records would be training records", data_parts.check_same_held_out, trained,
                tested)


def test_empty_slots_are_trained_on_and_tested_on_never():
    data = from_arrays(np.zeros((50, 8, 8), np.uint8), np.zeros(50, np.int64), 3)
    y = data.y_train.copy()
    y[:20] = EMPTY
    for share, tested in ((0.5, 25), (0.8, 30)):
        parts = data_parts.hold_out(dataclasses.replace(data, y_train=y), share)
        assert len(parts.y_test) == tested and (parts.y_test == 0).all()
        assert (parts.y_train == EMPTY).sum() == 20 - (round(50 * share) - tested)


def test_a_record_that_is_left_empty_replaces_none(rng):
    """Zero-out: the training part loses one record at most, and gets none but the empty one."""
    nothing, gone = (np.zeros(2, np.float32).tobytes(), EMPTY), 0
    for _ in range(60):
        x, y = rng.integers(0, 4, (8, 2)) / 4, rng.integers(0, 2, 8)
        x[:2], y[:2] = 0, EMPTY
        before = members(data_parts.hold_out(table(x, y), 0.5))
        i = rng.integers(2, 8)
        x[i], y[i] = 0, EMPTY
        after = members(data_parts.hold_out(table(x, y), 0.5))
        assert set(after - before) <= {nothing} and sum((before - after).values()) <= 1
        gone += sum((before - after).values())
    assert gone == 60  # of each pair one is trained on that the other is without
