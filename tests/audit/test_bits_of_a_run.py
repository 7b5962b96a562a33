"""The random bits of a run, as the audit of its folder sees them."""

import math
from unittest.mock import patch

import numpy as np
import pytest
import runs

from dpgen_jax.aggregation import noise as sources
from dpgen_jax.audit.findings import Verdict
from dpgen_jax.audit.folder import of_folder, spending
from dpgen_jax.core.config import Budget

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("journal", "compiled_once")]


def verdicts(root):
    """{check: finding} of those that do not hold, and the exit code."""
    report = of_folder(root)
    return {f.check: f for f in report.findings if f.verdict != Verdict.HOLDS}, report.exit_code


def tiled(shape):
    """The planted fault: all rows of a message share the bits of the first one."""
    bits = draw(shape)
    return np.broadcast_to(bits[:, :1], shape) if len(shape) == 4 else bits


draw = sources.draw_bits


def test_rows_of_a_round_that_share_their_bits_are_found_in_the_folder(tmp_path):
    with patch.object(sources, "draw_bits", tiled):
        runs.train(tmp_path / "run", steps=2)
    found, code = verdicts(tmp_path / "run")
    assert [*found] == [spending.ONCE] and code == 5
    assert "in round 0" in found[spending.ONCE].detail


def test_without_its_digests_nobody_can_tell_whether_bits_were_used_twice(tmp_path):
    runs.train(tmp_path / "run", steps=2)
    assert verdicts(tmp_path / "run") == ({}, 0)
    path = tmp_path / "run/private/noise_digests.txt"
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 2
    for left in (1, 0):  # a part of them tells nothing of the others
        path.write_text("".join(lines[:left]))
        found, code = verdicts(tmp_path / "run")
        assert [*found] == [spending.ONCE] and code == 6
        assert f"no digest of {2 - left} other rounds" in found[spending.ONCE].detail
    path.unlink()
    found, code = verdicts(tmp_path / "run")
    assert [*found] == [spending.ONCE] and code == 6
    assert "is missing" in found[spending.ONCE].detail


@pytest.mark.parametrize(("options", "said"), [
    pytest.param({"seed": 3}, "made from a seed", id="seeded"),
    pytest.param({"budget": Budget(math.inf, 1e-3), "sigma": 5.0}, "nothing bounds",
                 id="infinite epsilon", marks=pytest.mark.long),
    pytest.param({"budget": Budget(math.inf, 1e-3), "sigma": 0.0}, "nothing bounds",
                 id="no noise")])
def test_a_run_that_promises_nothing_fails_no_check_and_is_no_pass(tmp_path, options, said):
    runs.train(tmp_path / "run", steps=2, **options)
    found, code = verdicts(tmp_path / "run")
    assert code == 6 and [*found] == ["privacy.json promises something"]
    assert said in found["privacy.json promises something"].detail
