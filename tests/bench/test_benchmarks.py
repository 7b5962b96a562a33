"""The benchmarks run at toy size and say what they measured; no test here is about speed."""

import dataclasses
import json

import pytest

from benchmarks import common, steps
from dpgen_jax import presets
from dpgen_jax.nets.image import DiscriminatorNet

pytestmark = pytest.mark.long

TOY = ["--preset", "glyphs", "--teachers", "2", "--chunk", "1", "--devices", "1", "--beside", "0",
       "--matmul", "64"]
AS_IN_A_RUN = "--xla_backend_optimization_level=0"


def mnist():
    return presets.get("datalens", "mnist-eps1")[1]


def test_published_operations_on_mnist():
    macs = 196 * 25 * 11 * 11 + 49 * 25 * 21 * 42 + 2068 * 256 + 266
    assert steps.published_macs(DiscriminatorNet(), mnist().spec) == macs
    assert steps.published_flops(mnist().config, mnist().spec, 15) == 2 * macs * 210


def test_a_training_that_was_resumed_took_all_its_starts():
    """A training of 3.5 hours in two starts was shown as the 1.7 hours of its second."""
    rows = [{"seconds": at} for at in (60.0, 80.0, 100.0, 50.0, 90.0, 5.0)]
    assert common.training_seconds(rows) == 100 + 90 + 5
    assert common.training_seconds(rows[:1]) == 60


def test_fewer_records_than_the_batch_cost_less():
    config = dataclasses.replace(mnist().config, batch=30)
    macs = steps.published_macs(config.discriminator, mnist().spec)
    assert steps.published_flops(config, mnist().spec, 15) == 2 * macs * (2 * 3 * 30 + 60)


def test_steps_writes_and_prints_a_record(tmp_path, capsys):
    out = tmp_path / "steps.json"
    assert steps.main([*TOY, "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert capsys.readouterr().out == f"{out}\n"
    assert set(record) == {"benchmark", "command", "machine", "versions", "git", "seeds", "date",
                           "results"}
    assert record["benchmark"] == "steps" and record["seeds"] == [0]
    assert record["command"] == " ".join(["python -m benchmarks.steps", *TOY])
    case, = record["results"]["cases"]
    assert len(case["seconds_per_step"]["all"]) == 3
    assert case["compilations"] == 1
    assert case["records_per_teacher"] == 20
    assert case["published_flops_per_step"] == 2 * case["published_flops_per_teacher"]
    assert 0 < case["state_bytes"] < case["peak_resident_bytes"]
    for share in ("fraction_of_matmul_rate", "aggregation_share", "generator_share"):
        assert case[share] > 0


def test_the_plain_loop_computes_what_the_library_computes():
    """With the emitters of a run: those of conftest.py round the two programs differently, and a
    single vote that flips moves the generator by more."""
    case = {"kind": "plain", "preset": "glyphs", "teachers": 2, "chunk": 1, "devices": 1}
    measured = common.apart(steps.MODULE, case, {"XLA_FLAGS": AS_IN_A_RUN})
    assert set(measured["seconds_per_step"]) == {"shard_map", "plain"}
    assert measured["largest_difference_of_generator_weights"] < 1e-4


def test_pmap_computes_what_shard_map_computes():
    measured = steps.measure_beside(steps.Case(
        kind="parallel", preset="glyphs", teachers=3, chunk=1, devices=2))
    assert set(measured["ratio"]) == {"pmap / shard_map"}
    assert measured["largest_difference_of_generator_weights"] == 0


def test_a_record_can_be_written_to_a_folder(tmp_path):
    record = common.record("steps", [], [0], {})
    assert common.write(record, tmp_path) == tmp_path / "steps.json"
    assert common.write(record, tmp_path / "new/other.json").is_file()


@pytest.mark.slow
def test_a_configuration_that_fails_says_why_and_is_left_out():
    args, _ = steps.parse([*TOY[:-4], "--beside", "0"])
    case = steps.plan(args)[0][0] | {"devices": 3}
    failed = common.apart(steps.MODULE, case, {"JAX_NUM_CPU_DEVICES": "1"})
    assert failed == {"error": "3 devices were asked for, 1 are there"}
    assert steps.linearity([case | failed]) == []


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
