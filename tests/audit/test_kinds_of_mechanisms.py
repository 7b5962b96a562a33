"""Attacks name the kind of mechanism that they are not written for."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planted import toy as adversary

from dpgen_jax.aggregation.clip import RowL2
from dpgen_jax.aggregation.mechanism import LocalMechanism
from dpgen_jax.aggregation.noise import DiscreteLaplace, NoNoise, RoundedGaussian, SeededBits
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.audit import attacks, mechanism
from dpgen_jax.core.types import UserError

VOTES = adversary.mechanism()
CLIENTS = LocalMechanism(bound=RowL2(1.0, 5, 2, 30), noise=RoundedGaussian(7.0), n_units=3,
                         schedule=FullParticipation(), shape=(2, 5),
                         decode=lambda noised, n: noised.astype(jnp.float32))


@pytest.mark.parametrize(("attack", "mechanism", "named"), [
    (attacks.lowered, dataclasses.replace(VOTES, noise=NoNoise()),
     "NoNoise"),
    (lambda made: attacks.gaussian(made.noise),
     dataclasses.replace(VOTES, noise=DiscreteLaplace(2.0)), "DiscreteLaplace"),
    (attacks.clipping, VOTES, "TopKSign"), (mechanism.secret, VOTES, "FullParticipation"),
    (mechanism.of_few_units, VOTES, "TopKSign"), (attacks.attackable, object(), "object")])
def test_another_kind_of_mechanism_is_named(attack, mechanism, named):
    with pytest.raises(UserError, match=named):
        attack(mechanism)


def test_a_bound_a_schedule_and_a_noise_that_fit_are_those_of_the_mechanism():
    assert attacks.attackable(CLIENTS) is CLIENTS and attacks.attackable(VOTES) is VOTES
    assert attacks.clipping(CLIENTS) is CLIENTS.bound
    assert attacks.gaussian(VOTES.noise) is VOTES.noise


def test_the_noise_of_clients_is_drawn_through_their_mechanism_and_is_noise_alone():
    make, shape = mechanism.noise_maker(CLIENTS)
    bits = SeededBits(0).draw((1, *shape))[0]
    noise = np.asarray(jax.jit(make)(bits))
    assert shape == CLIENTS.client_bits_shape and noise.any()
    np.testing.assert_array_equal(noise, jax.jit(CLIENTS.noise.sample)(bits))
