"""The audit in the report: what it came to, its curves, and nothing of what its details quote."""

import json

import pytest
import report_examples as examples

from dpgen_jax.evaluation import report as report_page
from dpgen_jax.evaluation.report import Report, page

CURVE = {"false_positives": [0.0, 0.5, 1.0], "false_negatives": [1.0, 0.3, 0.0]}
AUDIT = {
    "subject": "run /home/ada/run", "version": "0.1.0", "exit_code": 0,
    "facts": {"generator_sha256": "ab"},
    "findings": [
        {"check": "gpate: noisy sum", "verdict": "holds", "detail": "of /home/ada", "measure": "mu",
         "claimed": 3.0, "certified": 2.8125},
        {"check": "no bits of noise were used twice", "verdict": "holds", "detail": "",
         "claimed": None, "certified": None}],
    "curves": {"the whole run: promised": CURVE, "noisy sum: promised": CURVE,
               "noisy sum: certified (95 %)": CURVE}}


def shown(audit, digest="ab"):
    return page(Report(None, examples.privacy(), {}, audit=audit, generator=digest))


def test_a_page_shows_the_audit_and_no_path():
    text = shown(AUDIT)
    assert "2 checks were made by version 0.1.0: 2 holds, 0 fails" in text
    assert "Errors that an attack must make" in text and "2.812" in text
    assert "/home/ada" not in text and "another generator" not in text
    assert "The audit of the run" not in shown({})


def test_an_audit_of_another_generator_says_so():
    assert "This audit was made of another generator" in shown(AUDIT, "cd")
    assert "This audit was made of another generator" in shown(AUDIT | {"facts": {}})
    trained = shown(AUDIT | {"facts": {"canaries": 500}}, "cd")
    assert "trainings that were made for it" in trained and "another generator" not in trained


def test_what_fails_or_was_not_checked_is_named():
    findings = [{"check": "the chain", "verdict": "fails"},
                {"check": "the end", "verdict": "cannot be checked"}]
    text = shown(AUDIT | {"findings": findings})
    assert "FAILS: the chain." in text and "Not checked: the end." in text


@pytest.mark.parametrize("audit", [
    [], {"findings": 3}, {"findings": [3, {"verdict": "holds"}], "curves": []},
    AUDIT | {"curves": {"x": {"false_positives": [1], "false_negatives": "a"}}},
    AUDIT | {"curves": {"<b>: x": CURVE | {"false_negatives": [1.0, None, 0.0]}}},
    AUDIT | {"curves": {"$a: promised": CURVE}, "version": examples.HOSTILE,
             "findings": [{"check": examples.HOSTILE, "verdict": "fails", "claimed": True}]}])
def test_a_damaged_audit_does_not_harm_the_page(tmp_path, audit):
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit/audit.json").write_text(json.dumps(audit))
    assert examples.HOSTILE not in shown(report_page.read_audit(tmp_path))


def test_no_audit_is_no_audit(tmp_path):
    assert report_page.read_audit(tmp_path) == {}
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit/audit.json").write_text("{")
    assert report_page.read_audit(tmp_path) == {}
