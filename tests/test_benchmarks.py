"""The benchmarks run at toy size and say what they measured; no test here is about speed."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from benchmarks import common, flops, steps
from dpgen_jax import presets
from dpgen_jax.nets.image import DiscriminatorNet

TOY = ["--preset", "glyphs", "--teachers", "2", "--chunk", "1", "--devices", "1", "--beside", "0",
       "--matmul", "64"]
QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}


def mnist():
    return presets.get("datalens", "mnist-eps1")[1]


def test_published_operations_on_mnist():
    macs = 196 * 25 * 11 * 11 + 49 * 25 * 21 * 42 + 2068 * 256 + 266
    assert flops.published_macs(DiscriminatorNet(), mnist().spec) == macs
    assert flops.published_flops(mnist().config, mnist().spec, 15) == 2 * macs * 210


def test_fewer_records_than_the_batch_cost_less():
    config = dataclasses.replace(mnist().config, batch=30)
    macs = flops.published_macs(config.discriminator, mnist().spec)
    assert flops.published_flops(config, mnist().spec, 15) == 2 * macs * (2 * 3 * 30 + 60)


def test_steps_writes_and_prints_a_record(tmp_path):
    out = tmp_path / "steps.json"
    done = subprocess.run([sys.executable, "-m", "benchmarks.steps", *TOY, "--json", "--out", out],
                          cwd=common.ROOT, env={**os.environ, **QUICK}, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    assert json.loads(done.stdout) == record
    assert set(record) == {"benchmark", "command", "machine", "versions", "git", "seeds", "date",
                           "results"}
    assert record["benchmark"] == "steps" and record["seeds"] == [0]
    assert record["command"] == " ".join(["python -m benchmarks.steps", *TOY, "--json"])
    case, = record["results"]["cases"]
    assert len(case["seconds_per_step"]["all"]) == 3
    assert case["compilations"] == 1
    assert case["records_per_teacher"] == 20
    assert case["published_flops_per_step"] == 2 * case["published_flops_per_teacher"]
    assert 0 < case["state_bytes"] < case["peak_resident_bytes"]
    for share in ("fraction_of_matmul_rate", "aggregation_share", "generator_share"):
        assert case[share] > 0
    assert "glyphs" in steps.table(record)


def test_the_plain_loop_computes_what_the_library_computes():
    case = {"kind": "plain", "preset": "glyphs", "teachers": 2, "chunk": 1, "devices": 1}
    measured = common.apart(steps.MODULE, case, QUICK)
    assert set(measured["seconds_per_step"]) == {"shard_map", "plain"}
    assert measured["largest_difference_of_generator_weights"] < 1e-4


def test_a_configuration_that_fails_says_why_and_is_left_out(capsys):
    args = steps.parse([*TOY[:-4], "--beside", "0"])
    case = steps.plan(args)[0][0] | {"devices": 3}
    failed = common.apart(steps.MODULE, case, {"JAX_NUM_CPU_DEVICES": "1"})
    assert failed == {"error": "3 devices were asked for, 1 are there"}
    failed = case | failed
    assert steps.linearity([failed]) == []
    record = common.record("steps", [], [0], {"cases": [failed], "linearity": [],
                                              "side_by_side": []})
    assert "failed: step, glyphs, 2 teachers" in steps.table(record)


def test_linearity_compares_numbers_of_teachers_of_one_layout():
    case = {"preset": "p", "chunk": 1, "devices": 1}
    entry, = steps.linearity([
        case | {"teachers": n, "seconds_per_teacher": 6 / n + 2.0,
                "seconds_per_teacher_without_generator": 2.0} for n in (6, 3)])
    assert entry["teachers"] == [3, 6]
    assert entry["seconds_per_teacher_last_to_first"] == pytest.approx(3 / 4)
    assert entry["seconds_per_teacher_without_generator_last_to_first"] == 1


def test_ways_are_timed_in_turns_and_warm_up_is_not_counted():
    calls = []
    timed = common.side_by_side({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")},
                                repeats=3, warmup=1)
    assert "".join(calls) == "abbaabba"
    assert all(len(t["all"]) == 3 and t["median"] in t["all"] for t in timed.values())


def test_a_median_of_fewer_than_three_steps_is_refused(capsys):
    with pytest.raises(SystemExit):
        steps.parse(["--repeats", "2"])
    assert "at least 3" in capsys.readouterr().err
