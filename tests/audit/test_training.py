"""Whole trainings with canaries: guesses are as good as the charged noise allows, and better where
a fault is planted."""

import dataclasses

import numpy as np
import pytest
import small_datalens

from dpgen_jax import methods, presets
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.audit import canaries, training
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.core.config import Budget
from dpgen_jax.data import from_arrays
from dpgen_jax.methods import dpgan
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.nets.pair import ConvNet
from dpgen_jax.private.teachers import Layout
from dpgen_jax.run.calibrate_config import with_records

N = 400  # of which so many are guessed that chance fails a test once in 10^7 times
pytestmark = pytest.mark.slow


@dataclasses.dataclass(frozen=True)
class HalfDrawn(RoundedGaussian):
    def sample(self, bits):
        return RoundedGaussian(self.sigma / 2).sample(bits)


def verdicts(name, fields, noise=RoundedGaussian):
    """{check: finding} of one training at toy size."""
    dataset = from_arrays(*small_datalens.images(N), 3)
    config = with_records(dataclasses.replace(presets.get(name)[1].config, **fields), N)
    built = methods.get(name).build(config, dataset.spec)
    mechanism = built.mechanism
    built = dataclasses.replace(built, mechanism=dataclasses.replace(
        mechanism, noise=noise(mechanism.noise.sigma)))
    shape = (mechanism.shape[0], mechanism.shape[1])
    rng = np.random.default_rng(3)
    made = canaries.chosen(built, [shape], dataset.spec.classes, N, rng)
    found = Findings()
    law = canaries.Law.of(made, config.steps)
    guessed, _ = training.trained(made, dataset, config, Budget(float("inf"), 1e-5), rng)
    canaries.judge(found, law, guessed, mechanism.events(config.steps), 1e-5, name)
    return found.made


def test_a_release_of_embeddings_leaks_what_is_charged_and_half_the_noise_is_caught():
    fields = {"features": 200, "sigma": 0.5}
    sound = verdicts("dpmerf", fields)
    assert all(finding.verdict == Verdict.HOLDS for finding in sound)
    assert sound[1].claimed == pytest.approx(2) and sound[1].certified > 1
    caught = verdicts("dpmerf", fields, HalfDrawn)
    assert caught[0].verdict == caught[1].verdict == Verdict.FAILS


def test_the_records_of_all_units_are_there_where_few_are_sampled(monkeypatch):
    """The planted fault: those of as many units as a round has places, whose last stands for all
    others."""
    dataset = from_arrays(*small_datalens.images(60), 3)
    config = with_records(dpgan.Config(
        batch=4, sigma=1.0, steps=1, fakes=4, g_batch=4, d_steps=1, clip=0.3,
        generator=GeneratorNet(4, 16, 4), discriminator=ConvNet(4, 4)), 60)
    built = dpgan.build(config, dataset.spec)
    rng = np.random.default_rng(0)
    made = canaries.chosen(built, [tuple(built.mechanism.shape)], 3, 60, rng)
    guessed, _ = training.trained(made, dataset, config, Budget(float("inf"), 1e-5), rng)
    assert len(guessed.coins) == len(made.units)
    monkeypatch.setattr(Layout, "dealt_units", Layout.local_units)
    with pytest.raises(ValueError, match="of which 60 are sampled"):
        training.trained(made, dataset, config, Budget(float("inf"), 1e-5), rng)
