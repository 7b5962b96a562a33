"""Data-dependent accounting of runs of PATE-GAN: what is kept, what is read, what is refused."""

import dataclasses
import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
import small_datalens
import small_pategan as small
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax import account
from dpgen_jax.accountant import composition, pate
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import DiscreteLaplace, RoundedGaussian
from dpgen_jax.aggregation.teacher_votes import Majority
from dpgen_jax.core.config import Budget, to_json
from dpgen_jax.core.run_folder import RunFolder, read_json, write_json
from dpgen_jax.core.terms import ProtectedUnit
from dpgen_jax.core.types import Private, UserError, unseal
from dpgen_jax.data import Dataset
from dpgen_jax.methods import pategan
from dpgen_jax.private import kept_votes as private
from dpgen_jax.release.guarantee import Facts, Protected, statement
from dpgen_jax.run import costs, lifecycle, loop

DELTA, STEPS, ROWS, TEACHERS = 1e-5, 6, 20, 101
CONFIG = pategan.Config(
    teachers=TEACHERS,
    batch=ROWS,
    sigma=40.0,
    steps=STEPS,
    decode="majority",
    s_hidden=4,
    memory=2,
    s_steps=1,
    g_steps=1,
    d_steps=1,
    d_steps_first=1,
    generator=small_datalens.CONFIG.generator,
    discriminator=small_datalens.CONFIG.discriminator,
)
BOTH = pytest.mark.parametrize("noise", ["gaussian", "laplace"])


# What is kept.

@settings(deadline=None)
@given(st.integers(-50, 250), st.integers(1, 200))
def test_the_majority_is_reached_with_the_votes_that_are_needed(noised, units):
    built = dataclasses.replace(pategan.mechanism(CONFIG, small_datalens.SPEC), n_units=units)
    assert bool(Majority()(jnp.array(noised), units)) == (noised >= built.votes_needed)


@BOTH
def test_votes_are_kept_of_majorities_alone(noise):
    for decode, kept in (("majority", True), ("share", False)):
        config = dataclasses.replace(CONFIG, noise=noise, decode=decode)
        assert pategan.mechanism(config, small_datalens.SPEC).keeps_votes == kept
    assert not pategan.mechanism(
        pategan.Config(batch=4, sigma=1.0), small_datalens.SPEC
    ).keeps_votes


# Runs, written by hand.

def finished(root, votes, config=CONFIG, lost=0):
    """The folder of a run that kept these votes int [steps, B] and lost those of further steps."""
    files, mechanism = RunFolder(root), pategan.mechanism(config, small_datalens.SPEC)
    files.private.mkdir(parents=True)
    files.release.mkdir()
    write_json(
        files.config, to_json({"method": "pategan", "spec": small_datalens.SPEC, "config": config})
    )
    with Ledger.create(files.ledger, {"epsilon": 50.0, "delta": DELTA}) as book:
        events = mechanism.events(len(votes))
        ticket = book.reserve(events, len(votes))
        sums = np.asarray(votes, np.int32)[:, :, None]
        if mechanism.keeps_votes:
            private.append(files.votes, Private(jnp.asarray(sums)),
                           np.zeros((len(votes), 0), np.int32))
        book.settle(ticket, events, len(votes))
        if lost:
            book.reserve(mechanism.events(lost), lost)
        write_json(files.release / "privacy.json", to_json(statement(
            Facts(method="pategan", preset=None, steps=STEPS, noise_source="os-entropy"),
            book, mechanism.relation, Protected(ProtectedUnit(), {"records": 9}))))
    return root


def votes_of(seed=0, mean=0.8):
    return np.random.default_rng(seed).binomial(TEACHERS, mean, (STEPS, ROWS))


def epsilon_by_hand(rdp, delta=DELTA):
    orders = private.ORDERS
    return np.min(rdp + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1))


def each_count(config):
    """[teachers + 1, A]: what a query costs with so many votes."""
    noise = (DiscreteLaplace if config.noise == "laplace" else RoundedGaussian)(config.sigma)
    return pate.count_test_rdp(config.teachers // 2 + 1, config.teachers, noise.log_tail,
                               private.ORDERS)


@BOTH
@pytest.mark.parametrize("lost", [0, 2])
def test_the_reading_is_that_of_the_votes(tmp_path, noise, lost):
    config, votes = dataclasses.replace(CONFIG, noise=noise), votes_of()
    read = costs.data_dependent_reading(finished(tmp_path / "run", votes, config, lost)).record()
    each = each_count(config)
    rdp = each[votes.ravel()].sum(0) + lost * ROWS * each.max(0)
    assert read["data_dependent"]["epsilon"] == pytest.approx(epsilon_by_hand(rdp), rel=1e-12)
    assert read["data_dependent"]["kind"].startswith("ex-post")
    assert "AS PRIVATE AS THE RECORDS" in read["warning"]
    agreed = np.maximum(votes, TEACHERS - votes).mean() / TEACHERS
    assert read["votes"] == pytest.approx({
        "most agreed bin": agreed, "second": 1 - agreed, "answered": 1.0, "queries": STEPS * ROWS,
        "steps charged without votes": lost})
    spent = composition.epsilon_of(
        pategan.mechanism(config, small_datalens.SPEC).events(STEPS + lost), DELTA
    )
    assert read["data_independent"]["spent"] == spent
    assert lost or read["data_dependent"]["epsilon"] < spent


@BOTH
def test_unanimous_votes_cost_far_less(tmp_path, noise):
    """101 votes against noise of 7. What ties cost is in doubt by the conversion from Renyi alone,
    which the ledger does not need."""
    config = dataclasses.replace(CONFIG, noise=noise, sigma=7.0)
    tied, agreed = (costs.data_dependent_reading(finished(tmp_path / name, votes, config)).record()
                    for name, votes
                    in (("tied", np.full((STEPS, ROWS), 51)),
                        ("agreed", np.tile([0, TEACHERS], (STEPS, ROWS // 2)))))
    assert agreed["data_dependent"]["epsilon"] < 0.1 < 2 < tied["data_dependent"]["epsilon"]
    assert tied["data_dependent"]["epsilon"] < 1.1 * tied["data_independent"]["spent"]


@BOTH
def test_the_command_shows_and_does_not_publish(tmp_path, capsys, noise):
    root = finished(tmp_path / "run", votes_of(), dataclasses.replace(CONFIG, noise=noise))
    before = runs.snapshot(root)
    account.command([str(root), "--data-dependent", "--json"])
    assert json.loads(capsys.readouterr().out)["votes"]["queries"] == STEPS * ROWS
    with pytest.raises(UserError, match="Confident-GNMax only") as caught:
        account.command([str(root), "--sanitise"])
    assert "\n" not in str(caught.value) and runs.snapshot(root) == before


@BOTH
@pytest.mark.parametrize("call", [costs.data_dependent_reading, costs.publish])
def test_shares_are_refused(tmp_path, call, noise):
    """The count itself was released: no theorem about a winner is about it."""
    config = dataclasses.replace(CONFIG, noise=noise, decode="share")
    with pytest.raises(UserError, match="decode majority.* noisy sums .* pategan"):
        call(finished(tmp_path / "run", votes_of(), config))


@pytest.mark.parametrize(("spoil", "text"), [
    (lambda path: path.unlink(), "kept no votes"),
    (lambda path: path.write_bytes(np.full(ROWS, TEACHERS + 1, "<i4").tobytes()), "damaged"),
    (lambda path: path.write_bytes(np.full(ROWS, -1, "<i4").tobytes()), "damaged")])
def test_votes_that_are_not_there_are_named(tmp_path, spoil, text):
    root = finished(tmp_path / "run", votes_of())
    spoil(RunFolder(root).votes)
    with pytest.raises(UserError, match=text):
        costs.data_dependent_reading(root)


# A run from records to the reading; what teachers and generator learn is left out.

BUILD, RELEASE, SUMS = pategan.build, loop.release, []
RUNTIME = dataclasses.replace(runs.RUNTIME, checkpoint_minutes=5)


@functools.cache
def idle(config, spec, runtime=RUNTIME):
    method = BUILD(config, spec, runtime)

    def absorb(key, public, query, released):
        step = dataclasses.replace(public.generator, step=public.step + 1)
        return dataclasses.replace(public, generator=step), {"told": jnp.mean(released)}

    return dataclasses.replace(method, learn=lambda key, unit, own, query: unit, absorb=absorb)


def spied(mechanism, bits, total):
    jax.debug.callback(lambda sums: SUMS.append(np.array(sums)[:, 0]), unseal(total))
    return RELEASE(mechanism, bits, total)


@pytest.mark.slow
def test_a_run_keeps_the_votes_whose_majority_it_releases(tmp_path, monkeypatch):
    """Steps are found from the budget; a run that keeps votes makes no more of them than others."""
    monkeypatch.setattr(pategan, "build", idle)
    monkeypatch.setattr(loop, "release", spied)
    SUMS.clear()
    config = dataclasses.replace(small.CONFIG, teachers=10, decode="majority", steps=None)
    files, said = RunFolder(tmp_path / "run"), []
    lifecycle.run(
        lifecycle.Resolved(
            "pategan", "table", config, Budget(4.0, 1e-3), RUNTIME, files.root, False, 1
        ),
        Dataset("people", small.TABLE, *small.rows(60)),
        said.append,
    )
    jax.effects_barrier()
    planned = read_json(files.config)["config"]["steps"]
    kept = np.frombuffer(files.votes.read_bytes(), "<i4").reshape(-1, 4)
    assert len(kept) == planned > 2 and not any("stopped" in line for line in said)
    np.testing.assert_array_equal(kept, SUMS)
    assert len(np.unique(kept)) > 2
    read = costs.data_dependent_reading(files.root).record()
    assert read["data_dependent"]["epsilon"] == pytest.approx(
        epsilon_by_hand(each_count(config)[kept.ravel()].sum(0), 1e-3), rel=1e-12)
    assert 0 < read["data_dependent"]["epsilon"] < read["data_independent"]["spent"] <= 4
