"""The same cells in any file and frame give the same schema, charges and arrays."""

import numpy as np
import pandas as pd
import pytest
from test_fit_frame import bought, without_ids  # noqa: F401  (a fixture)

from dpgen_jax.accountant import ledger as books
from dpgen_jax.data.table import schema

N = 1000


def texts():
    """A table of texts: numbers, codes, stamps of two zones, nulls and letters beyond ASCII."""
    rng = np.random.default_rng(0)
    days = pd.to_datetime("2020-01-01", utc=True) + pd.to_timedelta(rng.integers(0, 4e7, N), "s")
    made = pd.DataFrame({
        "age": rng.integers(18, 90, N).astype(str),
        "pay": [f"{value:.2f}" for value in rng.lognormal(6, 1, N)],
        "city": rng.choice(["Köln", "Bonn", ""], N), "ok": rng.choice(["True", "False"], N),
        "code": rng.choice(["001", "002"], N),
        "seen": days.tz_convert("Europe/Berlin").map(str),
        "late": rng.choice(["no", "yes"], N)})
    made.loc[rng.random(N) < 0.2, "age"] = ""
    return made


def with_commas(made):
    return made.assign(pay=made["pay"].str.replace(".", ","))


FORMS = {
    "comma": lambda made: made.to_csv("t.csv", index=False),
    "semicolon": lambda made: made.to_csv("t.csv", index=False, sep=";"),
    "tab": lambda made: made.to_csv("t.csv", index=False, sep="\t"),
    "decimal comma": lambda made: with_commas(made).to_csv("t.csv", index=False, sep=";"),
    "BOM": lambda made: made.to_csv("t.csv", index=False, encoding="utf-8-sig"),
    "UTF-16": lambda made: made.to_csv("t.csv", index=False, encoding="utf-16"),
    "Parquet": lambda made: made.replace("", None).to_parquet("t.parquet"),
    "frame": lambda made: made.replace("", None)}


def given(form, made):
    """The table in a form: a frame, or the path of a file."""
    frame = FORMS[form](made)
    return ("t.parquet" if form == "Parquet" else "t.csv") if frame is None else frame


def of_files(data):
    return {"test_fraction": 0.0} if isinstance(data, str) else {}


def read(bought, form, made, out, **options):  # noqa: F811
    data = given(form, made)
    return bought(data, out=out, **of_files(data), **options)[1]


@pytest.mark.parametrize("form", [form for form in FORMS if form != "frame"])
def test_all_forms_of_the_same_cells_give_the_same(bought, tmp_path, form):  # noqa: F811
    first, second = (read(bought, one, texts(), f"run{i}") for i, one in enumerate(("frame", form)))
    documents, charges = [], []
    for i in range(2):
        documents.append(without_ids(schema.document(str(tmp_path / f"run{i}/schema.yaml"))))
        documents[i].pop("file", None)
        charges.append(without_ids([line["events"] for line in books.read(
            tmp_path / f"run{i}/ledger.jsonl") if "events" in line]))
    if form == "decimal comma":  # numbers with marks have no magnitudes: other noise of all bounds
        assert documents[1]["columns"]["pay"].pop("decimal_mark") == ","
        for document in documents:
            for entries in document["columns"].values():
                for key in ("min", "max", "odd"):
                    entries.pop(key, None)
    else:
        np.testing.assert_array_equal(first.x_train, second.x_train)
    assert documents[0] == documents[1] and charges[0] == charges[1] != []
    assert documents[0]["columns"]["seen"]["zone"] in ("+01:00", "+02:00")
    np.testing.assert_array_equal(first.y_train, second.y_train)


DECLARED = {"label": "late", "columns": {
    "age": {"kind": "integer", "min": 0, "max": 110, "nullable": True},
    "pay": {"kind": "continuous", "min": 0, "max": 99999, "decimals": 2, "dtype": "float64"},
    "city": {"kind": "categorical", "categories": ["Köln", "Bonn"], "nullable": True},
    "ok": {"kind": "boolean"}, "code": {"kind": "categorical", "categories": ["001", "002"]},
    "seen": {"kind": "datetime", "format": "%Y-%m-%d %H:%M:%S%z", "zone": "Europe/Berlin",
             "min": "2020-01-01 00:00:00", "max": "2022-01-01 00:00:00"},
    "late": {"kind": "categorical", "categories": ["no", "yes"]}}}


def typed():
    made = texts().replace("", None)
    return made.assign(
        age=pd.to_numeric(made["age"]).astype("Int8"), pay=made["pay"].astype(float),
        city=made["city"].astype("category"), ok=made["ok"] == "True",
        code=made["code"].astype("string"),
        seen=pd.to_datetime(made["seen"], utc=True).dt.tz_convert("Europe/Berlin"))


def test_a_typed_frame_and_typed_parquet_are_the_texts_under_one_schema(
        bought, tmp_path):  # noqa: F811
    import yaml

    typed().to_parquet("typed.parquet")
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(DECLARED))
    texts().to_csv("texts.csv", index=False)
    made = [bought(data, schema="s.yaml", out=f"run{i}", **of_files(data))[1]
            for i, data in enumerate((texts(), typed(), "typed.parquet", "texts.csv"))]
    for one in made:
        np.testing.assert_array_equal(one.x_train, made[0].x_train)
        assert one.spec == made[0].spec


CHANGES = {"age": ["x", ""], "pay": ["1e9"], "city": ["Rome"],
           "seen": ["2024-01-01", "2020-06-06 10:00:00-09:30"], "late": ["maybe"]}


@pytest.mark.parametrize("form", ["comma", "Parquet", "frame"])
def test_one_changed_cell_moves_nothing_public(bought, tmp_path, form):  # noqa: F811
    """Once the schema is bought, whose noisy counts are the only way to it."""
    before = read(bought, form, texts(), "run")
    schema_file = str(tmp_path / "run/schema.yaml")
    cases = [(name, cell) for name, cells in CHANGES.items() for cell in cells]
    for i, (name, cell) in enumerate(cases):
        changed = texts()
        changed.loc[5, name] = cell
        after = read(bought, form, changed, f"run{i}", schema=schema_file, label=None)
        assert after.spec == before.spec and after.notes == before.notes, (name, cell)
        apart = (after.x_train != before.x_train).any(1) | (after.y_train != before.y_train)
        assert set(np.flatnonzero(apart)) <= {5}, (name, cell)
