"""Figures of a run while it trains: right, on time, of released values, and changing nothing."""

import builtins
import dataclasses
import types

import numpy as np
import pytest
import runs

from dpgen_jax.core import run_folder
from dpgen_jax.core.config import MonitorOptions
from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.data import from_arrays
from dpgen_jax.run import lifecycle, monitor
from dpgen_jax.run.loop import State

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]
SPEC = ImageSpec(8, 8, 1, 3)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(monitor, "SAMPLES", 60)


def train(out, monitor=MonitorOptions(), **options):
    request = dataclasses.replace(runs.request(out, seed=3, **options), monitor=monitor)
    return lifecycle.run(request, from_arrays(*runs.images(), 3), lambda line: None)


def drawing(by_class, noise):
    """A release that draws the image of its class, with noise."""
    def encoded(n, seed=None):
        y = np.arange(n, dtype=np.int32) % 3
        noised = by_class[y] + noise * np.random.default_rng(seed).normal(size=(n, 8, 8, 1))
        return noised.clip(0, 1).astype(np.float32), y

    return types.SimpleNamespace(encoded=encoded, spec=SPEC, classifies=False)


def patterns():
    return np.random.default_rng(0).uniform(size=(3, 8, 8, 1))


def test_classes_that_differ_are_seen():
    found = monitor.judge(drawing(patterns(), 0.1), None)
    assert found["synthetic_accuracy"] > 0.95
    assert 0.05 < found["spread"] < 0.12


def test_a_collapse_within_classes_shows_in_the_spread():
    found = monitor.judge(drawing(patterns(), 0.0), None)
    assert found["synthetic_accuracy"] > 0.95 and found["spread"] < 1e-6


def test_a_collapse_of_all_classes_into_one_shows_in_the_accuracy():
    found = monitor.judge(drawing(patterns()[[0, 0, 0]], 0.1), None)
    assert found["synthetic_accuracy"] < 0.6


def test_public_records_are_tested_on():
    x, y = drawing(patterns(), 0.1).encoded(60, seed=5)
    right = monitor.judge(drawing(patterns(), 0.1), (x, y))["public_accuracy"]
    swapped = monitor.judge(drawing(patterns(), 0.1), (x, (y + 1) % 3))["public_accuracy"]
    assert right > 0.95 and swapped < 0.05


def test_the_spread_is_that_within_a_class():
    x = np.zeros((4, 2, 2, 1), np.float32)
    x[1] = 1  # class 0: 0 and 1, a deviation of 0.5; class 1: constant
    assert monitor.spread(x, np.array([0, 0, 1, 1])) == pytest.approx(0.25)


def at(step: int) -> State:
    """A state that has come to a step."""
    return State(None, None, None, step)


@pytest.mark.parametrize(("every", "blocks", "seen"), [
    (2, [1, 2, 3, 4, 5, 6], [2, 4, 6]), (3, [2, 4, 6], [4, 6]), (4, [1, 2, 3, 4, 5, 6], [4, 6]),
    (10, [3, 6], [6]), (1, [5, 6], [5, 6]), (0, [3, 6], [])])
def test_a_step_is_looked_at_with_the_block_that_holds_it_and_so_is_the_last(every, blocks, seen):
    release = drawing(patterns(), 0.1)
    watcher = monitor.Monitor(MonitorOptions(evaluate_every=every), 6, lambda state: release, None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(monitor, "judge", lambda release, public: {"spread": 1.0})
        assert [n for n in blocks if watcher(at(n), None)] == seen


def test_a_resumed_run_is_looked_at_at_the_same_steps():
    watcher = monitor.Monitor(
        MonitorOptions(evaluate_every=4), 20, lambda state: None, None, last=6
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(monitor, "judge", lambda release, public: {"spread": 1.0})
        assert [n for n in range(7, 15) if watcher(at(n), None)] == [8, 12]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folders of a plain run and of a watched one."""
    root = tmp_path_factory.mktemp("pair")
    runs.npz(root / "p.npz", *runs.images(seed=9))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(monitor, "SAMPLES", 60)
        train(root / "plain")
        train(root / "watched", MonitorOptions(tensorboard=True, evaluate_every=3,
                                               public_dataset=f"npz:{root / 'p.npz'}"))
    return root / "plain", root / "watched"


@pytest.mark.long
def test_rows_come_when_they_are_requested(pair):
    rows = run_folder.read(pair[1] / "metrics.jsonl")
    looked = [row for row in rows if "spread" in row]
    assert [row["step"] for row in looked] == [3, 6]
    for row in looked:
        assert 0 <= row["synthetic_accuracy"] <= 1 and 0 <= row["public_accuracy"] <= 1


def test_watching_changes_nothing(pair):
    plain, watched = (runs.snapshot(root) for root in pair)
    for name in ("release/generator.safetensors", "release/privacy.json"):
        assert plain[name] == watched[name], name
    assert plain["ledger.jsonl"].count(b"\n") == watched["ledger.jsonl"].count(b"\n")


def test_tensorboard_gets_curves_and_grids(pair):
    (events,) = (pair[1] / "tensorboard").glob("events*")
    written = events.read_bytes()
    assert b"\x89PNG" in written and b"samples" in written
    for name in (b"epsilon", b"spread", b"synthetic_accuracy"):
        assert name in written
    assert not list((pair[1] / "release").glob("*event*"))


def test_a_missing_tensorboard_stops_before_anything_is_made(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "tensorboardX":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"dpgen_jax\[tensorboard\]"):
        train(tmp_path / "run", MonitorOptions(tensorboard=True))
    assert not (tmp_path / "run").exists()


def test_another_public_data_set_stops_before_anything_is_made(tmp_path):
    other = MonitorOptions(evaluate_every=2, public_dataset=f"npz:{tmp_path / 'p.npz'}")
    runs.npz(tmp_path / "p.npz", *runs.images(), classes=4)
    with pytest.raises(UserError, match="public-dataset .* classes=4"):
        train(tmp_path / "run", other)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("fields", "named"), [
    ({"evaluate_every": -1}, "evaluate_every"), ({"public_dataset": "glyphs"}, "evaluate-every")])
def test_bad_wishes_are_named(fields, named):
    with pytest.raises(UserError, match=named):
        MonitorOptions(**fields)


def test_cheap_measures_are_taken_a_few_times_where_nobody_says():
    good, bad = drawing(patterns(), 0.1), drawing(patterns() * 0 + 0.5, 0.1)
    looked = monitor.Monitor(MonitorOptions(), 50, lambda state: good, None)
    assert [n for n in range(1, 51) if looked(at(n), None)] == [10, 20, 30, 40, 50]
    short = monitor.Monitor(MonitorOptions(), 19, lambda state: good, None)
    assert not any(short(at(n), None) for n in range(1, 20))
    scores, worse = monitor.glance(good), monitor.glance(bad)
    assert scores["nearest_mean_accuracy"] > 0.9 > 0.6 > worse["nearest_mean_accuracy"]
    assert scores["contrast"] > worse["contrast"] and scores.keys() <= {*run_folder.OF_SAMPLES}
