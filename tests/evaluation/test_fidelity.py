"""Fidelity: closed forms, cases counted by hand, and generators whose faults are known."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written import written

from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import fidelity as f
from dpgen_jax.evaluation.results import Real


def cov(values, angle=0.0):
    """[2, 2] with these eigenvalues, turned by the angle."""
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[c, -s], [s, c]])
    return turn @ np.diag(values) @ turn.T


def of(mean, covariance):
    return np.asarray(mean, float), np.asarray(covariance, float)


def test_equal_gaussians_are_at_no_distance():
    a = of([1, 2], cov([3, .5], .7))
    assert f.frechet_distance(a, a) == pytest.approx(0, abs=1e-12)


def test_a_shifted_mean_counts_squared():
    a, b = of([1, 2], cov([3, .5], .7)), of([4, -2], cov([3, .5], .7))
    assert f.frechet_distance(a, b) == pytest.approx(9 + 16)


def test_a_scaled_covariance():
    # (sqrt 4 - 1)^2 times the trace.
    a, b = of([0, 0], cov([3, .5], .7)), of([0, 0], 4 * cov([3, .5], .7))
    assert f.frechet_distance(a, b) == pytest.approx(3.5)


def test_commuting_covariances():
    # Along each common axis (standard deviations apart)^2: (2 - 1)^2 + (1 - 3)^2.
    a, b = of([0, 0], cov([4, 1], .4)), of([0, 0], cov([1, 9], .4))
    assert f.frechet_distance(a, b) == pytest.approx(5)


def test_covariances_that_do_not_commute():
    # Of 2 x 2 matrices tr((S1 S2)^1/2) = sqrt(tr(S1 S2) + 2 sqrt(det S1 det S2)).
    s1, s2 = cov([4, 1]), cov([9, 2], np.pi / 4)
    root = np.sqrt(np.trace(s1 @ s2) + 2 * np.sqrt(np.linalg.det(s1) * np.linalg.det(s2)))
    expected = 5 + 11 - 2 * root
    assert f.frechet_distance(of([0, 0], s1), of([0, 0], s2)) == pytest.approx(expected)


def test_singular_covariances():
    # Two segments at a right angle, and a point against a segment: nothing in common to subtract.
    x, y = of([0, 0], cov([4, 0])), of([0, 0], cov([9, 0], np.pi / 2))
    assert f.frechet_distance(x, y) == pytest.approx(13)
    assert f.frechet_distance(of([0, 0], np.zeros((2, 2))), y) == pytest.approx(9)


def test_fewer_samples_than_dimensions():
    x = np.random.default_rng(0).standard_normal((10, 50))
    a = f.moments(x)
    assert f.frechet_distance(a, a) == pytest.approx(0, abs=1e-6)
    assert f.frechet_distance(a, f.moments(x + 2)) == pytest.approx(200)
    # In the span of the samples, where all is of full rank, the same distance.
    y = np.random.default_rng(1).standard_normal((9, 50))
    basis = np.linalg.qr(np.concatenate([x, y]).T)[0]
    small = f.frechet_distance(f.moments(x @ basis), f.moments(y @ basis))
    assert f.frechet_distance(a, f.moments(y)) == pytest.approx(small, rel=1e-6)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.01, 100))
def test_the_distance_is_symmetric_and_scales_by_the_square(seed, d, scale):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2 * d + 2, d)), 2 + rng.standard_normal((d + 2, d))
    a, b = f.moments(x), f.moments(y)
    distance = f.frechet_distance(a, b)
    assert distance >= 0
    assert f.frechet_distance(b, a) == pytest.approx(distance, rel=1e-6, abs=1e-9)
    scaled = f.frechet_distance(f.moments(scale * x), f.moments(scale * y))
    assert scaled == pytest.approx(scale**2 * distance, rel=1e-6, abs=1e-9)


def test_moments_over_several_chunks(monkeypatch):
    monkeypatch.setattr(f, "CHUNK", 7)
    x = (1e4 + np.random.default_rng(0).standard_normal((40, 3))).astype(np.float32)
    mean, covariance = f.moments(x)
    np.testing.assert_allclose(mean, x.astype(float).mean(0))
    np.testing.assert_allclose(covariance, np.cov(x.astype(float), rowvar=False))
    with pytest.raises(UserError, match="1 images have no covariance"):
        f.moments(x[:1])


def test_inception_score_by_hand():
    assert f.inception_score(np.eye(4)[[0, 1, 2, 3]]) == pytest.approx(4)  # sure and diverse
    assert f.inception_score(np.eye(4)[[2, 2, 2]]) == pytest.approx(1)  # sure, one class
    assert f.inception_score(np.full((5, 4), .25)) == pytest.approx(1)  # unsure
    # p(y) = (3/4, 1/4); KL of (1, 0) is ln 4/3, of (1/2, 1/2) is (ln 2/3 + ln 2) / 2.
    expected = np.exp((np.log(4 / 3) + np.log(4 / 3) / 2) / 2)
    assert f.inception_score([[1, 0], [.5, .5]]) == pytest.approx(expected)


def points(*places):
    return np.array(places, float)[:, None]


def test_neighbours_on_a_line_by_hand():
    # k = 1. Real radii: 1, 1, 2, 4 (balls [-1, 1], [0, 2], [1, 5], [3, 11]). Fake radii at
    # -0.5, 4, 4.5, 20: 4.5, 0.5, 0.5, 15.5 (balls [-5, 4], [3.5, 4.5], [4, 5], [4.5, 35.5]).
    real, fake = points(0, 1, 3, 7), points(-.5, 4, 4.5, 20)
    scores = f.neighbour_scores(real, fake, 1)
    assert scores == {"precision": 3 / 4,  # 20 is in no ball
                      "recall": 4 / 4,
                      "density": (1 + 2 + 2 + 0) / 4,
                      "coverage": 3 / 4}  # the ball of 1 has no fake


def test_a_second_line_by_hand():
    # k = 2. Real radii: 2, 1, 2, 9. Fake radii at 100, 101, 103: 3, 2, 3.
    real = points(0, 1, 2, 10)
    scores = f.neighbour_scores(real, points(100, 101, 103), 2)
    assert scores == {"precision": 0, "recall": 0, "density": 0, "coverage": 0}
    scores = f.neighbour_scores(real, points(.5, .5, .5), 2)
    assert scores == {"precision": 1, "recall": 0, "density": 3 / 2, "coverage": 3 / 4}
    # Balls are closed: that of 10 reaches 1, and those of no radius hold what lies on them.
    scores = f.neighbour_scores(real, points(1, 1, 1), 2)
    assert scores == {"precision": 1, "recall": 1 / 4, "density": 2, "coverage": 1}


def test_chunks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    real, fake = rng.standard_normal((50, 4)), rng.standard_normal((41, 4)) + .3
    whole = f.neighbour_scores(real, fake)
    monkeypatch.setattr(f, "CHUNK", 7)
    assert f.neighbour_scores(real, fake) == pytest.approx(whole)
    with pytest.raises(UserError, match="more than 5 needed"):
        f.neighbour_scores(real, fake[:5])


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(8, 40), st.floats(-1e4, 1e4))
def test_neighbours_against_plain_loops(seed, n, shift):
    rng = np.random.default_rng(seed)
    # Places on a grid have ties and duplicates, which is where a closed ball matters.
    real, fake = (rng.integers(0, 6, (m, 2)).astype(float) for m in (n, n + 3))
    k = 3

    def distances(a, b):
        return ((a[:, None] - b[None])**2).sum(-1)

    r_real, r_fake = (np.sort(distances(x, x), 1)[:, k] for x in (real, fake))
    inside = distances(real, fake) <= r_real[:, None]
    expected = {"precision": inside.any(0).mean(),
                "recall": (distances(real, fake) <= r_fake).any(1).mean(),
                "density": inside.sum() / k / len(fake), "coverage": inside.any(1).mean()}
    assert f.neighbour_scores(real + shift, fake + shift, k) == pytest.approx(expected)


@dataclasses.dataclass
class Identity:
    """A judge whose features are the pixels, and whose classes are the brightest of them."""

    def see(self, x):
        features = x.reshape(len(x), -1).astype(np.float32)
        sharp = np.exp(20 * features[:, :4])
        return features, sharp / sharp.sum(1, keepdims=True)

    def info(self):
        return {"net": "pixels", "test_accuracy": 1.0, "features": 4, "epochs": 0}


def clusters(n, seed, classes=(0, 1, 2, 3)):
    """2 x 2 images: each class lights a pixel of its own."""
    rng = np.random.default_rng(seed)
    y = np.asarray(classes)[rng.integers(0, len(classes), n)]
    x = rng.uniform(0, .2, (n, 4))
    x[np.arange(n), y] += .7
    return x.reshape(n, 2, 2, 1), y


def measure(synthetic, n=300, **options):
    """Return the fidelity of two draws of a generator, or of the same images twice."""
    draws = [synthetic(n, seed) if callable(synthetic) else synthetic for seed in range(2)]
    real = Real(None, clusters(300, 1), clusters(400, 2))
    return written(f.fidelity(draws, real, Identity(), **options))


def test_a_perfect_generator_is_at_the_floor():
    result = measure(lambda n, seed: clusters(n, 10 + seed))["fidelity"]
    for name in ("inception_score", "precision", "recall", "density", "coverage"):
        assert result[name]["mean"] == pytest.approx(result[name]["floor"], abs=.12)
    assert result["inception_score"]["mean"] > 3.9
    assert result["fid_features"]["mean"] < .02 and result["fid_features"]["floor"] < .02
    assert len(result["precision"]["values"]) == 2


def test_copies_of_the_test_images():
    result = measure(clusters(300, 1))["fidelity"]
    assert result["fid_features"]["mean"] == pytest.approx(0, abs=1e-9)
    for name in ("precision", "recall", "coverage"):
        assert result[name]["mean"] == 1
    assert result["density"]["mean"] == pytest.approx(1.2, abs=1e-9)  # (k + 1) / k


def test_noise():
    rng = np.random.default_rng(0)
    result = measure((rng.uniform(0, 1, (300, 2, 2, 1)).round() * 1.0,
                     np.zeros(300, int)))["fidelity"]
    assert result["precision"]["mean"] == 0 and result["coverage"]["mean"] == 0
    assert result["fid_features"]["mean"] > 20 * result["fid_features"]["floor"]


def test_a_collapsed_generator():
    x, y = clusters(1, 3)
    result = measure((np.repeat(x, 300, 0), np.repeat(y, 300)))["fidelity"]
    assert result["inception_score"]["mean"] == pytest.approx(1)
    assert result["recall"]["mean"] == 0 and result["coverage"]["mean"] < .1


def test_a_missing_class_is_seen_by_recall_and_coverage():
    result = measure(lambda n, seed: clusters(n, 10 + seed, (0, 1, 2)))["fidelity"]
    for name in ("recall", "coverage"):
        assert result[name]["mean"] < result[name]["floor"] - .15
    assert result["precision"]["mean"] > result["precision"]["floor"] - .05
    assert result["inception_score"]["mean"] == pytest.approx(3, abs=.1)


def test_everything_is_named_and_counted():
    lines, seen = [], []

    def pool(x):
        seen.append(len(x))
        return x.reshape(len(x), -1)[:, :3]

    result = measure(clusters, n=120, inception=f.Inception(pool), log=lines.append)
    scores = result["fidelity"]
    assert seen == [120] * 4 and len(lines) == 3
    assert scores["samples"] == {"synthetic": 120, "test": 120, "real": 120,
                                 "neighbours": 120, "k": 5, "inception": 120}
    assert scores["judge"]["net"] == "pixels"
    assert scores["fid"]["mean"] > 0 and scores["fid"]["floor"] > 0
    assert {f"fidelity.{name}" for name in scores} | {"verdict"} == {
        *result["not_covered_by_epsilon"]}


def test_without_training_images_there_is_no_floor():
    real = Real(None, clusters(60, 1))
    result = written(f.fidelity([clusters(50, 0)], real, Identity()))["fidelity"]
    assert result["precision"]["floor"] is None and "fid" not in result
    assert result["samples"] == {"synthetic": 50, "test": 50, "real": 0, "neighbours": 50, "k": 5,
                                 "inception": None}


@pytest.mark.parametrize(("limit", "count"), [(None, 60), (50, 50), (70, 60)])
def test_inception_gets_all_images_unless_there_is_a_limit(limit, count):
    seen = []

    def pool(x):
        seen.append(len(x))
        return x.reshape(len(x), -1)[:, :3]

    result = written(f.fidelity([clusters(60, 0)], Real(None, clusters(80, 1)), Identity(),
                                f.Inception(pool, limit)))["fidelity"]
    assert seen == [count] * 2 and result["samples"]["inception"] == count


@pytest.mark.parametrize(("synthetic", "message"), [
    ((np.zeros((9, 4, 4, 1)), np.zeros(9, int)), "synthetic images are .4, 4, 1., test images"),
    ((np.zeros((5, 2, 2, 1)), np.zeros(5, int)), "5 synthetic images; at least 6"),
    ((np.full((9, 2, 2, 1), np.nan), np.zeros(9, int)), "the generator diverged")])
def test_bad_images_are_refused(synthetic, message):
    with pytest.raises(UserError, match=message):
        measure(synthetic)
    with pytest.raises(UserError, match="seeds must be at least 1"):
        f.fidelity([], Real(None, clusters(9, 1)), Identity())
