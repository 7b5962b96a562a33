"""`schema`: a draft that owns up to what it read, and entries that are bought instead."""

import numpy as np
import pytest
from refusals import refused

from dpgen_jax import schema as schema_command
from dpgen_jax import train
from dpgen_jax.accountant.events import EpsilonDeltaEvent
from dpgen_jax.cli import parser
from dpgen_jax.core.types import Private, UserError, unseal
from dpgen_jax.data import load
from dpgen_jax.data.table import schema
from dpgen_jax.run import purchase, side_releases

TEXT = """\
n,x,job,Class,big
3,0.5,cook,10,0
-1,NA,"a: b",9,9000000
4,2.5e0,,10,1
3,1,cafe\u0301 \U0001f600,9,2
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command on the files of this test; the lines that it says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.csv").write_text(TEXT, encoding="utf-8")

    def inner(*flags):
        said = []
        argv = ["d.csv", *flags]
        schema_command.run(parser.parse(schema_command.Flags, argv, "schema", ""), said.append)
        return said
    return inner


@pytest.fixture
def fake(monkeypatch):
    """Queries that answer without noise, and what they were asked."""
    questions = []

    def bounds(values, epsilon, bits):
        assert isinstance(values, Private) and bits.label == "os-entropy"
        questions.append(("bounds", epsilon, unseal(values)))
        return np.nanmin(unseal(values)) - 0.5, np.nanmax(unseal(values)) + 0.5

    def categories(values, epsilon, delta, bits):
        assert isinstance(values, Private) and bits.label == "os-entropy"
        questions.append(("categories", epsilon, delta, unseal(values)))
        return tuple(sorted({text for text in unseal(values) if text and len(text) < 5}))

    monkeypatch.setattr(purchase.single_releases, "bounds", bounds)
    monkeypatch.setattr(purchase.single_releases, "categories", categories)
    return questions


def draft(run, path, *changes):
    """A draft with lines replaced: (column, key, value)."""
    run("--label", "Class", "--out", str(path))
    lines, column = path.read_text(encoding="utf-8").splitlines(), ""
    for i, line in enumerate(lines):
        if line.startswith("  ") and not line.startswith("   ") and line.endswith(":"):
            column = line.strip(" :")
        for where, key, value in changes:
            if column == where and line.strip().startswith(f"{key}:"):
                lines[i] = f"    {key}: {value}"
    path.write_text("\n".join(lines), encoding="utf-8")


def test_a_draft_loads_and_says_what_it_read(run, tmp_path):
    said = run("--label", "Class", "--out", "s.yaml")
    drafted = schema.read("s.yaml")
    columns = (*drafted.spec.columns, drafted.spec.label)
    kinds = {column.name: (column.kind, column.low, column.high, column.categories,
                           column.nullable) for column in columns}
    assert kinds == {
        "n": ("integer", -1, 4, (), False), "x": ("continuous", 0.5, 2.5, (), True),
        "job": ("categorical", 0, 0, ("a: b", "cafe\u0301 \U0001f600", "cook"), True),
        "big": ("continuous", 0, 9e6, (), False),  # too wide for an integer column
        "Class": ("categorical", 0, 0, ("9", "10"), False)}
    what = ["kinds of n, x, job, big read from private data",
            "bounds of n, x, big read from private data",
            "nullability of n, x, job, big read from private data",
            "categories of job, Class read from private data"]
    assert [entry.what for entry in drafted.uncovered] == what and not drafted.notes
    assert [line for line in said if line.startswith("note")] == [
        f"note: not covered by epsilon: {line}" for line in what]
    data = load("csv:d.csv", schema="s.yaml")
    assert data.uncovered == drafted.uncovered and len(data.notes) == 1 and not data.private_notes


def test_every_entry_that_was_read_has_a_comment_beside_it(run, tmp_path):
    run("--label", "Class", "--out", "s.yaml")
    text = (tmp_path / "s.yaml").read_text(encoding="utf-8")
    listed = schema.yaml_document("s.yaml")["read_from_data"]
    assert text.count("# read from private data") == len(listed) == 16
    assert "    kind: categorical\n    categories: [\"9\", \"10\"]  # read" in text
    assert "KEEP IT PRIVATE" in text and (tmp_path / "s.yaml").stat().st_mode & 0o077 == 0


def test_the_command(run, capsys):
    schema_command.command(["d.csv", "--label", "Class", "--out", "s.yaml"])
    assert capsys.readouterr().out.endswith("read from private data\nschema: s.yaml\n")
    with pytest.raises(UserError, match="did you mean '--label"):
        schema_command.command(["d.csv", "--out", "t.yaml", "--lable", "Class"])


def test_the_old_spelling_names_the_new_one(run, tmp_path, capsys):
    train.command(["--out", "s.yaml", "--init-schema", "d.csv", "--label", "Class"])
    assert "`train --init-schema` is now `python -m dpgen_jax.schema`" in capsys.readouterr().err
    assert (tmp_path / "s.yaml").exists()


def test_a_shorter_list_is_a_shorter_statement(run, tmp_path):
    run("--label", "Class", "--out", "s.yaml")
    text = (tmp_path / "s.yaml").read_text(encoding="utf-8")
    (tmp_path / "s.yaml").write_text(text[:text.index("read_from_data:\n")], encoding="utf-8")
    assert schema.read("s.yaml").uncovered == ()


@pytest.mark.parametrize(("text", "flags", "match"), [
    (TEXT, ["--label", "Clas"], "--label Clas: no such column, did you mean 'Class'"),
    (TEXT, ["--label", "Class", "--schema-epsilon", "1"], "give --schema DRAFT with"),
    (TEXT, ["--label", "Class", "--schema-delta", "1"], "give --schema DRAFT with"),
    (TEXT, ["--schema", "adult"], "give --schema DRAFT with"),
    ("y\n0\n1\n", ["--label", "y"], "the label is the only column")])
def test_nothing_is_written_on_an_error(run, tmp_path, text, flags, match):
    (tmp_path / "d.csv").write_text(text, encoding="utf-8")
    refused(match, run, *flags, "--out", "s.yaml")
    assert not (tmp_path / "s.yaml").exists()


def test_an_existing_file_is_kept(run, tmp_path):
    (tmp_path / "s.yaml").write_text("mine")
    refused("--out s.yaml exists; give a new file", run, "--label", "Class", "--out", "s.yaml")
    assert (tmp_path / "s.yaml").read_text() == "mine"
    refused("there is no folder nowhere; create it first", run, "--label", "Class", "--out",
            "nowhere/s.yaml")


def test_private_entries_are_bought(run, fake, tmp_path):
    draft(run, tmp_path / "p.yaml", ("n", "min", "private"), ("n", "max", "private"),
          ("x", "min", "private"), ("x", "max", "private"), ("job", "categories", "private"))
    refused("column n: min is still `private`", schema.read, "p.yaml")
    said = run("--schema", "p.yaml", "--schema-epsilon", "0.6", "--schema-delta", "1e-6",
               "--out", "f.yaml")
    assert any(line.startswith("note: epsilon 0.6 is spent on these records") for line in said)

    assert [(what, epsilon) for what, epsilon, *_ in fake] == [
        ("bounds", pytest.approx(0.2)), ("bounds", pytest.approx(0.2)),
        ("categories", pytest.approx(0.2))]
    np.testing.assert_array_equal(fake[1][2], [0.5, np.nan, 2.5, 1])
    assert fake[2][2:] == (1e-6, ["cook", "a: b", None, "cafe\u0301 \U0001f600"])

    loaded = schema.read("f.yaml")
    columns = {column.name: column for column in loaded.spec.columns}
    assert (columns["n"].kind, columns["n"].low, columns["n"].high) == ("integer", -2, 5)
    assert (columns["x"].low, columns["x"].high) == (0.0, 3.0)
    assert columns["job"].categories == ("a: b", "cook", "other")
    assert loaded.others["job"] == "other"
    assert loaded.notes == (
        "bought under differential privacy from 4 records: bounds of n, x",
        "bought under differential privacy from 4 records: categories of job")
    assert not any("bounds of n" in entry.what or "of job, Class" in entry.what
                   for entry in loaded.uncovered)

    events = side_releases.purchases(load("csv:d.csv", schema="f.yaml").bought)
    epsilon = 0.6 / 3
    assert {(e.epsilon, e.delta): count for e, count in events} == {
        (epsilon, 0.0): 2, (epsilon, 1e-6): 1}
    assert all(isinstance(event, EpsilonDeltaEvent) for event, _ in events)
    assert "Leave `bought` as it is" in (tmp_path / "f.yaml").read_text(encoding="utf-8")


def test_two_rounds_add_up(run, fake, tmp_path):
    draft(run, tmp_path / "p.yaml", ("n", "min", "private"), ("n", "max", "private"))
    run("--schema", "p.yaml", "--schema-epsilon", "0.1", "--out", "f.yaml")
    text = (tmp_path / "f.yaml").read_text(encoding="utf-8")
    text = text.replace('categories: ["9", "10"]', "categories: private")
    (tmp_path / "f.yaml").write_text(text, encoding="utf-8")
    run("--schema", "f.yaml", "--schema-epsilon", "0.2", "--schema-delta", "1e-7",
        "--out", "g.yaml")
    loaded = schema.read("g.yaml")
    assert [row["epsilon"] for row in loaded.bought] == [0.1, 0.2]
    assert loaded.spec.label.categories == ("9", "10") and not loaded.others


def test_the_real_queries(run, tmp_path):
    rows = "".join(f"{i % 50},{i / 100},{'cook' if i % 2 else 'nurse'},{i % 3 % 2},1\n"
                   for i in range(4000))
    (tmp_path / "d.csv").write_text("n,x,job,Class,big\n" + rows + "1,1,rare,1,1\n")
    draft(run, tmp_path / "p.yaml", ("n", "min", "private"), ("n", "max", "private"),
          ("job", "categories", "private"))
    run("--schema", "p.yaml", "--schema-epsilon", "2", "--schema-delta", "1e-6", "--out", "f.yaml")
    data = load("csv:d.csv", schema="f.yaml")
    column = {column.name: column for column in data.spec.columns}
    assert column["job"].categories == ("cook", "nurse", "other")  # the rare one is not shown
    assert column["n"].low <= 1 and column["n"].high >= 48
    assert sum(event.epsilon * count for event, count in side_releases.purchases(data.bought)) == 2


@pytest.mark.parametrize(("changes", "flags", "match"), [
    ([("n", "min", "private")], ["--schema-epsilon", "1"], "column n: min and max are bought toge"),
    ([], ["--schema-epsilon", "1"], "no entry `private`; there is nothing to buy"),
    ([("job", "categories", "private"), ("job", "kind", "ordinal")],
     ["--schema-epsilon", "1", "--schema-delta", "1e-6"], "column job: an order cannot be bought"),
    ([("job", "categories", "private")], ["--schema-epsilon", "1"], "categories need one above 0"),
    ([("job", "categories", "private")], ["--schema-epsilon", "0", "--schema-delta", "1e-6"],
     "--schema-epsilon 0.0; give a finite number above 0"),
    ([("job", "categories", "private")], ["--schema-epsilon", "nan", "--schema-delta", "1e-6"],
     "--schema-epsilon nan"),
    ([("n", "min", "private"), ("n", "max", "private")],
     ["--schema-epsilon", "1", "--schema-delta", "1e-6"], "--schema-delta is for categories only"),
    ([("n", "min", "private"), ("n", "max", "private"), ("x", "max", "-5")],
     ["--schema-epsilon", "1"], "column x: min 0.5 is above max -5"),
    ([("n", "min", "private"), ("n", "max", "private"), ("x", "nullable", "false")],
     ["--schema-epsilon", "1"], r"d.csv, line 3, column x: null \('NA'\)"),
    ([("x", "min", "private"), ("x", "max", "private"), ("x", "kind", "integer")],
     ["--schema-epsilon", "1"], "d.csv, line 2, column x: 0.5 is not a whole number")])
def test_faults_are_found_before_anything_is_spent(run, fake, tmp_path, changes, flags, match):
    draft(run, tmp_path / "p.yaml", *changes)
    refused(match, run, "--schema", "p.yaml", *flags, "--out", "f.yaml")
    assert not fake and not (tmp_path / "f.yaml").exists()


def test_a_label_of_one_class_is_a_column_as_any_other(run, fake, tmp_path, monkeypatch):
    draft(run, tmp_path / "p.yaml", ("Class", "categories", "private"))
    monkeypatch.setattr(purchase.single_releases, "categories", lambda *_: ("9",))
    run("--schema", "p.yaml", "--schema-epsilon", "1", "--schema-delta", "1e-6", "--out", "f.yaml")
    made = schema.read(str(tmp_path / "f.yaml"))
    column = next(column for column in made.spec.columns if column.name == "Class")
    assert not made.spec.labelled and column.categories == ("9", "other")
    assert "no label is declared: all rows are of one class" in made.notes and len(made.bought) == 1


def test_what_no_value_came_out_of_is_spent_and_the_rest_is_kept(run, fake, tmp_path, monkeypatch):
    draft(run, tmp_path / "p.yaml", ("n", "min", "private"), ("n", "max", "private"),
          ("job", "categories", "private"))

    def nothing(*_):
        raise UserError("cannot find bounds")

    monkeypatch.setattr(purchase.single_releases, "bounds", nothing)
    refused(r"stands out from the noise for n: declare .* in f.yaml", run, "--schema", "p.yaml",
            "--schema-epsilon", "1", "--schema-delta", "1e-6", "--out", "f.yaml")
    text = (tmp_path / "f.yaml").read_text()
    refused("column n: min is still `private`", schema.read, str(tmp_path / "f.yaml"))
    (tmp_path / "g.yaml").write_text(
        text.replace("min: private", "min: 0").replace("max: private", "max: 9"))
    made = schema.read(str(tmp_path / "g.yaml"))
    assert sum(event.epsilon * count for event, count in side_releases.purchases(made.bought)) == 1
    assert next(c for c in made.spec.columns if c.name == "job").categories == (
        "a: b", "cook", "other")
    assert not any("bounds of n" in note for note in made.notes)


@pytest.mark.parametrize("row", [
    {"kind": "free"}, {"kind": "epsilon-delta", "count": 1},
    {"kind": "epsilon-delta", "count": "x", "epsilon": 1.0},
    {"kind": "epsilon-delta", "count": 1, "epsilon": "much"},
    {"kind": "epsilon-delta", "count": 1, "epsilon": -1.0}])
def test_a_changed_purchase_stops_a_run(row):
    refused("block `bought` was changed", side_releases.purchases, [row])
