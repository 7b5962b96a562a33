"""Bounds and categories that are bought: their privacy by exact probabilities, and their use."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import OsBits, SeededBits
from dpgen_jax.aggregation.single_releases import bounds, bounds_event, categories, categories_event
from dpgen_jax.core.types import Private, UserError

REACH = 14  # of the noise that is enumerated, at scale 1


@pytest.fixture
def noise(monkeypatch):
    """The noise that is drawn is `noise["next"]`; `noise["scale"]` is what was asked for."""
    noise_args = {}

    def sample(scale, draws, bits):
        noise_args.update(scale=scale, draws=draws)
        return list(noise_args["next"][:draws])

    monkeypatch.setattr(single_releases, "sample_discrete_laplace", sample)
    return noise_args


def law(x, scale):
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** abs(x)


def output_law(query, noise, draws, reach):
    """Exact probability of each output, over all noise up to `reach`."""
    outputs = {}
    for value in itertools.product(range(-reach, reach + 1), repeat=draws):
        noise["next"] = value
        output = query()
        weight = math.prod(law(x, float(noise["scale"])) for x in value)
        outputs[output] = outputs.get(output, 0.0) + weight
    return outputs


def hockey_stick(p, q, epsilon):
    return sum(max(0.0, p[out] - math.exp(epsilon) * q.get(out, 0.0)) for out in p)


# bounds

SPREAD = [math.nan, 0.0, -0.0, 1e-9, -1e-9, 2.0**-20, 1.0, -1.0, 1.5, 3.0, -3.0, 1e9, 2.0**40,
          math.inf, -math.inf]


def test_the_histogram_moves_by_two_and_no_more():
    moved = 0
    for rest in ([], [1.0], [1.0, -3.0]):
        for one, other in itertools.product(SPREAD, repeat=2):
            before, after = (single_releases._histogram(np.array([*rest, v])) for v in (one, other))
            moved = max(moved, np.abs(before - after).sum())
    assert moved == 2
    assert single_releases._histogram(np.array(SPREAD)).sum() == len(SPREAD) - 1  # not the null


def test_every_bin_gets_noise_of_scale_two_over_epsilon(noise):
    noise["next"] = [0] * 1000
    bounds(Private(np.ones(100_000)), 0.1, OsBits())
    assert noise["scale"] == Fraction(20) and noise["draws"] == 2 * len(single_releases.EDGES) - 1


@pytest.mark.parametrize("n", [1000, 5000])
def test_only_the_noisy_counts_matter(noise, n):
    """Two data sets and noise that makes up for their difference: the same outcome."""
    rng = np.random.default_rng(n)

    def outcome(values, value):
        noise["next"] = value
        try:
            return bounds(Private(values), 1.0, OsBits())
        except UserError as error:
            return str(error)

    outcomes = set()
    for _ in range(20):
        one, other = rng.normal(size=n) * rng.lognormal(), rng.lognormal(size=n + 7)
        samples = rng.geometric(0.4, 241) - rng.geometric(0.4, 241)
        gap = single_releases._histogram(one) - single_releases._histogram(other)
        outcomes.add(outcome(one, samples))
        assert outcome(one, samples) == outcome(other, samples + gap)
    assert len(outcomes) > 5


@pytest.mark.slow
def test_bounds_are_private_on_a_grid_of_three_bins(noise, monkeypatch):
    """All neighbouring data sets of two records on {below, around, above zero, null}."""
    monkeypatch.setattr(single_releases, "EDGES", np.array([1.0, 2.0]))
    monkeypatch.setattr(single_releases, "FALSE_CORE", 0.5)
    monkeypatch.setattr(single_releases, "FALSE_STEP", 0.3)
    epsilon, kinds = 2.0, (-1.5, 0.5, 1.5, math.nan)

    def worst():
        def query(values):
            try:
                return bounds(Private(np.array(values)), epsilon, OsBits())
            except UserError:
                return None

        laws = {pair: output_law(lambda pair=pair: query(pair), noise, 3, 7)
                for pair in itertools.combinations_with_replacement(kinds, 2)}
        return max(hockey_stick(p, q, epsilon) for one, p in laws.items()
                   for other, q in laws.items() if set(one) & set(other))

    assert worst() < 0.002  # what the noise beyond its reach has not been counted for
    real = single_releases.laplace_scale_for
    monkeypatch.setattr(single_releases, "laplace_scale_for", lambda e, sensitivity: real(e, 1))
    assert worst() > 0.02  # the mutant: sensitivity 1


DATA = {"normal": lambda rng: rng.normal(size=5000), "skewed": lambda rng: rng.lognormal(size=5000),
        "negative": lambda rng: -rng.lognormal(3, 1, 5000),
        "far": lambda rng: rng.normal(1000, 100, 5000),
        "two heaps": lambda rng: np.r_[rng.normal(-50, 1, 2500), rng.normal(7, 1, 2500)]}


@pytest.mark.parametrize("name", DATA)
def test_bounds_cover_and_are_not_far_too_wide(name):
    values = DATA[name](np.random.default_rng(1))
    values[::50] = math.nan
    numbers = values[~np.isnan(values)]
    low_end, high_end = np.quantile(numbers, [0.005, 0.995])
    covered, width = [], []
    for seed in range(15):
        low, high = bounds(Private(values), 0.1, SeededBits(seed))
        covered.append(np.mean((low <= numbers) & (numbers <= high)))
        width.append((high - low) / (high_end - low_end))
    assert min(covered) > 0.93 and np.median(covered) > 0.965
    assert max(width) < 4 and np.median(width) < 2


def test_edges_without_noise(noise):
    noise["next"] = [0] * 1000

    def of(*values):
        return bounds(Private(np.repeat(values, 1000)), 1.0, OsBits())

    assert of(3.0) == (2 * 2**0.5, 4.0) and of(4.0) == (4.0, 4 * 2**0.5)
    assert of(-3.0) == (-4.0, -2 * 2**0.5) and of(-3.0, 3.0) == (-4.0, 4.0)
    assert of(0.0) == (-2.0**-20, 2.0**-20) and of(0.0, 3.0) == (-2.0**-20, 4.0)
    assert of(math.inf) == (2**39.5, 2.0**40)  # what is above the grid counts as its last bin
    assert of(3.0, math.nan) == of(3.0)


def test_half_a_percent_is_left_out_at_each_end(noise):
    noise["next"] = [0] * 1000
    values = np.repeat([-1e6, 1.2, 1e6], [400, 99_000, 600])
    low, high = bounds(Private(values), 5.0, OsBits())
    assert low == 1.0 and 1e6 < high < 2e6  # 0.4 % and 0.6 %


def test_the_interval_grows_while_the_next_bin_is_full(noise):
    noise["next"] = [0] * 1000
    # at epsilon 0.1 the core needs 235, growing 47: 100 next to the core, 100 behind a gap
    near, gap = np.repeat([1.2, 1.5, 2.1], [1000, 100, 100]), np.repeat([1.2, 3.0], [1000, 100])
    assert bounds(Private(near), 0.1, OsBits()) == (1.0, 2 * 2**0.5)
    assert bounds(Private(gap), 0.1, OsBits()) == (1.0, 2**0.5)


def test_bounds_of_noise_are_not_found():
    nulls = Private(np.full(5000, math.nan))
    for seed in range(40):
        with pytest.raises(UserError, match="raise it or declare them"):
            bounds(nulls, 0.1, SeededBits(seed))
    with pytest.raises(UserError, match="epsilon must be"):
        bounds(nulls, 0, OsBits())


# categories

def shown_law(counts, epsilon, delta, noise):
    values = Private([name for name, n in zip("ab", counts, strict=True) for _ in range(n)])
    noise["next"] = ()
    present = sum(n > 0 for n in counts)
    return output_law(lambda: categories(values, epsilon, delta, OsBits()), noise, present, REACH)


def worst_delta(epsilon, delta, noise, most=9):
    """Over all counts of two values up to `most` records, and all replacements, both ways."""
    sizes = [c for c in itertools.product(range(most + 1), repeat=2) if sum(c) <= most]
    laws = {counts: shown_law(counts, epsilon, delta, noise) for counts in sizes}
    moves = [(-1, 1), (1, -1), (-1, 0), (1, 0), (0, -1), (0, 1)]  # to the other, from or to null
    return max(hockey_stick(p, laws[a + da, b + db], epsilon)
               for (a, b), p in laws.items() for da, db in moves if (a + da, b + db) in laws)


@pytest.fixture
def epsilon_delta():
    return 2.0, 0.05


def test_categories_are_private_and_delta_is_used_well(epsilon_delta, noise):
    """A value that occurs once is shown with chance p(1) = q^(k - 1) / (1 + q): that is delta."""
    q = math.exp(-1)
    assert single_releases.least_count(*epsilon_delta) == 4
    assert q**3 / (1 + q) <= 0.05 < q**2 / (1 + q)
    worst = worst_delta(*epsilon_delta, noise)
    assert worst == pytest.approx(q**3 / (1 + q), abs=1e-5)


@pytest.mark.parametrize("threshold", [2, 3], ids=["without the logarithm", "one too low"])
def test_a_low_threshold_is_caught(epsilon_delta, noise, monkeypatch, threshold):
    monkeypatch.setattr(single_releases, "least_count", lambda *_: threshold)
    assert worst_delta(*epsilon_delta, noise, 4) > 0.09


def test_sensitivity_one_is_caught(epsilon_delta, noise, monkeypatch):
    real = single_releases.laplace_scale_for
    monkeypatch.setattr(single_releases, "laplace_scale_for", lambda e, sensitivity: real(e, 1))
    assert worst_delta(*epsilon_delta, noise) > 0.07


def test_where_epsilon_is_smaller_than_delta_it_decides(noise):
    """p(1) <= 1 - e^(-epsilon / 2): hiding what occurs once must not be telling either."""
    assert single_releases.least_count(0.02, 0.4) > single_releases.least_count(2, 0.4)
    for epsilon, delta in ((0.02, 0.4), (0.1, 1e-6), (1.0, 1e-9), (30.0, 1e-6)):
        k, q = single_releases.least_count(epsilon, delta), math.exp(-epsilon / 2)
        once = q ** (k - 1) / (1 + q)
        assert once <= min(delta, 1 - q)
        assert k == 2 or q ** (k - 3) / (1 + q) > min(delta, 1 - q) * 0.99


def test_frequent_values_are_shown_in_order():
    values = ["b"] * 900 + ["a"] * 500 + [None] * 700 + ["é"] * 400 + [f"id{i}" for i in range(900)]
    shown = {categories(Private(values[::step]), 0.5, 1e-6, SeededBits(seed))
             for seed in range(10) for step in (1, -1)}
    assert shown == {("a", "b", "é")}
    assert categories(Private([None] * 50), 1.0, 1e-6, OsBits()) == ()


def test_the_order_of_the_records_does_not_matter():
    values = [f"v{i % 13}" for i in range(13 * 30)]  # near the threshold: the noise decides
    shown = [categories(Private(order), 1.0, 1e-6, SeededBits(4))
             for order in (values, values[::-1], sorted(values))]
    assert shown[0] == shown[1] == shown[2] and 0 < len(shown[0]) < 13


@pytest.mark.parametrize("epsilon, delta", [(0, 1e-6), (math.nan, 1e-6), (1, 0), (1, 1)])
def test_bad_budgets(epsilon, delta):
    with pytest.raises(UserError, match="epsilon must be|delta must lie"):
        categories(Private(["a"]), epsilon, delta, OsBits())


def test_events():
    assert (bounds_event(0.1).epsilon, bounds_event(0.1).delta) == (0.1, 0.0)
    assert (categories_event(0.1, 1e-7).epsilon, categories_event(0.1, 1e-7).delta) == (0.1, 1e-7)
    assert bounds_event(0.1).mechanism != categories_event(0.1, 0.0).mechanism
