"""Digests as arrays: the same bytes, order and counts as those of Python's objects."""

import collections
import hashlib

import numpy as np
import pytest

from dpgen_jax.core import arrays


@pytest.mark.parametrize("at_once", [1, 100, 10**6])
def test_they_are_the_digests_of_each_row(rng, monkeypatch, at_once):
    monkeypatch.setattr(arrays, "AT_ONCE", at_once)
    x, y = rng.normal(size=(7, 2, 3)).astype(np.float32), np.arange(7)
    found = arrays.digests_of(arrays.digest_rows(x[:, ::-1], y), 16, key=b"k", person=b"p")
    assert found.shape == (7, 16) and found.dtype == np.uint8
    for row, label, digest in zip(x[:, ::-1], y, found, strict=True):
        message = np.ascontiguousarray(row).tobytes() + label.tobytes()
        assert digest.tobytes() == hashlib.blake2b(message, digest_size=16, key=b"k",
                                                   person=b"p").digest()


def test_they_are_ordered_as_bytes_are(rng):
    found = rng.integers(0, 3, (200, 24)).astype(np.uint8) * 127
    found[50:100, :23] = found[:50, :23]  # alike but for the last byte
    texts = [digest.tobytes() for digest in found]
    assert arrays.order_of_digests(found).tolist() == sorted(range(200), key=texts.__getitem__)
    last = rng.integers(0, 2, 200).astype(bool)
    assert arrays.order_of_digests(found, last).tolist() == sorted(
        range(200), key=lambda i: (last[i], texts[i]))


def test_equal_ones_are_counted_in_their_order(rng):
    found = rng.integers(0, 2, (300, 8)).astype(np.uint8) * (np.arange(8) < 4).astype(np.uint8)
    seen, counted = collections.Counter(), []
    for digest in found:
        counted.append(seen[digest.tobytes()])
        seen[digest.tobytes()] += 1
    assert arrays.counted_before(found).tolist() == counted and max(counted) > 5
    assert arrays.counted_before(np.zeros((0, 8), np.uint8)).tolist() == []
    assert arrays.digests_of([], 16).shape == (0, 16)
