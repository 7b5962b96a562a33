"""Whole runs of GS-WGAN and DP-GAN-DPAC: what they say of themselves, in schedules with a proof and
without, and a warm start that is cut short."""

import dataclasses
import functools
import json
import math
import signal

import pytest
import runs
import small_datalens
import small_gswgan
from published_formulas import gswgan

from dpgen_jax import account, train
from dpgen_jax.accountant import composition
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import GaussianEvent, SampledGaussianEvent
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.types import UserError
from dpgen_jax.data import from_arrays
from dpgen_jax.private import pretraining
from dpgen_jax.run import lifecycle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]
CONFIG = small_gswgan.gs(critics=6, warm_steps=4, penalty=0.0, sigma=None, steps=4)
RUNTIME = Runtime(devices=1, chunk=1, steps_per_call=2)
FLAGS = [f"--{name}={value}" for name, value in {
    "test-fraction": 0, "critics": 6, "batch": 3, "pool": 2, "records-per-step": 3,
    "critic-steps": 1, "critic-steps-first": 1, "warm-steps": 2, "penalty": 0,
    "generator.latent": 2, "generator.width": 2, "critic.width": 2, "warm-generator.latent": 2,
    "warm-generator.width": 2, "steps": 4, "delta": 1e-3, "devices": 1, "chunk": 1}.items()]
DPAC = ["--t-c=2", "--fake-steps=1", "--real-steps=1", "--fake-batch=4", "--c-penalty=0",
        "--classifier.width=2"]
BARE = ["--accounting=as-published", "--critics-per-step=1", "--sigma=1.07", "--warm-steps=0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    runs.npz(folder / "noise.npz", *runs.images())
    return folder


@pytest.fixture
def call(call, monkeypatch, place):
    monkeypatch.chdir(place)
    return call


# --- commands

@pytest.mark.long
def test_a_rotation_is_charged_by_visits(place, call):
    """DP-GAN-DPAC, four steps of two of six critics: the first two answer twice."""
    code, out, err = call(train, "dpac", "--dataset", "npz:noise.npz", *FLAGS, *DPAC,
                          "--critics-per-step", 2, "--epsilon", 20, "--out", "dpac-run")
    assert code == 0, err
    privacy = json.loads((place / "dpac-run/release/privacy.json").read_text())
    (event,) = privacy["events"]
    account = books.account(books.read(place / "dpac-run/ledger.jsonl"))
    assert (event["count"], account.steps, privacy["steps"]) == (2, 4, 4)
    assert isinstance(account.spent()[0][0], GaussianEvent)
    assert privacy["guarantee"] == "(epsilon, delta) replace-one"
    assert 19 < account.epsilon() <= privacy["epsilon"] == 20
    assert "60 records, 6 units" in out and "1 in 3 a step" in out
    assert "6/6 warm units" in err and "Traceback" not in err


def test_the_published_accounting_is_stamped(place, call):
    code, out, err = call(train, "gswgan", "--dataset", "npz:noise.npz", *FLAGS, *BARE,
                          "--epsilon", "inf", "--out", "gswgan-run")
    assert code == 0, err
    privacy = json.loads((place / "gswgan-run/release/privacy.json").read_text())
    assert privacy["epsilon"] == "inf" and "no valid guarantee" in privacy["guarantee"]
    claimed = gswgan(6, 3, 1.07, 1e-3)
    assert privacy["as_published"] == {"epsilon": claimed.epsilon(4), "steps": 4,
                                       "formula": claimed.formula}
    assert 1 < claimed.epsilon(4) < 100 and "epsilon is inf: nothing bounds" in out
    (event,) = privacy["events"]
    assert event["count"] == 4 and "no valid guarantee" in event["mechanism"]
    code, out, _ = call(account, "gswgan-run", "--json")
    assert code == 0 and json.loads(out)["spent"]["epsilon"] == "inf"


def test_what_the_published_settings_prove(call):
    code, out, err = call(account, "gswgan", "--preset", "mnist-published", "--json")
    assert code == 0, err
    costs = json.loads(out)
    assert costs["proven"]["epsilon"] == pytest.approx(379.417, abs=6e-4)
    assert costs["as_published"]["epsilon"] == pytest.approx(9.2428, abs=5e-5)
    assert costs["proven"]["steps"] == costs["as_published"]["steps"] == 20_000


@pytest.mark.parametrize(("words", "text"), [
    (["gswgan", *BARE, "--epsilon", "1000"], "proves no epsilon; pass --epsilon inf"),
    (["gswgan", "--critics-per-step", "7"], "critics_per_step is 7, of 6 critics"),
    (["gswgan", "--critics", "61"], "60 records cannot be dealt to 61"),
    (["gswgan", "--schedule", "secret-draw"], "6 of 6 units are drawn"),
    (["gswgan", "--sigma", "5000"], "sigma is 5000"),
    (["gswgan", "--clip", "0"], "clip is 0"),
    (["dpac", *DPAC, "--t-c", "4"], "t_c is 4, but there are only 4 steps"),
    (["dpac", *DPAC, "--beta", "2"], "beta is 2"),
    (["dpac", *DPAC, "--order", "sideways"], "--order")], ids=lambda value: str(value)[:30])
def test_bad_words_get_one_line(place, call, words, text):
    before = {path.name for path in place.iterdir()}
    code, out, err = call(train, words[0], "--dataset", "npz:noise.npz", *FLAGS, *words[1:])
    assert code == 2 and text in err and err.count("\n") == 1, err
    assert {path.name for path in place.iterdir()} == before and "release:" not in out


# --- runs in this process

def fit(root, *, epsilon=20.0, resume=False, **fields):
    request = lifecycle.Resolved("gswgan", "glyphs", dataclasses.replace(CONFIG, **fields),
                                Budget(epsilon, 1e-3), RUNTIME, root, resume, seed=1)
    return lifecycle.run(request, from_arrays(*runs.images(), 3), log=lambda line: None)


def spent(root):
    return books.account(books.read(root / "ledger.jsonl"))


@pytest.mark.long
def test_a_secret_draw_from_end_to_end(tmp_path):
    release = fit(tmp_path / "run", schedule="secret-draw", critics_per_step=2, warm_steps=0)
    ((event, count),) = spent(tmp_path / "run").spent()
    assert isinstance(event, SampledGaussianEvent) and count == 4
    assert (event.population, event.sample_size) == (6, 2)
    assert event.gaussian.mu_squared == pytest.approx(
        3 / release.config.sigma**2)
    assert 19 < composition.epsilon_of(((event, 4),),
                                       1e-3) <= release.privacy["budget_epsilon"] == 20
    assert "secret draws" in release.privacy["accountant"]
    assert release.sample(5)[0].shape == (5, 8, 8, 1)


NOISELESS = {"epsilon": math.inf, "sigma": 0.0}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(release, folder) of a run with a warm start and without noise."""
    root = tmp_path_factory.mktemp("whole") / "run"
    return fit(root, **NOISELESS), root


def test_no_noise_is_allowed_and_says_so(whole):
    release, root = whole
    assert release.privacy["epsilon"] == math.inf == spent(root).epsilon()
    assert release.privacy["events"] == [{"mechanism": "none", "sigma": 0.0, "sensitivity": None,
                                          "count": 4}]


def test_an_interrupted_warm_start_goes_on(whole, tmp_path, monkeypatch):
    """By SIGTERM after three of six units: nothing was charged, the three are not warmed up again,
    and without noise the run ends where it would have, bit for bit."""
    plain, shares = pretraining.pretrain, []

    def watched(cut, *args):
        for units, share in plain(*args):
            shares.append(share)
            if share > cut:
                signal.raise_signal(signal.SIGTERM)
            yield units, share

    monkeypatch.setattr(pretraining, "pretrain", functools.partial(watched, 0.4))
    root = tmp_path / "run"
    with pytest.raises(UserError, match="interrupted before the first step") as end:
        fit(root, **NOISELESS)
    assert end.value.exit_code == 143
    assert shares[-1] == 0.5 and spent(root).steps == 0 and not (root / "release").exists()
    shares.clear()
    monkeypatch.setattr(pretraining, "pretrain", functools.partial(watched, 1.0))
    release = fit(root, **NOISELESS, resume=True)
    assert small_datalens.equal(release.model, whole[0].model) and spent(root).steps == 4
    assert shares[0] == pytest.approx(1 / 4 / 3) and shares[-1] == 1  # a step of the first of three
