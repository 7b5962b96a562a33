"""Records of a mapped file that a run reads where they lie: the same bits, and no copy of them."""

import hashlib
import hmac
import json
import mmap
from pathlib import Path

import numpy as np
import pytest

from dpgen_jax import train
from dpgen_jax.core import arrays
from dpgen_jax.core.types import Column, TableSpec, UserError, unseal
from dpgen_jax.data import base, load, parts
from dpgen_jax.private import records

X = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)
Y = np.arange(60) % 3
KEY = bytes(32)


@pytest.fixture
def both(tmp_path, monkeypatch):
    """The parts of one file: where they lie, read in blocks of a few rows, and as copies."""
    monkeypatch.setattr(base, "LARGE_ARRAY", 1)
    monkeypatch.setattr(arrays, "BLOCK", 1000)
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y, classes=3)
    data = load(f"npz:{tmp_path / 'a.npz'}")
    return (parts.hold_out(data, 0.2, parts.where_they_lie), parts.hold_out(data, 0.2))


def test_the_parts_are_the_same_records(both):
    lying, copied = both
    for name in ("x_train", "x_test"):
        here, there = getattr(lying, name), getattr(copied, name)
        assert isinstance(here, arrays.Picked) and type(there) is np.ndarray
        assert (here.shape, here.dtype, here.ndim, here.nbytes, len(here)) == (
            there.shape, there.dtype, there.ndim, there.nbytes, len(there))
        np.testing.assert_array_equal(here, there)
        for rows in (3, slice(2, 9), np.array([7, 1]), np.arange(len(there)) % 2 == 0):
            np.testing.assert_array_equal(here[rows], there[rows])
    assert lying.notes == copied.notes
    assert parts.share_of(copied.x_test, lying) == 1
    again = parts.only(lying, np.arange(48) < 5, parts.where_they_lie)
    np.testing.assert_array_equal(again.x_train, copied.x_train[:5])


def test_they_are_dealt_and_recognised_bit_for_bit(both):
    one, other = (records.seal(data.x_train, data.y_train, data.spec) for data in both)
    dealt = records.assign(48, 7, KEY)
    assert isinstance(unseal(one).x, arrays.Picked)
    assert records.fingerprint(one, KEY, dealt) == records.fingerprint(other, KEY, dealt)
    x, y = unseal(other).x, unseal(other).y
    for sealed in (one, other):
        units = unseal(records.deal(sealed, dealt, (2, 9)))
        np.testing.assert_array_equal(units.x[:5], x[dealt.index[2:]])
        np.testing.assert_array_equal(units.y[:5], y[dealt.index[2:]])
        assert units.x.shape[0] == 7 and not units.x[5:].any()


def test_a_fingerprint_is_that_of_the_whole_arrays(both):
    """As earlier versions made it, which resumed runs and journals compare."""
    lying, copied = both
    whole = hmac.new(KEY, digestmod=hashlib.sha256)
    for array in (copied.x_train, copied.y_train):
        whole.update(repr((array.dtype.str, array.shape)).encode())
        whole.update(array.tobytes())
    sealed = records.seal(lying.x_train, lying.y_train, lying.spec)
    assert records.fingerprint(sealed, KEY) == whole.hexdigest()


def test_the_range_of_features_is_checked_in_blocks(tmp_path, monkeypatch):
    values = np.linspace(0, 1, 300, dtype=np.float32).reshape(60, 5)
    columns = (Column(f"f{i}", "continuous", 0.0, 1.0) for i in range(5))
    spec = TableSpec(tuple(columns), Column("y", "categorical", categories=("a", "b")), 5)
    read = []
    monkeypatch.setattr(arrays, "BLOCK", 200)
    monkeypatch.setattr(arrays.Picked, "__array__", None)  # which would read all
    monkeypatch.setattr(arrays.Picked, "__getitem__", lambda self, rows: read.append(rows)
                        or self.base[self.rows[rows]])
    for wrong in (None, 47):
        if wrong is not None:
            values[wrong, 2] = np.nan
        values.tofile(tmp_path / "x")
        lying = arrays.pick(np.memmap(tmp_path / "x", np.float32, "r", 0, (60, 5)),
                            np.arange(60) > 3)
        if wrong is None:
            records.seal(lying, np.zeros(56, int), spec)
            assert read == [slice(first, first + 10) for first in range(0, 56, 10)]
        else:
            with pytest.raises(UserError, match=rf"^records: row {wrong - 4} has values outside"):
                records.seal(lying, np.zeros(56, int), spec)


@pytest.mark.parametrize("mode", ["c", "r+"])
def test_a_map_that_may_be_written_to_is_copied(tmp_path, mode):
    """To let go of its memory would lose what was written."""
    X.tofile(tmp_path / "x")
    x = np.memmap(tmp_path / "x", np.uint8, mode, 0, X.shape)
    x[:] = 7
    arrays.forget(x)
    rows = np.arange(60) < 30
    assert arrays.mapping(x) is None and (x == 7).all()
    assert type(parts.where_they_lie(x, rows)) is np.ndarray


def resident(array):
    """The kilobytes of a mapped array that are in this process's memory."""
    address, found = array.ctypes.data, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and ":" not in line.split()[0]:
            first, last = (int(part, 16) for part in line.split()[0].split("-"))
            found = first <= address < last
        elif found and line.startswith("Rss:"):
            return int(line.split()[1])
    raise ValueError("not mapped")


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="no such call on this system")
def test_what_was_read_is_let_go_of(tmp_path):
    np.tile(X, (20, 1, 1, 1)).tofile(tmp_path / "x")
    x = np.memmap(tmp_path / "x", np.uint8, "r", 0, (1200, 8, 8, 3))
    some = arrays.pick(x, np.arange(1200) % 2 == 0)
    total = int(np.asarray(some).sum())
    assert resident(x) > 0
    for _ in arrays.blocks(some):
        pass
    assert resident(x) == 0
    assert int(np.asarray(some).sum()) == total


@pytest.mark.slow
@pytest.mark.parametrize("stated", [[], ["--test-fraction=0.25"], ["--test-fraction=0"]])
def test_a_run_is_the_same_wherever_its_records_lie(tmp_path, monkeypatch, stated):
    np.savez(tmp_path / "a.npz", x_train=np.tile(X, (2, 1, 1, 1)), y_train=np.tile(Y, 2))
    made = {}
    for name, large in (("mapped", 1), ("read", 10**9)):
        monkeypatch.setattr(base, "LARGE_ARRAY", large)
        root = tmp_path / name
        train.command(["mixture", "--dataset", f"npz:{tmp_path / 'a.npz'}", "--classes=3",
                       "--epsilon=5", "--delta=1e-3", "--seed=3", "--accept-uncovered",
                       "--out", str(root), *stated])
        options, identity = (json.loads((root / file).read_text())
                             for file in ("config.json", "private/identity.json"))
        made[name] = (options["data_options"], identity["fingerprint"],
                      (root / "release/generator.safetensors").read_bytes())
    assert made["mapped"] == made["read"]
    assert made["read"][0]["test_fraction"] == (
        float(stated[0].partition("=")[2]) if stated else parts.HELD_OUT_SHARE)
