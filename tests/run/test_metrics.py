"""metrics.jsonl: strict JSON, whole lines, and steps that only rise over resumes."""

import builtins
import json
import math
import os
import sys
import types

import numpy as np
import pytest

from dpgen_jax.core.run_folder import MetricsWriter, charged, read
from dpgen_jax.core.types import UserError


def write(path, steps, **options):
    with MetricsWriter(path, **options) as writer:
        for step in steps:
            writer.write({"step": step, "epsilon": step / 10})


def steps_in(path):
    return [row["step"] for row in read(path)]


def test_lines_are_strict_json(tmp_path):
    path = tmp_path / "m.jsonl"
    with MetricsWriter(path) as writer:
        writer.write({"step": np.int32(3), "loss": np.float32("nan"), "rms": math.inf,
                      "shares": [0.5, -math.inf], "ok": np.bool_(True), "text": "a", "none": None})

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    assert json.loads(path.read_text(), parse_constant=refuse) == {
        "step": 3, "loss": None, "rms": None, "shares": [0.5, None], "ok": True, "text": "a",
        "none": None}


def test_each_line_is_there_before_the_writer_closes(tmp_path):
    writer = MetricsWriter(tmp_path / "m.jsonl")
    writer.write({"step": 1})
    assert steps_in(tmp_path / "m.jsonl") == [1]
    writer.close()


def test_other_values_are_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "m.jsonl"
    with MetricsWriter(path) as writer, pytest.raises(UserError, match="ndarray"):
        writer.write({"step": 1, "image": np.zeros(3)})
    assert path.read_bytes() == b""


def test_a_second_writer_appends(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, [1, 2])
    write(path, [3])
    assert steps_in(path) == [1, 2, 3]


@pytest.mark.parametrize(("resume_step", "kept"), [(None, [1, 2, 3]), (2, [1, 2]), (0, [])])
def test_resuming_supersedes_later_steps_and_keeps_their_rows(tmp_path, resume_step, kept):
    path = tmp_path / "m.jsonl"
    write(path, [1, 2, 3])
    write(path, [4], resume_step=resume_step)
    assert steps_in(path) == [*kept, 4]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["step"] for row in rows if "superseded" not in row] == [*kept, 4]
    assert [p.name for p in tmp_path.iterdir()] == ["m.jsonl"]


def test_the_steps_charged_are_those_of_all_rows(tmp_path):
    path = tmp_path / "m.jsonl"
    assert charged(path) == 0
    for resume_step, counts in ((0, [1, 2, 3]), (1, [5])):
        with MetricsWriter(path, resume_step) as writer:
            for count in counts:
                writer.write({"step": count, "charged": count + 1})
    assert charged(path) == 6 and [row["charged"] for row in read(path)] == [2, 6]


@pytest.mark.parametrize("row", ['{"step": "1"}', '{"step": -1}', '{"step": true}',
                                 '{"step": null}', '{"charged": 0.5}', "[" * 10**5, "[1]"])
def test_a_row_that_counts_no_steps_is_named(tmp_path, row):
    path = tmp_path / "m.jsonl"
    path.write_text(f'{{"step": 1}}\n{row}\n{{"step": 3}}\n')
    with pytest.raises(UserError, match="line 2 is damaged"):
        read(path)


def test_a_torn_last_line_is_skipped_and_then_removed(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, [1, 2])
    path.write_bytes(path.read_bytes()[:-8])
    assert steps_in(path) == [1]
    write(path, [2])
    assert steps_in(path) == [1, 2]


def test_a_missing_newline_does_not_join_two_rows(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}')
    write(path, [2])
    assert steps_in(path) == [1, 2]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(UserError, match="line 2 is damaged"):
        read(path)


def test_a_missing_file_has_no_rows(tmp_path):
    assert read(tmp_path / "none.jsonl") == []


def test_tensorboard_requested_but_missing(tmp_path, monkeypatch):
    real = builtins.__import__

    def no_tensorboard(name, *args, **kwargs):
        if name == "tensorboardX":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_tensorboard)
    with pytest.raises(UserError, match=r"dpgen_jax\[tensorboard\]"):
        MetricsWriter(tmp_path / "m.jsonl", tensorboard=tmp_path / "board")
    assert not (tmp_path / "m.jsonl").exists()


def test_tensorboard_gets_the_finite_scalars(tmp_path, monkeypatch):
    logged = []

    class Board:
        def __init__(self, folder, purge_step):
            logged.append((folder, purge_step))

        def add_scalar(self, *args):
            logged.append(args)

        def close(self):
            logged.append("closed")

    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=Board))
    with MetricsWriter(tmp_path / "m.jsonl", 4, tmp_path / "board") as writer:
        writer.write({"step": 5, "loss": 0.5, "bad": math.nan, "text": "a"})
    assert logged == [(str(tmp_path / "board"), 5), ("loss", 0.5, 5), "closed"]


@pytest.mark.parametrize("line", [
    "[" * 10_000, '{"step": "x"}', '{"step": 1e400}', '{"step": null}', '{"a": NaN}',
    '{"a": 1, "a": 2}', '{"step": ' + "1" * 5000 + "}"])
def test_a_line_made_to_harm_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n' + line + '\n{"step": 2}\n')
    with pytest.raises(UserError, match="line 2 is damaged") as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_pipe_is_no_file_of_metrics(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(UserError, match="not a regular file"):
        read(tmp_path / "metrics.jsonl")
