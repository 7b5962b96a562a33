"""`tfds:NAME`, on a data set that is prepared here without TensorFlow."""

import io
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from refusals import refused

from dpgen_jax import schema as schema_command
from dpgen_jax.core import console
from dpgen_jax.core.types import UserError
from dpgen_jax.data import load, tfds
from dpgen_jax.data.table import parsing, transform

pytest.importorskip("tensorflow_datasets")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data sets prepared in a random-access format."""
    from tiny_tfds.tiny_tfds_dataset_builder import TinyTable, TinyTexts, TinyTfds
    path = tmp_path_factory.mktemp("tfds")
    for builder in (TinyTfds, TinyTexts, TinyTable):
        builder(data_dir=path, file_format="array_record").download_and_prepare()
    return path


@pytest.fixture(autouse=True)
def data_dir(folder, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder))


@pytest.mark.parametrize("spec, name", [("tfds:tiny_tfds", "tiny_tfds"),
                                        ("tfds:tiny_tfds:1.0.0", "tiny_tfds-1.0.0")])
def test_reads_prepared_data(spec, name):
    data = load(spec)
    assert data.name == name
    assert data.spec.shape == (8, 8, 1) and data.spec.classes == 3
    assert (len(data.x_train), len(data.x_test)) == (12, 6)
    filled = data.x_train[:, 0, 0, 0]  # tfds shuffles the records
    assert sorted(filled) == [20 * i for i in range(12)]
    np.testing.assert_array_equal(data.y_train, filled // 20 % 3)
    assert (data.x_train == filled[:, None, None, None]).all() and not data.uncovered


@pytest.mark.parametrize(("shape", "image_size", "expected"), [
    ((None, None, 1), None, ["--image-size 8"]), ((None, None, 1), 8, []),
    ((8, 8, None), None, ["the number of channels in the data set's description"])])
def test_what_the_description_leaves_open_is_uncovered(shape, image_size, expected):
    """The first record decides it, so that replacing that record would change the schema."""
    found = tfds._undescribed(load("tfds:tiny_tfds"), shape, image_size)
    assert [entry.declare for entry in found] == expected


def test_resizes():
    assert load("tfds:tiny_tfds", image_size=4).spec.shape == (4, 4, 1)


def test_no_such_data_set():
    refused("not_there not found under .*TFDS_DATA_DIR", load, "tfds:not_there")
    refused("bad name! cannot be read .*; correct the name", load, "tfds:bad name!")


def prepared_as(folder, tmp_path, monkeypatch, file_format):
    """The data set, said to be prepared in another format."""
    shutil.copytree(folder / "tiny_tfds", tmp_path / "tiny_tfds")
    described = tmp_path / "tiny_tfds/1.0.0/dataset_info.json"
    described.write_text(described.read_text().replace('"array_record"', f'"{file_format}"'))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))


@pytest.mark.parametrize("file_format", ["tfrecord", "riegeli"])
def test_a_format_whose_reader_is_not_installed(folder, tmp_path, monkeypatch, file_format):
    prepared_as(folder, tmp_path, monkeypatch, file_format)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    refused(r"cannot be read \(split 'test'\) without the package "
            "tensorflow; pip install tensorflow, or prepare it again", load, "tfds:tiny_tfds")


@pytest.mark.slow
def test_tfrecord_is_read_with_tensorflow(folder, tmp_path, monkeypatch):
    """As tensorflow-datasets prepares where nobody names a format: the same records."""
    pytest.importorskip("tensorflow")
    from tiny_tfds.tiny_tfds_dataset_builder import TinyTfds
    TinyTfds(data_dir=tmp_path).download_and_prepare()
    expected = load("tfds:tiny_tfds")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert list(tmp_path.glob("tiny_tfds/1.0.0/*.tfrecord*"))
    data = load("tfds:tiny_tfds")
    assert data.spec == expected.spec
    for name in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(data, name), getattr(expected, name))


def test_files_that_do_not_hold_what_they_state(folder, tmp_path, monkeypatch):
    prepared_as(folder, tmp_path, monkeypatch, "array_record")
    for path in tmp_path.glob("tiny_tfds/1.0.0/*train.array_record*"):
        path.write_bytes(path.read_bytes()[:100])
    refused("tfds:tiny_tfds.*prepare it again", load, "tfds:tiny_tfds")


# What is not prepared is downloaded, if the user agrees.

@pytest.fixture
def unprepared(tmp_path, monkeypatch):
    """A data set whose code is known and whose files are not there."""
    from tiny_tfds.tiny_tfds_dataset_builder import TinyTfds
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(tfds, "_builder", lambda name: TinyTfds(data_dir=tmp_path))
    return tmp_path


def test_a_question_is_asked_once_and_names_the_size(unprepared):
    questions = []

    def agree(question):
        questions.append(question)
        return True

    for _ in range(2):
        data = tfds.tfds("tiny_tfds", None, None, confirm=agree)
        assert sorted(data.x_train[:, 0, 0, 0]) == [20 * i for i in range(12)]
    assert questions == [f"tfds:tiny_tfds is not prepared under {unprepared}. Download an unknown "
                         "number of bytes and prepare it there?"]
    assert list(unprepared.glob("tiny_tfds/1.0.0/*.array_record*"))


@pytest.mark.parametrize("answer", [False, None])
def test_without_agreement_nothing_is_downloaded(unprepared, answer):
    with pytest.raises(UserError, match="is not prepared under .*; pass --download to download"):
        tfds.tfds("tiny_tfds", None, None, confirm=lambda question: answer)
    assert not list(unprepared.iterdir())


def test_without_a_terminal_the_option_and_the_size_are_named():
    """The size is that of the four files of MNIST, by their recorded checksums."""
    refused("mnist is not prepared .*--download to download 11.06 MiB", load, "tfds:mnist")


def test_the_option_stands_for_the_answer(unprepared):
    def never(question):
        raise AssertionError(question)

    assert len(tfds.tfds("tiny_tfds", None, None, True, never).x_train) == 12
    refused("--download does not apply to glyphs", load, "glyphs", download=True)


@pytest.mark.parametrize(("error", "text"), [
    (ConnectionError("no route\nto host"), r"\(ConnectionError: no route\); prepare it on a"),
    (ModuleNotFoundError("No module named 'cv2.x'", name="cv2.x"), "the package cv2; pip install"),
    (AssertionError(""), r"\(AssertionError\); prepare it on a machine with a network")])
def test_what_cannot_be_prepared_is_one_line(unprepared, monkeypatch, error, text):
    from tiny_tfds.tiny_tfds_dataset_builder import TinyTfds

    def fail(self, **options):
        raise error

    monkeypatch.setattr(TinyTfds, "download_and_prepare", fail)
    refused(text, tfds.tfds, "tiny_tfds", None, None, True)


@pytest.mark.parametrize(("typed", "agreed"), [("y\n", True), ("YES\n", True), ("\n", False),
                                               ("n\n", False), ("", False)])
def test_a_question_at_a_terminal(monkeypatch, capsys, typed, agreed):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert console.confirm("Download?") is None  # nobody would see the question
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert console.confirm("Download?") is agreed
    assert shown.getvalue() == "Download? [y/N]\n"


def test_a_table_has_the_schema_of_its_description():
    """Names of classes and kinds are public; bounds stand in no description."""
    data = load("tfds:tiny_table")
    kinds = {column.name: (column.kind, column.low, column.high, column.categories,
                           column.nullable) for column in data.spec.all_columns}
    assert kinds == {
        "carat": ("continuous", 0, 4.75, (), True), "rooms": ("integer", 0, 19, (), False),
        "clear": ("categorical", 0, 0, ("false", "true"), False),
        "size[0]": ("continuous", 0, 19, (), False), "size[1]": ("continuous", -19, 0, (), False),
        "price": ("continuous", 0, 1900, (), False),
        "cut": ("categorical", 0, 0, ("Fair", "Good", "Ideal"), False)}
    assert data.spec.label.name == "cut" and (len(data.y_train), len(data.y_test)) == (20, 10)
    assert [entry.what for entry in data.uncovered] == [
        "bounds of carat, rooms, size[0], size[1], price read from private data",
        "nullability of carat, size[0], size[1], price read from private data",
        "kinds of rooms read from private data"]
    assert data.notes[2] == "features that are texts are left out: name"
    assert [column.name for column in data.spec.columns] == [
        "carat", "clear", "rooms", "size[0]", "size[1]", "price"]
    codes = transform.decode(data.spec, data.x_train)
    at = [column.name for column in data.spec.columns].index("price")
    assert sorted(np.round(codes[:, at])) == [100 * i for i in range(20)]


@pytest.mark.parametrize("cells", [1, 50, 10**6])
def test_a_table_with_a_schema_of_its_own(tmp_path, monkeypatch, cells):
    """A draft, edited; a text that it declares is a column too; in blocks of any size."""
    monkeypatch.setattr(parsing, "BLOCK_CELLS", cells)
    schema_command.command(["tfds:tiny_table", "--label", "clear", "--out", f"{tmp_path}/s.yaml"])
    text = (tmp_path / "s.yaml").read_text()
    assert "label: clear" in text and "name" not in text.split("columns:")[1]
    (tmp_path / "s.yaml").write_text(text[:text.index("read_from_data:\n")].replace(
        "columns:", "columns:\n  name: {kind: identifier, pattern: '##'}"))
    with pytest.raises(UserError, match="tfds:tiny_table, train: column 'name' is missing"):
        load("tfds:tiny_table", schema=f"{tmp_path}/s.yaml")
    names = ", ".join(f"stone {i}" for i in range(30))
    (tmp_path / "s.yaml").write_text(text[:text.index("read_from_data:\n")].replace(
        "columns:", f"columns:\n  name: {{kind: codes, categories: [{names}]}}"))
    data = load("tfds:tiny_table", schema=f"{tmp_path}/s.yaml")
    assert data.spec.columns[0].name == "name" and data.spec.label.name == "clear"
    assert not data.uncovered and data.spec.classes == 2
    assert sorted(transform.decode(data.spec, data.x_train)[:, 0]) == list(range(20))
    for option in ({"classes": 3}, {"image_size": 8}):
        refused("is a table, to which --", load, "tfds:tiny_table", **option)
    with pytest.raises(UserError, match="images need `label`, and take no --schema"):
        load("tfds:tiny_tfds", schema=f"{tmp_path}/s.yaml")


def test_a_table_without_classes_has_no_label():
    spec = load("tfds:tiny_texts").spec
    assert [column.name for column in spec.columns] == [f"words[{i}]" for i in range(4)]
    assert not spec.labelled


def test_other_class_count():
    refused("has 3 classes, --classes 5 was given", load, "tfds:tiny_tfds", classes=5)


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    refused("pip install tensorflow-datasets", load, "tfds:tiny_tfds")


def test_other_sources_import_none_of_it():
    code = ("import sys, dpgen_jax.data; "
            "print({'tensorflow_datasets', 'sklearn', 'matplotlib'} & set(sys.modules))")
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    out = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True,
                         check=True)
    assert out.stdout.strip() == "set()"
