"""A draft tells the kinds of columns, owns up to it, and what it drafts reads its own file back."""

import numpy as np
import pytest
from refusals import refused

from dpgen_jax import schema as schema_command
from dpgen_jax.aggregation import single_releases
from dpgen_jax.data import load
from dpgen_jax.data.table import constraints, schema, transform
from dpgen_jax.data.table.draft import drafted_entries
from dpgen_jax.run import purchase

RNG = np.random.default_rng(0)
N = 120
DAYS = np.datetime64("2020-01-01") + RNG.integers(0, 900, N)
COLUMNS = {  # cells, and entries that a draft must have
    "iso": ([str(day) for day in DAYS], {"kind": "date", "format": "%Y-%m-%d"}),
    "german": ([f"{day.astype(object):%d.%m.%Y}" for day in DAYS], {"format": "%d.%m.%Y"}),
    "american": ([f"{day.astype(object):%m/%d/%Y}" for day in DAYS], {"format": "%m/%d/%Y"}),
    "stamp": ([f"{day}T{i % 24:02d}:30:0{i % 10}" for i, day in enumerate(DAYS)],
              {"kind": "datetime", "format": "%Y-%m-%dT%H:%M:%S"}),
    "clock": ([f"{i % 24:02d}:{i % 60:02d}" for i in range(N)],
              {"kind": "time", "format": "%H:%M"}),
    "took": ([f"{i}:{i % 60:02d}" for i in range(N)], {"kind": "duration", "format": "H:MM"}),
    "euros": ([f"EUR {i * 37:,}.50".translate(str.maketrans(",.", ".,")) for i in range(N)],
              {"kind": "continuous", "unit": "EUR {}", "decimals": "2", "decimal_mark": ",",
               "thousands": "."}),
    "francs": ([f"{(N - i) * 37:,}".replace(",", "\u202f") for i in range(N)],
               {"kind": "integer", "thousands": "space"}),
    "share": ([f"{i % 50}%" for i in range(N)], {"kind": "integer", "unit": "{}%"}),
    "price": ([f"{i % 70}.{i % 4 * 25:02d}" for i in range(N)],
              {"kind": "continuous", "decimals": "2", "max": "69.25"}),
    "alive": (["True", "False"] * (N // 2), {"kind": "boolean", "categories": ["False", "True"]}),
    "id": ([f"P-{i:05d}" for i in range(N)], {"kind": "identifier", "pattern": "P-#####"}),
    "hours": ([str([99, 0, 5 + i % 60][min(i % 5, 2)]) for i in range(N)],
              {"kind": "integer", "special": ["99", "0"], "min": "7", "max": "64"}),
    "pay": ([f"{np.exp(i / 8):.3f}" for i in range(N)], {"kind": "continuous", "scale": "log"}),
    "zip": ([f"{i % 110:05d}" for i in range(N)], {"kind": "codes", "categories": [
        f"{i:05d}" for i in range(110)]}),
    "ward": ([f"{i % 9:02d}" for i in range(N)], {"kind": "categorical", "categories": [
        f"{i:02d}" for i in range(9)]}),
    "number": ([f"{i:03d}" for i in range(N)], {"kind": "identifier", "pattern": "###"}),
    "whole": ([f"{i}.0" for i in range(N)], {"kind": "integer", "max": "119"}),
    "abroad": ([f"{day}T10:{i % 60:02d}:00+02:00" for i, day in enumerate(DAYS)],
               {"kind": "datetime", "format": "%Y-%m-%dT%H:%M:%S%z", "zone": "+02:00"}),
    "few": (["0"] * (N - 9) + ["4"] * 9, {"kind": "integer", "scale": None, "max": "4"}),
    "file": ([f"z{i % 70:06d}" for i in range(N)], {"kind": "categorical"})}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_draft_tells_the_kind(name):
    cells, expected = COLUMNS[name]
    made = drafted_entries(cells, False)
    assert {key: made.get(key) for key in expected} == expected
    if made["kind"] != "identifier":
        assert made["nullable"] == "false"
        with_null = drafted_entries([*cells, "NA"], False)
        assert with_null == made | {"nullable": "true"}


def test_a_text_among_numbers_is_told_with_its_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{20 + i % 30},{i % 2},{i % 5 or 'none'}\n" for i in range(60)]
    rows[41] = "abc,1,1\n"
    (tmp_path / "a.csv").write_text("age,y,b\n" + "".join(rows))
    schema_command.command(["a.csv", "--label", "y", "--out", "s.yaml"])
    said = capsys.readouterr().err
    assert "private: a.csv, line 43: column age is drafted as categories, since 'abc' is" in said
    assert "column b" not in said  # a fifth of which are texts
    assert schema.yaml_document("s.yaml")["columns"]["age"]["kind"] == "categorical"


@pytest.mark.parametrize(("text", "match"), [
    ("a,y\n", "a.csv: no rows"), (f"{'n' * 501},y\n1,b\n", "column 1 has a name of 501 letters"),
    ('a,y\n1,b\n2,"c\n3,d\n4,e\n', "line 3: .*correct the quotes")])
def test_what_no_draft_is_made_of_is_one_line_with_the_mend(tmp_path, monkeypatch, text, match):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(text)
    refused(match, schema_command.command, ["a.csv", "--label", "y", "--out", "s.yaml"])
    assert not (tmp_path / "s.yaml").exists()


@pytest.fixture
def drafted(tmp_path, monkeypatch):
    """A file with all of them, and its draft."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("".join(
        ",".join(f'"{cell}"' for cell in row) + "\n"
        for row in zip(*([name, *cells] for name, (cells, _) in COLUMNS.items()),
                       ["y", *"ab" * (N // 2)], strict=True)))
    schema_command.command(["a.csv", "--label", "y", "--out", "s.yaml"])
    return tmp_path


def test_a_draft_reads_its_own_file_and_owns_up_to_all_it_read(drafted):
    data = load("csv:a.csv", schema="s.yaml")
    assert not data.private_notes
    header, rows = constraints.written_cells(data.spec, transform.decode(data.spec, data.x_train),
                                             data.y_train)
    cells = dict(zip(header, zip(*rows, strict=True), strict=True))
    # Of years the seconds are too many to come back, and a hard space becomes a plain one.
    for name in set(COLUMNS) - {"id", "number", "pay", "whole", "stamp", "abroad", "francs"}:
        assert list(cells[name]) == COLUMNS[name][0], name
    assert cells["id"][:2] == ("P-00000", "P-00001")
    document = schema.yaml_document("s.yaml")
    drafts = {f"{name}.{key}" for name, made in document["columns"].items() for key in made}
    assert set(document["read_from_data"]) == drafts - {"y.kind"}
    sorts = " ".join(entry.what for entry in data.uncovered)
    for what in ("kinds of iso", "bounds of iso", "format of iso", "categories of alive",
                 "pattern of id", "special values of hours", "scale of pay"):
        assert what in sorts


def test_bounds_of_dates_and_amounts_are_bought(drafted, monkeypatch):
    """In the units of their codes, without special values, and widened to what can be written."""
    text = (drafted / "s.yaml").read_text()
    for name in ("iso", "stamp", "clock", "took", "price", "hours"):
        made = schema.yaml_document("s.yaml")["columns"][name]
        for key in ("min", "max"):
            start = text.index(f"    {key}:", text.index(f"  {name}:\n"))
            end = text.index("\n", start)
            text = f"{text[:start]}    {key}: private{text[end:]}"
        assert {"min", "max"} <= set(made)
    (drafted / "p.yaml").write_text(text)
    questions = []

    def bounds(values, epsilon, bits):
        codes = single_releases.unseal(values)
        questions.append(codes)
        return np.nanmin(codes) - 0.4, np.nanmax(codes) + 1e12 * (len(questions) == 1) + 0.004

    monkeypatch.setattr(purchase.single_releases, "bounds", bounds)
    schema_command.command(["a.csv", "--schema", "p.yaml", "--schema-epsilon", "1", "--out",
                            "b.yaml"])
    made = {column.name: column for column in schema.read("b.yaml").spec.columns}
    texts = schema.yaml_document("b.yaml")["columns"]
    assert questions[0].min() == made["iso"].low + 1 and texts["iso"]["max"] == "9999-12-31"
    assert (texts["clock"]["min"], texts["clock"]["max"]) == ("00:00", "23:59")
    assert texts["took"]["min"] == "-0:01" and texts["price"]["max"] == "69.26"
    assert np.isnan(questions[5]).sum() == 2 * N / 5  # special values have no part in the bounds
    assert not load("csv:a.csv", schema="b.yaml").private_notes
