"""Noise at the client: its own, of its own bits, on every layout, and before anything is added."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planted import toy as adversary
from scipy import stats

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, NonPrivateEvent
from dpgen_jax.aggregation.clip import GridMean, RowL2
from dpgen_jax.aggregation.mechanism import LocalMechanism, release
from dpgen_jax.aggregation.noise import NoNoise, OsBits, RoundedGaussian, SeededBits
from dpgen_jax.aggregation.schedule import (
    FixedSizeSampling,
    FullParticipation,
    PublishedSampling,
    RoundRobin,
)
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.core.types import Private, UserError, unseal
from dpgen_jax.private import teachers
from dpgen_jax.run import loop

CLIENTS, GROUPS = 5, 2
SIGMA = 6.0


def mechanism(**fields):
    default = {"bound": TopKSign(adversary.TOP_K, adversary.ROWS), "noise": RoundedGaussian(SIGMA),
               "schedule": RoundRobin(GROUPS), "n_units": CLIENTS, "shape": adversary.SHAPE,
               "decode": lambda noised, n: noised.astype(jnp.float32) / n}
    return LocalMechanism(**default | fields)


LOCAL = mechanism()
WIDE = mechanism(
    bound=RowL2(1.0, 400, 20, 200), shape=(20, 400), n_units=8, schedule=FullParticipation()
)


def answer(key, unit, own, query):
    """Whole numbers, which every layout adds up alike."""
    return own.x.reshape(-1, 8).astype(jnp.float32).sum(0) - 128 * len(own.y) + 0 * query.images


METHOD = dataclasses.replace(adversary.build(answer=answer), mechanism=LOCAL)


# The noise.

def noises(built, secrets):
    """int32 [R, n, B, D]: what clients send that have nothing to say."""
    send = jax.jit(jax.vmap(jax.vmap(functools.partial(
        built.contribution, jax.random.key(0), jnp.zeros(built.shape)))))
    return np.asarray(send(secrets))


def check_own_noise(built):
    """Independent from client to client and turn to turn: the sum over m has m sigma^2."""
    sent = noises(built, built.private_inputs(SeededBits(0), np.zeros(4, np.int32), 0))
    m, n, *_ = sent.shape
    flat = sent.reshape(m * n, -1).astype(float)
    assert sent.shape == (8, 4, 20, 400) and len(np.unique(flat, axis=0)) == m * n
    correlations = np.corrcoef(flat)[np.triu_indices(m * n, 1)]
    assert np.abs(correlations).max() < 6 / math.sqrt(flat.shape[1])
    total = sent.sum(0).ravel()
    variance = m * (SIGMA**2 + 1 / 12)
    assert np.mean(total**2.0) == pytest.approx(variance, rel=6 * math.sqrt(2 / total.size))
    assert stats.kstest(total / math.sqrt(variance) + np.random.default_rng(0).uniform(
        -0.5, 0.5, total.size) / math.sqrt(variance), "norm").pvalue > 1e-6


def test_every_client_draws_noise_of_its_own():
    check_own_noise(WIDE)


class Shared(LocalMechanism):
    """The mutant: one draw for all clients of a step."""

    def private_inputs(self, source, turns, first):
        bits = super().private_inputs(source, turns, first)
        return np.broadcast_to(bits[:1], bits.shape)


class Kept(LocalMechanism):
    """The mutant: a client's noise is that of its first turn."""

    def private_inputs(self, source, turns, first):
        bits = super().private_inputs(source, turns, first)
        return np.broadcast_to(bits[:, :1], bits.shape)


class Divided(LocalMechanism):
    """The mutant: noise for the sum, shared out among the clients, as for a trusted aggregator."""

    def contribution(self, key, message, secret):
        share = RoundedGaussian(self.noise.sigma / math.sqrt(self.n_units))
        return self.bound.project(key, message) + share.sample(secret)


@pytest.mark.parametrize("kind", [Shared, Kept, Divided])
def test_noise_that_is_not_the_clients_own_is_caught(kind):
    with pytest.raises(AssertionError):
        check_own_noise(kind(**vars(WIDE)))


def test_what_leaves_a_client_is_bounded_and_noised():
    """Its projection plus the noise of its bits, and nothing is left for the server to add."""
    message = np.random.default_rng(0).normal(size=adversary.SHAPE).astype(np.float32)
    secret = LOCAL.private_inputs(OsBits(), np.zeros(1, np.int32), 0)[0, 0]
    key = jax.random.key(1)
    sent = LOCAL.contribution(key, message, secret)
    np.testing.assert_array_equal(
        sent, LOCAL.bound.project(key, message) + LOCAL.noise.sample(secret))
    assert sent.dtype == jnp.int32 and np.abs(sent).max() <= LOCAL.largest
    assert LOCAL.bits_shape == (0,) and secret.shape == (*adversary.SHAPE, 3)
    total = np.arange(32, dtype=np.int32).reshape(adversary.SHAPE)
    value = release(LOCAL, jnp.zeros(0, jnp.uint32), Private(jnp.asarray(total)))
    np.testing.assert_allclose(value, total / (CLIENTS / GROUPS), rtol=1e-6)


def test_seeded_bits_belong_to_the_client_and_the_turn():
    """Whatever the length of a block, and whoever else is visited with it."""
    turns = LOCAL.schedule.cohorts(None, 3, 6)
    whole = LOCAL.private_inputs(SeededBits(9), turns, 3)
    assert whole.shape == (3, 6, *adversary.SHAPE, 3) and whole.dtype == np.uint32
    parts = [
        LOCAL.private_inputs(SeededBits(9), turns[a:b], 3 + a) for a, b in ((0, 1), (1, 4), (4, 6))
    ]
    np.testing.assert_array_equal(whole, np.concatenate(parts, 1))
    for row, i in np.ndindex(3, 6):
        unit = row * GROUPS + turns[i]
        alone = SeededBits(9).draw_for(np.array([[unit]]), 3 + i, (*adversary.SHAPE, 3))
        np.testing.assert_array_equal(whole[row, i], alone[0, 0])
    flat = {bits.tobytes() for bits in whole.reshape(18, -1)}
    assert len(flat) == 18
    for other in (SeededBits(8), SeededBits(9, 1), OsBits()):
        inputs = LOCAL.private_inputs(other, turns, 3)
        assert inputs.shape == whole.shape and not flat & {b.tobytes() for b in
                                                           inputs.reshape(18, -1)}


# What it costs.

def test_a_visit_is_one_gaussian_release_of_one_client():
    visit = GaussianEvent(SIGMA, 4 * adversary.TOP_K * adversary.ROWS,
                          total_variation=RoundedGaussian(SIGMA).total_variation(32))
    for steps in (1, 2, 3, 7):
        assert LOCAL.events(steps) == ((visit, -(-steps // GROUPS)),)
        assert mechanism(schedule=FullParticipation()).events(steps) == ((visit, steps),)
    assert LOCAL.pending_charge(((visit, 1),), 1, 1) == () and LOCAL.pending_charge(
        ((visit, 1),), 1, 2
    ) == ((visit, 1),)
    assert (LOCAL.unit, LOCAL.relation) == ("client", "replace-one")
    charged = LOCAL.pending_charge((), 0, 3)
    assert LOCAL.actual_charge(np.zeros((3, 0)), charged) == charged


def test_the_number_of_clients_does_not_change_the_cost():
    """No amplification, and no help from the noise of others."""
    assert (
        len({mechanism(n_units=n, schedule=FullParticipation()).events(3) for n in (2, 5, 1000)})
        == 1
    )


def test_two_messages_are_no_further_apart_than_is_charged():
    key, message = jax.random.key(0), jnp.ones(adversary.SHAPE)
    move = LOCAL.bound.project(key, message) - LOCAL.bound.project(key, -message)
    ((event, _),) = LOCAL.events(1)
    assert int((move**2).sum()) == event.squared_sensitivity


def test_no_noise_is_never_private():
    assert mechanism(noise=NoNoise()).events(2)[0][0] == NonPrivateEvent()
    assert composition.epsilon_of(mechanism(noise=NoNoise()).events(1), 1e-5) == math.inf


# The stacked run.

@functools.cache
def by_hand():
    """Every client by itself, with bits drawn for it alone: what the server sees, turn by turn."""
    (unit_states, key), source = adversary.fresh(CLIENTS), SeededBits(5)
    public = jax.tree.map(jnp.asarray, adversary.transcript())
    own = unseal(
        adversary.records.deal(
            adversary.records.seal(*adversary.neighbours()[0], adversary.SPEC),
            adversary.dealt(CLIENTS),
        )
    )
    visit = jax.jit(functools.partial(teachers.query_unit, METHOD))
    ask, unit_states = jax.jit(METHOD.ask), [jax.tree.map(lambda a, u=u: a[u], unit_states)
                                             for u in range(CLIENTS)]
    for turn in range(adversary.STEPS):
        query, total = ask(jax.random.split(jax.random.fold_in(key, turn))[0], public), 0
        for u in range(turn % GROUPS, CLIENTS, GROUPS):
            bits = source.draw_for(np.array([[u]]), turn, LOCAL.client_bits_shape)[0, 0]
            mine = jax.tree.map(lambda a, u=u: a[u], own)
            unit_states[u], sent = visit(unit_states[u], mine, query, turn, bits)
            total = total + np.asarray(sent)
        mean = np.float32(total) / (CLIENTS / GROUPS)
        public = METHOD.absorb(key, public, query, mean)[0]
    return np.asarray(public.seen)


@pytest.mark.parametrize(("parts", "per_call"), [
    ((1, 1), 0), ((1, 1), 4), ((2, 1), 0), ((1, 2), 0), ((1, 8), 0), ((2, 2, "pmap"), 3)], ids=str)
def test_a_run_is_its_clients_one_by_one(tmp_path, parts, per_call):
    where = adversary.layout(*parts[:2], *parts[2:], units=CLIENTS, n_cohorts=GROUPS)
    state, ledger = adversary.train(tmp_path / "ledger", METHOD, adversary.neighbours()[0], where,
                                    bits=SeededBits(5), steps_per_call=per_call)
    np.testing.assert_allclose(state.public.seen, by_hand(), rtol=1e-6)
    assert ledger.spent() == LOCAL.events(adversary.STEPS) and np.any(by_hand())


def test_a_long_message_makes_short_blocks():
    """The secrets of a block of sixteen steps would take 1.2 GB: of so many, bits are drawn."""
    many = mechanism(bound=RowL2(1.0, 400, 20, 200), shape=(20, 400), n_units=2000)
    one = 1000 * 20 * 400 * 3 * 4
    assert loop.longest_block(many) == loop.MOST_SECRETS // one == 2
    assert loop.longest_block(LOCAL) == loop.LONGEST_BLOCK


# Refused.

@pytest.mark.parametrize(("fields", "text"), [
    ({"n_units": 1}, "a federation of 1 clients"), ({"n_units": 0}, "at least 2 are needed"),
    ({"schedule": FixedSizeSampling(5, 2)}, "a secret draw hides nothing from the server"),
    ({"schedule": PublishedSampling(5)}, "public schedule"),
    ({"shape": (3, 8)}, "covers 4 rows, a message has 3"),
    ({"n_units": 2**31 // LOCAL.largest + 1}, "32-bit integers; use fewer clients")])
def test_what_would_not_be_private_or_exact_is_refused(fields, text):
    with pytest.raises(UserError, match=text) as caught:
        mechanism(**fields)
    assert "\n" not in str(caught.value)


def test_as_many_clients_as_fit_32_bits_are_taken():
    most = (2**31 - 1) // LOCAL.largest
    assert mechanism(n_units=most).n_units == most
    with pytest.raises(UserError, match="32-bit"):
        mechanism(n_units=most + 1)


def test_it_is_a_plain_value():
    assert mechanism(decode=GridMean(1.0)) == mechanism(decode=GridMean(1.0))
    assert hash(LOCAL) == hash(LOCAL)
