"""The presets of rows that other benchmarks train run two steps at toy size, on generated data in
the layout of Federated EMNIST, of Kaggle's credit card file, of MNIST and of features."""

import dataclasses

import kaggle_file
import numpy as np
import pytest
import toy_rows

from benchmarks import federated, federations, small_femnist, table_presets
from benchmarks.papers.registry import ROWS
from dpgen_jax import data, presets
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.run import lifecycle

WRITERS = 4
CREDIT = ("gpate:table1a:credit-gpate", "gpate:table7:credit-gpate", "gpate:table1a:credit-dcgan",
          "gpate:table1a:credit-pategan")


@pytest.fixture
def small_presets(monkeypatch):
    """Presets with small networks and two steps."""
    real = presets.get

    def get(method, name=None):
        name, preset = real(method, name)
        return name, dataclasses.replace(preset, config=toy_rows.small(preset.config))

    monkeypatch.setattr(presets, "get", get)


@pytest.mark.long
@pytest.mark.usefixtures("small_presets")
@pytest.mark.parametrize("name", ["gswgan:table2:femnist", "gswgan:table2:femnist-fedavg"])
def test_the_federated_presets_run_on_clients_of_36_classes(name, tmp_path):
    path = small_femnist.write(tmp_path, WRITERS, images=8)
    argv = [f"femnist:{path}" if word.startswith("femnist:") else word
            for word in ROWS[name].work.argv]
    args = federated.arguments(argv)
    case = federated.cases(args)[0]
    request, part = federated.request(case, args, federated.loaded(args), tmp_path)
    assert request.config.n_clients == WRITERS and request.config.sigma == case.noise
    assert case.preset == "femnist-published" and request.config.steps == 2
    release = federations.trained(request, part)
    x, y = release.sample(72)
    assert x.shape == (72, 28, 28, 1) and set(y) == set(range(36))
    assert release.privacy["guarantee"].startswith("none") and release.privacy["steps"] == 2


@pytest.mark.usefixtures("small_presets")
@pytest.mark.parametrize("name", [pytest.param(name, marks=(
    pytest.mark.slow if name.endswith("dcgan") else pytest.mark.long)) for name in CREDIT])
def test_the_credit_presets_run_on_kaggle_s_layout(name, tmp_path, monkeypatch):
    kaggle_file.write(tmp_path)
    monkeypatch.setenv("DPGEN_DATA", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["table_presets", *ROWS[name].work.argv])
    args = table_presets.arguments()
    release, _ = table_presets.train(args, table_presets.loaded(args))
    assert release.privacy["preset"] == args.preset and release.privacy["steps"] == 2
    assert release.spec.shape == (29,) and len(release.frame(5)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist-eps0.2-published", "mnist-eps0.5-dpdl",
                                  "features-eps8-published"])
def test_classifiers_with_private_gradients_run_on_images_and_features(name, tmp_path):
    preset = presets.get("topagg_sgd", name)[1]
    spec = toy_rows.idx(tmp_path / "mnist")
    if name.startswith("features"):
        rng = np.random.default_rng(0)
        arrays = {f"x_{part}": rng.random((n, *preset.spec.shape), np.float32)
                  for part, n in (("train", 24), ("test", 8))}
        labels = {f"y_{part}": np.arange(n) % 10 for part, n in (("train", 24), ("test", 8))}
        np.savez(tmp_path / "features.npz", **arrays, **labels, classes=10)
        spec = f"npz:{tmp_path / 'features.npz'}"
    dataset = data.load(spec)
    assert dataset.spec.shape == preset.spec.shape
    release = lifecycle.run(lifecycle.Request(
        "topagg_sgd", name, toy_rows.small(preset.config), Budget(preset.epsilon, preset.delta),
        Runtime(devices=1), tmp_path / "run"), dataset, lambda line: None)
    assert release.privacy["epsilon"] == preset.epsilon and release.privacy["steps"] == 2
