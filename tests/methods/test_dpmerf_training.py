"""The generator's training after the only release: shown, stopped and begun again at no cost."""

import dataclasses
import json
import signal

import numpy as np
import pytest
import small_datalens

from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Budget, MonitorOptions, Runtime
from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.methods import dpmerf
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.run import checkpoint, lifecycle, loop, monitor

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]

SPEC = ImageSpec(4, 4, 1, 3)
STEPS = 6
CONFIG = dpmerf.Config(features=12, windows=(0,), batch=30, generator_steps=STEPS,
                       generator=GeneratorNet(4, 16, 8))


def train(root, said=None, config=CONFIG, **fields):
    rng = np.random.default_rng(0)
    data = Dataset("noise", SPEC, rng.integers(0, 256, (20, *SPEC.shape), dtype=np.uint8),
                   (np.arange(20) % 3).astype(np.int32))
    runtime = Runtime(devices=1, steps_per_call=fields.pop("steps_per_call", 1))
    request = lifecycle.Resolved(
        "dpmerf", "mine", config, Budget(3.0, 1e-3), runtime, root, seed=5, **fields
    )
    return lifecycle.run(request, data, (said if said is not None else []).append)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing disturbed, and its release."""
    root = tmp_path_factory.mktemp("whole")
    return root / "run", train(root / "run", steps_per_call=0)


@pytest.fixture
def interrupt(monkeypatch):
    """Presses Ctrl-C when so many steps of the generator's training are done; lists the steps."""
    plain = loop._refuse_infinite

    def at(step, number=signal.SIGINT):
        seen = []

        def watched(values, state):
            seen.append((state.step, state.post_step))
            if state.post_step == step:
                signal.raise_signal(number)
            plain(values, state)

        monkeypatch.setattr(loop, "_refuse_infinite", watched)
        return seen

    return at


def ledger(root):
    """The lines of the ledger: reserved, settled and bought."""
    return [json.loads(line) for line in (root / "ledger.jsonl").read_text().splitlines()]


def test_every_step_is_shown_and_none_costs_anything(whole, tmp_path):
    train(tmp_path / "run")
    rows = run_folder.read(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, *range(2, STEPS + 2)]
    assert "norm" in rows[0] and all("embedding_loss" in row for row in rows[1:])
    assert len({row["budget_epsilon"] for row in rows}) == 1  # it is seeded, and promises nothing
    assert not any("epsilon" in row for row in rows)
    assert whole[1].privacy["steps"] == 1 and whole[1].privacy["budget_epsilon"] == 3.0


@pytest.mark.parametrize("step", [pytest.param(0, marks=pytest.mark.long), 2])
def test_an_interrupt_stops_it_and_a_resume_begins_it_again(whole, tmp_path, interrupt, step):
    """Step 0: while the embedding is released. Resumed, nothing is charged or drawn again, and the
    generator is, bit for bit, that of a run that was left alone."""
    root, said = tmp_path / "run", []
    seen = interrupt(step)
    half = train(root, said)
    assert seen[-1] == (1, step) and not small_datalens.equal(half.model, whole[1].model)
    assert any(f"trained for {step} of {STEPS} steps; to train it to the end" in line
               for line in said)
    before = ledger(root)
    seen = interrupt(None)
    after = train(root, resume=True)
    assert seen[0] == (1, 1) and seen[-1] == (1, STEPS)
    assert small_datalens.equal(after.model, whole[1].model) and after.privacy == half.privacy
    assert small_datalens.equal(lifecycle.load(root).model, after.model)
    reserved = [line for line in ledger(root)[len(before):] if "events" in line]
    assert not reserved and before == ledger(root)[:len(before)]
    rows = run_folder.read(root / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, *range(2, STEPS + 2)]


def test_a_release_of_a_whole_training_is_kept_where_a_resume_is_stopped(tmp_path, interrupt):
    root, said = tmp_path / "run", []
    done, before = train(root), (root / "release" / "generator.safetensors").read_bytes()
    interrupt(2)
    again = train(root, said, resume=True)
    assert small_datalens.equal(again.model, done.model)
    assert (root / "release" / "generator.safetensors").read_bytes() == before
    assert any("comes from more steps, and is kept" in line for line in said)


def test_sigterm_stops_it_with_a_release(whole, tmp_path, interrupt, monkeypatch, capsys):
    """Also where the checkpoint of what was paid for could not be written before."""
    real = checkpoint.write_json

    def full(path, *rest, **options):
        if path.name != "note.json":
            return real(path, *rest, **options)
        raise OSError(28, "No space left on device")

    root, said = tmp_path / "run", []
    interrupt(2, signal.SIGTERM)
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(checkpoint, "write_json", full)
        train(root, said)
    assert end.value.code == 143 and f"trained for 2 of {STEPS} steps" in said[-2]
    assert said[-1].startswith(f"release: {root / 'release'} ")
    assert "warning: checkpoint " in capsys.readouterr().err
    assert not small_datalens.equal(lifecycle.load(root).model, whole[1].model)
    assert not checkpoint.steps(root / "private/checkpoints")


def test_it_is_watched_and_not_repeated(whole, tmp_path, monkeypatch):
    seen = []

    def judge(release, public):
        seen.append(release.model)
        return {"spread": float(len(seen))}

    monkeypatch.setattr(monitor, "judge", judge)
    release = train(tmp_path / "run", monitor=MonitorOptions(evaluate_every=3))
    rows = run_folder.read(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if "spread" in row] == [3, 6, 7]
    assert not small_datalens.equal(seen[0], seen[1]) and small_datalens.equal(
        seen[-1], release.model
    )
    assert small_datalens.equal(release.model, whole[1].model)


def test_a_generator_that_diverges_is_named(tmp_path):
    wild = dataclasses.replace(CONFIG, g_optimiser=Adam(1e38))
    with pytest.raises(UserError, match="diverged at step 3"):
        train(tmp_path / "run", config=wild)
