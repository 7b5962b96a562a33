"""`account RUN --cross-check`: the epsilon of dp_accounting beside ours, from ledgers by hand."""

import json
import math

import pytest

import dpgen_jax as dg
from dpgen_jax import account
from dpgen_jax.accountant import composition, cross_check, ledger
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    RenyiEvent,
    SampledGaussianEvent,
)
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core.config import to_json
from dpgen_jax.core.terms import at_most

DELTA = 1e-5
VOTES = GaussianEvent(5000, 12_000)
LAPLACE = LaplaceEvent(20.0, 1)
COUNTS = EpsilonDeltaEvent(0.01, mechanism="class-counts")
FIXED = SampledGaussianEvent(GaussianEvent(9.0, 32), 1000, 3)


def poisson(relation):
    return PoissonGaussianEvent(GaussianEvent(200.0, 100**2), 0.01, relation)


def folder(root, *events, epsilon=math.inf):
    """A run folder that holds a ledger of these events alone."""
    root.mkdir()
    with Ledger.create(root / "ledger.jsonl", {"epsilon": epsilon, "delta": DELTA}) as book:
        for event, count in events:
            book.settle(book.reserve(((event, count),), count), ((event, count),), count)
    return root


@pytest.fixture
def checked(call, tmp_path):
    """The record that `account RUN --cross-check --json` prints of a ledger of these events."""
    def one(*events):
        root = folder(tmp_path / "run", *events)
        code, out, err = call(account, root, "--cross-check", "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return one


def test_events_that_dp_accounting_knows_have_its_epsilon_beside_ours(checked):
    events = ((VOTES, 20), (LAPLACE, 3))
    record = checked(*events)
    assert record["delta"] == DELTA
    assert [row["count"] for row in record["events"]] == [20, 3]
    assert record["events"][0]["event"] == VOTES.statement()
    rows = [*record["events"], record["all_events"]]
    for row, known in zip(rows, (events[:1], events[1:], events), strict=True):
        assert row["epsilon"] == composition.epsilon_of(known, DELTA)
        assert row["dp_accounting"] == cross_check.pld_epsilon(known, DELTA)
        assert row["accountant"] == "privacy loss distributions"
        assert row["epsilon"] == pytest.approx(row["dp_accounting"], rel=1e-3)
    assert "theirs is expected to be a little larger" in rows[0]["remark"]
    assert rows[0]["dp_accounting"] > rows[0]["epsilon"]
    assert "either may be a little larger" in rows[1]["remark"]


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_the_convention_of_poisson_sampling_is_named(checked, relation):
    (row,) = checked((poisson(relation), 10))["events"]
    assert row["dp_accounting"] == pytest.approx(row["epsilon"], rel=1e-2)
    assert {"replace-one": "under replace-one in both",
            "zero-out": "read as add-or-remove-one"}[relation] in row["remark"]


def test_sampling_without_replacement_is_compared_by_renyi(checked):
    record = checked((FIXED, 100), (VOTES, 5))
    sampled, votes = record["events"]
    assert sampled["accountant"] == record["all_events"]["accountant"] == "Renyi divergences"
    assert votes["accountant"] == "privacy loss distributions"
    assert sampled["epsilon"] == pytest.approx(sampled["dp_accounting"], rel=1e-2)
    assert "equal or larger" in sampled["remark"]


@pytest.mark.parametrize(("unknown", "name"), [
    (COUNTS, "EpsilonDeltaEvent"), (RenyiEvent(8, 0.01), "RenyiEvent")])
def test_events_without_a_second_opinion_are_named(checked, unknown, name):
    record = checked((VOTES, 20), (unknown, 1))
    known, other = record["events"]
    assert known["dp_accounting"] > 0
    for row in (other, record["all_events"]):
        assert row["dp_accounting"] is row["accountant"] is None and row["epsilon"] > 0
        assert row["remark"] == f"no second opinion: dp_accounting has no counterpart of {name}"


@pytest.mark.parametrize(("pair", "reason"), [
    ((poisson("replace-one"), LAPLACE), "no Laplace noise under replace-one"),
    ((FIXED, LAPLACE), "only the Renyi accountant"),
    ((FIXED, poisson("zero-out")), "only the Renyi accountant"),
    ((poisson("replace-one"), poisson("zero-out")), "these have two")])
def test_known_events_that_it_cannot_count_together(pair, reason):
    opinion = cross_check.second_opinion(tuple((event, 10) for event in pair), DELTA)
    assert opinion.theirs is None and reason in opinion.remark and opinion.ours > 0


def test_an_infinite_epsilon_is_infinite_in_both(checked):
    record = checked((VOTES, 20), (NonPrivateEvent(), 2))
    for row in (record["events"][1], record["all_events"]):
        assert row["epsilon"] == row["dp_accounting"] == "inf"
        assert "both are infinite" in row["remark"]
    assert record["events"][0]["epsilon"] < 1


@pytest.mark.parametrize("event", [
    GaussianEvent(1.0, 10_000), GaussianEvent(1.0, 1, total_variation=1e-4)])
def test_an_epsilon_beyond_the_grid_is_declined(checked, event):
    """Also one that is infinite since the noise departs too far from the ideal."""
    record = checked((event, 1))
    assert record["all_events"]["dp_accounting"] is None
    assert "may not fit in memory" in record["all_events"]["remark"]


def test_in_words(call, tmp_path):
    root = folder(tmp_path / "run", (VOTES, 20), (COUNTS, 1))
    code, out, err = call(account, root, "--cross-check")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"run {root}, epsilon at delta 1e-05:"
    ours = composition.epsilon_of(((VOTES, 20),), DELTA)
    assert lines[1].startswith("20 x rounded-gaussian (sigma 5000.0, sensitivity ")
    assert f"ours {at_most(ours)}, dp_accounting 0." in lines[1]
    assert lines[3] == ("1 x class-counts (epsilon 0.01, delta 0.0): ours 0.01, "
                        "dp_accounting none")
    assert lines[5].startswith("all events together: ours ") and len(lines) == 7


def test_a_ledger_without_events(checked):
    record = checked()
    assert record["events"] == [] and record["all_events"]["epsilon"] == 0
    assert record["all_events"]["dp_accounting"] == 0


def test_a_torn_ledger_is_read_as_a_resume_would_and_not_changed(call, tmp_path):
    root = folder(tmp_path / "run", (VOTES, 20))
    path = root / "ledger.jsonl"
    path.write_bytes(path.read_bytes() + b'{"events":[')  # a reservation that a crash cut
    before = path.read_bytes()
    code, out, _ = call(account, root, "--cross-check", "--json")
    (row,) = json.loads(out)["events"]
    assert code == 0 and row["count"] == 40  # the torn line is charged like the longest so far
    assert row["epsilon"] == ledger.account(ledger.read(path)).epsilon()
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["broken", "missing"])
def test_a_ledger_that_cannot_be_read_is_one_line(call, tmp_path, damage):
    root = folder(tmp_path / "run", (VOTES, 20))
    path = root / "ledger.jsonl"
    if damage == "broken":
        path.write_bytes(path.read_bytes().replace(b'"count":20', b'"count":2', 1))
    else:
        path.unlink()
    code, out, err = call(account, root, "--cross-check")
    assert (code, out, err.count("\n")) == (2, "", 1) and str(path.parent) in err


def test_only_one_mode_at_a_time(call, tmp_path):
    root = folder(tmp_path / "run", (VOTES, 20))
    code, _, err = call(account, root, "--cross-check", "--data-dependent")
    assert (code, err.count("\n")) == (2, 1) and "one of --cross-check, --data-dependent" in err


def test_the_call_gives_what_the_command_prints(call, tmp_path):
    root = folder(tmp_path / "run", (VOTES, 20), epsilon=3.0)
    spent = dg.account(root)
    assert spent.events == ((VOTES, 20),) and spent.steps == 20
    assert spent.epsilon == composition.epsilon_of(((VOTES, 20),), DELTA)
    assert spent.claimed.epsilon == math.inf and spent.guarantee.startswith("none: ")
    cost = dg.account("datalens", preset="mnist-eps1", steps=86)
    for said, words in ((spent, [root]), (cost, ["datalens", "--preset", "mnist-eps1", "--steps",
                                                 86])):
        printed = json.loads(call(account, *words, "--json")[1])
        assert json.loads(json.dumps(to_json(said.record()))) == printed


@pytest.mark.parametrize(("what", "fields", "said"), [
    ("datalenss", {}, "did you mean 'datalens'"), ("RUN", {"epsilon": 1.0}, "epsilon is for"),
    ("datalens", {"stepps": 3}, "did you mean 'steps'"),
    ("datalens", {"steps": "many"}, "steps is 'many'")])
def test_a_call_that_means_nothing_is_one_clear_line(tmp_path, what, fields, said):
    where = folder(tmp_path / "run", (VOTES, 20)) if what == "RUN" else what
    with pytest.raises(dg.UserError, match=said):
        dg.account(where, **fields)
