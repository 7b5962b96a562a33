"""A draft of any table is written: what it could not decide is marked, and named all at once."""

import numpy as np
import pandas as pd
import pytest
from refusals import refused

import dpgen_jax as dg
from dpgen_jax import schema as schema_command
from dpgen_jax.data import load
from dpgen_jax.data.table import draft, schema, subjects

RNG = np.random.default_rng(5)
N = 130
LETTERS = np.array(list("abcdefgh"))


def word(i):
    return "".join(LETTERS[[i % 8, i // 8 % 8, i // 64]])


UNDECIDED = {  # cells, the reason, and a part of a suggestion
    "empty": ([""] * N, "no values", "kind: left_out"),
    "tag": ([word(i) * (1 + i % 4) for i in range(N)], "130 different texts", "kind: codes"),
    "score": ([str(i) if i % 40 else "unknown" for i in range(N)],
              "126 different numbers, and texts that are none: unknown",
              '{kind: integer, min: 1, max: 129, nullable: true, odd: "null"}')}
LOOKS = {  # cells, the kind, and a word of the reason
    "mail": ([f"{word(i)}@example.org" for i in range(N)], "left_out", "e-mail"),
    "phone": ([f"+49 {i:03d}-{7 * i % 1000:03d}" for i in range(N)], "identifier", None),
    "call": ([f"{'+1 ' * (i % 2)}(555) {i:03d} {i % 7}999" for i in range(N)], "left_out", "phone"),
    "who": ([f"{'Anna' if i % 2 else 'Zoë'} {word(i).title()}-Smith" for i in range(N)], "left_out",
            "names"),
    "note": ([f"pain in the {word(i)} since day {i}" for i in range(N)], "left_out", "free text")}
ORDINARY = {"city": (["New York", "San Juan", "Rio Branco"] * N)[:N],
            "answer": (["I do not agree at all", "I agree with most of it"] * N)[:N],
            "season": [f"{2000 + i % 12}-{2001 + i % 12}" for i in range(N)],
            "year": [str(1990 + i % 30) for i in range(N)],
            "days": [f"2020-01-{1 + i % 28:02d}" for i in range(N)]}


def written(path, columns):
    """A CSV file of columns of texts."""
    path.write_text("".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in zip(
        *([name, *cells] for name, cells in columns.items()), strict=True)))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def drafted(columns, label="y"):
    written_to = [f"line {i + 2}" for i in range(N)]
    cells = draft.Cells("a.csv", {**columns, "y": ["a", "b"] * (N // 2)}, written_to)
    return draft.draft(cells, label)


def test_all_that_is_undecided_is_named_at_once_and_refused_in_one_line(here, capsys):
    written(here / "a.csv", {**{name: cells for name, (cells, *_) in UNDECIDED.items()},
                             "x": [str(i % 9) for i in range(N)], "y": ["a", "b"] * (N // 2)})
    schema_command.command(["a.csv", "--label", "y", "--out", "s.yaml"])
    assert "undecided: empty, tag, score; each has kind: \"?\"" in capsys.readouterr().out
    text = (here / "s.yaml").read_text()
    for name, (_, why, instead) in UNDECIDED.items():
        assert f'  {name}:\n    kind: "?"  # {why}' in text
        assert any(line.startswith(f"  # or {name}: ") and instead in line
                   for line in text.splitlines())
    match = "^s.yaml: the kind of empty, tag, score is still `\\?`: write the entries of these"
    refused(match, load, "csv:a.csv", schema="s.yaml")
    refused(match, dg.fit, "a.csv", schema="s.yaml", epsilon=1.0)
    refused(match.replace("s.yaml", "schema"), dg.fit, pd.read_csv("a.csv"),
            schema=schema.document("s.yaml"), epsilon=1.0)


def test_suggestions_of_a_draft_are_entries_of_a_schema(here):
    """Written in place of what is undecided, each is read, and reads the file."""
    made = drafted({**{name: cells for name, (cells, *_) in UNDECIDED.items()},
                    **{name: cells for name, (cells, *_) in LOOKS.items()},
                    "x": [str(i % 9) for i in range(N)]})
    written(here / "a.csv", {**{name: cells for name, (cells, *_) in UNDECIDED.items()},
                             **{name: cells for name, (cells, *_) in LOOKS.items()},
                             "x": [str(i % 9) for i in range(N)], "y": ["a", "b"] * (N // 2)})
    assert all(remark.instead for remark in made.remarks.values())
    for place in range(2):
        columns = dict(made.document["columns"])
        for name, remark in made.remarks.items():
            text = remark.instead[min(place, len(remark.instead) - 1)].partition("}:")[0]
            (here / "one.yaml").write_text(text if text.endswith("}") else text + "}")
            columns[name] = schema.yaml_document("one.yaml")
            if "categories" in columns[name]:
                columns[name]["categories"] = sorted({*UNDECIDED["tag"][0], "A"})
        (here / "s.yaml").write_text(draft.render(
            made.document | {"columns": columns, "read_from_data": []}, "a.csv"))
        assert len(load("csv:a.csv", schema="s.yaml").x_train) == N


@pytest.mark.parametrize("name", LOOKS)
def test_personal_texts_are_known_by_their_look(name):
    cells, kind, why = LOOKS[name]
    made = drafted({name: cells, "x": [str(i % 9) for i in range(N)]})
    assert made.document["columns"][name]["kind"] == kind
    assert (why is None) == (name not in made.remarks)
    if why is not None:
        assert why in made.remarks[name].why and not any(
            cell in made.remarks[name].why for cell in cells)


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_columns_are_not_taken_for_personal_ones(name):
    made = drafted({name: ORDINARY[name], "x": [str(i % 9) for i in range(N)]})
    assert made.document["columns"][name]["kind"] in ("categorical", "integer", "date")
    assert not made.remarks


@pytest.mark.parametrize(("cells", "why"), [
    (["a"] * N, "1 class; a label has 2 at least"),
    (["a", ""] * (N // 2), "1 class; a label has 2 at least"),
    (["a", "b", ""] * (N // 3) + ["a"] * (N % 3), "empty cells, and every row needs its class"),
    ([str(i) for i in range(N)], "130 different texts, and a draft has at most 100 classes")])
def test_a_label_that_is_none_is_undecided(cells, why):
    made = draft.draft(draft.Cells("a.csv", {"x": [str(i % 9) for i in range(N)], "z": cells},
                                   ["line 1"] * N), "z")
    assert made.undecided == ["z"] and made.remarks["z"].why == why
    assert len(made.remarks["z"].instead) == 2


def test_left_out_and_placeholders_reach_the_release_as_they_are_declared(here):
    mails = [{"at": f"{word(i)}@x.org", "odd": object()} for i in range(N)]  # no cells of a table
    frame = pd.DataFrame({"mail": mails,
                          "x": np.arange(N) % 9, "note": ["secret"] * N,
                          "y": ["a", "b"] * (N // 2)})
    columns = {"mail": {"kind": "left_out"}, "x": {"kind": "integer", "min": 0, "max": 8},
               "note": {"kind": "text", "placeholder": "(note)"},
               "y": {"kind": "categorical", "categories": ["a", "b"]}}
    release = dg.fit(frame, schema={"label": "y", "columns": columns}, epsilon=1.0, delta=1e-5,
                     out=here / "run", verbose=False)
    made = release.sample(200, seed=1)
    assert list(made) == ["x", "note", "y"] and set(made["note"]) == {"(note)"}
    readme = (here / "run" / "release" / "README.txt").read_text()
    statement = (here / "run" / "release" / "statement.html").read_text()
    for page in (" ".join(readme.split()), statement):
        assert "; left out: mail; a placeholder in every row: note." in page
    again = dg.load(here / "run")
    assert again.spec.left_out == ("mail",) and again.sample(3, seed=1).equals(
        release.sample(3, seed=1))
    columns["note"] = {"kind": "text", "placeholder": "##"}
    refused("placeholder is '##'; write the text that stands", dg.fit, frame,
            schema={"columns": columns}, epsilon=1.0)
    columns["note"] = {"kind": "left_out", "dtype": "str"}
    refused("dtype does not belong to a column of kind left_out", dg.fit, frame,
            schema={"columns": columns}, epsilon=1.0)


@pytest.mark.parametrize("kind", [{"kind": "left_out"}, {"kind": "identifier", "pattern": "##"}])
def test_the_unit_may_be_declared_as_a_column_that_is_not_read(kind, here):
    frame = pd.DataFrame({"who": [f"p{i // 2}" for i in range(N)], "x": np.arange(N) % 9})
    columns = {"who": kind, "x": {"kind": "integer", "min": 0, "max": 8}}
    frame.to_parquet("a.parquet")
    (here / "s.yaml").write_text(draft.render({"columns": columns}, "a"))
    for data in (subjects.from_frame(frame, {"columns": columns}, "who", 2),
                 load("parquet:a.parquet", schema="s.yaml", unit="who", rows_per_unit=2)):
        assert data.subjects.count == N // 2


def test_a_unit_is_left_out_of_the_draft_of_a_frame():
    frame = pd.DataFrame({"who": np.arange(N) // 2, "x": np.arange(N) % 9,
                          "y": ["a", "b"] * (N // 2)})
    assert list(dg.draft_schema(frame, label="y", unit="who")["columns"]) == ["x", "y"]
    refused("unit=whom: no such column, did you mean 'who'", dg.draft_schema, frame, unit="whom")
