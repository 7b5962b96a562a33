"""`features`: images to features, which a classifier trains on; and requests that mean nothing."""

import json
import stat

import numpy as np
import pytest
import safetensors.numpy

from dpgen_jax import data, train
from dpgen_jax import features as command
from dpgen_jax.core.errors import UserError
from dpgen_jax.evaluation.pretrained import RESNET18


@pytest.fixture
def weights(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {name: np.abs(0.05 * rng.standard_normal(shape)).astype(np.float32)
               for name, shape in RESNET18.tensors().items()}
    safetensors.numpy.save_file(tensors, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.fixture
def halves(monkeypatch):
    """A network whose features are the pixels of a corner, from 0 to 8."""
    monkeypatch.setattr(type(RESNET18), "features", lambda _, params, x, log: np.float32(
        8 / 255 * x[:, :6, :6, 0].reshape(len(x), -1)))


def run(tmp_path, weights, *more):
    out = tmp_path / "f.npz"
    command.command(["--dataset", "glyphs", "--weights", str(weights), "--out", str(out), *more])
    return out


@pytest.mark.slow
def test_features_are_clipped_by_the_bound_and_keep_their_labels(tmp_path, weights, halves, capsys):
    out = run(tmp_path, weights, "--bound", "4")
    lines = capsys.readouterr()
    assert lines.out.splitlines()[-1] == f"features: {out}"
    assert "private: " in lines.err and "are above the bound 4" in lines.err
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    made, glyphs = data.load(f"npz:{out}"), data.load("glyphs")
    expected = np.minimum(1, 2 / 255 * glyphs.x_train[:, :6, :6, 0].reshape(len(made.x_train), -1))
    np.testing.assert_allclose(made.x_train, expected, atol=1e-6)
    np.testing.assert_array_equal(made.y_test, glyphs.y_test)
    assert "SHA-256" in made.notes[-1] and "clipped to [0, 4]" in made.notes[-1]


@pytest.mark.slow
def test_a_classifier_is_trained_on_features(tmp_path, weights, halves):
    out = run(tmp_path, weights)
    code = train.command(["topagg_sgd", "--dataset", f"npz:{out}", "--preset",
                          "features-eps8-published", "--batch", "300", "--steps", "2",
                          "--out", str(tmp_path / "run")])
    assert not code
    statement = json.loads((tmp_path / "run/release/privacy.json").read_text())
    assert statement["guarantee"] == "(epsilon, delta) replace-one"
    assert "SHA-256" in json.dumps(statement)


@pytest.mark.slow
def test_the_command_runs_the_network(tmp_path, weights):
    images = np.random.default_rng(1).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "i.npz", x_train=images, y_train=[0, 1, 1], classes=2)
    out = tmp_path / "f.npz"
    values = RESNET18.features(RESNET18.load(weights), images)
    command.command(["--dataset", f"npz:{tmp_path / 'i.npz'}", "--weights", str(weights), "--out",
                     str(out), "--bound", str(float(values.max()))])
    made = data.load(f"npz:{out}")
    np.testing.assert_allclose(made.x_train, values / values.max(), rtol=1e-5)
    assert np.unique(made.x_train).size > 500
    assert made.x_train.shape == (3, 512) and made.x_test is None


@pytest.mark.parametrize(("more", "match"), [
    (["--bound", "0"], "--bound is 0"), (["--bound", "inf"], "--bound is inf"),
    (["--dataset", "breast_cancer"], "breast_cancer is a table"),
    (["--network", "inception"], "lacks the tensor Conv2d_1a_3x3")])
def test_requests_that_mean_nothing(tmp_path, weights, halves, more, match):
    with pytest.raises(UserError, match=match):
        run(tmp_path, weights, *more)
    assert not (tmp_path / "f.npz").exists()


def test_a_file_is_never_replaced(tmp_path, weights):
    for name in ("w.safetensors", "nowhere/f.npz"):
        with pytest.raises(UserError, match="must be a new .npz file"):
            run(tmp_path, weights, "--out", str(tmp_path / name))
