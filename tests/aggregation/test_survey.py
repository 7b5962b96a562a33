"""The queries of a whole table: sensitivity by brute force, the chance of a rare name, the cost."""

import itertools
import math

import numpy as np
import pytest

from dpgen_jax.accountant.events import EpsilonDeltaEvent, GaussianEvent
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import ONE, OsBits, RoundedGaussian, thresholds
from dpgen_jax.aggregation.single_releases import ROUNDS, Names, Numbers, Survey, least_name
from dpgen_jax.core.types import Private, UserError

SURVEY = Survey(2, RoundedGaussian(3.0), RoundedGaussian(5.0), 1e-4, 8)
WEIGHTS = [{"x": 1.0, "t": 1.0}, {"x": 0.001, "t": 3.0}]


def asked(rows, made=SURVEY, weights=WEIGHTS):
    """All answers on rows of (kind of a, kind of b, number, text), of two rounds."""
    kinds = made.kind_counts(Private(np.array([row[:2] for row in rows])), 3, OsBits())
    queries = {"x": Numbers(Private(np.array([row[2] for row in rows])), 4),
               "t": Names(Private([row[3] for row in rows]))}
    rounds = [made.value_counts(turn, queries, weights[turn], OsBits())
              for turn in range(len(ROUNDS))]
    return kinds, rounds


def moved(answers, others):
    """The sum over queries of what a record moves, squared and in units of the query's noise."""
    total = 0.0
    for one, other in zip(answers, others, strict=True):
        for name in one:
            a, b = one[name], other[name]
            texts = sum((a.names.get(t, 0) - b.names.get(t, 0)) ** 2
                        for t in {*a.names, *b.names})
            total += (int(((a.counts - b.counts) ** 2).sum()) + texts) / a.sigma**2
    return total


def largest(monkeypatch, made=SURVEY, weights=WEIGHTS):
    """The most that the replacement of a record moves: of kinds, and of values over their noise."""
    monkeypatch.setattr(single_releases, "_noise", lambda noise, draws,
                        bits: np.zeros(draws, np.int64))
    monkeypatch.setattr(single_releases, "least_name", lambda noise, chance: 1)
    records = list(itertools.product(range(3), (0, 2), (-1, 0, 3), (None, "u", "v")))
    answers = [asked([(0, 1, 1, "u"), (2, 2, 0, "v"), record], made, weights)
               for record in records]
    pairs = list(itertools.combinations(answers, 2))
    return (max(int(((one[0] - other[0]) ** 2).sum()) for one, other in pairs),
            max(moved(one[1], other[1]) for one, other in pairs))


def test_the_sensitivity_is_what_the_events_say(monkeypatch):
    """Over all replacements of a record, without noise and with a threshold that hides nothing.

    Of values, what counts is the sensitivity over the noise: each round divides its part.
    """
    of_kinds, of_values = largest(monkeypatch)
    kinds, values, _ = (event for event, _ in SURVEY.events())
    assert of_kinds == kinds.squared_sensitivity == 4
    charged = values.squared_sensitivity / values.sigma**2
    assert charged * 0.999 <= of_values <= charged  # noise is rounded up to four digits


def test_a_planted_fault_is_caught(monkeypatch):
    """A round that gives each query the weight that it asks for spends more than is charged."""
    monkeypatch.setattr(Survey, "noises", lambda self, turn, weights: {
        name: RoundedGaussian(self.values.sigma / math.sqrt(weight))
        for name, weight in weights.items()})
    _, values, _ = (event for event, _ in SURVEY.events())
    assert largest(monkeypatch)[1] > values.squared_sensitivity / values.sigma**2


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_no_weights_cost_more_than_is_charged(count):
    made = Survey(40, RoundedGaussian(3.0), RoundedGaussian(50.0), 1e-6, 8)
    _, values, _ = (event for event, _ in made.events())
    for seed in range(20):
        rng = np.random.default_rng(seed)
        total = 0.0
        for turn in range(len(ROUNDS)):
            weights = dict(enumerate(10.0 ** rng.uniform(-6, 3, count)))
            noises = made.noises(turn, weights).values()
            assert all(noise.sigma <= single_releases.COARSEST * 50.0 for noise in noises)
            total += sum(2 / noise.sigma**2 for noise in noises)
        assert total <= values.squared_sensitivity / values.sigma**2
        coarsest = RoundedGaussian(single_releases.COARSEST * 50.0)
        assert values.total_variation >= coarsest.total_variation(2 * 40 * 8)


def test_noise_is_drawn_for_every_cell_and_as_on_devices():
    words = OsBits().draw((500, 3))
    assert (RoundedGaussian(5.0).draw(words) == np.asarray(
        RoundedGaussian(5.0).sample(words))).all()
    empty = [(0, 0, -1, None)] * 4
    answers = [asked(empty)[1][0]["x"] for _ in range(300)]
    draws = np.concatenate([answer.counts for answer in answers])
    sigma = answers[0].sigma
    assert 0.84 * sigma < draws.std() < 1.16 * sigma and abs(draws.mean()) < 0.16 * sigma


def chance(noise: RoundedGaussian, least: int) -> float:
    """P(X >= least) of the very table that is drawn from, for least >= 1."""
    return (1 - thresholds(noise.sigma)[least - 1] / ONE) / 2


@pytest.mark.parametrize("sigma", [0.5, 5.0, 70.0])
def test_a_name_of_one_record_is_as_rare_as_the_event_says(sigma):
    noise = RoundedGaussian(sigma)
    limit = least_name(noise, 1e-6 / 7)
    assert chance(noise, limit - 1) <= 1e-6 / 7
    assert chance(noise, limit - 2) > 1e-6 / 7  # a mutant: one lower


def test_the_names_of_all_rounds_are_as_rare_as_the_event_says(monkeypatch):
    """The chances of one record's names, summed over the queries of both rounds."""
    made, chances = Survey(5, RoundedGaussian(3.0), RoundedGaussian(9.0), 1e-6, 8), []

    def noted(noise, delta):
        chances.append(chance(noise, least_name(noise, delta) - 1))
        return least_name(noise, delta)

    monkeypatch.setattr(single_releases, "least_name", noted)
    for turn, names in enumerate(("abc", "de")):
        made.value_counts(turn, {name: Names(Private(["u"])) for name in names},
                          {name: 1.0 + turn * (name == "d") for name in names}, OsBits())
    (_, _, (event, count)) = made.events()
    assert (event, count) == (EpsilonDeltaEvent(0.0, 1e-6, "survey names"), 1)
    assert len(chances) == 5 and 0.3e-6 < sum(chances) <= event.delta


def test_the_joint_law_of_rare_names_is_at_the_distance_that_is_charged():
    """a texts of D alone and b of D' alone: 1 - (1 - p)^max(a, b), by the whole joint law."""
    p = 0.2
    for a, b in itertools.product(range(4), repeat=2):
        def law(shown, hidden):
            return {(*bits, *(0,) * hidden): math.prod(p if bit else 1 - p for bit in bits)
                    for bits in itertools.product((0, 1), repeat=shown)}

        one = law(a, b)
        other = {(*key[b:], *key[:b]): value for key, value in law(b, a).items()}
        distance = sum(max(0.0, value - other.get(key, 0.0)) for key, value in one.items())
        assert distance <= 1 - (1 - p) ** max(a, b) + 1e-12 <= max(a, b) * p + 1e-9


def test_more_than_is_charged_is_refused():
    three = {name: Numbers(Private(np.zeros(3, int)), 4) for name in "abc"}
    many = {"a": Numbers(Private(np.zeros(3, int)), 9)}
    for queries in (three, many):
        with pytest.raises(UserError, match="more than it charges"):
            SURVEY.value_counts(0, queries, dict.fromkeys(queries, 1.0), OsBits())
    with pytest.raises(UserError, match="more than it charges"):
        SURVEY.kind_counts(Private(np.zeros((2, 3), int)), 3, OsBits())
    kinds, values, _ = (event for event, _ in SURVEY.events())
    assert isinstance(kinds, GaussianEvent) and (kinds.sigma, values.sigma) == (3.0, 5.0)
    assert {kinds.mechanism, values.mechanism} == {"survey kinds", "survey values"}
