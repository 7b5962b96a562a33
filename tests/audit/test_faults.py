"""Every planted fault is caught by the attacks that it names, and no attack gives a false alarm."""

import subprocess
import sys

import planted
import pytest
import runs

QUICK = ("batch-not-composed", "charge-after-the-draw", "settled-above-what-was-answered",
         "fixed-size-charged-as-poisson", "bits-twice-across-devices",
         "class-counts-without-a-charge")


def lines(names):
    said = []
    report = planted.all_of(names, said.append)
    return report, "\n".join(said)


@pytest.mark.slow
def test_the_six_quickest_are_caught():
    report, said = lines(QUICK)
    assert report.last_line == "6 caught, 0 missed" and report.exit_code == 0, said


@pytest.mark.slow
def test_another_name_is_refused_with_the_nearest_one(tmp_path):
    """By the command, which finds the faults from any folder."""
    done = subprocess.run(
        [sys.executable, "-m", "dpgen_jax.audit", "--faults", "--only", "noise-halvd"], text=True,
        capture_output=True, cwd=tmp_path, env=runs.environment())
    assert "did you mean 'noise-halved'" in done.stderr and done.returncode == 2


@pytest.mark.slow
def test_a_fault_that_no_attack_catches_is_missed(monkeypatch):
    monkeypatch.setitem(planted.ATTACKS, "secret draws", lambda: "")
    report, said = lines(["fixed-size-charged-as-poisson"])
    assert report.last_line == "0 caught, 1 missed" and report.exit_code == 5
    assert "MISSED: Every sample has the size" in said
    monkeypatch.setitem(planted.ATTACKS, "secret draws", lambda: "always")
    report, said = lines(["fixed-size-charged-as-poisson"])
    assert report.exit_code == 5 and "a false alarm: always" in said


@pytest.mark.long
def test_all_are_caught_by_the_command(tmp_path):
    done = subprocess.run([sys.executable, "-m", "dpgen_jax.audit", "--faults"], text=True,
                          capture_output=True, cwd=tmp_path, env=runs.environment())
    assert done.stdout.splitlines()[-1].endswith(" caught, 0 missed") and done.returncode == 0, (
        done.stdout, done.stderr)
