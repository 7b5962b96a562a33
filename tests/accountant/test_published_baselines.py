"""The claims of the papers of the baselines, and those of GS-WGAN about them."""

import math
import types

import pytest
from renyi import rdp_epsilon

from dpgen_jax import methods
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, LaplaceEvent, PoissonGaussianEvent
from dpgen_jax.accountant.published import dpcgan, dpmerf, dpmerf_ae, fedavg_gan, pategan

DELTA = 1e-5


def test_dpcgan():
    """sigma 1.12 and C 1.1 give the multiplier 1.232. Near 30,000 steps the code's conversion comes
    to the paper's 9.6; the improved one to 8.744."""
    published = dpcgan(60_000, 600, 1.1, 1.12, DELTA)
    assert published.epsilon(30_000, "classic") == pytest.approx(9.545, abs=5e-4)
    assert 30_000 < published.max_steps(9.6, "classic") < 31_000
    assert published.epsilon(30_000) == pytest.approx(8.744, abs=5e-4)
    assert "sigma=1.12, C=1.1, q=600/60000" in published.formula
    # what is claimed is far from what a joint clip would prove, and twice over from what was run
    multiplier = PoissonGaussianEvent(GaussianEvent(112.0, 100**2), 0.01, "zero-out")
    truly = PoissonGaussianEvent(GaussianEvent(56.0, 100**2), 600 / 55_000, "zero-out")
    proven, run = (composition.epsilon_of(((event, 30_000),), DELTA)
                   for event in (multiplier, truly))
    assert 1.05 * published.epsilon(30_000) < proven < run / 5


def test_a_larger_clip_does_not_buy_privacy():
    """The slip of the code: with the same noise per clip, clipping at 10 looks 10 times better."""
    assert dpcgan(60_000, 600, 10.0, 1.12, DELTA).epsilon(30_000) < 1


@pytest.mark.parametrize("sigma, exact, improved, claim", [(5, 0.7255, 0.7943, 1),
                                                           (25, 0.12542, 0.13945, 0.2)])
def test_dpmerf(sigma, exact, improved, claim):
    published = dpmerf(sigma, DELTA)
    assert 0.95 * claim < published.epsilon(1, "classic") < claim
    # at the best order; the package's grid ends at 1,024 and has none between 64, 128 and 256
    assert improved <= published.epsilon(1) < 1.06 * improved
    event = GaussianEvent(sigma, 1)
    assert composition.epsilon_of(((event, 1),), DELTA) == pytest.approx(exact, abs=5.1e-5)
    assert published.max_steps(claim) == 1


def test_dpmerf_with_an_autoencoder():
    """60,000 records in batches of 500."""
    published = dpmerf_ae(60_000, 500, 0.686, DELTA)
    assert published.epsilon(2040, "classic") == pytest.approx(9.99888, abs=5e-6)
    assert published.epsilon(2040) == pytest.approx(9.0441, abs=5e-5)
    other = dpmerf_ae(60_000, 500, 0.588, DELTA)
    assert other.epsilon(600, "classic") == pytest.approx(10.0173, abs=5e-5)


def test_fedavg_gan():
    published = fedavg_gan(866, 10, 0.01, 1 / 866)
    assert published.epsilon(1000) == pytest.approx(9.9918e6, rel=1e-5)
    assert "m=10, K=866" in published.formula
    # drawing by itself costs more by that formula than nothing hidden at all
    undrawn = rdp_epsilon(((GaussianEvent(0.01, 1), 1000),), 1 / 866, "classic")
    assert undrawn == pytest.approx(5.01e6, rel=1e-3)


def test_pategan():
    by_hand = min((640 * 2 * 0.01**2 * m * (m + 1) + math.log(1e5)) / m for m in range(1, 101))
    published = pategan(64, 100.0, DELTA)
    # moments are of whole orders, and the best of the package's lies between two of them
    assert 0.998 * by_hand < published.epsilon(10, "classic") < by_hand
    assert published.epsilon(0) == 0 and published.max_steps(by_hand, "classic") == 10
    assert published.epsilon(10) == pytest.approx(2.1944, abs=5e-5)
    # one noisy count, composed by its losses, is proven at less
    proven = composition.epsilon_of(((LaplaceEvent(100.0, 1), 640),), DELTA)
    assert proven < published.epsilon(10)


@pytest.mark.parametrize("published", [
    dpcgan(60_000, 600, 1.1, 0.0, DELTA), dpmerf(0.0, DELTA), dpmerf_ae(60_000, 500, 0.0, DELTA),
    fedavg_gan(866, 10, 0.0, DELTA), pategan(64, 0.0, DELTA)])
def test_no_noise_and_no_steps(published):
    assert published.epsilon(0) == 0 and published.epsilon(1) == math.inf


def test_from_a_configuration():
    def of(method, delta=DELTA, **fields):
        return methods.published(method, types.SimpleNamespace(**fields), delta)

    cgan = of("dpcgan", records=60_000, batch=600, clip=1.1, sigma=1.12)
    assert cgan.epsilon(30_000) == pytest.approx(8.744, abs=5e-4)
    assert of("dpmerf", sigma=5.0).epsilon(1) == dpmerf(5.0, DELTA).epsilon(1)
    coded = of("dpmerf_ae", records=60_000, batch=500, sigma=0.686)
    assert coded.epsilon(2040) == pytest.approx(9.0441, abs=5e-5)
    for method in ("dpcgan", "dpmerf_ae"):  # as long as nobody knows how many records there are
        assert of(method, records=None, batch=600, clip=1.1, sigma=1.12) is None
    federated = of("fedavg_gan", 1 / 866, clients=866, clients_per_round=10, sigma=0.01,
                   federated=False)
    assert federated.epsilon(1000) == pytest.approx(9.9918e6, rel=1e-5)
    votes = {"batch": 64, "sigma": 100.0, "noise": "laplace", "decode": "majority"}
    assert of("pategan", **votes).epsilon(10) == pategan(64, 100.0, DELTA).epsilon(10)
    assert of("pategan", **{**votes, "noise": "gaussian"}) is None
    assert of("pategan", **{**votes, "decode": "share"}) is None
    assert of("dpgan", sigma=1.0) is None
