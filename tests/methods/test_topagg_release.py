"""A release that is a classifier: it learns, is kept and read again, and every command that wants
synthetic records says that it makes none."""

import dataclasses
import json
import math

import numpy as np
import pytest
import small_datalens

from benchmarks.sweep import cells
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import compare, evaluate, sample
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    RenyiEvent,
)
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Budget, MonitorOptions, Runtime
from dpgen_jax.core.types import Column, ImageSpec, TableSpec, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.evaluation import assess
from dpgen_jax.methods import topagg_sgd
from dpgen_jax.methods.topagg_sgd import Config
from dpgen_jax.release import bundle, guarantee
from dpgen_jax.run import fitting, lifecycle, monitor

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]

IMAGE = ImageSpec(10, 12, 1, 3)
MNIST = ImageSpec(28, 28, 1, 10)
TABLE = TableSpec((Column("a", "continuous", 0.0, 1.0), Column("b", "continuous", 0.0, 1.0)),
                  Column("class", "categorical", categories=("x", "y", "z")), 2)
FIELDS = {"batch": 30, "clip": 1.0, "steps": 40, "channels": (3, 4), "learning_rate": 1.0}


def images(n, seed=0):
    """Classes that differ, and noise."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 3).astype(np.int32)
    centres = np.random.default_rng(9).integers(0, 200, (3, *IMAGE.shape))
    return (centres[y] + rng.integers(0, 50, (n, *IMAGE.shape))).astype(np.uint8), y


def accuracy(release, seed=1):
    x, y = images(60, seed)
    return np.mean(release.predict(x) == y)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The folder of a run that is watched, and an npz of its records beside it."""
    root = tmp_path_factory.mktemp("classifier")
    (x, y), (x_test, y_test) = images(90), images(60, 1)
    np.savez(root / "data.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test, classes=3)
    fitting.fit(
        "topagg_sgd",
        x,
        y,
        classes=3,
        epsilon=math.inf,
        delta=1e-3,
        out=root / "run",
        seed=0,
        runtime=Runtime(devices=1),
        **FIELDS,
        monitor=MonitorOptions(evaluate_every=20, public_dataset=f"npz:{root / 'data.npz'}"),
    )
    return root


@pytest.fixture
def release(root):
    return lifecycle.load(root / "run")


def test_it_learns_and_is_read_again(release):
    assert release.classifies and accuracy(release) > 0.9
    assert release.privacy["method"] == "topagg_sgd" and release.privacy["steps"] == 40


@pytest.mark.long
def test_by_dimension_and_without_convolutions_it_learns_too(tmp_path):
    x, y = images(90)
    release = fitting.fit("topagg_sgd", x, y, classes=3, epsilon=math.inf, delta=1e-3, seed=0,
                            runtime=Runtime(devices=1), out=tmp_path / "run",
                            **FIELDS, network="mlp", keep="dimension")
    assert accuracy(release) > 0.9


def test_a_table_within_its_budget(tmp_path):
    rng = np.random.default_rng(0)
    y = (np.arange(90) % 3).astype(np.int32)
    x = (y[:, None] / 2 * 0.8 + rng.uniform(0, 0.2, (90, 2))).astype(np.float32)
    config = Config(batch=90, hidden=(8,), steps=30, learning_rate=4.0)  # all: no draw
    release = lifecycle.run(
        lifecycle.Resolved(
            "topagg_sgd", "glyphs", config, Budget(40.0, 1e-3), Runtime(devices=1), tmp_path / "run"
        ),
        Dataset("rows", TABLE, x, y),
        lambda line: None,
    )
    assert release.privacy["epsilon"] == 40.0 and release.privacy["relation"] == "replace-one"
    assert release.privacy["accountant"].startswith("exact Gaussian")
    assert np.mean(release.predict(x) == y) > 0.8
    assert not (tmp_path / "run" / "release" / "samples.csv").exists()


def test_class_counts_are_of_no_use_to_it(tmp_path):
    x, y = images(90)
    with pytest.raises(UserError, match="class_epsilon is 0.5, and a classifier draws no labels"):
        lifecycle.run(
            lifecycle.Resolved(
                "topagg_sgd",
                "glyphs",
                Config(**FIELDS),
                Budget(10.0, 1e-3, 0.5),
                Runtime(devices=1),
                tmp_path / "run",
            ),
            Dataset("images", IMAGE, x, y),
            lambda line: None,
        )
    assert not (tmp_path / "run").exists()


def test_what_records_may_look_like(release):
    x, _ = images(501)  # more than a call takes
    wanted = release.predict(x)
    assert wanted.dtype == np.int32 and wanted.shape == (501,) and set(wanted) == {0, 1, 2}
    for same in (x / 255, (x / 255).astype(np.float32)[..., 0], x[..., 0]):
        np.testing.assert_array_equal(release.predict(same), wanted)
    assert release.predict(x[:0]).shape == (0,)


@pytest.mark.parametrize(("x", "said"), [
    (np.zeros((2, 12, 10, 1), np.uint8), "shape"), (np.zeros((10, 12, 1), np.uint8), "shape"),
    (np.uint8(0), "shape"), (np.zeros((2, 10, 12, 1), np.int64), "int64"),
    (np.full((2, 10, 12, 1), np.nan), "outside"), (np.full((2, 10, 12, 1), 1.5), "outside")])
def test_other_records_are_refused(release, x, said):
    with pytest.raises(UserError, match=said):
        release.predict(x)


def test_it_makes_no_records(root, release, tmp_path):
    for draw in (release.sample, release.encoded, release.frame):
        with pytest.raises(UserError, match="classifier"):
            draw(3)
    with pytest.raises(UserError, match="classifier"):
        sample.command([str(root / "run"), "--out", str(tmp_path / "a.npz")])
    assert not (tmp_path / "a.npz").exists()
    shown = {path.name for path in (root / "run" / "release").iterdir()}
    assert shown == {"generator.safetensors", "config.json", "privacy.json", "README.txt",
                     "statement.html"}
    assert (root / "run" / "curves.png").exists()


def test_a_generator_does_not_predict():
    made = bundle.Release("datalens", small_datalens.CONFIG, small_datalens.SPEC, {}, {})
    assert not made.classifies
    with pytest.raises(UserError, match="generator"):
        made.predict(np.zeros((1, 8, 8, 1)))


def test_evaluation_is_its_accuracy_on_held_out_records(root, release, capsys):
    evaluate.command([str(root / "run"), "--dataset", f"npz:{root / 'data.npz'}"])
    found = json.loads((root / "run" / "evaluation" / "metrics.json").read_text())
    assert found["kind"] == "classifier" and found["n_test"] == 60
    assert found["accuracy"] == accuracy(release)
    assert found["not_covered_by_epsilon"] == ["accuracy", "n_test"]
    assert f"{found['accuracy']:.4f}" in capsys.readouterr().out
    with pytest.raises(UserError, match="no records to compare"):
        compare.command([str(root / "run"), str(root / "run")])
    x, y = images(9)
    with pytest.raises(UserError, match="held-out"):
        assess.assess(release, Dataset("rows", IMAGE, x, y))


def test_while_training_it_is_tested_on_public_records_alone(root, release):
    rows = [row for row in run_folder.read(root / "run" / "metrics.jsonl")
            if "public_accuracy" in row]
    assert len(rows) >= 2 and rows[-1]["public_accuracy"] == accuracy(release)
    assert not any("spread" in row for row in rows)
    assert monitor.judge(release, None) == {}
    with pytest.raises(UserError, match="--public-dataset"):
        monitor.prepare(MonitorOptions(evaluate_every=2), IMAGE, classifies=True)


def test_the_statement_names_how_poisson_draws_are_counted():
    sampled, sure = (
        PoissonGaussianEvent(GaussianEvent(10.0, 9), 0.1, "replace-one"), GaussianEvent(10.0, 9))
    pure = EpsilonDeltaEvent(0.1)
    for events in ((sampled, 3),), ((sure, 1), (sampled, 2)), ((sampled, 2), (pure, 1)):
        assert "privacy loss distributions" in guarantee.stated_accountant(events)
    assert "exact Gaussian" in guarantee.stated_accountant(((sure, 1),))
    assert "Renyi" not in guarantee.stated_accountant(((sure, 1), (pure, 1)))
    for event in (sampled, sure):
        name = guarantee.stated_accountant(((event, 1), (RenyiEvent(8.0, 0.1), 1)))
        assert name.endswith("; Renyi differential privacy of releases that state it at one order")


def test_the_variants_of_the_published_sweep_have_the_noise_that_their_names_promise():
    """Table 10 has the standard deviation on the sum of gradients, in units of the clip."""
    sweep = SWEEPS["datalens:table10:mnist"]
    noise = {}
    for cell in sweep.cells:
        config = cells.job(sweep, cell).args.config
        mechanism = topagg_sgd.mechanism(dataclasses.replace(config, records=60_000), MNIST)
        sigma = getattr(mechanism.noise, "sigma", 0.0)  # where there is none
        noise[cell.label] = sigma * mechanism.bound.grid / config.clip
    for budget in ("0.1", "1"):
        plain = noise[f"GM-DP, budget {budget}"]
        assert noise[f"TopK-GM-DP, budget {budget}"] == pytest.approx(plain, rel=1e-3)
        assert noise[f"TopAgg, budget {budget}"] == pytest.approx(math.sqrt(0.8) * plain, rel=1e-3)
        for name in ("TopK-SGD", "clipped SGD"):
            assert noise[f"{name}, budget {budget}"] == 0
    allowed = [cells.job(sweep, cell).planned() for cell in sweep.cells[:4]]
    assert len({config.steps for config in allowed}) == 1  # those that GM-DP and TopAgg afford
