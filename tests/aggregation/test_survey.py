"""The queries of a whole table: sensitivity by brute force, the chance of a rare name, the cost."""

import itertools
import math

import numpy as np
import pytest

from dpgen_jax.accountant.events import EpsilonDeltaEvent, GaussianEvent
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import ONE, OsBits, RoundedGaussian, thresholds
from dpgen_jax.aggregation.single_releases import Survey
from dpgen_jax.core.types import Private, UserError

SURVEY = Survey(2, 3, RoundedGaussian(3.0), RoundedGaussian(5.0), 1e-4, 8)


def asked(rows, made=SURVEY):
    """All answers on rows of (kind of a, kind of b, number, text)."""
    kinds = made.kind_counts(Private(np.array([row[:2] for row in rows])), 3, OsBits())
    numbers, names = made.value_counts(
        {"x": (Private(np.array([row[2] for row in rows])), 4)},
        {"t": Private([row[3] for row in rows])}, OsBits())
    return kinds, numbers["x"], names["t"]


def test_the_sensitivity_is_what_the_events_say(monkeypatch):
    """Over all replacements of a record, without noise and with a threshold that hides nothing."""
    monkeypatch.setattr(single_releases, "_noise", lambda noise, draws,
                        bits: np.zeros(draws, np.int64))
    monkeypatch.setattr(Survey, "threshold", 1)
    records = list(itertools.product(range(3), (0, 2), (-1, 0, 3), (None, "u", "v")))
    others = [(0, 1, 1, "u"), (2, 2, 0, "v")]
    answers = [asked([*others, record]) for record in records]
    of_kinds, of_values = [], []
    for (kinds, x, names), (kinds2, x2, names2) in itertools.combinations(answers, 2):
        of_kinds.append(int(((kinds - kinds2) ** 2).sum()))
        texts = sum((names.get(t, 0) - names2.get(t, 0)) ** 2 for t in "uv")
        of_values.append(int(((x - x2) ** 2).sum()) + texts)
    kinds, values, _ = (event for event, _ in SURVEY.events())
    assert max(of_kinds) == kinds.squared_sensitivity == 4
    assert max(of_values) == 4 and values.squared_sensitivity == 6  # two of three queries are asked


def test_noise_is_drawn_for_every_cell_and_as_on_devices():
    words = OsBits().draw((500, 3))
    assert (RoundedGaussian(5.0).draw(words) == np.asarray(
        RoundedGaussian(5.0).sample(words))).all()
    empty = [(0, 0, -1, None)] * 4
    draws = np.concatenate([asked(empty)[1] for _ in range(300)])
    assert 4.2 < draws.std() < 5.8 and abs(draws.mean()) < 0.8


def chance(noise: RoundedGaussian, least: int) -> float:
    """P(X >= least) of the very table that is drawn from, for least >= 1."""
    return (1 - thresholds(noise.sigma)[least - 1] / ONE) / 2


@pytest.mark.parametrize("sigma", [0.5, 5.0, 70.0])
def test_a_name_of_one_record_is_as_rare_as_the_event_says(sigma):
    made = Survey(1, 7, RoundedGaussian(sigma), RoundedGaussian(sigma), 1e-6, 8)
    limit = made.threshold
    assert made.queries * chance(made.values, limit - 1) <= made.names_delta
    assert made.queries * chance(made.values, limit - 2) > made.names_delta  # a mutant: one lower
    (_, _, (event, count)) = made.events()
    assert (event, count) == (EpsilonDeltaEvent(0.0, 1e-6, "survey names"), 1)


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
    two = {name: (Private(np.zeros(3, int)), 4) for name in "ab"}
    texts = {name: Private(["a"]) for name in "cd"}
    for numbers, words in ((two, texts), ({"a": (Private(np.zeros(3, int)), 9)}, {})):
        with pytest.raises(UserError, match="more than it charges"):
            SURVEY.value_counts(numbers, words, OsBits())
    with pytest.raises(UserError, match="more than it charges"):
        SURVEY.kind_counts(Private(np.zeros((2, 3), int)), 3, OsBits())
    kinds, values, _ = (event for event, _ in SURVEY.events())
    assert isinstance(kinds, GaussianEvent) and (kinds.sigma, values.sigma) == (3.0, 5.0)
    assert {kinds.mechanism, values.mechanism} == {"survey kinds", "survey values"}
