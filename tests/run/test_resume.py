"""A run that was cut short goes on as promised, or is refused and left as it was."""

import dataclasses
import shutil
import signal

import jax
import numpy as np
import pytest
import runs
import small_datalens

from dpgen_jax.accountant import ledger as books
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import BudgetExceeded, UserError
from dpgen_jax.methods import datalens
from dpgen_jax.nets.adam import Adam
from dpgen_jax.run import checkpoint, lifecycle, resume

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]
DONE, STEPS = 3, runs.CONFIG.steps


class Cut(BaseException):
    """An exception that ends a run at a chosen draw, as nothing in the library catches it."""


def at_draw(monkeypatch, number, act):
    """Calls `act` in place of the draw of this number (from 1), then goes on."""
    draws, real = [], OsBits.draw

    def draw(self, shape):
        draws.append(shape[0])
        if len(draws) == number:
            act()
        return real(self, shape)

    monkeypatch.setattr(OsBits, "draw", draw)
    return draws


def cut():
    raise Cut


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Three steps done, with checkpoints 2 and 3; the fourth was charged and never drawn."""
    root = tmp_path_factory.mktemp("template") / "run"
    with pytest.MonkeyPatch.context() as patch:
        at_draw(patch, DONE + 1, cut)
        with pytest.raises(Cut):
            runs.train(root)
    assert checkpoint.steps(runs.files(root).checkpoints) == [DONE - 1, DONE]
    return root


@pytest.fixture
def broken(template, tmp_path):
    return shutil.copytree(template, tmp_path / "run")


def totals(root):
    return books.account(books.read(root / "ledger.jsonl"))


def test_it_goes_on_and_lost_steps_stay_charged(broken, monkeypatch):
    draws = at_draw(monkeypatch, 0, cut)
    release, said = runs.train(broken, resume=True)
    account = totals(broken)
    assert sum(draws) == STEPS - DONE - 1  # the lost step is not made up for: the budget is spent
    assert (account.incarnation, account.steps) == (1, STEPS)
    assert f"stopped at step {STEPS - 1} of {STEPS}: the budget allows no further step" in said
    assert release.privacy["steps"] == STEPS - 1
    assert release.privacy["epsilon"] == runs.BUDGET.epsilon >= account.epsilon()
    assert [event["count"] for event in release.privacy["events"]] == [STEPS]
    assert [row["step"] for row in run_folder.read(broken / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    again, _ = runs.train(broken, resume=True)
    assert small_datalens.equal(again.model, release.model) and totals(broken).steps == STEPS
    assert sum(draws) == STEPS - DONE - 1 and totals(broken).incarnation == 2


def test_the_state_is_the_saved_one(broken):
    """A resume that makes no step releases what an uncut run of three steps would have."""
    public = restored(broken, DONE)[0]
    assert int(public.step) == DONE
    assert not small_datalens.equal(public, restored(broken, DONE - 1)[0])


def restored(root, step, where=None):
    """Public state and units of a checkpoint, opened."""
    config = dataclasses.replace(runs.CONFIG, sigma=30.0)
    method, where = datalens.build(config, small_datalens.SPEC), where or small_datalens.layout(4)
    with books.Ledger.open(root / "ledger.jsonl") as book:
        resume._require_line(runs.files(root), book, step)
    state = checkpoint.restore_state(runs.files(root).checkpoints, method, where, step)
    assert state.step == step
    return (*small_datalens.opened(state, where), np.asarray(jax.random.key_data(state.key)))


@pytest.mark.long
@pytest.mark.parametrize("runtime", [{"devices": 2, "chunk": 4, "parallel": "pmap"}], ids=str)
def test_speed_may_change(broken, runtime):
    new = dataclasses.replace(runs.RUNTIME, **runtime)
    release, _ = runs.train(broken, resume=True, runtime=new)
    assert release.privacy["steps"] == STEPS - 1 and totals(broken).steps == STEPS


CHANGES = {
    "config.teachers": {"teachers": 10}, "config.top_k": {"top_k": 9}, "config.batch": {"batch": 3},
    "config.steps": {"steps": 7}, "config.sigma": {"sigma": 100.0}, "config.clip": {"clip": 1.0},
    "config.g_optimiser.learning_rate": {"g_optimiser": Adam(0.1)},
    "budget.epsilon": {"budget": Budget(11.0, 1e-3)}, "budget.delta": {"budget": Budget(10, 2e-3)},
    "seed": {"seed": 1},
    "runtime.moments": {"runtime": dataclasses.replace(runs.RUNTIME, moments="bfloat16")},
    "runtime.compute": {"runtime": dataclasses.replace(runs.RUNTIME, compute="bfloat16")}}


@pytest.mark.parametrize("field", CHANGES)
def test_meaning_may_not(broken, field):
    before = runs.snapshot(broken)
    with pytest.raises(UserError, match=rf"\b{field} was .*, now .*"):
        runs.train(broken, resume=True, **CHANGES[field])
    assert runs.snapshot(broken) == before


def test_a_seeded_run_never_becomes_a_private_one(tmp_path):
    runs.train(tmp_path / "run", seed=3)
    with pytest.raises(UserError, match="seed was 3, now None"):
        runs.train(tmp_path / "run", resume=True)


@pytest.mark.parametrize("change", ["pixel", "label", "order", "fewer"])
def test_other_records_are_refused(broken, change):
    x, y = runs.images()
    if change == "pixel":
        x[7, 3, 3] ^= 1
    elif change == "label":
        y[7] = (y[7] + 1) % 3
    elif change == "order":
        x, y = x[::-1], y[::-1]
    else:
        x, y = x[1:], y[1:]
    before = runs.snapshot(broken)
    with pytest.raises(UserError, match="records (are not those|was 60, now 59)"):
        runs.train(broken, x, y, resume=True)
    assert runs.snapshot(broken) == before


def lines(root):
    return (root / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def another_ledger(root):
    books.Ledger.create(root / "other", {"epsilon": 99.0, "delta": 1e-3}).close()
    (root / "other").replace(root / "ledger.jsonl")


DAMAGE = {
    "no ledger": (lambda r: (r / "ledger.jsonl").unlink(), "ledger.jsonl.*No such file"),
    "empty ledger": (lambda r: (r / "ledger.jsonl").write_bytes(b""), "ledger.jsonl.*missing"),
    "edited ledger": (lambda r: (r / "ledger.jsonl").write_bytes(
        b"".join(lines(r)).replace(b'"count":1', b'"count":0', 1)), "line 2 is broken"),
    "a line less": (lambda r: (r / "ledger.jsonl").write_bytes(
        b"".join(lines(r)[:2] + lines(r)[3:])), "line 3 is broken"),
    "another ledger": (another_ledger, "ledger.jsonl does not belong to the run"),
    "config cut": (lambda r: (r / "config.json").write_bytes(b'{"method":'), "is damaged"),
    "config a list": (lambda r: (r / "config.json").write_text("[]"), "config.json is damaged"),
    "no config": (lambda r: (r / "config.json").unlink(), "no config.json"),
    "no identity": (lambda r: (r / "private/identity.json").unlink(), "identity.json"),
    "identity cut": (lambda r: (r / "private/identity.json").write_text("{"), "identity.json is"),
    "identity empty": (lambda r: (r / "private/identity.json").write_text("{}"),
                       "identity.json is damaged")}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_run_is_refused_and_left_alone(broken, what):
    act, message = DAMAGE[what]
    act(broken)
    before = runs.snapshot(broken)
    with pytest.raises(UserError, match=message):
        runs.train(broken, resume=True)
    assert runs.snapshot(broken) == before


@pytest.mark.parametrize("kept", [1, 3, 5])
def test_a_ledger_shorter_than_its_checkpoint_is_refused(broken, kept):
    (broken / "ledger.jsonl").write_bytes(b"".join(lines(broken)[:kept]))
    before, charged = runs.snapshot(broken), totals(broken).steps
    with pytest.raises(UserError, match=f"shorter than.*checkpoint {DONE}"):
        runs.train(broken, resume=True)
    after = runs.snapshot(broken)
    assert after.pop("ledger.jsonl").startswith(before.pop("ledger.jsonl"))
    assert after == before and totals(broken).steps == charged


def test_a_run_in_use_is_refused(broken):
    with books.Ledger.open(broken / "ledger.jsonl"):
        before = runs.snapshot(broken)
        with pytest.raises(UserError, match="another process is using"):
            runs.train(broken, resume=True)
        assert runs.snapshot(broken) == before


def test_without_resume_a_run_is_refused(broken):
    before = runs.snapshot(broken)
    with pytest.raises(UserError, match=r"already contains a run; resume it with resume\("):
        runs.train(broken)
    assert runs.snapshot(broken) == before


@pytest.mark.parametrize(("out", "message"), [(None, "needs --out"), ("none", "no run to resume")])
def test_nothing_to_resume(tmp_path, out, message):
    with pytest.raises(UserError, match=message):
        runs.train(out and tmp_path / out, resume=True)
    assert not any(tmp_path.iterdir())




def test_nothing_left_to_spend_is_said(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        at_draw(patch, 1, cut)
        with pytest.raises(Cut):
            runs.train(tmp_path / "run", steps=1)
    with pytest.raises(BudgetExceeded, match="leave no budget"):
        runs.train(tmp_path / "run", steps=1, resume=True)
    assert not (tmp_path / "run/release").exists() and totals(tmp_path / "run").steps == 1


def test_cut_before_the_ledger_it_starts_afresh(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(resume, "open_ledger", lambda *_: cut())
        with pytest.raises(Cut):
            runs.train(tmp_path / "run", steps=1)
    release, _ = runs.train(tmp_path / "run", steps=1, resume=True)
    assert release.privacy["steps"] == 1 and totals(tmp_path / "run").incarnation == 0


def test_an_interrupt_leaves_a_release(tmp_path, monkeypatch, capsys):
    at_draw(monkeypatch, 2, lambda: signal.raise_signal(signal.SIGINT))
    _, said = runs.train(tmp_path / "run")
    assert "stopped at step 2 of 6: you interrupted it" in said
    assert "stopping after this step" in capsys.readouterr().err
    release = lifecycle.load(tmp_path / "run")
    x, y = release.arrays(5)
    assert x.shape == (5, *small_datalens.SPEC.shape) and release.privacy["steps"] == 2
    assert totals(tmp_path / "run").steps == 2


def test_a_second_interrupt_stops_at_once(tmp_path, monkeypatch):
    """In the middle of a block, whose arrays are given away: the checkpoint before it stands."""
    real = books.Ledger.settle

    def settle(self, ticket, events, steps):
        if ticket == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        real(self, ticket, events, steps)

    monkeypatch.setattr(books.Ledger, "settle", settle)
    slow = dataclasses.replace(runs.RUNTIME, checkpoint_minutes=5.0)
    with pytest.raises(KeyboardInterrupt):
        runs.train(tmp_path / "run", runtime=slow)
    assert totals(tmp_path / "run").steps == 3 and not (tmp_path / "run/release").exists()
