"""Each type of pandas: which entries are bought or declared for it, and what comes out."""

import decimal
import re

import numpy as np
import pandas as pd
import pytest
from test_fit_frame import bought  # noqa: F401  (a fixture)

from dpgen_jax.core.types import UserError
from dpgen_jax.data.table import schema, transform
from dpgen_jax.release import files
from dpgen_jax.release.frames import to_frame

N = 1000
RNG = np.random.default_rng(0)
Y = RNG.choice(["no", "yes"], N)
FEW = RNG.choice(["mid", "low", "high"], N)
STAMPS = pd.Series(pd.to_datetime(RNG.integers(1_600_000_000, 1_700_000_000, N), unit="s"))
NS = pd.Series(pd.to_datetime(RNG.integers(16 * 10**17, 17 * 10**17, N)))
BERLIN = STAMPS.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
GAPS = np.where(RNG.random(N) < 0.2, None, RNG.integers(0, 50, N))
CATEGORIES = ["low", "mid", "high", "never"]


@pytest.fixture
def released(bought, tmp_path):  # noqa: F811
    """Fits a column beside a label; returns its entries and its cells as a release has them."""
    def inner(cells, name="x", **options):
        made = pd.DataFrame({name: cells, "late": Y})
        _, data = bought(made, **options)
        document = schema.document(str(tmp_path / "run/schema.yaml"))
        codes = transform.decode(data.spec, data.x_train)
        out = to_frame(data.spec, codes, data.y_train)
        assert list(out.columns) == [name, "late"] and data.spec.columns[0].name == str(name)
        return document["columns"][str(name)], out[name]
    return inner


@pytest.mark.parametrize(("cells", "entries", "dtype"), [
    (STAMPS, {"kind": "datetime", "format": "%Y-%m-%d %H:%M:%S"}, "datetime64[us]"),
    (NS, {"kind": "datetime", "format": "%Y-%m-%d %H:%M:%S.%f"}, "datetime64[us]"),
    (BERLIN.dt.tz_convert("UTC"), {"kind": "datetime", "zone": "+00:00"}, "datetime64[us, UTC]"),
    (BERLIN, {"kind": "datetime", "zone": "+02:00"}, "datetime64[us, UTC+02:00]"),
    (BERLIN.astype(object), {"zone": "+02:00"}, "datetime64[us, UTC+02:00]"),
    (STAMPS.dt.to_period("D"), {"kind": "date", "format": "%Y-%m-%d"}, "datetime64[us]"),
    (pd.Series([decimal.Decimal(int(value)) / 100 for value in RNG.integers(0, 9999, N)]),
     {"kind": "continuous"}, "float64"),
    (pd.to_timedelta(RNG.integers(0, 9999, N), "s"), {"kind": "duration"}, "timedelta64[us]"),
    (pd.array(GAPS, "Int64"), {"kind": "integer", "nullable": "true"}, "Int64"),
    (pd.array(GAPS, "int64[pyarrow]"), {"kind": "integer", "nullable": "true"}, "Int64"),
    (pd.array(FEW, "string[pyarrow]"), {"kind": "categorical"}, "category")])
def test_a_column_of_any_type_is_bought(released, cells, entries, dtype):
    made, out = released(cells)
    assert {key: made.get(key) for key in entries} == entries and str(out.dtype) == dtype
    assert out.isna().mean() == pytest.approx(pd.isna(cells).mean())


def test_moments_are_kept_to_the_resolution_of_what_is_trained_on(released):
    _, out = released(BERLIN)
    assert (out - BERLIN).abs().max() < pd.Timedelta(15, "s")  # years in 2^24 parts


@pytest.mark.parametrize("cells", [FEW, RNG.random(N), RNG.random(N) < 0.5, STAMPS])
def test_a_null_is_a_null(released, cells):
    nulls = RNG.random(N) < 0.2
    made, out = released(pd.Series(cells).astype(object).mask(nulls, None))
    assert made["nullable"] == "true" and out.isna().tolist() == nulls.tolist()


def test_numbers_and_few_texts_in_one_column_are_kept(released):
    cells = np.where(RNG.random(N) < 0.5, RNG.choice(["pass", "fail"], N),
                     RNG.choice(["1.0", "2.0", "3.0"], N))
    made, out = released(cells)
    assert {*made["categories"]} - {"other"} == {"pass", "fail", "1.0", "2.0", "3.0"}
    assert out.tolist() == cells.tolist()


def test_texts_among_many_numbers_are_null_and_a_public_line_says_how_many(bought):  # noqa: F811
    numbers = RNG.random(N).round(6)
    cells = pd.Series(np.where(RNG.random(N) < 0.3, "fail", numbers.astype(str)))
    request, data = bought(pd.DataFrame({"x": cells, "late": Y}))
    codes = transform.decode(data.spec, data.x_train)[:, 0]
    assert np.isnan(codes).tolist() == (cells == "fail").tolist()
    count = re.search(r"about (\d+) of 1,000 cells of x are of another kind than the others, and "
                      "are read as null: declare x", request.remarks[0])
    assert abs(int(count[1]) - (cells == "fail").sum()) < 100


def test_months_are_first_days(released):
    made, out = released(STAMPS.dt.to_period("M"))
    assert made["format"] == "%Y-%m" and (out.dt.day == 1).all()
    assert (out.dt.to_period("M") == STAMPS.dt.to_period("M")).all()


def test_a_column_without_a_value_is_null(released):
    made, out = released(np.full(N, np.nan))
    assert made["nullable"] == "true" and out.isna().all()


@pytest.mark.parametrize(("cells", "entries", "dtype"), [
    (pd.Categorical(FEW, CATEGORIES, ordered=True),
     {"kind": "ordinal", "categories": CATEGORIES, "nullable": "true"}, None),
    (pd.Categorical(FEW, CATEGORIES), {"kind": "categorical", "categories": CATEGORIES}, None),
    (BERLIN, {"kind": "datetime", "zone": "Europe/Berlin"}, "datetime64[us, Europe/Berlin]"),
    (BERLIN.dt.as_unit("s"), {"zone": "Europe/Berlin"}, "datetime64[s, Europe/Berlin]"),
    (pd.array(FEW, "string"), {"kind": "categorical", "dtype": "string"}, "string"),
    (RNG.integers(0, 50, N).astype(np.int8), {"kind": "integer", "dtype": "int8"}, "int8"),
    (RNG.random(N) < 0.5, {"kind": "boolean", "nullable": "false"}, "bool"),
    (pd.array(RNG.random(N) < 0.5, "boolean"), {"nullable": "true"}, "boolean"),
    (pd.array(RNG.random(N) < 0.5, "bool[pyarrow]"), {"nullable": "true"}, "boolean")])
def test_types_that_are_declared_are_kept(released, cells, entries, dtype):
    made, out = released(cells, types_declared=True)
    assert {key: made.get(key) for key in entries} == entries
    if dtype is None:
        assert out.dtype == cells.dtype and out.tolist() == list(cells)
    else:
        assert str(out.dtype) == dtype


def test_names_that_are_whole_numbers_stay_whole_numbers(bought):  # noqa: F811
    _, data = bought(pd.DataFrame({0: FEW, "1": GAPS, 2: Y}), label=2)
    assert data.spec.numbered == ("0", "2") and data.spec.label.name == "2"
    out = to_frame(data.spec, transform.decode(data.spec, data.x_train), data.y_train)
    assert list(out.columns) == [0, "1", 2]


def test_a_frame_whose_types_declare_all_of_it_buys_nothing(bought, tmp_path):  # noqa: F811
    made = pd.DataFrame({"x": pd.Categorical(FEW, CATEGORIES), "late": pd.Categorical(Y)})
    request, data = bought(made, types_declared=True)
    assert not data.bought and not (tmp_path / "run/schema.yaml").exists()
    assert data.spec.columns[0].categories == tuple(CATEGORIES)
    assert request.stated.data["schema"]["columns"]["x"]["categories"] == CATEGORIES


def test_the_zone_alone_may_be_declared(released):
    document = {"columns": {"x": {"zone": "Europe/Berlin"}}}
    made, out = released(STAMPS.map(str), schema=document)
    assert (made["zone"], made["format"]) == ("Europe/Berlin", "%Y-%m-%d %H:%M:%S")
    assert str(out.dtype) == "datetime64[us, Europe/Berlin]"


@pytest.mark.parametrize(("options", "text"), [
    ({"schema": {"columns": {"x": {"zone": "Berlin"}}}}, "column x: zone is 'Berlin'"),
    ({"schema": {"columns": {"x": {"dtype": "int9"}}}}, "column x: dtype is 'int9'"),
    ({"schema": {"columns": {"x": {"min": "1"}}}}, "column x: kind is missing")])
def test_a_part_of_a_column_that_means_nothing_is_refused(released, tmp_path, options, text):
    with pytest.raises(UserError, match=text):
        released(STAMPS, **options)
    assert not list(tmp_path.glob("run*"))


def test_types_are_declared_of_a_frame_only(bought, tmp_path):  # noqa: F811
    (tmp_path / "a.csv").write_text("x,late\n1,no\n")
    with pytest.raises(UserError, match="types_declared is of a DataFrame"):
        bought("a.csv", types_declared=True)


def test_files_have_names_that_are_texts(bought, tmp_path):  # noqa: F811
    _, data = bought(pd.DataFrame({0: FEW, 1: BERLIN, 2: Y}), label=2, types_declared=True)
    codes = transform.decode(data.spec, data.x_train)
    for ending in (".csv", ".parquet"):
        with files.TABLES[ending](tmp_path / f"x{ending}", data.spec, N) as write:
            write(codes, data.y_train)
    assert (tmp_path / "x.csv").read_text().startswith("0,1,2\n")
    out = pd.read_parquet(tmp_path / "x.parquet")
    assert list(out.columns) == ["0", "1", "2"] and str(out["1"].dt.tz) == "Europe/Berlin"


def test_what_a_schema_declares_goes_before_the_types(bought):  # noqa: F811
    made = pd.DataFrame({"x1": RNG.random(N), "x2": RNG.random(N),
                         "o": pd.Series(RNG.choice([True, False], N), dtype=object),
                         "c": pd.Categorical(FEW, CATEGORIES), "late": Y})
    document = {"columns": {"x1..x2": {"kind": "continuous", "min": 0, "max": 5},
                            "c": {"kind": "categorical", "categories": ["low", "x"], "other": "x"}}}
    _, data = bought(made, schema=document, types_declared=True)
    x, _, boolean, category = data.spec.columns
    assert x.high == 5 and category.categories == ("low", "x")
    assert boolean.dtype == ""  # pandas infers the type of objects from the rows


def test_an_identifier_that_is_bought_takes_no_type(bought, tmp_path):  # noqa: F811
    accounts = pd.array([f"{number:018d}" for number in RNG.integers(1, 10**17, N)], "string")
    made = pd.DataFrame({"x": RNG.random(N), "account": accounts, "late": Y})
    _, data = bought(made, types_declared=True)
    entries = schema.document(str(tmp_path / "run/schema.yaml"))["columns"]["account"]
    assert entries == {"kind": "identifier", "pattern": "#" * 18}
    assert [one.name for one in data.spec.identifiers] == ["account"]
