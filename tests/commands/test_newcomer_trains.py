"""Trainings that name a data set and an epsilon alone, of each kind of data: what they take, spend
and make."""

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dpgen_jax as dg
from dpgen_jax import train
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.presets import choice

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(0)
SHARES = {"csv:loans.csv": (0.8, 0.2), "scans/": (2 / 3, 1 / 3), "idx:digits": (0.5, *[1 / 18] * 9)}
"""The class shares of the data that are made here."""
FLAGS = {"csv:loans.csv": ["--label=late", "--epsilon=1"], "scans/": ["--epsilon=3"],
         "idx:digits": ["--epsilon=10"]}


def labels_of(place, n):
    """Labels in exactly the shares of a data set, in a random order."""
    counts = np.round(np.array(SHARES[place]) * n).astype(int)
    return RNG.permutation(np.repeat(np.arange(len(counts)), counts))


def drawn(label, side):
    """A picture of a class: a bright bar at its place."""
    pixels = RNG.integers(0, 40, (side, side)).astype(np.uint8)
    pixels[2 * label:2 * label + 3] += 180
    return pixels


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder that holds a table, a folder of images, and images in MNIST's layout."""
    monkeypatch.chdir(tmp_path)
    late = labels_of("csv:loans.csv", 3000)
    rows = [f"{30 + 20 * y + RNG.integers(0, 20)},{'RO'[y]},{('no', 'yes')[y]}" for y in late]
    Path("loans.csv").write_text("\n".join(["age,home,late", *rows]) + "\n")
    for i, y in enumerate(labels_of("scans/", 360)):
        folder = Path("scans", ("benign", "malignant")[y])
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn(y, 16)).save(folder / f"{i}.png")
    Path("digits").mkdir()
    for part, n in (("train", 900), ("t10k", 90)):
        y = labels_of("idx:digits", n)
        x = np.stack([drawn(label, 28) for label in y])
        Path(f"digits/{part}-images-idx3-ubyte").write_bytes(
            struct.pack(">4i", 2051, *x.shape) + x.tobytes())
        Path(f"digits/{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2i", 2049, len(y)) + y.astype(np.uint8).tobytes())
    return tmp_path


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.long] * name.startswith("idx:")) for name in SHARES])
def test_the_method_the_preset_the_epsilon_and_the_shares_are_right(name, place, capsys):
    train.command(["--dataset", name, *FLAGS[name]])
    said = capsys.readouterr().out.splitlines()
    kind = "table" if name.startswith("csv") else "images"
    method, epsilon = choice.BEST[kind][0][0], float(FLAGS[name][-1].partition("=")[2])
    assert said[0].startswith("data: ")
    assert said[1].startswith(f"method: {method}, chosen as ") and f"preset {kind}-" in said[1]
    assert said[2].startswith(
        f"promise: epsilon {epsilon:g} at delta 1e-05 for each record, its label included: ")
    bought = [line for line in said if "bought" in line or "estimating the schema" in line]
    assert bool(bought) == (name != "idx:digits")
    (run,) = Path("runs").iterdir()
    statement = read_json(run / "release/privacy.json")
    assert statement["guarantee"] == "(epsilon, delta) replace-one"
    assert statement["epsilon"] <= epsilon and statement["preset"] in said[1]
    labels = np.asarray(dg.load(run / "release").arrays(4000)[1])
    made = np.bincount(labels, minlength=len(SHARES[name])) / len(labels)
    np.testing.assert_allclose(made, SHARES[name], atol=0.13)
    assert not any("equal shares" in line for line in said)
