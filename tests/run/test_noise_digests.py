"""The digests of a run's random bits: bits that were used twice are found, wherever."""

import dataclasses

import numpy as np
import pytest
from planted import toy as adversary

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.clip import RowL2
from dpgen_jax.aggregation.mechanism import LocalMechanism
from dpgen_jax.aggregation.noise import RoundedGaussian, SeededBits
from dpgen_jax.aggregation.schedule import FixedSizeSampling, PoissonSampling, RoundRobin
from dpgen_jax.core.types import UserError
from dpgen_jax.run import loop, noise_digests
from dpgen_jax.run.loop import secret_bits
from dpgen_jax.run.noise_digests import Remembered, twice

KEY = b"k" * 32
RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.integers(2**32, size=(*shape, 3), dtype=np.uint32)


BITS = numbers(6, 5)


def test_rounds_are_read_back_and_a_repeat_is_found(tmp_path):
    path = tmp_path / "digests"
    noise_digests.append(path, KEY, 0, [BITS[:4]])
    noise_digests.append(path, KEY, 4, [np.stack([BITS[4], BITS[1]])])
    rows = noise_digests.read(path)
    assert [row.number for row in rows] == [0, 1, 2, 3, 4, 5]
    assert noise_digests.repeated(rows) == [(1, 5)] and all(row.twice == 0 for row in rows)
    assert path.stat().st_mode & 0o77 == 0


def test_bits_of_samples_that_come_again_are_found_though_the_noise_is_fresh(tmp_path):
    path, samples = tmp_path / "digests", RNG.integers(2**32, size=(3, 40), dtype=np.uint32)
    samples[2] = samples[0]
    noise_digests.append(path, KEY, 7, [samples, BITS[:3]])
    rows = noise_digests.read(path)
    assert [len(row.digests) for row in rows] == [2, 2, 2]
    assert noise_digests.repeated(rows) == [(7, 9)]


def test_without_bits_there_is_nothing_to_keep(tmp_path):
    noise_digests.append(tmp_path / "digests", KEY, 0, [np.zeros((6, 5, 0), np.uint32)])
    assert not (tmp_path / "digests").exists()


def test_lines_of_earlier_versions_are_read(tmp_path):
    path = tmp_path / "digests"
    noise_digests.append(path, KEY, 0, [BITS])
    path.write_text(path.read_text().replace(" 0\n", "\n"))
    assert [row.twice for row in noise_digests.read(path)] == [None] * 6


def test_a_digest_says_nothing_without_the_key(tmp_path):
    for name, key in (("a", KEY), ("b", b"l" * 32)):
        noise_digests.append(tmp_path / name, key, 0, [BITS])
    a, b = (noise_digests.read(tmp_path / name) for name in "ab")
    assert not {row.digests for row in a} & {row.digests for row in b}


def test_a_torn_line_is_left_out_and_a_damaged_one_named(tmp_path):
    path = tmp_path / "digests"
    noise_digests.append(path, KEY, 0, [BITS])
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert len(noise_digests.read(path)) == 5
    noise_digests.append(path, KEY, 6, [BITS])
    assert [line.number for line in noise_digests.read(path)] == [*range(5), *range(6, 12)]
    path.write_bytes(whole.replace(b"\n2 ", b"\n2x"))
    with pytest.raises(UserError, match="line 3"):
        noise_digests.read(path)


def repeated_row(bits):
    return np.broadcast_to(bits[:1], bits.shape)


def repeated_block(bits):
    """A block of 4,000 numbers stands at another place too, at no even distance."""
    flat = bits.reshape(-1, 3).copy()
    flat[5_001:9_001] = flat[100_003:104_003]
    return flat.reshape(bits.shape)


def one_number(bits):
    return np.broadcast_to(bits[:1, :1], bits.shape)


@pytest.mark.parametrize("plant", [repeated_row, repeated_block, one_number])
@pytest.mark.parametrize("shape", [(2, 70_000), (40, 20_000)])
def test_numbers_that_are_twice_in_a_round_are_seen_however_many_there_are(plant, shape):
    bits = numbers(*shape)
    assert twice(bits) == 0 and twice(plant(bits)) > 100


def test_every_number_of_a_small_round_is_compared():
    bits = numbers(8, 50)
    assert twice(bits) == 0
    bits[3, 7] = bits[6, 41]
    assert twice(bits) == 1
    bits[3, 7, 2] ^= 1  # the same but for one bit
    assert twice(bits) == 0
    assert twice(np.zeros(4000, np.uint32)) == 0  # of 32 bits each: some are the same by chance


def drawn(mechanism, n=3, longest=5):
    source = Remembered(SeededBits(0))
    layout = adversary.layout(units=mechanism.n_units, n_cohorts=mechanism.schedule.n_cohorts)
    draws = loop.draw(mechanism, layout, source, 0, n, longest)
    return secret_bits(mechanism, draws, source.drawn, n), draws


def test_the_bits_of_a_block_are_those_of_its_noise_and_of_its_samples():
    plain = adversary.mechanism()
    (noise,), draws = drawn(plain)
    np.testing.assert_array_equal(noise, draws.bits[:3])
    for schedule, shape in ((PoissonSampling(4, 2), (3, 4)),
                            (FixedSizeSampling(4, 2), (3, 4, 3))):
        sampled, noise = drawn(dataclasses.replace(plain, schedule=schedule))[0]
        assert sampled.shape == shape and noise.shape == (3, *plain.bits_shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shared(LocalMechanism):
    """The planted fault: all clients add the same noise."""

    def private_inputs(self, source, cohorts, first_round):
        inputs = super().private_inputs(source, cohorts, first_round)
        return np.broadcast_to(inputs[:1], inputs.shape)


@pytest.mark.parametrize(("mechanism", "repeats"), [(LocalMechanism, 0), (Shared, 10)])
def test_the_bits_of_clients_are_those_that_they_use(mechanism, repeats):
    made = mechanism(bound=RowL2(1.0, 5, 2, 30), noise=RoundedGaussian(7.0), n_units=4,
                     schedule=RoundRobin(2), shape=(2, 5), decode=lambda noised, n: noised)
    (bits,), _ = drawn(made)
    assert bits.shape == (3, 2, 2, 5, 3)  # no rows that pad the layout, and no further rounds
    assert [twice(row) for row in bits] == [repeats] * 3


@dataclasses.dataclass
class Cached(SeededBits):
    """The planted fault: every block gets the bits of the first one."""

    def draw(self, shape):
        self.step = 0
        return super().draw(shape)


class Tiled(SeededBits):
    """The planted fault: all rows of a round share the bits of its first one."""

    def draw(self, shape):
        bits = super().draw(shape)
        return np.broadcast_to(bits[:, :1], shape)


@pytest.mark.slow
def test_a_run_that_draws_the_same_bits_again_is_caught(tmp_path):
    for name, bits, repeats, inside in (("a", SeededBits(0), 0, False), ("b", Cached(0), 2, False),
                                        ("c", Tiled(0), 0, True)):
        path = tmp_path / f"digests-{name}"
        adversary.train(
            tmp_path / name, adversary.build(), adversary.neighbours()[0], adversary.layout(),
            bits=bits, steps=4, steps_per_call=2,
            on_bits=lambda first, secret, path=path: noise_digests.append(path, KEY, first, secret))
        rows = noise_digests.read(path)
        assert len(rows) == 4 and len(noise_digests.repeated(rows)) == repeats
        assert all(bool(row.twice) == inside for row in rows)


def test_digests_are_made_while_a_block_is_computed_and_before_it_counts(tmp_path, monkeypatch):
    order, run_block, settle = [], loop.run_block, Ledger.settle
    monkeypatch.setattr(loop, "run_block", lambda *args: order.append("block") or run_block(*args))
    monkeypatch.setattr(Ledger, "settle", lambda *args: order.append("settle") or settle(*args))
    adversary.train(
        tmp_path / "ledger", adversary.build(), adversary.neighbours()[0], adversary.layout(),
        bits=SeededBits(0), steps=2, steps_per_call=1,
        on_bits=lambda first, secret: order.append("bits"),
        on_block=lambda state, metrics: order.append("told"))
    # The first block is of no round: it is compiled before anything is charged.
    assert order == ["block", *["block", "bits", "settle", "told"] * 2]
