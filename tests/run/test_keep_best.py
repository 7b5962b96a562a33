"""The generator that did best by a public measure is released: of all steps, after a resume too,
whatever the records are, and at the cost of the release that judged."""

import dataclasses
import functools
import json
import shutil
import types

import numpy as np
import pytest
import runs
import small_datalens
from PIL import Image

from dpgen_jax.accountant import composition
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import from_json, merge
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder import promise
from dpgen_jax.audit.folder.reading import Folder
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Budget, MonitorOptions
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import BudgetExceeded, UserError
from dpgen_jax.data import from_arrays, parts
from dpgen_jax.data import load as load_data
from dpgen_jax.methods import datalens
from dpgen_jax.release.bundle import load
from dpgen_jax.run import lifecycle, monitor, planning
from dpgen_jax.run.monitor import Best
from dpgen_jax.run.progress import Notices

pytestmark = pytest.mark.usefixtures("compiled_once")
BUDGET = Budget(30.0, 1e-3)
BUILD = datalens.build


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(monitor, "SAMPLES", 60)
    monkeypatch.setattr(monitor, "JUDGE_SAMPLES", 60)


def train(out, place=None, seed=3, x=None, said=None, every=3, **options):
    watching = MonitorOptions(evaluate_every=every if place else None, public_dataset=place,
                              keep_best=bool(place))
    request = dataclasses.replace(runs.request(out, seed=seed, **options), monitor=watching)
    images = runs.images() if x is None else (x, runs.images()[1])
    return lifecycle.run(request, from_arrays(*images, 3), ([] if said is None else said).append)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return f"npz:{runs.npz(tmp_path_factory.mktemp('public') / 'p.npz', *runs.images(seed=9))}"


def a_release(value):
    return types.SimpleNamespace(model={"net": {"w": np.full(3, value, np.float32)}})


def test_the_best_is_kept_and_known_again(tmp_path):
    best = Best(tmp_path / "best.safetensors")
    for step, score in enumerate((0.3, 0.7, 0.7, float("nan"), 0.5), 1):
        best.offer(a_release(step), score, step)
    again = Best(best.path)
    assert (best.score, best.step) == (again.score, again.step) == (0.7, 2)
    best.path.write_bytes(b"no arrays")
    with pytest.raises(UserError, match=r"best.safetensors is damaged.*delete it"):
        Best(best.path)


@pytest.mark.slow
def test_the_generator_of_the_best_step_is_released(tmp_path, monkeypatch, place):
    scores, seen, said = (0.2, 0.9, 0.4, 0.1, 0.5, 0.3), [], []

    def judge(release, public):
        seen.append(release.model)
        return {"public_accuracy": scores[len(seen) - 1]}

    monkeypatch.setattr(monitor, "judge", judge)
    train(tmp_path / "run", place, said=said, every=1)
    released, best = load(tmp_path / "run").model, int(np.argmax(scores))
    equal = [small_datalens.equal(released, model) for model in seen]
    assert len(seen) == 6 and equal.index(True) == best and sum(equal) == 1
    assert any(f"step {best + 1} is released" in line for line in said)
    assert load(tmp_path / "run").privacy["kept_step"] == best + 1
    assert f"that of step {best + 1}" in (tmp_path / "run/release/statement.html").read_text()


@pytest.mark.slow
def test_a_file_that_is_damaged_costs_the_choice_and_not_the_release(tmp_path, monkeypatch, place):
    def judge(release, public):
        (tmp_path / "run/private/best.safetensors").write_bytes(b"")
        return {"public_accuracy": 0.5}

    monkeypatch.setattr(monitor, "judge", judge)
    monkeypatch.setattr(Best, "offer", lambda self, release, score, step: setattr(self, "step", 1))
    stated = train(tmp_path / "run", place).privacy
    assert stated["steps"] == 6 and "kept_step" not in stated


@functools.cache
def muted(config, spec, runtime=None):
    """DataLens whose generator hears zeros, whatever was sent."""
    method = BUILD(config, spec)
    return dataclasses.replace(method, absorb=lambda key, public, query, released:
                               method.absorb(key, public, query, 0 * released))


@pytest.mark.parametrize("hears", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_choice_reads_no_record(tmp_path, monkeypatch, place, hears):
    """All records are replaced. With the mechanism muted every measure, the step that is chosen and
    the released arrays stay as they were, bit for bit: they come of releases alone."""
    if not hears:
        monkeypatch.setattr(datalens, "build", muted)
    looked, chosen = [], []
    for name, x in (("a", runs.images()[0]), ("b", 255 - runs.images(seed=1)[0])):
        train(tmp_path / name, place, x=x)
        looked.append([{key: row[key] for key in run_folder.OF_SAMPLES if key in row}
                       for row in run_folder.read(tmp_path / name / "metrics.jsonl")])
        released = load(tmp_path / name)
        chosen.append((released.model, released.privacy["kept_step"]))
        assert chosen[-1][1] == Best(runs.files(tmp_path / name).best).step
    same = looked[0] == looked[1] and chosen[0][1] == chosen[1][1] and small_datalens.equal(
        chosen[0][0], chosen[1][0])
    assert sum("public_accuracy" in row for row in looked[0]) == 2
    assert same == (not hears)


@pytest.mark.parametrize("how", ["the same", "held out", "relabelled"])
def test_own_records_do_not_judge(tmp_path, how):
    """Named as public, by whatever mistake: the choice would read records that nobody pays for.
    With other labels, as where classes are declared in another order, they are the same images."""
    x, y = runs.images()
    own = f"npz:{runs.npz(tmp_path / 'p.npz', x, (y + (how == 'relabelled')) % 3)}"
    data = from_arrays(x, y, 3)
    if how == "held out":
        other = from_arrays(*runs.images(seed=4), 3)
        data = dataclasses.replace(other, x_test=data.x_train, y_test=data.y_train)
    watching = MonitorOptions(evaluate_every=3, public_dataset=own, keep_best=True)
    request = dataclasses.replace(runs.request(tmp_path / "run"), monitor=watching)
    with pytest.raises(UserError, match="without being covered by epsilon: what --public-dataset"):
        lifecycle.run(request, data, lambda line: None)
    assert not (tmp_path / "run").exists()
    accepted = dataclasses.replace(request, accept_uncovered=True)
    declared = planning.declare(accepted, data, lambda line: None)
    checked = planning.check(declared, lambda line: None, Notices(lambda line: None))
    assert "own data set" in checked.protected.uncovered[0]


def test_a_few_records_may_be_the_same(place):
    """Empty images are in many data sets."""
    x, y = runs.images(seed=9)
    rows, options = (x, y), MonitorOptions(evaluate_every=1, public_dataset=place)
    few = from_arrays(np.concatenate([x[:20], runs.images()[0][20:]]), y, 3)
    assert not monitor.checked_judge(options, few, rows).uncovered
    assert monitor.checked_judge(options, from_arrays(x, y, 3), rows).uncovered
    assert not monitor.checked_judge(options, from_arrays(x, y, 3), None).uncovered
    assert not monitor.checked_judge(dataclasses.replace(options, public_dataset="release:run"),
                                     from_arrays(x, y, 3), rows).uncovered


def test_own_images_do_not_judge_however_they_are_read(tmp_path):
    """Stretched where the run crops them, they are the same in no pixel."""
    rng = np.random.default_rng(0)
    for i in range(12):
        place = tmp_path / "scans" / "abc"[i % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 16), np.uint8)).save(place / f"{i}.png")
    own = f"folder:{tmp_path / 'scans'}"
    trained = load_data(own, image_size=8, channels=1, class_names="a,b,c", resize="stretch")
    options = MonitorOptions(evaluate_every=1, public_dataset=own)
    rows = monitor.judge_rows(options, trained.spec)
    assert parts.share_of(rows[0], trained) == 0
    assert monitor.checked_judge(options, trained, rows).uncovered
    shutil.copytree(tmp_path / "scans", tmp_path / "others")
    (tmp_path / "others/a/0.png").write_bytes((tmp_path / "scans/b/1.png").read_bytes())
    (tmp_path / "others/a/0.png").rename(tmp_path / "others/a/20.png")
    other = dataclasses.replace(options, public_dataset=f"folder:{tmp_path / 'others'}")
    assert not monitor.checked_judge(other, trained, rows).uncovered


# A release that judges.

@pytest.fixture(scope="module")
def judge_run(tmp_path_factory):
    root = tmp_path_factory.mktemp("judge") / "run"
    train(root, seed=None)
    return root


@pytest.fixture(scope="module")
def judged(judge_run):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(monitor, "SAMPLES", 60)
        train(judge_run.parent / "judged", f"release:{judge_run}", seed=None, budget=BUDGET)
    return judge_run.parent / "judged"


@pytest.mark.slow
def test_the_cost_of_a_release_that_judges_is_charged_before_all(judge_run, judged):
    earlier = tuple((dataclasses.replace(event, mechanism=monitor.NAMED_JUDGES + event.mechanism),
                     n)
                    for event, n in books.account(books.read(judge_run / "ledger.jsonl")).spent())
    records = books.read(judged / "ledger.jsonl")
    assert records[1]["kind"] == "charge" and from_json(records[1]["events"]) == earlier
    released = load(judged)
    rounds = datalens.mechanism(released.config, released.spec).events(6)
    assert books.account(records).spent() == merge((*earlier, *rounds))
    assert 29 < composition.epsilon_of((*earlier, *rounds), 1e-3) <= 30
    assert released.privacy["guarantee"] == "(epsilon, delta) replace-one"


@pytest.mark.slow
def test_an_audit_knows_the_step_that_was_kept(judge_run, judged, tmp_path):
    def checked(root):
        findings = Findings()
        promise.recomputed(Folder(root, True), findings)
        return {found.check: found.verdict for found in findings.made}

    kept = "the generator is that of the step which did best"
    assert kept not in checked(judge_run)
    assert set(checked(judged).values()) == {Verdict.HOLDS} and kept in checked(judged)
    shutil.copytree(judged, tmp_path / "run")
    statement = tmp_path / "run/release/privacy.json"
    stated = json.loads(statement.read_text())
    statement.write_text(json.dumps(stated | {"kept_step": stated["kept_step"] + 1}))
    assert checked(tmp_path / "run")[kept] == Verdict.FAILS
    runs.files(tmp_path / "run").best.write_bytes(b"no arrays")
    assert checked(tmp_path / "run")[kept] == Verdict.UNCHECKED


@pytest.mark.slow
def test_a_run_goes_on_by_the_same_judge(judge_run, judged):
    lines = len(books.read(judged / "ledger.jsonl"))
    for place in (None, f"release:{judged}"):
        with pytest.raises((UserError, BudgetExceeded)):
            train(judged, place, seed=None, budget=BUDGET, resume=True)
    with pytest.raises(UserError, match="judged_by was"):
        train(judged, seed=None, budget=BUDGET, resume=True, sigma=load(judged).config.sigma)
    train(judged, f"release:{judge_run}", seed=None, budget=BUDGET, resume=True)
    records = books.read(judged / "ledger.jsonl")
    assert [row["kind"] for row in records].count("charge") == 1 and len(records) > lines


@pytest.mark.slow
def test_a_release_that_costs_all_leaves_nothing(tmp_path, judge_run):
    with pytest.raises(BudgetExceeded, match="the release that judges cost"):
        train(tmp_path / "run", f"release:{judge_run}", seed=None, budget=Budget(9.0, 1e-3))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_release_that_cannot_judge_is_refused(tmp_path, judge_run):
    options = MonitorOptions(evaluate_every=1, public_dataset=f"release:{judge_run}")
    zeroed = types.SimpleNamespace(relation=Relation.ZERO_OUT)
    with pytest.raises(UserError, match="replace-one, and this run zero-out"):
        monitor.require_same_relation(options, zeroed)
    with pytest.raises(UserError, match="this run a client"):
        monitor.judging_cost(options, protects_clients=True)
    with pytest.raises(UserError, match="the same shape and classes"):
        monitor.judge_rows(options, dataclasses.replace(small_datalens.SPEC, classes=4))
    train(tmp_path / "seeded")
    seeded = dataclasses.replace(options, public_dataset=f"release:{tmp_path / 'seeded'}")
    with pytest.raises(UserError, match="cannot judge: its statement is 'none"):
        monitor.judging_cost(seeded, protects_clients=False)
    alone = dataclasses.replace(options, public_dataset=f"release:{judge_run / 'release'}")
    with pytest.raises(UserError, match="has no ledger.jsonl, .* name the folder of the run"):
        monitor.judging_cost(alone, protects_clients=False)
    shutil.copytree(judge_run, tmp_path / "swapped")
    runs.files(tmp_path / "swapped").released.write_text('{"generator_sha256": "0"}')
    with pytest.raises(UserError, match="was not made by this run"):
        monitor.judging_cost(dataclasses.replace(options,
                                                 public_dataset=f"release:{tmp_path / 'swapped'}"),
                             protects_clients=False)
    for missing in ("release:", f"release:{tmp_path / 'nowhere'}"):
        with pytest.raises(UserError, match="neither a run nor a release"):
            monitor.judging_cost(dataclasses.replace(options, public_dataset=missing), False)


def test_the_best_needs_images_to_be_chosen_by():
    with pytest.raises(UserError, match="--keep-best needs --public-dataset"):
        MonitorOptions(evaluate_every=2, keep_best=True)
