"""Requests that a training command refuses, in one line that names the mend."""

import io
import re
import struct

import numpy as np
import pytest
import runs
import test_commands
from test_commands import STEPS, TRAIN, one_line

from dpgen_jax import account, compare, evaluate, features, publish, sample, schema, train
from dpgen_jax.cli import parser, train_flags
from dpgen_jax.core.types import UserError
from dpgen_jax.release import bundle
from dpgen_jax.run import fitting

place = test_commands.place
trained = test_commands.trained
run = test_commands.run


@pytest.mark.slow
def test_a_folder_that_holds_a_run_is_refused(run, call, monkeypatch):
    monkeypatch.chdir(run.parent)
    before = runs.snapshot(run)
    code, out, err = call(train, *TRAIN, "--out", "run")
    assert code == 2
    assert "run already contains a run; resume it with python -m dpgen_jax.train --resume run" in (
        one_line(err))
    assert runs.snapshot(run) == before and "release:" not in out


@pytest.mark.parametrize("command", [account, publish])
def test_a_folder_that_is_no_run_is_called_so(call, tmp_path, command):
    code, _, err = call(command, str(tmp_path))
    assert code == 2 and f"{tmp_path} is not a run folder" in one_line(err)


@pytest.mark.parametrize(("command", "words"), [
    (compare, ["some-run", "--out", "{}/page.html"]), (compare, ["some-run", "--out", "{}/deep/a"]),
    (evaluate, ["some-run", "--dataset", "glyphs", "--out", "{}"]),
    (features, ["--dataset", "npz:a.npz", "--weights", "w.safetensors", "--bound", "1", "--out",
                "{}/f.npz"]),
    (schema, ["rows.csv", "--label", "a", "--out", "{}/s.yaml"])],
    ids=["compare", "compare deep", "evaluate", "features", "schema"])
def test_what_is_made_of_real_records_is_not_written_into_a_release(
        call, tmp_path, monkeypatch, command, words):
    """A page of numbers from real records, a draft and real features could be put beside the
    generator, to be handed over with it."""
    monkeypatch.chdir(tmp_path)
    release = tmp_path / "release"
    release.mkdir()
    (release / "privacy.json").write_text("{}")
    (tmp_path / "rows.csv").write_text("a,b\n" + "no,1\nyes,2\n" * 20)
    monkeypatch.setattr(compare, "_one", lambda path: None)
    monkeypatch.setattr(bundle, "load", lambda source: None)
    code, _, err = call(command, *(word.format(release) for word in words))
    assert code == 2 and "is in a release, which is shared" in one_line(err)
    assert [path.name for path in release.iterdir()] == ["privacy.json"]


BAD = {
    "epsilon 0": (["--epsilon", "0"], "epsilon must be above 0, got 0"),
    "epsilon negative": (["--epsilon", "-1"], "epsilon must be above 0"),
    "epsilon nan": (["--epsilon", "nan"], "epsilon must be above 0"),
    "epsilon a word": (["--epsilon", "lots"], "--epsilon"),
    "delta 0": (["--delta", "0"], "strictly between 0 and 1"),
    "delta 1": (["--delta", "1"], "strictly between 0 and 1"),
    "delta 1/n": (["--delta", str(1 / 60)], "does not protect 60 records"),
    "delta without budget": (["--epsilon", "inf", "--delta", "2"], "strictly between 0 and 1"),
    "too many teachers": (["--teachers", "61"], "60 records cannot be dealt to 61 teachers"),
    "no teachers": (["--teachers", "0"], "teachers is 0"),
    "no batch": (["--batch", "0"], "batch is 0"),
    "no steps": (["--steps", "0"], "steps is 0"),
    "sigma negative": (["--sigma", "-1"], "sigma is -1"),
    "sigma nan": (["--sigma", "nan"], "sigma is nan"),
    "sigma and steps open": (["--sigma", "None", "--steps", "None"], "neither sigma nor steps"),
    "layer without units": (["--generator.hidden", "0"], "hidden is 0"),
    "negative layer": (["--discriminator.hidden", "-3"], "hidden is -3"),
    "devices": (["--devices", "99"], "only 8 are available"),
    "devices negative": (["--devices", "-1"], "devices is -1"),
    "chunk": (["--chunk", "-1"], "chunk is -1"),
    "block": (["--steps-per-call", "-5"], "steps_per_call is -5"),
    "checkpoints": (["--keep-checkpoints", "0"], "keep_checkpoints is 0"),
    "image size": (["--image-size", "6"], "not multiples of 4.*--image-size 8"),
    "classes": (["--classes", "2"], r"label 2 in row \d+ is outside the declared 0..1"),
    "data set": (["--dataset", "glyps"], "unknown data set 'glyps'; did you mean glyphs"),
    "no data file": (["--dataset", "npz:none.npz"], "none.npz not found"),
    "no idx folder": (["--dataset", "idx:none"], "none not found"),
    "preset": (["--preset", "mnist-eps2"], "unknown preset 'mnist-eps2'.*mean 'mnist-eps1'"),
    "flag": (["--tachers", "3"], "--tachers.*did you mean '--teachers'"),
    "nested flag": (["--generator.hiden", "3"], "did you mean '--generator.hidden'"),
    "choice": (["--decode", "median"], "'threshold', 'mean'"),
    "no such run": (["--resume"], "no run to resume"),
    "out is a file": (["--out", "noise.npz"], "noise.npz already contains other files"),
    "out below a file": (["--out", "noise.npz/run"], "Not a directory")}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_clear_line(place, call, monkeypatch, what):
    monkeypatch.chdir(place)
    flags, message = BAD[what]
    before = runs.snapshot(place)
    code, _, err = call(train, *TRAIN, "--steps", STEPS, "--out", "new", *flags)
    assert code == 2 and re.search(message, one_line(err))
    assert runs.snapshot(place) == before and not (place / "new").exists()


@pytest.mark.parametrize(("flags", "message"), [
    (["--sigma", "1"], "need epsilon inf at delta 0.001, above the budget of 10"),
    (["--sigma", "0"], "above the budget of 10"),
    (["--sigma", "20", "--epsilon", "1", "--steps", "None"], "smallest that does is 1.5683"),
    (["--sigma", "20", "--epsilon", "1"], "leave out --sigma or --steps")])
def test_a_budget_for_no_step_is_exit_code_3(place, call, monkeypatch, flags, message):
    monkeypatch.chdir(place)
    code, _, err = call(train, *TRAIN, "--steps", STEPS, "--out", "new", *flags)
    assert code == 3 and re.search(message, one_line(err))
    assert not (place / "new").exists()


def test_resume_needs_out(place, call, monkeypatch):
    monkeypatch.chdir(place)
    code, _, err = call(train, *TRAIN, "--resume")
    assert code == 2 and "--resume needs --out, the folder of the run" in one_line(err)
    assert not (place / "runs").exists()


class Terminal(io.StringIO):
    """A terminal with colours, and with ASCII alone."""

    encoding = "ascii"

    def isatty(self):
        return True


def test_the_message_of_the_parser_is_the_same_on_every_terminal(monkeypatch):
    def message():
        with pytest.raises(UserError) as refusal:
            words = ["run", "--out", "\u00e9", "--n", "m\u00fcll"]
            parser.parse(sample.Sample, words, "sample", "")
        return str(refusal.value)

    plain = message()
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert message() == plain
    assert plain == "--n 'm\u00fcll': a whole number is needed (see: sample --help)"


@pytest.mark.parametrize(("words", "message"), [
    ([], r"missing: RUN_OR_RELEASE \(a run folder or a release folder\), --out PATH \(FILE.npz, .*"
         r"PNG an image\)\) \(see: dpgen sample --help\)"),
    (["run", "--out", "a", "--sed=1"], r"Unrecognized options: --sed=1, did you mean '--seed'.*"),
    (["run", "--out", "a", "--canaries=1"], r"Unrecognized options: --canaries=1 \(see: .*")])
def test_a_refusal_of_the_parser_is_in_words_and_as_typed(words, message, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/dpgen"])
    with pytest.raises(UserError) as refusal:
        sample.command(words)
    assert re.fullmatch(message, str(refusal.value))


def idx_folder(root, x, y, cut=0):
    root.mkdir()
    images = b"\0\0\x08\x03" + struct.pack(">3I", *x.shape[:3]) + x.tobytes()
    (root / "train-images-idx3-ubyte").write_bytes(images[:len(images) - cut])
    (root / "train-labels-idx1-ubyte").write_bytes(
        b"\0\0\x08\x01" + struct.pack(">I", len(y)) + y.astype(np.uint8).tobytes())
    return f"idx:{root}"


def test_a_truncated_file_is_named(call, tmp_path):
    spec = idx_folder(tmp_path / "d", *runs.images(), cut=5)
    code, _, err = call(train, "--dataset", spec, "--out", tmp_path / "new")
    assert code == 2 and "train-images-idx3-ubyte is truncated by 5 bytes" in one_line(err)
    assert not (tmp_path / "new").exists()


def test_a_label_out_of_range_is_named(call, tmp_path):
    x, y = runs.images()
    y[3] = 12
    code, _, err = call(train, "--dataset", idx_folder(tmp_path / "d", x, y), "--out",
                        tmp_path / "new")
    assert code == 2 and "label 12 in row 3" in one_line(err)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("module", [train, account])
def test_an_unknown_method(call, module):
    code, _, err = call(module, "datalense")
    assert code == 2 and "did you mean 'datalens'?" in one_line(err)


@pytest.mark.parametrize(("method", "fields", "message"), [
    ("datalense", {}, "did you mean 'datalens'"), ("datalens", {"tachers": 3}, "mean 'teachers'"),
    ("datalens", {"epsilon": 0}, "epsilon must be above 0")])
def test_fit_is_as_clear(method, fields, message):
    with pytest.raises(UserError, match=message):
        fitting.fit(method, *runs.images(), **fields)


@pytest.mark.parametrize(("flag", "said"), [
    ("--processes", "a whole number"), ("--seed", "a whole number"), ("--alpha", "a number")])
def test_a_number_that_may_be_left_out_is_refused_in_the_same_words(flag, said):
    with pytest.raises(UserError, match=f"^{flag} 'x': {said} is needed"):
        train_flags.call(["dpmerf", flag, "x"])
