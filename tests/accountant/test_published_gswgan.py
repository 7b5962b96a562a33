"""The claims of GS-WGAN and DP-GAN-DPAC beside the cost of their published noise."""

import math
import types

import pytest
from published_formulas import gswgan
from renyi import rdp_epsilon

from dpgen_jax import methods
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, SampledGaussianEvent
from dpgen_jax.core.errors import BudgetExceeded

DELTA = 1e-5


@pytest.mark.slow
def test_gswgan_as_published():
    published = gswgan(1000, 32, 1.07, DELTA)
    assert published.epsilon(20_000, "classic") == pytest.approx(9.992624, abs=5e-7)
    assert published.epsilon(20_000) == pytest.approx(9.242843, abs=5e-7)
    steps = published.max_steps(10)
    assert published.epsilon(steps) <= 10 < published.epsilon(steps + 1) and steps == 22_564
    assert published.max_steps(10, "classic") == 20_023
    assert published.epsilon(0) == 0
    assert "K=1000, B=32, sigma=1.07, delta=1e-05" in published.formula
    assert gswgan(1000, 32, 0, DELTA).epsilon(1) == math.inf
    with pytest.raises(BudgetExceeded, match="one step costs"):
        gswgan(1000, 32, 0.1, DELTA).max_steps(1)
    # the batch not counted; and the published steps amplified as a whole
    single = gswgan(1000, 1, 1.07, DELTA)
    assert single.epsilon(20_000, "classic") == pytest.approx(1.5722, abs=5e-5)
    whole = gswgan(1000, 1, 1.07 / math.sqrt(32), DELTA).epsilon(20_000, "classic")
    assert whole == pytest.approx(2.97e5, rel=2e-3)


def test_by_hand():
    """sigma 1.07 at order 4, where the grid is best."""
    q, squared = 1 / 1000, 1 / 1.07**2
    terms = [math.comb(4, j) * q**j * 2 * math.exp(j * (j - 1) * squared / 2) for j in (2, 3, 4)]
    by_hand = 640_000 * math.log1p(sum(terms)) / 3 + math.log(1e5) / 3
    assert gswgan(1000, 32, 1.07, DELTA).epsilon(20_000, "classic") == pytest.approx(by_hand,
                                                                                   rel=1e-9)


def test_dpac_as_published():
    def classic(published, steps):
        return published.epsilon(steps, "classic")

    celeba = gswgan(2543, 32, 0.61135, DELTA, "dpac")
    assert classic(celeba, 20_000) == pytest.approx(9.999304, abs=5e-7)
    assert celeba.epsilon(20_000) == pytest.approx(9.231830, abs=5e-7)
    assert "DPAC" in celeba.formula
    # MNIST with what its code draws: batches of 1,000 from step 6,000 on, and two gradients there
    one = gswgan(1000, 1, 1.07, DELTA, "dpac")
    assert classic(one, 6000 * 32 + 14_000 * 1000 * 2) == pytest.approx(146.56, abs=5e-3)
    assert classic(one, 6000 * 32 + 14_000 * 1000) == pytest.approx(79.50, abs=5e-3)
    assert classic(one, 6000 * 32 + 14_000 * 32 * 2) == pytest.approx(13.59, abs=5e-3)


@pytest.mark.parametrize("q_inverse, sigma, steps, epsilon", [
    (120, 0.588, 600, 10.0173), (120, 0.686, 2040, 9.99888), (100, 2.1, 30_000, 10.0032)])
def test_the_same_formula_in_other_papers(q_inverse, sigma, steps, epsilon):
    """DP-MERF, DP-MERF with an autoencoder, and DP-CGAN as the GS-WGAN paper counts it (where the
    looser terms of Theorem 9 alone give 10.1030)."""
    published = gswgan(q_inverse, 1, sigma, DELTA)
    assert published.epsilon(steps, "classic") == pytest.approx(epsilon, rel=5e-6)


def test_federated_as_published():
    published = gswgan(866, 32, 1.07, 1 / 866, federated=True)
    # 598.571 at the best real order of the classic conversion; the package's lowest order is 1.1
    assert published.epsilon(30_000, "classic") == pytest.approx(600.174, abs=1e-3)
    assert published.epsilon(30_000) == pytest.approx(596.823, abs=1e-3)
    assert published.epsilon(0) == 0 and "K=866" in published.formula
    assert gswgan(866, 32, 0, 1 / 866, federated=True).epsilon(1) == math.inf
    steps = published.max_steps(600)
    assert published.epsilon(steps) <= 600 < published.epsilon(steps + 1)
    # Fed-Avg GAN there: 10 of 866 clients, sigma .01, 1,000 rounds
    orders = (2, 3, 4, 5)
    rdp = 1000 * composition.without_replacement(10 / 866, 1 / 0.01**2, orders)
    epsilon, order = min((r + math.log(866) / (a - 1), a)
                         for r, a in zip(rdp.tolist(), orders, strict=True))
    assert epsilon == pytest.approx(9.9918e6, rel=1e-5) and order == 2


def test_from_a_configuration():
    def of(method, delta=DELTA, **fields):
        fields = {"critics": 1000, "critics_per_step": 1, "batch": 32, "sigma": 1.07,
                  "federated": False, **fields}
        return methods.published(method, types.SimpleNamespace(**fields), delta)

    assert of("gswgan").epsilon(20_000) == pytest.approx(9.242843, abs=5e-7)
    assert of("dpac", critics=2543, sigma=0.61135).epsilon(20_000) == pytest.approx(9.231830,
                                                                                    abs=5e-7)
    federated = of("gswgan", 1 / 866, critics=866, federated=True)
    assert federated.epsilon(30_000) == pytest.approx(596.823, abs=1e-3)
    for method in ("gswgan", "dpac"):
        assert of(method, critics_per_step=0) is None and of(method, critics_per_step=2) is None


def visits(n, batch=32, sigma=1.07):
    """n visits to one unit; a grid of 1/100 of a gradient's sensitivity."""
    return ((GaussianEvent(100 * sigma, 100**2 * batch), n),)


@pytest.mark.parametrize("n, batch, exact, improved, classic", [
    (20, 32, 379.417, 390.259, 392.953), (20, 1, None, 27.487, 28.790),
    (40, 32, None, None, 719.447), (46, 32, None, 811.832, None)])
def test_what_the_published_noise_costs(n, batch, exact, improved, classic):
    """A public rotation over 1,000 critics visits each 20 times in 20,000 steps."""
    events = visits(n, batch)
    got = (composition.epsilon_of(events, DELTA), rdp_epsilon(events, DELTA),
           rdp_epsilon(events, DELTA, "classic"))
    assert got[0] < got[1] < got[2]
    for number, expected in zip(got, (exact, improved, classic), strict=True):
        if expected is not None:
            assert number == pytest.approx(expected, abs=6e-4)


def test_the_noise_of_a_true_ten():
    """In units of 2 C: by the exact accountant, and by the improved conversion."""
    for sigma, cost in ((12.646, composition.epsilon_of), (13.398, rdp_epsilon)):
        assert cost(visits(20, sigma=sigma * 1.0001), DELTA) < 10
        assert cost(visits(20, sigma=sigma * 0.9999), DELTA) > 10


def test_the_claim_is_far_from_the_proof():
    claimed = gswgan(1000, 32, 1.07, DELTA).epsilon(20_000)
    step = SampledGaussianEvent(GaussianEvent(1.07, 32), 1000, 1)
    by_chance = composition.epsilon_of(((step, 20_000),), DELTA)
    rotation = composition.epsilon_of(visits(20), DELTA)
    assert 30 * claimed < rotation < by_chance < 1000
