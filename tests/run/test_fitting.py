"""Training from a notebook: what `fit` takes, and errors in the words of Python."""

import dataclasses
import html
import sys
import types

import numpy as np
import pandas as pd
import pytest
import runs

import dpgen_jax as dg
from dpgen_jax import data, methods, presets
from dpgen_jax.core import errors
from dpgen_jax.core.types import Column, ImageSpec, TableSpec, UserError
from dpgen_jax.data.table import schema as schemas
from dpgen_jax.release import bundle
from dpgen_jax.release.bundle import Release
from dpgen_jax.run import fitting, lifecycle, progress, stages

FRAME = pd.DataFrame({
    "age": [31, 42, 53, 64] * 5, "pay": [1.5, 2.5, None, 4.5] * 5, "smokes": [True, False] * 10,
    "city": pd.Categorical(["Rome", "Oslo"] * 10, ["Oslo", "Rome", "Bonn"]),
    "ill": ["no", "yes"] * 10})


@pytest.fixture
def started(monkeypatch):
    """The request and the data set of each run that would begin."""
    made = []
    monkeypatch.setattr(lifecycle, "run", lambda *args: made.append(args))
    return made


def test_the_api_is_what_is_listed(capsys):
    assert dir(dg) == sorted(dg.__all__) and {"methods", "presets", "draft_schema"} <= {*dir(dg)}
    assert dg.methods().keys() == set(methods.NAMES) and dg.methods.get is methods.get
    assert dg.presets("gpate").keys() == presets.all_of("gpate").keys()
    with pytest.raises(UserError, match="did you mean 'gpate'"):
        dg.presets("gpat")


@pytest.mark.parametrize(("words", "said"), [
    ({"epsilon": "1"}, "epsilon is '1', expected a number"),
    ({"epsilon": True}, "epsilon is True"), ({"seed": 1.5}, "seed is 1.5"),
    ({"steps": "3"}, "steps is '3', expected a whole number"), ({"out": 3}, "out is a path"),
    ({"runtime": {"devices": 1}}, "runtime a dpgen_jax.Runtime"),
    ({"resume": True}, "resume=True needs out, the folder"), ({"method": "dpmer"}, "mean 'dpmerf'"),
    ({"classes": None}, "pass accept_uncovered=True"), ({"stepz": 3}, "unknown field 'stepz'"),
    ({"schema": 3}, "schema is a int; give the path"),
    ({"x": FRAME, "y": None, "classes": None, "image_size": 8}, "image_size does not apply to a"),
    ({"x": FRAME}, "is given without y and classes")])
def test_what_is_wrong_is_said_in_the_words_of_python(words, said):
    x, y = runs.images()
    stated = {"method": "dpmerf", "x": x, "y": y, "classes": 3, "epsilon": 1.0} | words
    if words.keys() & {"schema"}:
        stated |= {"y": None, "classes": None, "x": FRAME}
    with pytest.raises(UserError, match=said) as caught:
        fitting.fit(stated.pop("method"), stated.pop("x"), stated.pop("y"), **stated, verbose=False)
    assert " --" not in str(caught.value)


def test_each_front_end_words_the_options():
    with errors.worded(on_command_line=True):
        assert f"{errors.option('total_epsilon', 3.5)}, {errors.option('resume', True)}" == (
            "--total-epsilon 3.5, --resume")
        with errors.worded(on_command_line=False):
            assert f"{errors.option('total_epsilon', 3.5)}, {errors.option('resume', True)}" == (
                "total_epsilon=3.5, resume=True")
        assert errors.option("schema", "FILE") == "--schema FILE"


@pytest.mark.parametrize(("call", "said"), [
    (lambda: dg.load_dataset("csv:t.csv"), "needs schema=FILE.yaml.*python -m dpgen_jax.schema"),
    (lambda: dg.load_dataset("t.csv", label="b", schema="s.yaml"), "^label=b: s.yaml has"),
    (lambda: dg.load_dataset("digits", test_fraction=3), "^test_fraction is 3"),
    (lambda: dg.load_dataset("digits", channels=3), "^channels does not apply"),
    (lambda: dg.draft_schema(FRAME, label="il"), "^label=il: no such column"),
    (lambda: dg.load("none"), "neither a run nor"),
    (lambda: dg.repeat(2, "dpmerf", FRAME, verbose=False), "with schema=FILE, or raise epsilon")])
def test_no_call_of_python_answers_with_flags(call, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "s.yaml").write_text("label: a\ncolumns:\n  a: {kind: categorical, categories: "
                                     "['1', '2']}\n  b: {kind: integer, min: 0, max: 9}\n")
    with pytest.raises(UserError, match=said) as caught:
        call()
    assert " --" not in str(caught.value).partition("python -m")[0]
    assert not str(caught.value).startswith("--")


def test_a_data_set_is_trained_on_alone_and_without_a_method(started):
    digits = data.load("digits")
    fitting.fit("dpmerf", digits, epsilon=1.0, class_epsilon=0.1, verbose=False)
    fitting.fit(digits, epsilon=np.float64(1), verbose=False)
    (first, loaded, *_), (second, *_) = started
    assert loaded is digits and first.preset == "digits" and first.budget.class_epsilon == 0.1
    assert not first.monitor.progress and second.method == "mixture" and second.why_method
    assert not (first.remarks or second.remarks)
    fitting.fit("dpmerf", *runs.images(), classes=3, epsilon=1.0, verbose=False)
    assert started[-1][0].remarks == (fitting.ALL_GIVEN,)
    with pytest.raises(UserError, match="leave out y, classes and schema"):
        fitting.fit("dpmerf", digits, classes=10)


def test_a_draft_says_what_was_read_and_is_a_schema(started, capsys):
    drafted = dg.draft_schema(FRAME, label="ill")
    assert "16 entries" in (said := capsys.readouterr().err) and "types_declared=True" in said
    declared = dg.draft_schema(FRAME, label="ill", types_declared=True)
    assert declared["columns"]["city"]["categories"] == ["Oslo", "Rome", "Bonn"]
    assert {"age.kind", "age.nullable", "city.categories", "smokes.kind"} <= {
        *drafted["read_from_data"]} - {*declared["read_from_data"]}
    assert {"age.min", "pay.kind", "ill.categories"} <= {*declared["read_from_data"]}
    for schema in (drafted, schemas.parse(drafted, "x")):
        fitting.fit("dpmerf", FRAME, schema=schema, epsilon=1.0, accept_uncovered=True,
                    verbose=False)
        assert len(started[-1][1].uncovered) > 2
    typed = {"label": "ill", "columns": {  # with values of Python
        "age": {"kind": "integer", "min": 0, "max": 120},
        "pay": {"kind": "continuous", "min": 0.0, "max": 9.5, "nullable": True},
        "smokes": {"kind": "boolean"},
        "city": {"kind": "categorical", "categories": ["Oslo", "Rome"]},
        "ill": {"kind": "categorical", "categories": ["no", "yes"]}}}
    fitting.fit("dpmerf", FRAME, schema=typed, epsilon=1.0, verbose=False)
    assert not started[-1][1].uncovered and started[-1][1].spec.columns[1].nullable
    fitting.fit("dpmerf", FRAME.rename(columns={"city": "who"}), schema=typed | {
        "columns": {k: v for k, v in typed["columns"].items() if k != "city"}}, unit="who",
        rows_per_unit=3, epsilon=1.0, verbose=False)
    assert started[-1][1].count == 2


# --- what a notebook shows

def release(spec):
    return Release("mixture", None, spec, {"w": np.ones(9)}, {
        "guarantee": "(epsilon, delta) replace-one", "epsilon": 3.0, "delta": 1e-5, "steps": 5,
        "relation": "replace-one", "unit": "record", "noise_source": "os-entropy"})


@pytest.mark.parametrize("spec", [
    ImageSpec(8, 8, 1, 2, ("<b>a</b>\n\x1b[31m", "b")),
    TableSpec((Column("<i>x</i>", "continuous", 0.0, 1.0),), Column(
        "y", "categorical", categories=("no", "<u>yes</u>")), 1)])
def test_a_release_is_a_few_public_lines(spec, monkeypatch):
    made = release(spec)
    monkeypatch.setattr(Release, "classifies", False)
    rng = np.random.default_rng(0)
    monkeypatch.setattr(Release, "arrays", lambda self, n, labels=None, seed=None: (
        (rng.integers(0, 255, (n, 8, 8, 1), np.uint8) if isinstance(spec, ImageSpec)
         else rng.random((n, 1))), np.arange(n) % 2))
    text = repr(made)
    assert len(text.splitlines()) == 4 and len(text) < 400 and "\x1b" not in text
    assert "guarantee: (epsilon, delta) replace-one; epsilon 3" in text and "array" not in text
    page = bundle.release_html(made)
    assert html.escape(text.splitlines()[0]) in page and made._repr_html_() and "<b>" not in page
    assert ("data:image/png" in page) == isinstance(spec, ImageSpec)
    assert isinstance(spec, ImageSpec) or ("&lt;u&gt;yes" in page and "<td>no</td>" in page)


def test_a_data_set_shows_no_record():
    x = np.full((9, 8, 8, 1), 173, np.uint8)
    nine = data.from_arrays(x, np.arange(9) % 3, 3)
    assert repr(nine) == "Dataset(arrays: 9 training records, no held-out part, 3 classes)"
    hidden = repr(dataclasses.replace(nine, clients=np.arange(9, dtype=np.int32) % 3))
    assert "9" not in hidden and not hasattr(nine, "_repr_html_")


def test_a_bar_is_live_in_a_notebook_and_silent_where_asked(monkeypatch, capsys):
    for shown in (False, True):
        bar = progress.Bar(3, 0, shown=shown)
        for _ in range(3):
            bar.advance(1, {"epsilon": 1})
        bar.close()
        assert bool(capsys.readouterr().err) == shown
    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    bar = progress.Bar(3, 0)
    for _ in range(3):
        bar.advance(1, {})
    bar.close()
    assert "\r" in capsys.readouterr().err


@pytest.mark.parametrize(("shades", "said"), [
    ((0, 9), "all black"), ((250, 255), "all white"), ((99, 101), "of one shade (100 of 255)"),
    ((0, 200), ""), ((0, 13), "")])
def test_pictures_that_show_nothing_are_told_from_others(shades, said):
    x = np.zeros((4, 5, 5, 1), np.uint8) + shades[0]
    x[1, 2, 3] = shades[1]
    assert stages.nothing_shown(x) == said


def test_a_setting_with_the_name_of_an_option_of_files():
    named = {"method": "topagg_sgd", "channels": (3, 4)}
    assert fitting._sorted(named, of_files=False) == {
        "method": "topagg_sgd", "settings": {"channels": [3, 4]}}
    assert fitting._sorted(named | {"channels": 3, "network_channels": (3, 4)}, of_files=True) == {
        "method": "topagg_sgd", "data": {"channels": 3}, "settings": {"channels": [3, 4]}}
