"""Tables of which one person has many rows: what is read, refused and held out, and that nothing
public follows when all rows of one person are replaced."""

import dataclasses
import gzip
import types

import numpy as np
import pytest

from dpgen_jax.audit.folder import replay
from dpgen_jax.core.types import UserError
from dpgen_jax.data import load
from dpgen_jax.data.table import subjects

SCHEMA = """\
label: grade
columns:
  age: {kind: integer, min: 18, max: 90}
  job: {kind: categorical, categories: [cook, nurse]}
  grade: {kind: categorical, categories: [low, high]}
"""
DECLARED = SCHEMA.replace("columns:\n", "columns:\n  who: {kind: integer, min: 0, max: 99}\n")
OPTIONS = {"unit": "who", "rows_per_unit": 2}


def rows(person: int, count: int) -> list[str]:
    return [f"{person},{20 + person + i},{('cook', 'nurse')[i % 2]},{('low', 'high')[i % 2]}"
            for i in range(count)]


PEOPLE = [row for person in range(12) for row in rows(person, 1 + person % 4)]


@pytest.fixture
def read(tmp_path):
    """The data set of rows, as a CSV file of always the same name."""
    def inner(lines, schema=SCHEMA, test=None, header="who,age,job,grade", **options):
        (tmp_path / "s.yaml").write_text(schema)
        for name, part in (("people.csv", lines), ("test.csv", test or [])):
            (tmp_path / name).write_text("\n".join([header, *part]) + "\n")
        return load(f"csv:{tmp_path / 'people.csv'}", schema=str(tmp_path / "s.yaml"),
                    test_csv=str(tmp_path / "test.csv") if test else None, **OPTIONS | options)
    return inner


def public(data) -> dict:
    """All of a data set but what only the data holder may see: the number of rows too."""
    private = {"x_train", "y_train", "x_test", "y_test", "private_notes", "subjects", "content"}
    found = data.subjects
    return {field.name: getattr(data, field.name) for field in dataclasses.fields(data)
            if field.name not in private} | {
        "column": found.column, "rows": found.rows, "count": found.count,
        "shape": data.x_train.shape[1:], "types": data.x_train.dtype}


REPLACED = {"many rows": rows(5, 1000), "one row": rows(5, 1), "another name": rows(77, 3),
            "other rows": ['5,90,cook,low', '5,17,"nurse",high']}


@pytest.mark.parametrize("fraction", [None, 0.25])
@pytest.mark.parametrize("other", REPLACED.values(), ids=REPLACED)
def test_a_person_replaced_whole_changes_nothing_public(read, other, fraction):
    before = read(PEOPLE, test_fraction=fraction)
    rest = [row for row in PEOPLE if not row.startswith("5,")]
    for place in (0, 9, len(rest)):  # at any place of the file
        after = read([*rest[:place], *other, *rest[place:]], test_fraction=fraction)
        assert public(after) == public(before) and not after.uncovered

        def people(data):
            """The rows of each person, whatever the number that it has."""
            found = data.subjects
            return {bytes(name): sorted(map(bytes, data.x_train[found.train == i]))
                    for i, name in enumerate(found.ids)}

        one, two = people(before), people(after)
        assert len([name for name in one if one[name] != two.get(name)]) <= 1
        assert len([name for name in two if two[name] != one.get(name)]) <= 1


def test_a_share_is_held_out_by_whole_people(read):
    data = read(PEOPLE, test_fraction=0.25)
    found = data.subjects
    assert found.count == 9 and len({*found.test.tolist()}) == 3
    assert len(found.train) == len(data.y_train) and len(found.test) == len(data.y_test)
    assert len(data.y_train) + len(data.y_test) == len(PEOPLE)
    assert sorted({*found.train.tolist()}) == list(range(9))
    ages = [{*np.round(x[:, 0] * 72 + 18).astype(int).tolist()}
            for x in (data.x_train, data.x_test)]
    everyone = {20 + p + i for p in range(12) for i in range(1 + p % 4)}
    assert ages[0] | ages[1] == everyone
    assert any("all units (who)" in note for note in data.notes)
    again = read(PEOPLE[::-1], test_fraction=0.25)
    assert {bytes(name) for name in again.subjects.ids} == {bytes(name) for name in found.ids}


def test_the_column_is_no_feature_and_that_is_said(read):
    for schema in (SCHEMA, DECLARED):
        data = read(PEOPLE, schema)
        assert [column.name for column in data.spec.columns] == ["age", "job"]
        assert data.spec.label_position == 2
        removed = any("removed from the features" in note for note in data.notes)
        assert removed == (schema == DECLARED)
    listed = DECLARED + "read_from_data: [who.min, who.max]\n"
    assert read(PEOPLE, listed).uncovered == ()
    assert read(PEOPLE, DECLARED + "read_from_data: [age.min]\n").uncovered
    bought = ("bought:\n  - {entry: who.bounds, kind: epsilon-delta, mechanism: bounds, "
              "epsilon: 0.1, delta: 0.0, count: 1}\n")
    with pytest.raises(UserError, match="entries of column who were bought at the level of single"):
        read(PEOPLE, DECLARED + bought)  # what is spent is not forgotten with the column


def test_the_data_holder_alone_hears_how_many_rows_are_left_out(read):
    data = read(PEOPLE)
    assert "6 of 12 units (who) have more than 2 rows; 9 of 30 rows" in str(data.private_notes)
    assert "9 of 30" not in str(public(data)) and read(PEOPLE, rows_per_unit=4).private_notes == ()


FAULTS = {
    "no such column": ({"unit": "whom"}, "--unit 'whom': no such column, did you mean 'who'?"),
    "no limit": ({"rows_per_unit": None}, "--unit who needs --rows-per-unit K"),
    "no column": ({"unit": None}, "--rows-per-unit needs --unit COLUMN"),
    "none": ({"rows_per_unit": 0}, "--rows-per-unit 0: give a whole number from 1"),
    "below": ({"rows_per_unit": -3}, "--rows-per-unit -3"),
    "too many": ({"rows_per_unit": 10**6}, "--rows-per-unit 1000000: give a whole number"),
    "the label": ({"unit": "grade"}, "--unit grade is the label"),
    "a blank": ({"unit": " "}, "needs --unit COLUMN"),
}


@pytest.mark.parametrize("options, message", FAULTS.values(), ids=FAULTS)
def test_options_that_do_not_fit_are_refused_in_one_line(read, options, message):
    with pytest.raises(UserError) as caught:
        read(PEOPLE, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("cell", ["", "NA", " ? ", "null"])
def test_a_row_without_a_person_is_refused_by_its_line(read, cell):
    with pytest.raises(UserError, match="people.csv, line 4, column who: .* is null"):
        read([*PEOPLE[:2], f"{cell},30,cook,low", *PEOPLE[2:]])


def test_people_in_both_parts_are_refused(read):
    with pytest.raises(UserError, match="1 of the 2 units of the held-out part have rows in the"):
        read(PEOPLE, test=[*rows(3, 2), *rows(50, 2)])
    data = read(PEOPLE, test=rows(50, 3) + rows(51, 1))
    assert data.subjects.test.tolist() == [0, 0, 0, 1] and len(data.y_test) == 4
    with pytest.raises(UserError, match="test.csv: --unit 'who': no such column"):
        subjects.split(subjects.Cells("test.csv", {"age": ["1"]}, ["line 2"]), "who")


def test_a_column_of_identifiers_may_name_the_people(read):
    """It is never learned, and a release writes new ones."""
    bounds, pattern = "{kind: integer, min: 0, max: 99}", "{kind: identifier, pattern: p###}"
    declared = DECLARED.replace(bounds, pattern)
    data = read(PEOPLE, declared)
    assert data.subjects.count == 12 and [entry.name for entry in data.spec.identifiers] == ["who"]
    assert [column.name for column in data.spec.columns] == ["age", "job"]


def test_a_frame_brings_its_people(read, tmp_path):
    pandas = pytest.importorskip("pandas")
    (tmp_path / "f.yaml").write_text(DECLARED)
    cells = [row.split(",") for row in PEOPLE]
    frame = pandas.DataFrame(cells, columns=["who", "age", "job", "grade"])
    frame["age"] = frame["age"].astype(int)
    data = subjects.from_frame(frame, str(tmp_path / "f.yaml"), "who", 2)
    same = read(PEOPLE)
    np.testing.assert_array_equal(data.x_train, same.x_train)
    np.testing.assert_array_equal(data.subjects.train, same.subjects.train)
    with pytest.raises(UserError, match="frame, row 3, column who"):
        subjects.from_frame(frame.assign(who=[*cells[0][:1] * 3, None, *cells[0][:1] * 26]),
                            str(tmp_path / "f.yaml"), "who", 2)


def test_other_data_sets_take_no_unit():
    with pytest.raises(UserError, match="--unit does not apply to breast_cancer"):
        load("breast_cancer", unit="who", rows_per_unit=2)


def test_an_odd_column_of_names_is_taken_as_it_is(read):
    """Names are texts: 7 and 07 are two people, and neither quotes nor spaces around make one."""
    lines = ['"a, b",30,cook,low', "7,30,cook,low", "07,31,cook,high", " 7 ,32,nurse,low"]
    assert read(lines).subjects.train.tolist() == [0, 1, 2, 1]


def test_an_audit_finds_the_names_of_subjects_however_the_file_is_written(tmp_path):
    rows = "\n".join(["who;age", *(f"Zo\u00eb Number {i};{i}" for i in range(3)), ""])
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(rows.encode("utf-16")))
    dataset = types.SimpleNamespace(subjects=types.SimpleNamespace(column="who"))
    words = replay._subjects(dataset, f"csv:{tmp_path / 'a.csv.gz'}")
    assert [word.decode() for _, word in words] == [f"Zo\u00eb Number {i}" for i in range(3)]
