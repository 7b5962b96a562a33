"""Count sketches of votes: linear, good at recovery, bounded in integers, and noised before
anything is chosen."""

import functools
import itertools
import math

import hostile
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpgen_jax.aggregation import compression
from dpgen_jax.aggregation.compression import CountSketch, SketchedSigns
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.topagg import TopKSign, magnitude_bits, select_top_k
from dpgen_jax.core.types import UserError

SKETCHES = [CountSketch(5, 16, 60), CountSketch(3, 7, 7), CountSketch(1, 4, 9),
            CountSketch(7, 97, 300)]
sketches = pytest.mark.parametrize("linear", SKETCHES, ids=lambda s: f"{s.depth}x{s.width}")
PROJECT = jax.jit(SketchedSigns.project, static_argnums=0)


def places(linear):
    """int [D, depth]: where each coordinate is added, as the docstring says."""
    return np.array([[i * linear.width + (at % linear.width + i * (at // linear.width))
                      % linear.width for i in range(linear.depth)] for at in range(linear.columns)])


# The linear map.

@sketches
def test_a_table_is_the_sums_and_an_estimate_their_median(linear, rng):
    x = rng.integers(-9, 10, (4, linear.columns)).astype(np.int32)
    table = np.zeros((4, linear.size), int)
    for at, where in enumerate(places(linear)):
        table[:, where] += x[:, at, None]
    ours = linear.table(x)
    assert ours.dtype == jnp.int32
    np.testing.assert_array_equal(ours, table)
    np.testing.assert_array_equal(linear.estimates(np.float32(table)),
                                  np.median(table[:, places(linear)], -1))


@sketches
def test_two_coordinates_meet_in_one_row_at_most(linear):
    where = places(linear)
    meet = (where[:, None] == where[None]).sum(-1)
    np.fill_diagonal(meet, 0)
    assert meet.max() <= 1
    assert np.bincount(where.ravel(), minlength=linear.size).max() == linear.blocks


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(-5, 5))
def test_a_sketch_of_a_sum_is_the_sum_of_the_sketches(seed, factor):
    x, y = np.random.default_rng(seed).integers(-99, 100, (2, 3, 60)).astype(np.int32)
    linear = SKETCHES[0]
    np.testing.assert_array_equal(linear.table(x + factor * y),
                                  linear.table(x) + factor * linear.table(y))


@settings(max_examples=20)
@given(st.dictionaries(st.integers(0, 299), st.integers(1, 9), min_size=1, max_size=3),
       st.integers(0, 99))
def test_few_heavy_coordinates_are_recovered_exactly(heavy, seed):
    """At most three of seven rows are disturbed, so the median is right everywhere."""
    x = np.zeros((1, 300), np.float32)
    for at, size in heavy.items():
        x[0, at] = size
    turned = compression.shuffle(jax.random.key(seed), 1, 300)
    table = SKETCHES[3].table(compression.shuffled(turned, x))
    np.testing.assert_array_equal(compression.unshuffled(turned, SKETCHES[3].estimates(table)), x)


def test_heavy_coordinates_stand_out_of_a_crowd(rng):
    """Twenty of 784 coordinates, ten times as large as the others, in five rows of 256."""
    bound = SketchedSigns(TopKSign(20, 50), CountSketch(5, 256, 784))
    x = rng.choice([-1.0, 1.0], (50, 784)).astype(np.float32)
    x[:, 100:120] *= 10
    turned = compression.shuffle(jax.random.key(0), 50, 784)
    table = bound.sketch.table(compression.shuffled(turned, x))
    found = np.asarray(compression.unshuffled(turned, jax.jit(bound.unsketch)(table)))
    assert ((found != 0).sum(1) == 20).all()
    heavy = found[:, 100:120]
    assert (np.sign(heavy) == np.sign(x[:, 100:120])).mean() > 0.95
    assert np.abs(heavy - x[:, 100:120])[heavy != 0].mean() < 3


def test_a_shuffle_is_undone_and_drawn_anew_for_every_row_and_key(rng):
    x = rng.normal(size=(30, 50)).astype(np.float32)
    order, signs = turned = compression.shuffle(jax.random.key(0), 30, 50)
    np.testing.assert_array_equal(compression.unshuffled(turned, compression.shuffled(turned, x)),
                                  x)
    np.testing.assert_array_equal(np.sort(order, 1), np.tile(np.arange(50), (30, 1)))
    other = compression.shuffle(jax.random.key(1), 30, 50)
    assert len(np.unique(np.concatenate([order, other[0]]), axis=0)) == 60
    assert len(np.unique(np.concatenate([signs, other[1]]), axis=0)) == 60
    assert set(np.unique(signs)) == {-1, 1}


# The bound.

def squares(entries):
    return (np.asarray(entries, np.int64) ** 2).sum(-1)


def test_usual_sketches_are_within_the_bound_whatever_the_vote():
    """All teachers of one mind, votes in blocks, votes at random: the shuffle makes them equal."""
    bound = SketchedSigns(TopKSign(200, 500), CountSketch(3, 256, 784))
    rng = np.random.default_rng(1)
    block = np.repeat([2.0, 1.0], [200, 584])
    for x in (np.ones((500, 784)), np.tile(block, (500, 1)), rng.normal(size=(500, 784))):
        turned = compression.shuffle(jax.random.key(2), 500, 784)
        table = PROJECT(bound, jax.random.key(3), compression.shuffled(turned, np.float32(x)))
        found = squares(table)
        assert found.max() <= bound.squared_row_norm and (found > 0).mean() > 0.995
        assert found[found > 0].mean() == pytest.approx(600, abs=12)


@functools.partial(jax.jit, static_argnums=0)
def unbounded(bound, message):
    """The mutant: the sketch as it is."""
    return bound.sketch.table(bound.votes.project(jax.random.key(0), message))


def check_length(project, bound, message):
    table = project(message)
    assert table.dtype == jnp.int32 and table.shape == (len(message), bound.sketch.size)
    assert squares(table).max() <= bound.squared_row_norm
    assert jnp.abs(table).max() <= bound.max_abs


def test_a_sketch_in_which_votes_meet_is_dropped_and_broken_rows_are_silent(rng):
    """Votes that the hashes bring together, as only one who knows the shuffle could cast them."""
    bound = SketchedSigns(TopKSign(8, 7), CountSketch(2, 256, 784))
    message = rng.normal(size=(7, 784)).astype(np.float32)
    message[0] = 0
    message[1] *= 1e38
    message[2] *= 1e-30
    message[3, 5], message[4, 9] = math.nan, math.inf
    message[5:] = 0
    message[5, [0, 256, 512, 1, 257, 513, 2, 258]] = 1  # three, three and two in a place
    message[6, [0, 256, 11, 13, 15, 17, 19, 21]] = 1
    check_length(lambda m: PROJECT(bound, jax.random.key(0), m), bound, message)
    assert squares(unbounded(bound, message))[5] > bound.squared_row_norm == 20
    table = PROJECT(bound, jax.random.key(0), message)
    assert np.any(table, 1).tolist() == [False, True, True, False, False, False, True]
    with pytest.raises(AssertionError):
        check_length(lambda m: unbounded(bound, m), bound, message)


TIGHT = SketchedSigns(TopKSign(3, 1), CountSketch(2, 100, 102))
CASES = [(SketchedSigns(TopKSign(2, 1), CountSketch(1, 3, 6)), range(6)),
         (SketchedSigns(TopKSign(2, 1), CountSketch(3, 5, 5)), range(5)),
         (TIGHT, [0, 1, 2, 100, 101])]


@pytest.mark.parametrize(("bound", "used"), CASES, ids=["one row", "no meeting", "tight"])
def test_the_declared_sensitivity_is_attained_and_never_exceeded(bound, used):
    values = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=len(used))), np.float32)
    message = np.zeros((len(values), bound.sketch.columns), np.float32)
    message[:, list(used)] = values
    found = hostile.furthest(np.asarray(PROJECT(bound, jax.random.key(0), message)))
    assert found == bound.squared_sensitivity() == 4 * bound.squared_norm


def test_the_whole_batch_is_charged_for_every_row_of_the_sketch():
    one = SketchedSigns(TopKSign(200, 1), CountSketch(3, 256, 784))
    batch = SketchedSigns(TopKSign(200, 15), CountSketch(3, 256, 784))
    assert batch.squared_sensitivity() == 15 * one.squared_sensitivity()
    assert one.squared_row_norm == math.floor(600 + 800 * math.sqrt(6 / 256)) == 722


@pytest.mark.parametrize(("fields", "text"), [
    ((0, 9, 9), "depth is 0"), ((1, 0, 9), "width is 0"),
    ((5, 16, 784), "too narrow")])
def test_sketches_that_mean_nothing_are_refused(fields, text):
    with pytest.raises(UserError, match=text):
        CountSketch(*fields)
    with pytest.raises(UserError, match="fewer votes"):
        SketchedSigns(TopKSign(60_000, 1), CountSketch(1, 1, 60_000))


# Noise before anything is chosen (hole P14 of the published code).

AUDITED = SketchedSigns(TopKSign(1, 1), CountSketch(1, 8, 8))
NOISE = RoundedGaussian(4.0)
RELEASES, ALPHA = 20_000, 1e-6


def before(bits, table):
    return AUDITED.unsketch((table + NOISE.sample(bits)).astype(jnp.float32))


def after(bits, table):
    """The mutant, line 9 of Algorithm 7: top-k(unSketch(S)) + noise, on what was chosen."""
    found = AUDITED.sketch.estimates(table.astype(jnp.float32))
    chosen = select_top_k(magnitude_bits(found), AUDITED.votes.top_k)
    return jnp.where(chosen, found + NOISE.sample(bits), 0)


def check_the_choice_is_noised(aggregate):
    """How well the choice tells one vote in 200 from its opposite certifies no more than mu."""
    rows = np.zeros((2, 8), np.int32)
    rows[:, 2:4] = 100, 99
    rows[:, 3] += np.array([1, -1]) + 1  # one teacher's vote, and its opposite
    bits = np.random.default_rng(0).integers(2**32, size=(2, RELEASES, 8, 3), dtype=np.uint32)
    chosen = np.asarray(aggregate(bits, jnp.asarray(rows)[:, None]))[..., 3] != 0
    counts = chosen.sum(1)
    upper = stats.beta.ppf(1 - ALPHA / 2, RELEASES - counts[0] + 1, counts[0] + 1e-9)
    wrong = stats.beta.ppf(1 - ALPHA / 2, counts[1] + 1, RELEASES - counts[1])
    certified = -stats.norm.ppf(upper) - stats.norm.ppf(wrong)
    claim = math.sqrt(AUDITED.squared_sensitivity()) / NOISE.sigma
    assert certified <= claim, f"mu {certified:.2f} is certified, above the {claim:.2f} charged"
    assert certified > 0.3 * claim


def test_what_is_chosen_is_post_processing_of_a_noisy_sketch():
    check_the_choice_is_noised(before)


def test_noise_after_the_choice_is_caught():
    with pytest.raises(AssertionError, match="certified, above"):
        check_the_choice_is_noised(after)
