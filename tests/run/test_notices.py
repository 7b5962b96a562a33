"""Who is told what: lines of a run go to stdout, what is the data holder's alone to stderr."""

import dataclasses
import errno

import pytest
import runs

from dpgen_jax.accountant.events import EpsilonDeltaEvent
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.single_releases import class_counts_event
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import MonitorOptions
from dpgen_jax.data import from_arrays
from dpgen_jax.run import lifecycle, planning, spending
from dpgen_jax.run.progress import Notices, public_seconds

pytestmark = pytest.mark.usefixtures("compiled_once")
NOTE = "secret.png could not be read"


@pytest.mark.slow
def test_private_notes_never_go_to_stdout_or_into_the_run(tmp_path, capsys):
    """Whoever is sent the output of a run, or its folder, would read them there."""
    data = dataclasses.replace(from_arrays(*runs.images(), 3), private_notes=(NOTE,))
    lifecycle.run(runs.request(tmp_path / "run"), data)
    out, err = capsys.readouterr()
    assert "note: " in out and "release: " in out and NOTE not in out
    assert f"private: {NOTE}\n" in err
    assert not any(NOTE.encode() in content for content in runs.snapshot(tmp_path / "run").values())


@pytest.mark.slow
def test_times_in_public_files_are_coarse(tmp_path):
    """Finer ones are a side channel that anybody who reads the metrics could use."""
    runs.train(tmp_path / "run", steps=2)
    rows = run_folder.read(tmp_path / "run/metrics.jsonl")
    assert len(rows) == 2 and all(row["seconds"] == round(row["seconds"], 1) for row in rows)
    assert public_seconds(71.6499999) == 71.6


def test_a_failure_is_said_once_and_kept():
    said = []
    notices = Notices(said.append)
    for _ in range(3):
        with notices.attempt("writing metrics.jsonl"):
            raise OSError(errno.ENOSPC, "No space left on device")
    with notices.attempt("writing curves.png"):
        raise RuntimeError("first line\nsecond line")
    with notices.attempt("nothing"):
        pass
    with pytest.raises(KeyboardInterrupt), notices.attempt("a second Ctrl-C"):
        raise KeyboardInterrupt
    assert notices.failures == ["writing metrics.jsonl failed (No space left on device)",
                                "writing curves.png failed (first line)"]
    assert said == [f"warning: {line}" for line in notices.failures]


def test_what_was_spent_on_what_is_one_line(tmp_path):
    bought = ((EpsilonDeltaEvent(0.1, mechanism="survey (bought by 1)"), 1),)
    judge = ((EpsilonDeltaEvent(0.3, mechanism="release that judges: rounds"), 1),)
    with Ledger.create(tmp_path / "ledger.jsonl", {
            "epsilon": 1.0, "delta": 1e-5, "relation": "replace-one", "unit": "record",
            "config_hash": "", "run": "0" * 32}) as ledger:
        ledger.charge(bought)
        assert spending.spent_line(ledger, bought, 1) == (
            "spent: epsilon 0.1 of 1 at delta 1e-05, all of it on the description of the data")
        ledger.charge((*judge, (class_counts_event(0.2), 1), (EpsilonDeltaEvent(0.25), 1)))
        assert spending.spent_line(ledger, (*bought, *judge), 1) == (
            "spent: epsilon 0.85 of 1 at delta 1e-05; each part by itself: the description of the "
            "data 0.1, the release that judged 0.3, class counts 0.2, 1 training step 0.25")


def test_details_are_for_those_who_want_them():
    """Warnings on what epsilon does not cover are for everybody."""
    data = dataclasses.replace(runs.dataset(), notes=("read as usual", "not covered by epsilon: x"))
    request = runs.request(None)
    for verbose in (True, False):
        lines = []
        wanted = dataclasses.replace(request, monitor=MonitorOptions(verbose=verbose))
        declared = planning.declare(wanted, data, lines.append)
        planning.check(declared, lines.append, Notices(lines.append))
        assert lines[0].startswith("data: ") and lines[1].startswith("method: datalens")
        assert lines[2].startswith("promise: epsilon 10 at delta 0.001 for each record, its label")
        assert ("note: read as usual" in lines) == verbose
        assert "note: not covered by epsilon: x" in lines


@pytest.mark.slow
def test_earlier_runs_are_on_the_page_of_the_data_holder_only(tmp_path):
    data = runs.dataset()
    for name in ("first", "second"):
        said, held = [], []
        lifecycle.run(runs.request(tmp_path / name), data, said.append, Notices(held.append))
    page = tmp_path / "second/private/for_the_data_holder.txt"
    assert page.stat().st_mode & 0o777 == 0o600
    assert "1 run spent epsilon" in page.read_text() and any("1 run spent" in line for line in held)
    assert not any("1 run spent" in line for line in said)
    for path in (tmp_path / "second/release").iterdir():
        assert b"1 run" not in path.read_bytes(), path
    assert "no earlier run" in (tmp_path / "first/private/for_the_data_holder.txt").read_text()
