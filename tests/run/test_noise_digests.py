"""The digests of a run's random bits: bits that were used twice are found, wherever."""

import dataclasses

import adversary
import numpy as np
import pytest

from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.core.types import UserError
from dpgen_jax.run import noise_digests

KEY = b"k" * 32
BITS = np.random.default_rng(0).integers(2**32, size=(6, 5, 3), dtype=np.uint32)


def test_rounds_are_read_back_and_a_repeat_is_found(tmp_path):
    path = tmp_path / "digests"
    noise_digests.append(path, KEY, 0, BITS[:4])
    noise_digests.append(path, KEY, 4, np.stack([BITS[4], BITS[1]]))
    rows = noise_digests.read(path)
    assert [number for number, _ in rows] == [0, 1, 2, 3, 4, 5]
    assert noise_digests.repeats(rows) == [(1, 5)]
    assert path.stat().st_mode & 0o77 == 0


def test_a_digest_says_nothing_without_the_key(tmp_path):
    for name, key in (("a", KEY), ("b", b"l" * 32)):
        noise_digests.append(tmp_path / name, key, 0, BITS)
    a, b = (noise_digests.read(tmp_path / name) for name in "ab")
    assert not {digest for _, digest in a} & {digest for _, digest in b}


def test_a_torn_line_is_left_out_and_a_damaged_one_named(tmp_path):
    path = tmp_path / "digests"
    noise_digests.append(path, KEY, 0, BITS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert len(noise_digests.read(path)) == 5
    path.write_bytes(whole.replace(b"\n2 ", b"\n2x"))
    with pytest.raises(UserError, match="line 3"):
        noise_digests.read(path)


def test_bits_of_clients_count_by_round():
    given = np.arange(4 * 6 * 2 * 3, dtype=np.uint32).reshape(4, 6, 2, 3)
    bits = noise_digests.noise_bits(given, np.zeros((6, 0), np.uint32))
    assert bits.shape == (6, 4, 2, 3)
    np.testing.assert_array_equal(bits[5], given[:, 5])


@dataclasses.dataclass
class Cached(SeededBits):
    """The planted fault: every block gets the bits of the first one."""

    def draw(self, shape):
        self.step = 0
        return super().draw(shape)


@pytest.mark.slow
def test_a_run_that_draws_the_same_bits_again_is_caught(tmp_path):
    for name, bits, repeats in (("a", SeededBits(0), 0), ("b", Cached(0), 2)):
        path = tmp_path / f"digests-{name}"
        adversary.train(
            tmp_path / name, adversary.build(), adversary.neighbours()[0], adversary.layout(),
            bits=bits, steps=4, steps_per_call=2,
            on_bits=lambda first, secret, path=path: noise_digests.append(path, KEY, first, secret))
        rows = noise_digests.read(path)
        assert len(rows) == 4 and len(noise_digests.repeats(rows)) == repeats
