"""The kept votes: what is appended is read back, and what a crash cut off is not."""

import stat

import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.core.types import Private, UserError, unseal
from dpgen_jax.private import kept_votes as log

ROWS, COLUMNS, BINS = 2, 3, 4
QUERIES, STEP = ROWS * COLUMNS, 4 * ROWS * COLUMNS * (BINS + 1)


def block(seed, steps, room=4):
    """Sums [room, B, k bins] of which the first `steps` count, and answers [steps, B, k]."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 99, (room, ROWS, COLUMNS * BINS)).astype(np.int32),
            rng.integers(0, 2, (steps, ROWS, COLUMNS)).astype(np.int32))


def append(path, counts, answered):
    log.append(path, Private(jnp.asarray(counts)), answered)


def read(path, queries=QUERIES, bins=BINS):
    return unseal(log.read(path, queries, bins))


def check(path, *blocks):
    """The file holds the steps of these blocks, in order."""
    votes = read(path)
    steps = sum(len(answered) for _, answered in blocks)
    assert votes.steps == steps and votes.counts.shape == (steps * QUERIES, BINS)
    np.testing.assert_array_equal(votes.counts, np.concatenate(
        [counts[:len(answered)].reshape(-1, BINS) for counts, answered in blocks]))
    assert votes.answered.dtype == bool
    np.testing.assert_array_equal(votes.answered, np.concatenate(
        [answered.ravel() for _, answered in blocks]))


def test_blocks_are_read_back_in_order(tmp_path):
    path, blocks = tmp_path / "votes", [block(0, 2), block(1, 4), block(2, 1)]
    for one in blocks:
        append(path, *one)
    check(path, *blocks)
    assert path.stat().st_size == 7 * STEP


def test_only_the_owner_may_read_it(tmp_path):
    append(tmp_path / "votes", *block(0, 1))
    assert stat.S_IMODE((tmp_path / "votes").stat().st_mode) == 0o600


def test_steps_beyond_those_answered_are_not_kept(tmp_path):
    """A compiled block has room for more steps than it ran."""
    path, one = tmp_path / "votes", block(0, 1, room=16)
    append(path, *one)
    check(path, one)


@pytest.mark.parametrize("kept", [0, 1, 3, 4, STEP - 1])
def test_a_torn_tail_is_dropped_when_read_and_cut_by_the_next_block(tmp_path, kept):
    path, first, later = tmp_path / "votes", block(0, 2), block(2, 3)
    append(path, *first)
    append(path, *block(1, 1))
    path.write_bytes(path.read_bytes()[:2 * STEP + kept])
    check(path, first)
    append(path, *later)
    check(path, first, later)
    assert path.stat().st_size == 5 * STEP


@pytest.mark.parametrize(("rows", "columns", "bins"), [(1, 1, 2), (15, 10, 10), (3, 2, 5)])
def test_other_widths(tmp_path, rows, columns, bins):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 2**31, (2, rows, columns * bins), dtype=np.int32)
    answered = rng.integers(0, 2, (2, rows, columns))
    append(tmp_path / "votes", counts, answered)
    stored = read(tmp_path / "votes", rows * columns, bins)
    np.testing.assert_array_equal(stored.counts, counts.reshape(-1, bins))
    np.testing.assert_array_equal(stored.answered, answered.ravel() == 1)


def test_what_is_read_is_sealed(tmp_path):
    append(tmp_path / "votes", *block(0, 2))
    sealed = log.read(tmp_path / "votes", QUERIES, BINS)
    assert repr(sealed) == "Private(Votes[])"


def test_a_run_without_votes_is_said(tmp_path):
    with pytest.raises(UserError, match="kept no votes"):
        log.read(tmp_path / "votes", QUERIES, BINS)
