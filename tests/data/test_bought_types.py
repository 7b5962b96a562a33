"""Types and what is bought: a purchase never ends in a schema that is refused."""

import numpy as np
import pytest

from dpgen_jax import schema as schema_command
from dpgen_jax.core.types import UserError
from dpgen_jax.data.table import schema
from dpgen_jax.data.table.parsing import Cells
from dpgen_jax.run.purchase import Price, buy_entries

ROWS = 4000


def bought(entries, texts, delta=0.0, label="y"):
    """The entries of a column `a` after a purchase by the real queries, and what was charged."""
    charged = []
    others = {"b": {"kind": "integer", "min": "0", "max": "9"},
              "y": {"kind": "categorical", "categories": ["0", "1"]}}
    document = {"label": label, "columns": {"a": entries} | {
        name: column for name, column in others.items() if label == "y" or name != "y"}}
    cells = Cells("table", {name: texts if name == "a" else ["0", "1"] * (ROWS // 2)
                            for name in document["columns"]}, [str(i) for i in range(ROWS)])
    made = buy_entries(document, cells, Price(50.0, delta), "draft",
                       lambda events: charged.extend(events) or events)
    return made["columns"]["a"], schema.parse(made, "bought"), charged


@pytest.mark.parametrize(("dtype", "low", "high", "ends"), [
    ("int8", 0, 119, (-1, 127)), ("uint8", 0, 250, (0, 255)), ("UInt16", 3, 9, (0, 16)),
    ("int16", -100, 100, (-128, 128))])
def test_bounds_stay_within_a_type_of_whole_numbers(dtype, low, high, ends):
    texts = [str(value) for value in np.linspace(low, high, ROWS).astype(int)]
    entries, made, _ = bought({"kind": "integer", "min": "private", "max": "private",
                               "dtype": dtype}, texts)
    column, = (column for column in made.spec.columns if column.name == "a")
    assert entries["dtype"] == dtype
    assert ends[0] <= column.low < (low + high) / 2 < column.high <= ends[1]


def test_a_type_that_does_not_hold_what_was_bought_is_left_out():
    texts = [str(value) for value in np.linspace(0, 60_000, ROWS).astype(int)]
    entries, _, charged = bought({"kind": "integer", "min": "private", "max": "private",
                                  "dtype": "float16"}, texts)
    assert "dtype" not in entries and len(charged) == 1
    entries, _, _ = bought({"kind": "categorical", "categories": "private", "dtype": "int64"},
                           ["1", "2"] * (ROWS // 2), 1e-6)
    assert entries["categories"] == ["1", "2", "other"] and "dtype" not in entries


def test_classes_that_are_bought_keep_their_type():
    entries, made, _ = bought({"kind": "categorical", "categories": "private", "dtype": "int64"},
                              ["1", "2"] * (ROWS // 2), 1e-6, label="a")
    assert entries["dtype"] == made.spec.label.dtype == "int64"


@pytest.mark.parametrize("entries", [
    {"kind": "integer", "min": "private", "max": "private", "dtype": "int31"},
    {"kind": "categorical", "categories": "private", "dtype": "int31"}])
def test_an_unknown_type_is_refused_before_anything_is_charged(entries):
    charged = []
    with pytest.raises(UserError, match="dtype is 'int31'; known for such a column"):
        buy_entries({"columns": {"a": entries}}, Cells("table", {"a": ["1", "2"]}, ["0", "1"]),
                    Price(1.0, 1e-6 * ("categories" in entries)), "draft", charged.append)
    assert not charged


def test_a_draft_of_a_parquet_file_can_be_bought(tmp_path, monkeypatch):
    """As its header advises: bounds in place of which stands the word `private`."""
    pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[parquet]")
    pytest.importorskip("pyarrow", reason="an extra")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "state"))
    i = np.arange(ROWS)
    pd.DataFrame({"a": (i % 120).astype("int8"), "t": pd.to_timedelta(i, "s"),
                  "y": i % 2}).to_parquet("a.parquet")
    schema_command.command(["a.parquet", "--label", "y", "--out", "s.yaml"])
    lines = (tmp_path / "s.yaml").read_text().splitlines()
    private = [line.split(":")[0] + ": private" if line.strip().startswith(("min:", "max:"))
               else line for line in lines]
    (tmp_path / "p.yaml").write_text("\n".join(private) + "\n")
    schema_command.command(["a.parquet", "--schema", "p.yaml", "--schema-epsilon", "40", "--out",
                            "b.yaml"])
    columns = {column.name: column for column in schema.read("b.yaml").spec.columns}
    assert columns["a"].dtype == "int8" and 119 <= columns["a"].high <= 127
    assert columns["t"].written == "duration" and columns["t"].high >= ROWS - 1
