"""Files of samples: whole or not there, written block by block, and of the types that came in."""

import shutil
import tracemalloc

import numpy as np
import pytest
from people_table import SPEC, table

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.data.table import transform
from dpgen_jax.release import files

IMAGES = ImageSpec(4, 4, 1, 2)


def rows(n, seed=0):
    x, y = table(n, seed)
    return transform.decode(SPEC, x), y


def pictures(n):
    return np.random.default_rng(0).integers(0, 256, (n, 4, 4, 1)).astype(np.uint8), \
        np.resize([0, 1], n).astype(np.int32)


def write(out, spec, n, *rest):
    files.write(out, files.opener(out, spec, n), spec, n, *rest)


def blocks(x, y, size=7):
    for start in range(0, len(y), size):
        yield x[start:start + size], y[start:start + size]


def test_parquet_has_the_types_of_the_schema(tmp_path, monkeypatch):
    pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[parquet]")
    parquet = pytest.importorskip("pyarrow.parquet", reason="an extra")
    monkeypatch.setattr(files, "GROUP_CELLS", 100)  # rows of 20
    monkeypatch.setattr(files, "JUDGED", 7)  # before the first of them is written
    x, y = rows(50)
    write(tmp_path / "x.parquet", SPEC, 50, blocks(x, y))
    frame = pd.read_parquet(tmp_path / "x.parquet")
    assert frame.columns.tolist() == ["age", "sex", "pay", "mark", "ill"]
    assert frame.dtypes.astype(str).tolist() == [
        "int64", "category", "float64", "category", "category"]
    assert frame["mark"].cat.ordered and frame["ill"].cat.categories.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(frame["age"], x[:, 0])
    np.testing.assert_array_equal(frame["pay"].isna(), np.isnan(x[:, 2]))
    np.testing.assert_array_equal(frame["ill"].cat.codes, y)
    assert parquet.ParquetFile(tmp_path / "x.parquet").num_row_groups == 3


@pytest.mark.parametrize(("ending", "made", "spec"), [
    (".csv", rows, SPEC), (".npz", rows, SPEC), (".csv", pictures, IMAGES),
    (".npz", pictures, IMAGES), ("", pictures, IMAGES)])
def test_blocks_of_any_size_make_the_same_file(tmp_path, ending, made, spec):
    for name, size in (("a", 3), ("b", 30)):
        write(tmp_path / f"{name}{ending}", spec, 30, blocks(*made(30), size))
    a, b = ([path.read_bytes() for path in sorted((tmp_path / name).rglob("*.png"))] if not ending
            else (tmp_path / f"{name}{ending}").read_bytes() for name in "ab")
    if ending == ".npz":
        with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
            np.testing.assert_array_equal(a["x_train"], made(30)[0])
            np.testing.assert_array_equal(b["x_train"], made(30)[0])
            np.testing.assert_array_equal(a["y_train"], b["y_train"])
            assert a["classes"] == spec.classes and a["x_train"].dtype == made(1)[0].dtype
        return
    assert len(a) in (30, len(b)) and a == b


@pytest.mark.parametrize("ending", [".csv", ".npz", ".parquet", ".png", ""])
def test_a_run_that_breaks_leaves_nothing(tmp_path, ending):
    spec, made = (SPEC, rows) if ending == ".parquet" else (IMAGES, pictures)

    def breaking():
        yield from blocks(*made(40))
        raise UserError("no more of them are found")

    with pytest.raises(UserError, match="no more"):
        write(tmp_path / f"x{ending}", spec, 100, breaking())
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_will_not_fit_is_refused_early(tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(files, "JUDGED", 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 10**6))
    with pytest.raises(UserError, match=r"x.csv: 1,000,000 records would take about 0.0\d+ GB, "
                       "and 0.001 GB are free"):
        write(tmp_path / "x.csv", SPEC, 10**6, blocks(*rows(2000), 500),
                     taken.append)
    assert taken == [500, 500] and list(tmp_path.iterdir()) == []


def test_more_images_than_a_grid_holds_are_refused(tmp_path):
    with pytest.raises(UserError, match="10,001 images are too many for one grid; ask for 10,000"):
        files.opener(tmp_path / "x.png", IMAGES, 10_001)


@pytest.mark.parametrize("ending", [".csv", ".npz", ".parquet"])
def test_memory_does_not_grow_with_the_number_of_rows(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(files, "GROUP_CELLS", 5_000)
    block = rows(500)

    def peak(count):
        tracemalloc.start()
        try:
            write(tmp_path / f"{count}{ending}", SPEC, 500 * count, [block] * count)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2)  # what is imported and compiled once
    assert peak(24) < 1.2 * peak(6)
