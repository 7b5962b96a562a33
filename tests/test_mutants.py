"""Planted faults, through the real loop: each is caught by a check that the correct code passes,
which compares runs bit for bit."""

import dataclasses
import math

import adversary
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens

from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.private import teachers

RUNS, ALPHA = 4000, 1e-6
WHERE = adversary.layout()
METHOD = adversary.build()




# Noise bits are used once.

class ConstantBits(SeededBits):
    """Every call gets the same bits; within a call, steps differ."""

    def draw(self, shape):
        return SeededBits(0).draw(shape)


class RepeatedBits(SeededBits):
    """Two steps of one call share their bits."""

    def draw(self, shape):
        return np.repeat(super().draw(((shape[0] + 1) // 2, *shape[1:])), 2, axis=0)[:shape[0]]


@dataclasses.dataclass(frozen=True)
class SharedRows(RoundedGaussian):
    def sample(self, bits):
        return jnp.broadcast_to(super().sample(bits[:1]), bits.shape[:-1])


def check_fresh_noise(path, method, bits):
    """Noise of every step and row: what a run released minus what it releases without noise."""
    data = adversary.neighbours()[0]
    seen = np.asarray(adversary.train(path / "a", method, data, WHERE, bits=bits,
                                      steps_per_call=2)[0].public.seen)

    class NoBits(SeededBits):
        def draw(self, shape):
            return np.zeros(shape, np.uint32)

    silent = adversary.train(path / "b", method, data, WHERE, planted=seen, bits=NoBits(0))[0]
    rows = (seen - np.asarray(silent.public.seen)).reshape(-1, adversary.SHAPE[1])
    assert rows.std() == pytest.approx(adversary.SIGMA, rel=5 / math.sqrt(2 * rows.size))
    assert len(np.unique(rows, axis=0)) == len(rows), "noise that was used twice"


def test_noise_is_fresh_in_every_step_and_row(tmp_path):
    check_fresh_noise(tmp_path, METHOD, SeededBits(0))


@pytest.mark.parametrize(
    ("method", "bits"),
    [
        (METHOD, ConstantBits(0)),
        (METHOD, RepeatedBits(0)),
        (adversary.build(noise=SharedRows(adversary.SIGMA)), SeededBits(0)),
    ],
    ids=["calls", "steps", "rows"],
)
def test_noise_bits_that_are_used_twice_are_caught(tmp_path, method, bits):
    with pytest.raises(AssertionError, match="used twice"):
        check_fresh_noise(tmp_path, method, bits)


# One record moves one unit, and the public side hears of it through the release alone.

def check_separation(path, build):
    """Two neighbouring runs on one transcript: public state is equal up to what was released, and
    the state of one unit differs. build: data -> method, for a fault that reads the records."""
    states = [adversary.train(path / name, build(data), data, WHERE,
                              planted=np.zeros((adversary.STEPS, *adversary.SHAPE), np.float32))[0]
              for name, data in zip("ab", adversary.neighbours(), strict=True)]
    first, second = (dataclasses.replace(s.public, seen=0) for s in states)
    assert small_datalens.equal(first, second), "public state"
    moved = small_datalens.differing_units(*map(adversary.arrays, states))
    assert moved == {adversary.owner()}, f"units {moved}"


def test_one_record_moves_one_unit(tmp_path):
    check_separation(tmp_path, lambda data: METHOD)


def test_momentum_shared_by_the_units_of_a_chunk_is_caught(tmp_path, monkeypatch):
    """As in the published codes, whose optimiser slots belong to a place in the graph."""
    separate = teachers.vmapped

    def shared(one, chunk):
        def visit(*args):
            units, votes = separate(one, chunk)(*args)
            momentum = units.state["momentum"]
            state = units.state | {"momentum": jnp.broadcast_to(momentum.mean(0), momentum.shape)}
            return dataclasses.replace(units, state=state), votes
        return visit

    monkeypatch.setattr(teachers, "vmapped", shared)
    method = adversary.build()
    with pytest.raises(AssertionError, match="units"):
        check_separation(tmp_path, lambda data: method)


def fed_by_labels(data):
    def absorb(key, public, query, released):
        public, metrics = adversary.absorb(key, public, query, released)
        return dataclasses.replace(public, planted=public.planted + data[1].mean()), metrics

    return adversary.build(absorb=absorb)


def queried_with_labels(data):
    def ask(key, public):
        query = adversary.ask(key, public)
        return dataclasses.replace(query, images=query.images + np.float32(data[1].mean()))

    return adversary.build(ask=ask)


@pytest.mark.parametrize(("build", "match"), [
    (fed_by_labels, "public state"), (queried_with_labels, "units")], ids=["absorb", "ask"])
def test_a_public_side_that_reads_private_labels_is_caught(tmp_path, build, match):
    with pytest.raises(AssertionError, match=match):
        check_separation(tmp_path, build)
