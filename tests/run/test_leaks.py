"""The files that a run leaves: nothing private, for nobody else to read."""

import json
import os

import jax
import numpy as np
import pytest
import runs
import small_datalens
from PIL import Image

from dpgen_jax.core.types import unseal
from dpgen_jax.data import from_arrays
from dpgen_jax.run import lifecycle, loop

pytestmark = pytest.mark.slow


# --- what leaves the run

def encodings(array):
    """The ways in which a row of numbers could end up in a file."""
    row = np.ravel(array)
    yield from (row.astype(kind).tobytes() for kind in ("u1", "<i4", "<i8", "<f4", "<f8"))
    yield (row / 255).astype("<f4").tobytes()
    yield (row / np.float32(small_datalens.CONFIG.teachers)).astype("<f4").tobytes()
    for gap in (",", ", ", " ", "\n"):
        yield gap.join(map(str, row.tolist())).encode()


def test_the_search_finds_what_is_there():
    row = np.arange(8)
    assert any(found in json.dumps({"x": row.tolist()}).encode() for found in encodings(row))
    assert any(found in b"a" + row.astype(np.float32).tobytes() for found in encodings(row))


def test_nothing_private_leaves_the_run(tmp_path, monkeypatch, capfd):
    """Neither the partition key, nor a record, nor a count of votes is in what may be shared,
    or in what is printed."""
    votes, real = [], loop.release

    def spied(mechanism, noise, total):
        jax.debug.callback(lambda sums: votes.append(np.array(sums)), unseal(total))
        return real(mechanism, noise, total)

    monkeypatch.setattr(loop, "release", spied)
    x, y = runs.images()
    release = lifecycle.run(runs.request(tmp_path / "run"), from_arrays(x, y, 3))
    jax.effects_barrier()
    assert len(votes) == runs.CONFIG.steps and all(np.abs(v).max() > 2 for v in votes)

    out, err = capfd.readouterr()
    root = tmp_path / "run"
    shared = runs.snapshot(root / "release") | {
        name: (root / name).read_bytes() for name in
        ("metrics.jsonl", "config.json", "curves.png", "ledger.jsonl")}
    shared |= {"stdout": out.encode(), "stderr": err.encode(), "repr": repr(release).encode()}
    for name in [name for name in shared if name.endswith(".png")]:
        path = root / ("" if name == "curves.png" else "release") / name
        shared[f"{name}, decoded"] = np.asarray(Image.open(path).convert("L")).tobytes()

    key = bytes.fromhex(json.loads((root / "private/identity.json").read_text())["partition_key"])
    print_of = json.loads((root / "private/identity.json").read_text())["fingerprint"]
    secret = [key, key.hex().encode(), print_of.encode(), bytes.fromhex(print_of)]
    secret += [code for image in x for code in encodings(image)]
    secret += [image[0].repeat(7).tobytes() for image in x]  # as wide as a grid would draw it
    secret += [code for step in votes for row in step for code in encodings(row)]
    secret += list(encodings(y))
    for name, content in shared.items():
        assert content and not any(code in content for code in secret), name
    assert not list((root / "release").glob("*.tmp"))
    assert all(np.issubdtype(np.asarray(a).dtype, np.floating)
               for a in jax.tree.leaves(release.model))


@pytest.mark.usefixtures("compiled_once")
def test_others_may_read_nothing_private_whatever_the_umask(tmp_path):
    """Orbax writes its files as the umask says, which may be 0."""
    before = os.umask(0)
    try:
        runs.train(tmp_path / "run")
    finally:
        os.umask(before)
    private = tmp_path / "run/private"
    for path in [private, *private.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
