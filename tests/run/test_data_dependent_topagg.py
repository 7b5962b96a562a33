"""Data-dependent accounting of runs of DataLens: what is kept, what is shown, and to whom."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
import small_datalens
from test_data_dependent import epsilon_by_hand, finished, snapshot

from dpgen_jax import account
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.accountant.pate import TopAgg
from dpgen_jax.core.config import Budget
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.types import Private, UserError, unseal
from dpgen_jax.data import Dataset
from dpgen_jax.methods import datalens
from dpgen_jax.private import kept_votes as private
from dpgen_jax.run import costs, lifecycle, loop

pytestmark = pytest.mark.slow

STEPS = 5
CONFIG = dataclasses.replace(small_datalens.CONFIG, decode="threshold", threshold=0.5, steps=STEPS)
ROW = TopAgg(11, 10, 6, 30.0)


def kept(seed=0):
    """Sums [STEPS, B, D] of eleven teachers."""
    return np.random.default_rng(seed).integers(-11, 12, (STEPS, 4, 64), np.int32)


@pytest.fixture
def run(tmp_path):
    """The folder of a run that kept the sums of all steps, and lost two more."""
    files = finished(tmp_path / "run", CONFIG, epsilon=50.0, method="datalens")
    mechanism = datalens.mechanism(CONFIG, small_datalens.SPEC)
    with Ledger.open(files.ledger) as ledger:
        ticket = ledger.reserve(mechanism.events(STEPS), STEPS)
        private.append(files.votes, Private(jnp.asarray(kept())), np.zeros((STEPS, 0), np.int32))
        ledger.settle(ticket, mechanism.events(STEPS), STEPS)
        ledger.reserve(mechanism.events(2), 2)
    return files


def test_sums_are_kept_where_signs_alone_are_released():
    for fields, keeps in (({}, True), ({"decode": "mean"}, False), ({"aggregate": "d2p"}, False),
                          ({"aggregate": "fetchsgd"}, False)):
        config = dataclasses.replace(CONFIG, **fields)
        assert datalens.mechanism(config, small_datalens.SPEC).keeps_votes == keeps


def test_the_reading_is_that_of_the_sums(run):
    read = costs.data_dependent_reading(run.root).record()
    each = ROW.by_entries(kept().reshape(-1, 64), private.ORDERS)
    worst = 4 * ROW.independent(private.ORDERS)
    epsilon, order = epsilon_by_hand(each.sum(0) + 2 * worst, private.ORDERS)
    assert read["data_dependent"]["epsilon"] == pytest.approx(epsilon, rel=1e-12)
    assert read["data_dependent"]["order"] == pytest.approx(order)
    assert "AS PRIVATE AS THE RECORDS" in read["warning"]
    assert read["votes"]["queries"] == STEPS * 4
    assert read["votes"]["steps charged without votes"] == 2
    assert read["votes"]["entries that pass without noise"] == np.mean(np.abs(kept()) >= 6)
    by_round = read["by round"]
    assert {len(values) for values in by_round.values()} == {STEPS}
    assert by_round["theorem"] == [None] * STEPS  # 64 entries: it says nothing
    for ours, worse in zip(by_round["entries"], by_round["independent"], strict=True):
        assert 0 < ours < worse
    assert by_round["entries"][-1] == pytest.approx(
        epsilon_by_hand(each.sum(0), private.ORDERS)[0], rel=1e-12)
    assert by_round["log_peak"] == pytest.approx(
        ROW.laws(kept()).max(-1).sum(-1).max(1).tolist(), rel=1e-12)


def test_nothing_of_it_is_written_published_or_charged(run, capsys):
    before = snapshot(run.root)
    account.command([str(run.root), "--data-dependent", "--json"])
    assert json.loads(capsys.readouterr().out)["by round"]["entries"]
    account.command([str(run.root), "--data-dependent"])
    said = capsys.readouterr().out
    assert "Theorems 4 and 5 of DataLens say nothing" in said and "by round" not in said
    with pytest.raises(UserError, match="for Confident-GNMax only"):
        costs.publish(run.root)
    assert snapshot(run.root) == before


def test_a_file_without_a_whole_round_is_refused(run):
    run.votes.write_bytes(b"torn")
    with pytest.raises(UserError, match="no whole round; this run kept no votes"):
        costs.data_dependent_reading(run.root)


def test_sums_that_teachers_cannot_have_are_refused(run):
    run.votes.write_bytes(np.full(STEPS * 4 * 64, 12, "<i4").tobytes())
    with pytest.raises(UserError, match="damaged"):
        costs.data_dependent_reading(run.root)


SUMS, RELEASE = [], loop.release


def spied(mechanism, bits, total):
    jax.debug.callback(lambda sums: SUMS.append(np.array(sums)), unseal(total))
    return RELEASE(mechanism, bits, total)


def test_a_run_keeps_the_sums_whose_signs_it_releases(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "release", spied)
    SUMS.clear()
    files = RunFolder(tmp_path / "run")
    config = dataclasses.replace(CONFIG, sigma=None, steps=3)
    lifecycle.run(
        lifecycle.Resolved("datalens", "glyphs", config, Budget(4.0, 1e-3), runs.RUNTIME,
                          files.root, False, 1),
        Dataset("random", small_datalens.SPEC, *small_datalens.images(60)), lambda line: None)
    jax.effects_barrier()
    sums = np.frombuffer(files.votes.read_bytes(), "<i4").reshape(-1, 4, 64)
    np.testing.assert_array_equal(sums, SUMS)
    assert len(sums) == 3 and np.abs(sums).max() > 1
    read = costs.data_dependent_reading(files.root).record()
    assert 0 < read["data_dependent"]["epsilon"] < read["by round"]["independent"][-1]
    assert read["votes"]["steps charged without votes"] == 0
    private_values = json.dumps(read["by round"]["entries"])[1:20]
    released = snapshot(files.release).values()
    assert not any(private_values.encode() in content for content in released)
