"""Images of what a mixture could draw: projections of records, and a script that goes on."""

import json
import types

import jax
import numpy as np
import pytest

from benchmarks import headroom
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods import mixture
from dpgen_jax.methods.shared import gaussians

pytestmark = pytest.mark.long

SPEC = ImageSpec(8, 8, 1, 2)
CONFIG = mixture.Config(records=100, frequencies=4, dimensions=5, cells=2, grey=0.5, warp=0.0,
                        sigma=1.0)


@pytest.fixture
def mixture_run(monkeypatch):
    """Reads any run as a mixture about grey, one of whose directions was not kept."""
    r = np.random.default_rng(0)
    basis = np.linalg.qr(r.normal(size=(16, 5)))[0] * [1, 1, 1, 1, 0]
    wide = np.linspace(-9, 9, 512)  # a map of shades that changes nothing
    model = {"centre": 0.1 * r.normal(size=16), "basis": basis,
             "mean": 0.1 * r.normal(size=(2, 2, 5)), "root": 0.1 * r.normal(size=(2, 2, 5, 5)),
             "weight": np.ones((2, 2)), "share": np.ones(2) / 2, "raw": wide, "shade": wide}
    model = {name: np.float32(array) for name, array in model.items()}
    release = types.SimpleNamespace(config=CONFIG, spec=SPEC, model=model)
    monkeypatch.setattr(headroom.bundle, "load", lambda run: release)
    return model


def test_what_a_mixture_draws_lies_in_its_directions(mixture_run, tmp_path):
    sizes = mixture.sizes(CONFIG, SPEC)
    drawn = np.asarray(gaussians.sample_images(
        sizes, mixture_run, jax.random.key(0), np.zeros(50, np.int32), SPEC, 0.0))
    assert drawn.min() > 0 and drawn.max() < 1 and drawn.std(0).mean() > 0.01
    bytes_ = np.round(255 * drawn).astype(np.uint8)
    made = headroom.kinds(tmp_path, (bytes_, np.zeros(50, int)))
    for kind in ("directions", "frequencies", "records"):
        assert np.abs(made[kind]()[0] - drawn).max() < 0.02, kind


def test_each_kind_leaves_out_more_of_a_record(mixture_run, tmp_path):
    noise = np.random.default_rng(1).integers(100, 156, (50, 8, 8, 1), np.uint8)
    made = headroom.kinds(tmp_path, (noise, np.zeros(50, int)))
    spread = {kind: made[kind]()[0].var(0).mean()
              for kind in ("directions", "frequencies", "records")}
    # 4 directions and 16 frequencies of 64 pixels whose noise is white.
    assert spread["directions"] / spread["records"] == pytest.approx(4 / 64, rel=0.2)
    assert spread["frequencies"] / spread["records"] == pytest.approx(16 / 64, rel=0.2)


def test_what_was_measured_is_not_measured_again(tmp_path, monkeypatch):
    parts = {"x_train": np.zeros((40, 8, 8), np.uint8), "y_train": np.arange(40) % 2,
             "x_test": np.zeros((10, 8, 8), np.uint8), "y_test": np.arange(10) % 2, "classes": 2}
    np.savez(tmp_path / "mnist.npz", **parts)
    fitted = []

    def finish(run, *words):
        (run / "release").mkdir(parents=True, exist_ok=True)
        (run / "release" / "privacy.json").write_text(json.dumps({"epsilon": float(
            words[-2].removeprefix("--epsilon="))}))
        return run

    monkeypatch.setattr(headroom.training, "finish", finish)
    images = np.zeros((4, 8, 8, 1), np.uint8), np.arange(4) % 2
    monkeypatch.setattr(headroom, "kinds", lambda run, real: {
        "mixture": lambda: images, "records": lambda: real})

    def train(name, images, classes, setting, seed):
        fitted.append(len(images[1]))
        return types.SimpleNamespace(accuracy=lambda test: len(test[1]) / 100)

    monkeypatch.setattr(headroom.utility, "train", train)
    row = headroom.case(tmp_path, "mnist", 1.0)
    assert row["accuracy"] == {"mixture": 0.1, "records": 0.1} and fitted == [4, 40]
    assert row["records"] == 40 and row["proven_epsilon"] == 1.0
    assert headroom.case(tmp_path, "mnist", 1.0) == row and fitted == [4, 40]
    # An epsilon without a preset of its own has another run, and the records once more no CNN.
    assert headroom.case(tmp_path, "mnist", 0.2)["proven_epsilon"] == 0.2 and fitted == [4, 40, 4]
