"""Large tables lie in a file without a name: the same rows, and no memory for all of them."""

import io
import json
import os
import stat
import tracemalloc

import numpy as np
import pytest
from refusals import refused

from dpgen_jax import train
from dpgen_jax.core import arrays, hosts
from dpgen_jax.core import files as core_files
from dpgen_jax.core.types import UserError
from dpgen_jax.data import base, cache, load
from dpgen_jax.data.table import frames, parsing, schema, tables

SCHEMA = """\
label: y
columns:
  a: {kind: integer, min: 0, max: 999, nullable: true}
  c: {kind: categorical, categories: [p, q, r], other: r}
  y: {kind: categorical, categories: ["0", "1"], odd: ""}
"""
PARTS = ("x_train", "y_train", "x_test", "y_test")


def text(rows, first=0):
    """A table with nulls, undeclared categories, and rows without a class."""
    return "a,c,y\n" + "".join(
        f"{'' if i % 11 == 0 else i * 37 % 1000},{'pqrs'[i * i % 4]},{i % 2 if i % 13 else 'x'}\n"
        for i in range(first, first + rows))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of a table of 300 rows and a held-out part of 100, which are read 7 at a time."""
    monkeypatch.setenv("DPGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(parsing, "BLOCK_CELLS", 21)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SCHEMA)
    (tmp_path / "t.csv").write_text(text(300))
    (tmp_path / "more.csv").write_text(text(100, 300))
    return tmp_path


@pytest.fixture
def files(place, monkeypatch):
    """Tables from 1,000 bytes on are large; returns the files that were opened for them."""
    monkeypatch.setattr(base, "LARGE_ARRAY", 1000)
    opened, inner = [], cache.nameless
    monkeypatch.setattr(cache, "nameless", lambda: opened.append(inner()) or opened[-1])
    return opened


def read(**options):
    return load("csv:t.csv", schema="s.yaml", **options)


@pytest.mark.parametrize("options", [{}, {"test_csv": "more.csv"}, {"test_fraction": 0.3},
                                     {"unit": "u", "rows_per_unit": 3}])
def test_the_rows_are_the_same(place, files, monkeypatch, options):
    lines = text(300).splitlines()
    if "unit" in options:
        (place / "t.csv").write_text("\n".join(
            f"{line},{f'k{i * 7 % 40}' if i else 'u'}" for i, line in enumerate(lines)))
    here = read(**options)
    assert len(files) == 1 + ("test_csv" in options)
    monkeypatch.setattr(base, "LARGE_ARRAY", 10**9)
    there = read(**options)
    assert len(files) == 1 + ("test_csv" in options)
    for name in PARTS:
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name))
    (said,) = {*here.private_notes} - {*there.private_notes}
    assert "a file without a name under" in said and here.notes == there.notes
    assert here.private_notes == (said, *there.private_notes)
    assert not here.x_train.flags.writeable and here.x_train.dtype == np.float32
    if "test_fraction" not in options:  # of which the parts are copies here
        assert arrays.mapping(here.x_train) and not arrays.mapping(there.x_train)


def test_parquet_too(place, files, monkeypatch):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.read_csv("t.csv", dtype=str, keep_default_na=False).to_parquet("t.parquet")
    monkeypatch.setattr(frames, "BLOCK_CELLS", 21)
    here = load("parquet:t.parquet", schema="s.yaml")
    assert arrays.mapping(here.x_train)
    np.testing.assert_array_equal(here.x_train, read().x_train)


@pytest.mark.skipif(os.name == "nt", reason="modes and links are POSIX")
def test_the_file_is_its_owners_and_has_no_name(files, place, monkeypatch):
    states, inner = [], base.mapped_array
    monkeypatch.setattr(base, "mapped_array", lambda file, *rest: states.append(
        os.fstat(file.fileno())) or inner(file, *rest))
    data = read()
    assert len(states) == 1 and stat.S_IMODE(states[0].st_mode) == 0o600
    assert states[0].st_nlink == 0 and states[0].st_size == data.x_train.nbytes
    assert stat.S_IMODE((place / "cache").stat().st_mode) == 0o700
    assert not [*(place / "cache").iterdir()] and files[0].closed
    (place / "cache").chmod(0o755)
    refused("is open to other users.*chmod 700", read)


def test_small_tables_and_frames_are_never_written(place, monkeypatch):
    """A frame is in memory as a whole, and its owner may not want it on a disk."""
    read()
    monkeypatch.setattr(base, "LARGE_ARRAY", 1)
    pd = pytest.importorskip("pandas")
    frame = pd.read_csv("t.csv", dtype=str, keep_default_na=False)
    data = frames.from_frame(frame, schema.read("s.yaml"))
    assert not arrays.mapping(data.x_train) and not (place / "cache").exists()
    np.testing.assert_array_equal(data.x_train, read().x_train)


@pytest.mark.parametrize(("wrong", "error"), [("1,p,0,0\n", UserError), ("", KeyboardInterrupt)])
def test_what_is_interrupted_leaves_nothing(files, place, monkeypatch, wrong, error):
    (place / "t.csv").write_text(text(300) + wrong)
    if not wrong:
        inner, count = parsing.csv_blocks, iter(range(100))

        def blocks(*args, **options):
            for block in inner(*args, **options):
                if next(count) == 30:
                    raise KeyboardInterrupt
                yield block

        monkeypatch.setattr(parsing, "csv_blocks", blocks)
    with pytest.raises(error):
        read()
    assert len(files) == 1 and files[0].closed and not [*(place / "cache").iterdir()]


class Slow(io.FileIO):
    """A file that writes a few bytes at a call, and none beyond a limit."""

    limit = 10**9

    def write(self, content):
        if self.tell() > self.limit:
            raise OSError(28, "No space left on device")
        return super().write(content[:100])


def test_a_disk_that_writes_a_part_and_one_that_is_full(place, monkeypatch):
    monkeypatch.setattr(base, "LARGE_ARRAY", 1000)
    expected = read().x_train
    monkeypatch.setattr(cache, "nameless", lambda: Slow(place / "slow", "w+"))
    np.testing.assert_array_equal(read().x_train, expected)
    monkeypatch.setattr(Slow, "limit", 2000)
    refused("cache folder .*cache cannot be written .No space left on "
            "device.; free some space, or set DPGEN_CACHE", read)
    monkeypatch.undo()
    monkeypatch.setenv("DPGEN_CACHE", str(place / "t.csv"))
    refused("cannot be written", cache.nameless)


def test_a_machine_needs_its_share_of_memory(files, monkeypatch):
    """One machine deals all rows to its units, and of three each deals a third."""
    size = read().x_train.nbytes / 1e9
    monkeypatch.setattr(hosts, "machines", lambda: 3)
    with core_files.limited(0.6 * size):
        assert len(read().y_train) == 300
        monkeypatch.setattr(hosts, "machines", lambda: 1)
        refused("t.csv: about 3.. rows of 5 encoded values takes", read)
    monkeypatch.setattr(base, "LARGE_ARRAY", 10**9)
    monkeypatch.setattr(hosts, "machines", lambda: 3)
    with core_files.limited(0.6 * size), pytest.raises(UserError, match="encoded values takes"):
        read()


def test_the_memory_does_not_grow_by_the_rows(place):
    """A block is in memory at a time, however many are in the file."""
    block, peaks = np.ones((1000, 500), np.float32), []
    for blocks in (50, 100):
        tracemalloc.start()
        try:
            with pytest.MonkeyPatch.context() as patched, tables.Rows(500) as rows:
                patched.setattr(base, "LARGE_ARRAY", 10 * block.nbytes)
                for _ in range(blocks):
                    rows.add(block)
                assert rows.all().nbytes == blocks * block.nbytes
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + block.nbytes < 20 * block.nbytes


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--unit=u", "--rows-per-unit=2"]])
def test_a_seeded_run_is_the_same_wherever_its_rows_lie(files, place, monkeypatch, options):
    lines = text(300).splitlines()
    (place / "t.csv").write_text("\n".join(
        f"{line},{f'k{i * 7 % 90}' if i else 'u'}" if options else line
        for i, line in enumerate(lines)))
    made = {}
    for name, large in (("mapped", 1000), ("read", 10**9)):
        monkeypatch.setattr(base, "LARGE_ARRAY", large)
        train.command(["marginals", "--dataset=csv:t.csv", "--schema=s.yaml", "--epsilon=5",
                       "--delta=1e-3", "--seed=3", "--out", name, *options])
        identity = json.loads((place / name / "private/identity.json").read_text())
        made[name] = (identity["fingerprint"],
                      (place / name / "release/generator.safetensors").read_bytes())
    assert made["mapped"] == made["read"] and len(files) == 1
