"""Data-dependent accounting of finished runs: run folders written by hand, without training."""

import bisect
import dataclasses
import json
import math
import secrets
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens

from dpgen_jax import account, publish
from dpgen_jax.accountant import composition, ledger, pate
from dpgen_jax.accountant import smooth_sensitivity as smooth
from dpgen_jax.accountant.events import EpsilonDeltaEvent, GaussianEvent, RenyiEvent
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.aggregation import teacher_votes
from dpgen_jax.aggregation.noise import OsBits, SeededBits, thresholds
from dpgen_jax.core.config import digest, to_json
from dpgen_jax.core.run_folder import MEANING, RunFolder, read_json, write_json
from dpgen_jax.core.terms import ProtectedUnit
from dpgen_jax.core.types import Private, UserError
from dpgen_jax.methods import datalens, gpate
from dpgen_jax.private import kept_votes as private
from dpgen_jax.release.guarantee import Facts, Protected, statement
from dpgen_jax.run import costs

pytestmark = pytest.mark.slow


DELTA, STEPS, QUERIES, TEACHERS = 1e-5, 12, 6, 300
CONFIG = gpate.Config(teachers=TEACHERS, batch=2, projection=3, bins=4, sigma=40.0,
                      sigma_ratio=2.0, threshold=0.55, steps=STEPS,
                      sanitiser=Sanitiser(8.0, 0.025, 10.0, 12.0, 3.0))
RENYI = 8 / (2 * 80.0**2), 8 / 40.0**2


def kept(seed=0, config=CONFIG):
    """Votes [STEPS, B, k, bins] and outcomes [STEPS, B, k]: teachers that mostly agree."""
    rng = np.random.default_rng(seed)
    shape = STEPS, config.batch, config.projection
    likely = rng.dirichlet(np.full(config.bins, 0.05), shape)
    counts = rng.multinomial(config.teachers, likely).astype(np.int32)
    return counts, (counts.max(-1) + rng.normal(0, 80, shape) > 165).astype(np.int32)


def finished(root: Path, config=CONFIG, *, epsilon=3.0, method="gpate", seed=0, lost=0,
             bought=()) -> RunFolder:
    """The folder of a run that kept the votes of all steps but the `lost` ones, which were
    charged on top of them."""
    files = RunFolder(root)
    files.private.mkdir(parents=True)
    files.release.mkdir()
    module = {"gpate": gpate, "datalens": datalens}[method]
    mechanism = module.mechanism(config, small_datalens.SPEC)
    write_json(
        files.config,
        to_json(
            {
                "method": method,
                "spec": small_datalens.SPEC,
                "config": config,
                "run": secrets.token_hex(16),
            }
        ),
    )
    public = read_json(files.config)
    with Ledger.create(files.ledger, {
            "epsilon": epsilon, "delta": DELTA, "run": public["run"], "config_hash": digest(
                {name: public[name] for name in MEANING if name in public})}) as book:
        if bought:
            book.charge(bought)
        if method == "gpate" and mechanism.keeps_votes:
            counts, answered = kept(seed, config)
            for block in (slice(0, 5), slice(5, STEPS)):
                ticket = book.reserve(mechanism.events(len(answered[block])), len(answered[block]))
                sums = counts[block].reshape(-1, *mechanism.shape)
                private.append(files.votes, Private(jnp.asarray(sums)), answered[block])
                book.settle(
                    ticket, mechanism.actual_charge(answered[block], ()), len(answered[block])
                )
        if lost:
            book.reserve(mechanism.events(lost), lost)
        facts = Facts(method=method, preset=None, steps=STEPS, noise_source="os-entropy")
        write_json(files.release / "privacy.json", to_json(statement(
            facts, book, mechanism.relation, Protected(ProtectedUnit(), {"records": 9}))))
    (files.release / "generator.safetensors").write_bytes(b"weights")
    return files


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*"))
            if p.is_file()}


def account_of(files):
    return ledger.account(ledger.read(files.ledger))


# For the data holder's eyes.

def epsilon_by_hand(rdp, orders):
    """Canonne, Kamath and Steinke (2020), Proposition 12, at the best order: (epsilon, order)."""
    values = [r + math.log1p(-1 / a) - (math.log(DELTA) + math.log(a)) / (a - 1)
              for r, a in zip(rdp, orders, strict=True)]
    best = int(np.argmin(values))
    return values[best], orders[best]


def rdp_of_votes(config=CONFIG, seed=0):
    counts, answered = kept(seed, config)
    return pate.confident_gnmax_rdp(counts.reshape(-1, 4), answered.ravel() == 1, 165, 80.0, 40.0,
                                    private.ORDERS)


def test_the_reading_is_that_of_the_votes(tmp_path):
    files = finished(tmp_path / "run")
    before = snapshot(files.root)
    read = costs.data_dependent_reading(files.root).record()
    epsilon, order = epsilon_by_hand(rdp_of_votes(), private.ORDERS)
    assert read["data_dependent"]["epsilon"] == pytest.approx(epsilon, rel=1e-12)
    assert read["data_dependent"]["order"] == pytest.approx(order)
    assert read["data_dependent"]["kind"].startswith("ex-post")
    assert "AS PRIVATE AS THE RECORDS" in read["warning"]
    counts, answered = kept()
    ordered = np.sort(counts.reshape(-1, 4), 1)
    assert read["votes"] == pytest.approx({
        "most agreed bin": ordered[:, 3].mean() / TEACHERS,
        "second": ordered[:, 2].mean() / TEACHERS, "answered": answered.mean(),
        "queries": STEPS * QUERIES, "steps charged without votes": 0})
    spent = account_of(files).epsilon()
    assert read["data_independent"] == {"epsilon": 3.0, "spent": spent}
    assert epsilon < spent  # teachers that agree
    assert snapshot(files.root) == before  # and nothing is written


@pytest.mark.parametrize("lost", [1, 3])
def test_lost_steps_count_at_their_worst(tmp_path, lost):
    read = costs.data_dependent_reading(finished(tmp_path / "run", lost=lost).root).record()
    worst = lost * QUERIES * private.ORDERS * (1 / (2 * 80.0**2) + 1 / 40.0**2)
    epsilon, _ = epsilon_by_hand(rdp_of_votes() + worst, private.ORDERS)
    assert read["data_dependent"]["epsilon"] == pytest.approx(epsilon, rel=1e-12)
    assert read["votes"]["steps charged without votes"] == lost
    assert read["votes"]["queries"] == STEPS * QUERIES


def test_a_torn_step_is_a_lost_one(tmp_path):
    files = finished(tmp_path / "run")
    files.votes.write_bytes(files.votes.read_bytes()[:-2])
    read = costs.data_dependent_reading(files.root).record()["votes"]
    assert read["steps charged without votes"] == 1 and read["queries"] == (STEPS - 1) * QUERIES


def test_the_reading_is_sealed_until_it_is_shown(tmp_path):
    files = finished(tmp_path / "run")
    kind = private.Confident(gpate.mechanism(CONFIG, small_datalens.SPEC))
    sealed = private.read_for_the_holder(kind.votes(files.votes), kind, DELTA, STEPS)
    assert repr(sealed) == "Private(Reading[])"


def test_the_commands_show_and_publish(tmp_path, capsys):
    files = finished(tmp_path / "run")
    account.command([str(files.root), "--data-dependent"])
    assert "AS PRIVATE AS THE RECORDS" in capsys.readouterr().out
    publish.command([str(files.root), "--json"])
    published = json.loads(capsys.readouterr().out)
    assert published["epsilon"] == read_json(files.release / "privacy.json")["epsilon"] > 3
    with pytest.raises(UserError, match="one of --cross-check, --data-dependent, --sanitise"):
        account.command([str(files.root), "--data-dependent", "--sanitise"])


def test_the_old_spelling_publishes_and_names_the_new_one(tmp_path, capsys):
    files = finished(tmp_path / "run")
    account.command([str(files.root), "--sanitise"])
    shown = capsys.readouterr()
    assert f"python -m dpgen_jax.publish {files.root}" in shown.err and "epsilon" in shown.out
    assert read_json(files.release / "privacy.json")["epsilon"] > 3
    with pytest.raises(UserError, match="charged its one sanitised release"):
        publish.command([str(files.root)])


# Published.

def bound_by_hand(words, config=CONFIG, seed=0):
    s, (counts, answered) = config.sanitiser, kept(seed, config)
    args = (counts.reshape(-1, 4), answered.ravel() == 1, 165, 80.0, 40.0, s.order)
    total = smooth.total_rdp(*args)
    sensitivity = smooth.smooth_sensitivity(*args, s.beta, TEACHERS)
    one, two = (
        math.copysign(bisect.bisect_right(thresholds(2.0**14), (a & 2**31 - 1) << 64 | b << 32 | c),
                      0.5 - (a >> 31)) / 2**14 for a, b, c in words.tolist())
    above = s.z * s.sigma_ss * sensitivity * math.exp(s.beta * s.log_sigma * (two + s.z))
    return math.ceil(1000 * (total + s.sigma_ss * sensitivity * one + above)) / 1000


def test_the_published_bound_is_the_formula(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "OsBits", lambda: SeededBits(3))
    published = costs.publish(finished(tmp_path / "run").root)["data_dependent_epsilon"]
    cost = CONFIG.sanitiser.rdp()
    rdp = bound_by_hand(SeededBits(3).draw((1, 2, 3))[0]) + cost
    assert published["epsilon"] == pytest.approx(epsilon_by_hand([rdp], [8.0])[0], rel=1e-12)
    assert published["order"] == 8 and published["own_cost_rdp"] == cost
    assert published["kind"].startswith("ex-post") and published["epsilon_without_it"] == 3.0
    assert published["may_be_too_low_with_probability"] == pytest.approx(0.0027, rel=1e-3)


def test_the_run_states_a_new_larger_claim(tmp_path):
    files = finished(tmp_path / "run")
    before, claimed = snapshot(files.root), read_json(files.release / "privacy.json")
    published = costs.publish(files.root)
    after, now = snapshot(files.root), read_json(files.release / "privacy.json")
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {"ledger.jsonl", "release/privacy.json", "release/README.txt",
                       "release/statement.html", "private/released.json"}
    event = teacher_votes.sanitised_event(CONFIG.sanitiser)
    assert now.pop("events") == [*claimed.pop("events"), {**event.statement(), "count": 1}]
    assert now.pop("epsilon") == published["epsilon"] > claimed.pop("epsilon") == 3.0
    assert now.pop("data_dependent_epsilon") == published["data_dependent_epsilon"]
    assert claimed.pop("data_dependent_epsilon") is None
    assert now == claimed | {"texts": now["texts"]}  # the texts are written again
    account = account_of(files)
    assert (event, 1) in account.spent()
    assert account.epsilon() <= account.target == published["epsilon"]
    # a budget of 3 and this release, all at order 8 or each by itself
    assert published["epsilon"] < 3 + epsilon_by_hand([event.rdp], [8.0])[0]


def test_the_claim_depends_on_the_budget_and_not_on_the_votes(tmp_path):
    claims = [costs.publish(finished(tmp_path / str(seed), seed=seed).root)["epsilon"]
              for seed in range(3)]
    answered = {int(kept(seed)[1].sum()) for seed in range(3)}
    assert len(answered) == 3 and len(set(claims)) == 1


def changed(files, name, value):
    """Changes a field of the configuration that the run was begun with."""
    described = read_json(files.config)
    described["config"][name] = value
    files.config.write_text(json.dumps(described))


@pytest.mark.parametrize(("name", "value"), [
    ("sanitiser", to_json(dataclasses.replace(CONFIG.sanitiser, beta=0.001))), ("sigma", 50.0)])
def test_what_is_published_is_fixed_when_the_run_begins(tmp_path, name, value):
    """By `account --data-dependent` its owner has seen the votes: a sanitiser that is chosen after
    that is a function of them, and no price covers the choice."""
    files = finished(tmp_path / "run")
    changed(files, name, value)
    before = snapshot(files.root)
    for refused in (costs.publication_price, costs.publish):
        with pytest.raises(UserError, match=r"not belong to the configuration of .*config.json"):
            refused(files.root)
    assert snapshot(files.root) == before


BESIDE = [((EpsilonDeltaEvent(2.5, 0.0, "class-counts"), 1),),
          ((EpsilonDeltaEvent(0.5, 4e-6), 2),),
          ((GaussianEvent(4.0, 1, mechanism="release that judges: x"), 3),)]


@pytest.mark.parametrize("bought", BESIDE, ids=["class counts", "with delta", "judge"])
def test_what_was_bought_beside_the_votes_is_part_of_the_bound(tmp_path, bought):
    """The run has told at least as much as its class counts: a bound below their price alone stood
    in its statement."""
    files = finished(tmp_path / "run", epsilon=9.0, bought=bought)
    read = costs.data_dependent_reading(files.root).record()["data_dependent"]["epsilon"]
    published = costs.publish(files.root)["data_dependent_epsilon"]["epsilon"]
    left = (DELTA - sum(event.delta * n for event, n in bought
                        if isinstance(event, EpsilonDeltaEvent))) / 2
    alone = composition.epsilon_of(bought, DELTA - left)
    rdp = rdp_of_votes()
    assert read == pytest.approx(alone + pate.epsilon_of(rdp, private.ORDERS, left), rel=1e-9)
    assert published > alone + pate.epsilon_of(rdp, private.ORDERS, left)


@pytest.mark.parametrize("bought", [(), ((EpsilonDeltaEvent(0.3, 0.0, "class-counts"), 1),),
                                    ((EpsilonDeltaEvent(0.2, 1e-6), 2),)])
def test_a_run_that_spent_all_it_had_can_be_published(tmp_path, bought):
    """The claim has room for the distance between drawn and ideal noise too."""
    mechanism = gpate.mechanism(CONFIG, small_datalens.SPEC)
    spent = mechanism.actual_charge(kept()[1], ())
    worst = (1 + 1e-9) * composition.epsilon_of((*bought, *mechanism.events(STEPS)), DELTA)
    files = finished(tmp_path / "run", epsilon=worst, bought=bought)
    with Ledger.open(files.ledger) as book:  # as if all had been answered
        book.charge(tuple((event, n - dict(spent)[event]) for event, n in mechanism.events(STEPS)))
        assert book.epsilon() == pytest.approx(book.target, rel=1e-8)
    claim = costs.publish(files.root)["epsilon"]
    assert account_of(files).epsilon() <= claim < worst + 1


def refuse(*args, **kwargs):
    raise RuntimeError("the system's generator failed")


def test_the_charge_is_on_disk_before_anything_is_drawn(tmp_path, monkeypatch):
    files = finished(tmp_path / "run")
    before = snapshot(files.release)
    monkeypatch.setattr(OsBits, "draw", refuse)
    with pytest.raises(RuntimeError, match="generator failed"):
        costs.publish(files.root)
    account = account_of(files)
    assert account.target > 3 and any(isinstance(event, RenyiEvent) for event, _ in account.spent())
    assert snapshot(files.release) == before
    monkeypatch.undo()
    with pytest.raises(UserError, match="charged its one sanitised release"):
        costs.publish(files.root)
    assert snapshot(files.release) == before


def test_it_is_published_once(tmp_path):
    files = finished(tmp_path / "run")
    costs.publish(files.root)
    before = snapshot(files.root)
    with pytest.raises(UserError, match="charged its one sanitised release"):
        costs.publish(files.root)
    assert snapshot(files.root) == before


@pytest.mark.parametrize("bought", [(), ((EpsilonDeltaEvent(0.3, 0.0, "class-counts"), 1),)])
def test_the_price_is_known_before_and_costs_nothing(tmp_path, monkeypatch, capsys, bought):
    """The journal is as it was too, and no vote or random bit can be read."""
    files = finished(tmp_path / "run", bought=bought)
    monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "state"))
    before = snapshot(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(private, "_steps", refuse)
        patch.setattr(OsBits, "draw", refuse)
        publish.command([str(files.root), "--dry-run", "--json"])
        priced = json.loads(capsys.readouterr().out)
        publish.command([str(files.root), "--dry-run"])
    assert "no vote was read" in capsys.readouterr().out
    assert snapshot(tmp_path) == before and not (tmp_path / "state").exists()
    published = costs.publish(files.root)
    assert priced["epsilon_without_it"] == 3.0 < priced["epsilon"] == published["epsilon"]
    with pytest.raises(UserError, match="charged its one sanitised release"):
        publish.command([str(files.root), "--dry-run"])


# Runs whose votes cannot be published: nothing is drawn, charged or written.

# Refused, with nothing drawn, charged or written.

def check_refused(files, call, text):
    before = snapshot(files.root)
    with pytest.raises(UserError, match=text) as caught:
        call(files.root)
    assert "\n" not in str(caught.value) and snapshot(files.root) == before


PUBLISHED = pytest.mark.parametrize("call", [costs.publish, costs.publication_price])
ALL = pytest.mark.parametrize("call", [costs.data_dependent_reading, costs.publish,
                                       costs.publication_price])


@ALL
@pytest.mark.parametrize("aggregate", ["mean", "sum", "topk"])
def test_runs_that_released_noisy_sums_are_refused(tmp_path, call, aggregate):
    config = dataclasses.replace(CONFIG, aggregate=aggregate)
    check_refused(finished(tmp_path / "run", config), call, "noisy sums .* gpate")


@ALL
def test_runs_of_datalens_are_refused(tmp_path, call):
    files = finished(tmp_path / "run", small_datalens.CONFIG, method="datalens")
    check_refused(files, call, "noisy sums .* datalens")


@ALL
def test_runs_without_noise_are_refused(tmp_path, call):
    config = dataclasses.replace(CONFIG, sigma=0.0)
    check_refused(finished(tmp_path / "run", config, epsilon=math.inf), call, "without noise")


@ALL
def test_runs_that_kept_no_votes_are_refused(tmp_path, call):
    files = finished(tmp_path / "run")
    files.votes.unlink()
    check_refused(files, call, "kept no votes|the votes of 0 are here")


@PUBLISHED
def test_runs_that_lost_votes_are_not_published(tmp_path, call):
    check_refused(finished(tmp_path / "run", lost=2), call,
                  f"{STEPS + 2} steps are charged and the votes of {STEPS}")


@PUBLISHED
def test_runs_whose_votes_do_not_meet_the_conditions_are_not_published(tmp_path, call):
    config = dataclasses.replace(CONFIG, sigma=20.0, sigma_ratio=4.0, bins=10,
                                 sanitiser=Sanitiser(25.0, 0.01, 10.0, 12.0, 3.0))
    files = finished(tmp_path / "run", config, epsilon=9.0)
    check_refused(files, call, "no sanitised release")


@PUBLISHED
def test_runs_that_promise_nothing_are_not_published(tmp_path, call):
    """The statement of a seeded run got a finite epsilon beside its stamp `none`."""
    files = finished(tmp_path / "run")
    path = files.release / "privacy.json"
    stated = read_json(path) | {"guarantee": "none: a seed", "epsilon": "inf",
                                "noise_source": "seeded: no privacy claim"}
    write_json(path, stated)
    check_refused(files, call, "promises nothing .'none: a seed'")
    shown = costs.data_dependent_reading(files.root).record()
    assert shown["data_independent"]["epsilon"] == math.inf
    assert costs.of_run(files.root).claimed.epsilon == math.inf


def test_a_folder_without_a_run_is_refused(tmp_path):
    check_refused(RunFolder(tmp_path), costs.data_dependent_reading, "is not a run folder")


def test_of_two_copies_one_publishes(tmp_path):
    """Each would have charged its own ledger for one of two draws."""
    files = finished(tmp_path / "run")
    copy = RunFolder(shutil.copytree(files.root, tmp_path / "copy"))
    costs.publish(copy.root)
    check_refused(files, costs.publish, "an older state or a copy")
