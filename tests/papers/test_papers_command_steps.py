"""The presets of rows that other benchmarks train on Federated EMNIST and on Kaggle's credit card
file run two steps at toy size, on generated data in these layouts; the other presets of such rows
are those of test_papers_sweep_steps.py."""

import dataclasses

import kaggle_file
import pytest
import toy_rows

from benchmarks import federated, small_femnist, table_presets
from benchmarks.papers.registry import ROWS
from dpgen_jax import presets

WRITERS = 4


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
@pytest.mark.parametrize("name", toy_rows.FEDERATED)
def test_the_federated_presets_run_on_clients_of_36_classes(name, tmp_path):
    path = small_femnist.write(tmp_path, WRITERS, images=8)
    argv = [f"femnist:{path}" if word.startswith("femnist:") else word
            for word in ROWS[name].work.argv]
    args = federated.arguments(argv)
    case = federated.cases(args)[0]
    request, part = federated.request(case, args, federated.loaded(args), tmp_path)
    assert request.config.n_clients == WRITERS and request.config.sigma == case.noise
    assert case.preset == "femnist-published" and request.config.steps == 2
    release = federated.trained(request, part)
    x, y = release.arrays(72)
    assert x.shape == (72, 28, 28, 1) and set(y) == set(range(36))
    assert release.privacy["guarantee"].startswith("none") and release.privacy["steps"] == 2


@pytest.mark.usefixtures("small_presets")
@pytest.mark.parametrize("name", [pytest.param(name, marks=(
    pytest.mark.slow if name.endswith("dcgan") else pytest.mark.long)) for name in toy_rows.CREDIT])
def test_the_credit_presets_run_on_kaggle_s_layout(name, tmp_path, monkeypatch):
    kaggle_file.write(tmp_path)
    kaggle_file.write_sample(tmp_path / "creditcard_20pct")
    monkeypatch.setenv("DPGEN_DATA", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["table_presets", *ROWS[name].work.argv])
    args = table_presets.arguments()
    release, _ = table_presets.train(args, table_presets.loaded(args))
    assert release.privacy["preset"] == args.preset and release.privacy["steps"] == 2
    assert release.spec.shape == (29,) and len(release.sample(5)) == 5
