"""`sample` and `Release.sample` with conditions, on a table whose weights are random."""

import csv
import dataclasses
import subprocess
import sys

import jax
import numpy as np
import pytest
from people_table import SPEC
from seeded import CASES, dataset
from untrained import release

from dpgen_jax import sample
from dpgen_jax.core.types import UserError
from dpgen_jax.release import sampling


@pytest.fixture
def table():
    return release("gpate", SPEC, (30, 10), **CASES["gpate table"].fields)


@pytest.fixture
def folder(table, tmp_path):
    return table.save(tmp_path / "release")


def test_conditions_in_python_and_on_the_command_line_draw_the_same(table, folder, call, tmp_path):
    pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[pandas]")
    out = tmp_path / "x.csv"
    code, said, err = call(sample, folder, "--n", 700, "--where", "ill=yes", "--where", "sex=f",
                           "--seed", 3, "--out", out)
    assert (code, err) == (0, "")
    frame = table.frame(700, seed=3, where={"ill": "yes", "sex": "f"})
    assert set(frame["ill"]) == {"yes"} and set(frame["sex"]) == {"f"} and len(frame) == 700
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["age"] for row in rows] == frame["age"].astype(str).tolist()
    exact, rejected = said.splitlines()[1:3]
    assert exact == "ill=yes: exact, by the model"
    assert rejected.startswith("sex=f: by rejection, ") and rejected.endswith(" %)")
    assert said.endswith(f"\n700 synthetic records: {out}\n")


def test_what_came_as_a_table_is_drawn_as_a_frame_and_images_as_arrays(table):
    pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[pandas]")
    frame = table.sample(40, ["yes"], seed=3, where="age>=10")
    assert frame.columns.tolist() == ["age", "sex", "pay", "mark", "ill"]
    assert frame.dtypes.astype(str).tolist() == [
        "int64", "category", "float64", "category", "category"]
    assert set(frame["ill"]) == {"yes"} and frame["age"].min() >= 10
    codes, labels = table.arrays(40, ["yes"], seed=3, where="age>=10")
    np.testing.assert_array_equal(frame["age"], codes[:, 0])
    np.testing.assert_array_equal(frame["ill"].cat.codes, labels)
    pd.testing.assert_frame_equal(table.frame(40, 3, ["yes"], "age>=10"), frame)
    images = release("datalens", dataset("images").spec, **CASES["datalens images"].fields)
    drawn, expected = images.sample(5, seed=1), images.arrays(5, seed=1)
    assert drawn[0].dtype == np.uint8 and drawn[0].shape == (5, *images.spec.shape)
    for ours, theirs in zip(drawn, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(UserError, match="makes images, not tables; use sample"):
        images.frame(5)


@pytest.mark.parametrize(("counts", "shares"), [
    ((30, 70), [0.3, 0.7]), ((-20, 99), [0.01, 0.99]), ((-5, -1), [0.5, 0.5])])
def test_no_class_is_lost_to_the_noise_of_its_count(table, counts, shares):
    made = dataclasses.replace(table, class_counts=counts)
    np.testing.assert_allclose(made.class_shares, shares)


def test_blocks_are_the_records_of_one_draw(table):
    x, y = table.arrays(1203, seed=4)
    blocks = list(table.stream(1203, seed=4))
    assert [len(labels) for _, labels in blocks] == [500, 500, 203]
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in blocks]), x)
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in blocks]), y)
    assert abs((y == 0).mean() - 0.75) < 0.1  # as the counts say


def test_keys_of_places_beyond_32_bits_are_told_apart():
    places = (0, 500, 2**32 - 296, 2**32, 2**32 + 500, 3 * 2**32 + 500)
    keys = {tuple(jax.random.key_data(sampling.key_at(jax.random.fold_in, jax.random.key(1), at)
                                      ).tolist()) for at in places}
    assert len(keys) == len(places)


@pytest.mark.parametrize(("words", "message"), [
    (["--where", "age>=200"], "no record can meet age>=200"),
    (["--where", "agee=1"], "no column is named 'agee', did you mean 'age'"),
    (["--where", "ill=no", "--label", "yes"], "label 1 does not meet ill=no"),
    (["--where", "age=3", "--where", "mark=low", "--where", "pay=0", "--max-tries", 1000],
     "0 of 20 records that meet age=3 and mark=low and pay=0 were found in 1,000 tries"),
    (["--n", 10**30], "at most")])
def test_what_cannot_be_met_writes_nothing(folder, call, tmp_path, words, message):
    words = words if "--n" in words else ["--n", 20, *words]
    code, said, err = call(sample, folder, *words, "--out", tmp_path / "x.csv")
    assert (code, said) == (2, "") and err.startswith("error: ") and err.count("\n") == 1
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


def test_labels_by_name_and_what_is_no_label(table):
    assert table.arrays(3, "yes")[1].tolist() == [1, 1, 1]
    assert table.arrays(3, [0, 1])[1].tolist() == [0, 1, 0]
    for labels, message in (("maybe", "'maybe' is not one of no, yes"), (1.5, "labels are float64"),
                            (2, "label 2 is not in 0..1")):
        with pytest.raises(UserError, match=message):
            table.arrays(3, labels)


def test_parquet_reads_back_as_it_was_written(table, folder, call, tmp_path):
    pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[parquet]")
    pytest.importorskip("pyarrow", reason="an extra")
    code, _, err = call(sample, folder, "--n", 30, "--seed", 5, "--out", tmp_path / "x.parquet")
    assert (code, err) == (0, "")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "x.parquet"), table.frame(30, seed=5))


@pytest.mark.slow
def test_drawing_loads_no_reader_and_nothing_of_a_run(folder, tmp_path):
    """Whoever gets a release needs nothing that reads, trains, federates or audits."""
    code = f"""import sys
from dpgen_jax import sample
sample.command([{str(folder)!r}, "--n", "3", "--out", {str(tmp_path / "x.csv")!r}])
print(*(name for name in sys.modules if name.startswith("dpgen_jax.")))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("dpgen_jax.") for name in done.stdout.splitlines()[-1].split()}
    assert "release.bundle" in loaded
    assert not {name for name in loaded
                if name.split(".")[0] in {"run", "federated", "audit", "private", "evaluation"}}
    assert {name for name in loaded if name.startswith("data")} <= {
        "data", "data.table", "data.table.columns", "data.table.constraints", "data.table.rules",
        "data.table.transform"}
