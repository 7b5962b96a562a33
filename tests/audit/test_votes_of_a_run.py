"""Votes that a run kept, as the audit of its folder sees them: missing ones tell nothing."""

import pytest
import test_data_dependent

from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder import spending
from dpgen_jax.audit.folder.reading import opened


def checked(root):
    """The findings about the votes; the folder of the test has no rows of metrics."""
    checks = Findings()
    spending.against_releases(opened(root), checks)
    return [(finding.verdict, finding.detail) for finding in checks.made
            if "metrics.jsonl" not in finding.check]


@pytest.mark.slow
def test_what_missing_votes_answered_is_not_called_charged(tmp_path):
    files = test_data_dependent.finished(tmp_path / "run")
    ((verdict, _),) = checked(files.root)
    assert verdict == Verdict.HOLDS
    whole, steps = files.votes.read_bytes(), test_data_dependent.STEPS
    for rounds in (steps - 1, 0):
        files.votes.write_bytes(whole[:len(whole) * rounds // steps])
        ((verdict, detail),) = checked(files.root)
        assert verdict == Verdict.UNCHECKED
        assert f"votes of {rounds} rounds, and {steps} were made" in detail
    files.votes.unlink()
    ((verdict, _),) = checked(files.root)
    assert verdict == Verdict.UNCHECKED
