"""The tools for long runs: what they count, where they go on, and what they would notice."""

import json

import pytest
from ledgers import HEADER, block

from benchmarks import fuzz, killing, kills
from benchmarks.fuzzing.cases import falls_short, longest_prefix, valid
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.single_releases import class_counts_event
from dpgen_jax.core.errors import UserError, one_line


@pytest.mark.long
def test_fuzzing_counts_keeps_failures_and_goes_on(tmp_path):
    out = tmp_path / "fuzz.json"
    fuzz.main(["--minutes", "0.03", "--reader", "planted", "--out", str(out)])
    first = json.loads(out.read_text())["results"]
    fuzz.main(["--minutes", "0.03", "--reader", "planted", "--out", str(out)])
    record = json.loads(out.read_text())
    counts = record["results"]["readers"]["planted"]
    assert counts["cases"] == counts["next_seed"] == record["results"]["cases"] > first["cases"] > 0
    assert sum(counts["outcomes"].values()) == counts["cases"]
    kinds = {failure["sort"]: failure for failure in counts["failures"]}
    assert counts["failed"] == sum(f["times"] for f in kinds.values()) > 0
    failure = kinds["KeyError: 'raise'"]
    fuzz.main(["--case", "planted", str(failure["seed"])])
    assert record["machine"] and record["versions"] and record["seeds"]


def test_a_line_of_an_error_is_one_line():
    assert one_line(UserError("a\nb\udcff\x1b[0m")) == r"a\nb\udcff\x1b[0m"
    long = one_line(UserError("x" * 5000 + "the mend"))
    assert len(long) < 1100 and long.endswith("the mend")


@pytest.mark.parametrize("change", ["none", "step", "event"])
def test_a_ledger_that_forgets_is_noticed(change):
    totals = {"steps": 5, "epsilon": "1.0", "counts": {"a": 5}}
    other = {"none": {}, "step": {"steps": 4}, "event": {"counts": {"a": 4, "b": 9}}}[change]
    assert falls_short(totals, totals | other) == (change != "none")


def test_the_longest_prefix_is_of_whole_lines():
    data = valid(1)
    lines = data.splitlines(keepends=True)
    assert longest_prefix(data, data) == data == longest_prefix(data, data[:-1])
    assert longest_prefix(data, data[:len(lines[0]) + 9]) == lines[0]
    assert longest_prefix(data, lines[0] + lines[2]) == lines[0]
    assert longest_prefix(data, b"") == b""


# --- kills

@pytest.fixture
def folder(tmp_path):
    """Six steps charged of which one is open, and class counts; all of them drawn."""
    (tmp_path / "run").mkdir()
    with Ledger.create(tmp_path / "run/ledger.jsonl", HEADER) as book:
        book.charge(((class_counts_event(0.01), 1),))
        book.settle(book.reserve(block(5), 5), block(5), 5)
        book.reserve(block(1), 1)
    (tmp_path / "audit").write_text("mark a\ncounts\ndraw 0 5\nmark b\ndraw 5 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("", None),
        ("draw 6 1\n", "7 steps were drawn, 6 charged"),
        ("draw 5 1\n", "a turn was drawn twice"),
        ("counts\n", "class counts were bought 2 times, charged"),
    ],
)
def test_what_was_drawn_and_not_charged_is_noticed(folder, more, fault):
    with (folder / "audit").open("a") as audit:
        audit.write(more)
    found = killing.under_counted(folder / "run", folder / "audit")
    assert found == [] if fault is None else any(fault in line for line in found)


def test_a_missing_ledger_is_noticed(folder):
    (folder / "run/ledger.jsonl").unlink()
    assert "no ledger" in killing.under_counted(folder / "run", folder / "audit")[0]
    (folder / "audit").write_text("mark a\n")
    assert killing.under_counted(folder / "run", folder / "audit") == []


@pytest.mark.long
@pytest.mark.parametrize("case", ["gpate-votes", "gswgan-warm"])
def test_killed_runs_go_on(tmp_path, case):
    out = tmp_path / "kills.json"
    kills.main(["--times", "3", "--case", case, "--out", str(out)])
    found = json.loads(out.read_text())["results"]
    assert found["kills"] >= 3 and found["folders"] == found["released"] + found["budget_spent"]
    assert not found["lost"] and not found["faults"]
