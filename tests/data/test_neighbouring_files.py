"""Neighbouring data sets as files: one record's bytes, label, colour, size or class folder change,
and everything public stays byte for byte, or the load is refused, or it says what is not covered.
"""

import json
import struct
from collections import Counter

import h5py
import numpy as np
import pytest
import runs
import small_datalens
import test_celeba
import test_cifar10
import test_femnist
from PIL import Image
from refusals import refused

from dpgen_jax.core import arrays
from dpgen_jax.core.terms import ProtectedUnit
from dpgen_jax.core.types import EMPTY, UserError, unseal
from dpgen_jax.data import cache, from_arrays, load
from dpgen_jax.data.images import files
from dpgen_jax.private import records as sealing
from dpgen_jax.release.guarantee import Protected
from dpgen_jax.run import planning

N = 12


def public(data):
    """The bytes that a run writes down at its start."""
    request = runs.request(None)
    who = Protected(ProtectedUnit(), {"records": len(data.y_train)}, data.notes,
                    tuple(part.what for part in data.uncovered))
    return json.dumps([planning.public_config(request, request.config, data, who), data.notes])


def draw(path, value=90, mode="L", size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = {"L": value, "I;16": 257 * value, "F": value}.get(mode, (value, 0, 0, 9))
    Image.new(mode, size, colour if isinstance(colour, int) else colour[:len(mode)]).save(
        path, path.suffix[1:].replace("jpg", "jpeg") if mode != "F" else "tiff")


# Each loader: a data set in a folder, and what is passed to `load`.

def folder(root):
    for i in range(N):
        draw(root / "train" / "ab"[i % 2] / f"{i:02}.png", 10 * i)
    return f"folder:{root}"


def celeba(root):
    return f"celeba:{test_celeba.write(root)}"


def places(root):
    for i in range(N):
        draw(root / "train" / ("alley", "bedroom")[i % 2] / f"{i:02}.jpg", 10 * i)
    return f"places365:{root}"


def places_lists(root):
    for i in range(N):
        draw(root / "data_256" / f"{i:02}.jpg", 10 * i)
    (root / "val_256").mkdir()
    for name, text in (("categories_places365", "/a/alley 0\n/b/bedroom 1\n/k/kitchen 2\n"),
                       ("places365_train_standard", "".join(
                           f"/{i:02}.jpg {i % 2}\n" for i in range(N))),
                       ("places365_val", "")):
        (root / f"{name}.txt").write_text(text)
    return f"places365:{root}"


def idx(root):
    x, y = np.arange(N * 64, dtype=np.uint8), np.arange(N, dtype=np.uint8) % 10
    (root / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, N, 8, 8) + x.tobytes())
    (root / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, N) + y.tobytes())
    return f"idx:{root}"


def npz(root, change=lambda x, y: None):
    x, y = np.arange(N * 64.0).reshape(N, 8, 8) / (64 * N), np.arange(N) % 3
    change(x, y)
    np.savez(root / "a.npz", x_train=x, y_train=y, classes=3)
    return f"npz:{root / 'a.npz'}"


def features(root, change=lambda x, y: None):
    x, y = np.arange(N * 6.0).reshape(N, 6) / (6 * N), np.arange(N) % 3
    x[9] = 0
    change(x, y)
    np.savez(root / "a.npz", x_train=x, y_train=y, classes=3, features_bound=4.0,
             features_empty=np.arange(N) == 9, features_notes=np.array(["public"]))
    return f"npz:{root / 'a.npz'}"


def cifar10(root):
    return f"cifar10:{test_cifar10.write(root / 'c', test_cifar10.binary, '.bin')}"


def femnist(root):
    return f"femnist:{test_femnist.write(root / 'fed_emnist_train.h5')}"


def csv(root):
    (root / "a.csv").write_text("age,ward\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(N)))
    (root / "s.yaml").write_text("label: ward\ncolumns:\n  age: {kind: integer, min: 0, max: 9}\n"
                                 "  ward: {kind: categorical, categories: [a, b, c]}\n")
    return f"csv:{root / 'a.csv'}"


# Each edit: what befalls one record of it.

def at(name, offset, byte):
    """The byte of a file becomes another."""
    def edit(root):
        data = bytearray((root / name).read_bytes())
        data[offset] = byte
        (root / name).write_bytes(data)
    return edit


def move(first, second):
    def edit(root):
        (root / second).parent.mkdir(exist_ok=True)
        (root / first).rename(root / second)
    return edit


def say(name, old, new):
    return lambda root: test_celeba.edit(root / name, old, new)


def writer(part, value):
    def edit(root):
        with h5py.File(root / "fed_emnist_train.h5", "a") as file:
            file[f"examples/f0000_14/{part}"][1] = value
    return edit


IMAGE, FACE, PLACE = "train/a/04.png", "img_align_celeba/000003.jpg", "train/alley/04.jpg"
DECLARED = {"channels": 1, "class_names": "a,b,c", "image_size": 8}
SKIP = DECLARED | {"skip_bad": True}
NAMES = {"class_names": "alley,bedroom,kitchen"}
CSV = {"schema": "s.yaml"}
EDITS = {
    "bytes": lambda root: draw(root / IMAGE, 7), "spoilt": lambda root: (
        root / IMAGE).write_bytes(b"no image"),
    "colour": lambda root: draw(root / IMAGE, 7, "RGB"),
    "deep": lambda root: draw(root / IMAGE, 7, "I;16"),
    "alpha": lambda root: draw(root / IMAGE, 7, "RGBA"),
    "floats": lambda root: draw(root / IMAGE, 7, "F"),
    "size": lambda root: draw(root / IMAGE, 7, size=(30, 20)),
    "class": move(IMAGE, "train/b/04.png"), "absent class": move(IMAGE, "train/c/04.png"),
    "own class": move(IMAGE, "train/e/04.png"),
}
CASES = [
    *((folder, DECLARED, EDITS[name], "same") for name in (
        "bytes", "colour", "deep", "alpha", "size", "class", "absent class")),
    *((folder, DECLARED, EDITS[name], "refused") for name in ("own class", "spoilt", "floats")),
    *((folder, SKIP, EDITS[name], "same") for name in ("spoilt", "floats", "deep")),
    *((folder, {}, EDITS[name], "uncovered") for name in ("colour", "own class")),
    (folder, {"image_size": 8, "channels": 1}, EDITS["own class"], "uncovered"),
    (folder, {"image_size": 8, "class_names": "a,b"}, EDITS["colour"], "uncovered"),
    (celeba, {}, say("list_attr_celeba.txt", " 1   1\n", "-1   1\n"), "same"),
    (celeba, {}, say("list_attr_celeba.txt", "000003.jpg",
                     "000002.jpg" + "  1" * 6 + "\x0b000003.jpg"), "refused"),
    (celeba, {}, say("list_attr_celeba.txt", "000003.jpg",
                     "000002.jpg" + "  1" * 6 + "\n000003.jpg"), "refused"),
    (celeba, {}, say("list_attr_celeba.txt", "000003.jpg", "000002.jpg"), "refused"),
    (celeba, {}, lambda root: draw(root / FACE, 7, "L", (50, 90)), "same"),
    (celeba, {"skip_bad": True}, lambda root: (root / FACE).write_bytes(b""), "same"),
    (celeba, {"attribute": "hair"}, say(  # 3 has brown hair, and then black hair too
        "list_attr_celeba.txt", "000003.jpg  -1  -1", "000003.jpg  -1   1"), "same"),
    (celeba, {"split": "train+val", "resize": "stretch"},
     say("list_attr_celeba.txt", " 1   1\n", "-1   1\n"), "same"),
    (places, NAMES, move(PLACE, "train/bedroom/04.jpg"), "same"),
    (places, NAMES, move(PLACE, "train/kitchen/04.jpg"), "same"),
    (places, NAMES, lambda root: draw(root / PLACE, 7, "RGB", (70, 90)), "same"),
    (places, NAMES | {"skip_bad": True}, lambda root: (root / PLACE).write_bytes(b""), "same"),
    (places, NAMES, move(PLACE, "train/moon/04.jpg"), "refused"),
    (places, {}, move(PLACE, "train/moon/04.jpg"), "uncovered"),
    (places, {"attribute": "alley;bedroom"}, move(PLACE, "train/moon/04.jpg"), "uncovered"),
    (places, {"attribute": "alley;bedroom", "per_class": 1}, move(PLACE, "train/moon/04.jpg"),
     "uncovered"),
    (places_lists, {}, say("places365_train_standard.txt", "04.jpg 0", "04.jpg 2"), "same"),
    (places_lists, {"attribute": "alley;bedroom"},
     say("places365_train_standard.txt", "04.jpg 0", "04.jpg 2"), "uncovered"),
    (idx, {}, at("train-images-idx3-ubyte", 400, 255), "same"),
    (idx, {}, at("train-labels-idx1-ubyte", 12, 9), "same"),
    (idx, {}, at("train-labels-idx1-ubyte", 12, 10), "refused"),
    (npz, {}, lambda root: npz(root, lambda x, y: x.__setitem__(4, 1.0)), "same"),
    (npz, {}, lambda root: npz(root, lambda x, y: y.__setitem__(4, 2)), "same"),
    (npz, {}, lambda root: npz(root, lambda x, y: y.__setitem__(4, EMPTY)), "refused"),
    (npz, {}, lambda root: npz(root, lambda x, y: x.__setitem__(4, np.nan)), "refused"),
    (features, {}, lambda root: features(root, lambda x, y: x.__setitem__(4, 1.0)), "same"),
    (features, {}, lambda root: features(root, lambda x, y: y.__setitem__(4, 2)), "same"),
    (features, {}, lambda root: features(root, lambda x, y: x.__setitem__(4, 1.1)), "refused"),
    (cifar10, {}, at("c/data_batch_2.bin", 100, 255), "same"),
    (cifar10, {}, at("c/data_batch_2.bin", 0, 9), "same"),
    (cifar10, {}, at("c/data_batch_2.bin", 0, 10), "refused"),
    (femnist, {}, writer("pixels", 0.5), "same"), (femnist, {}, writer("label", 60), "same"),
    (femnist, {"classes": 36}, writer("label", 10), "same"),
    (femnist, {}, writer("label", 62), "refused"), (femnist, {}, writer("label", -1), "refused"),
    *((csv, CSV, say("a.csv", "4,a", new), "same") for new in ("99999,a", "4,c")),
    (csv, CSV, say("a.csv", "4,a", "4,d"), "refused")]


@pytest.mark.parametrize(("make", "options", "edit", "outcome"), CASES, ids=[
    f"{case[0].__name__}-{i}-{case[3]}" for i, case in enumerate(CASES)])
def test_one_record_changes_nothing_public(tmp_path, monkeypatch, make, options, edit, outcome):
    monkeypatch.chdir(tmp_path)
    spec = make(tmp_path)
    before = load(spec, **options)
    edit(tmp_path)
    if outcome == "refused":
        with pytest.raises(UserError) as caught:
            load(spec, **options)
        assert "\n" not in str(caught.value)
        return
    after = load(spec, **options)
    if outcome == "uncovered":
        assert before.uncovered and after.uncovered
        return
    assert public(after) == public(before) and not (*before.uncovered, *after.uncovered)
    changed = [i for i in range(len(before.y_train))
               if (before.x_train[i] != after.x_train[i]).any()
               or before.y_train[i] != after.y_train[i]]
    assert len(changed) == 1


def test_what_is_made_public_of_single_records_is_listed(tmp_path):
    """The two attacks on an undeclared schema: each entry names the option that ends it."""
    spec = folder(tmp_path)
    data = load(spec)
    options = dict(zip(("class_names", "channels", "image_size"), (
        entry.declare.split()[1] for entry in data.uncovered), strict=True))
    options |= {name: int(options[name]) for name in ("channels", "image_size")}
    declared = load(spec, **options)
    assert not declared.uncovered and declared.spec == data.spec
    assert declared.spec.class_names == data.spec.class_names == ("a", "b")


@pytest.mark.parametrize(("labels", "classes", "expected"), [
    ([0, 1, 2], None, ("classes=3",)), ([0, 1, 2], 3, ()), ([0, 0, 0], None, ("classes=1",))])
def test_classes_that_are_read_off_labels_are_listed(labels, classes, expected):
    data = from_arrays(np.zeros((3, 8, 8), np.uint8), np.array(labels), classes)
    assert tuple(entry.declare for entry in data.uncovered) == expected
    assert not any("labels" in note for note in data.notes)


def test_a_spoilt_image_changes_one_unit_and_no_count(tmp_path):
    """The attack on --skip-bad: 60 records became 59, and every teacher was dealt anew."""
    spec = folder(tmp_path)
    dealt = sealing.assign(N, 4, small_datalens.KEY)

    def units():
        data = load(spec, **SKIP)
        assert len(data.y_train) == N
        return unseal(sealing.deal(sealing.seal(data.x_train, data.y_train, data.spec), dealt))

    before = units()
    EDITS["spoilt"](tmp_path)
    after = units()
    changed = {u for u in range(4) if (before.x[u] != after.x[u]).any()
               or (before.y[u] != after.y[u]).any()}
    assert changed == {int(np.argwhere(dealt.index == 4)[0][0])}
    assert (after.y >= 0).all()  # refilled by the unit's other records


def differing(before, after):
    """How many training records of one part the other has not, whatever their order."""
    counts = [Counter((x.tobytes(), int(y)) for x, y in zip(
        data.x_train, data.y_train, strict=True)) for data in (before, after)]
    assert counts[0].total() == counts[1].total()
    return (counts[0] - counts[1]).total()


OF_IMAGE_FILES = [case for case in CASES if case[3] != "uncovered" and case[0] in (
    folder, celeba, places, places_lists)]


@pytest.mark.parametrize(("make", "options", "edit", "outcome"), OF_IMAGE_FILES)
def test_so_it_is_where_images_are_many_and_come_from_the_cache(
        tmp_path, monkeypatch, make, options, edit, outcome):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "MANY", 2)
    monkeypatch.setattr(files, "BLOCK", 5)
    spec = make(tmp_path)
    before = load(spec, **options)
    edit(tmp_path)
    if outcome == "refused":
        with pytest.raises(UserError):
            load(spec, **options)
        return
    after = load(spec, **options)
    assert public(after) == public(before) and differing(before, after) == 1
    sizes = {(entry / cache.PIXELS).stat().st_size for entry in (tmp_path / "cache").iterdir()}
    assert len(sizes) == 1  # whatever the record
    assert arrays.mapping(after.x_train) and arrays.mapping(before.x_train)


HELD_OUT = [case for case in CASES if case[3] == "same" and case[0] in (
    folder, places, npz, features, csv)]


@pytest.mark.parametrize(("make", "options", "edit", "outcome"), HELD_OUT)
def test_so_it_is_where_a_share_is_held_out(tmp_path, monkeypatch, make, options, edit, outcome):
    monkeypatch.chdir(tmp_path)
    spec = make(tmp_path)
    before = load(spec, test_fraction=0.25, **options)
    edit(tmp_path)
    after = load(spec, test_fraction=0.25, **options)
    assert public(after) == public(before) and differing(before, after) <= 1
    assert len(after.y_test) == len(before.y_test) == 3


TINY = "tiny_tfds.tiny_tfds_dataset_builder"
OPEN = (None, None, 1)
TFDS = [  # shape that is described, options, what one record has instead, the outcome
    ((8, 8, 1), {}, {"image": (8, 8)}, "same"), ((8, 8, 1), {}, {"label": 2}, "same"),
    ((8, 8, 1), {}, {"label": -1}, "refused"),
    (OPEN, {"image_size": 8}, {"image": (30, 20)}, "same"),
    (OPEN, {"image_size": 8}, {"image": (3000, 2)}, "same"),
    (OPEN, {"image_size": 8}, {"image": (8, 8, 3)}, "refused"),
    (OPEN, {"image_size": 8}, {"image": (8, 8, 4)}, "refused"),
    (OPEN, {}, {"image": (30, 20)}, "refused"), (OPEN, {}, {"image": (8, 8)}, "uncovered")]


@pytest.mark.parametrize("many", [2, 5000])
@pytest.mark.parametrize(("shape", "options", "changed", "outcome"), TFDS)
def test_one_record_of_tensorflow_datasets(tmp_path, monkeypatch, many, shape, options, changed,
                                           outcome):
    tiny = pytest.importorskip(TINY, reason="an extra")
    monkeypatch.setattr(files, "MANY", many)
    monkeypatch.setattr(tiny.TinyTfds, "SHAPE", shape)
    monkeypatch.setenv("DPGEN_CACHE", str(tmp_path / "cache"))
    changed = {name: Image.fromarray(np.full(value, 7, np.uint8)) if name == "image" else value
               for name, value in changed.items()}

    def loaded(record):
        monkeypatch.setattr(tiny.TinyTfds, "CHANGED", record)
        folder = tmp_path / str(len(record))
        tiny.TinyTfds(data_dir=folder, file_format="array_record").download_and_prepare()
        monkeypatch.setenv("TFDS_DATA_DIR", str(folder))
        return load("tfds:tiny_tfds", **options)

    before = loaded({})
    if outcome == "refused":
        with pytest.raises(UserError) as caught:
            loaded(changed)
        assert "\n" not in str(caught.value)
        return
    after = loaded(changed)
    assert public(after) == public(before) and differing(before, after) == 1
    assert bool(after.uncovered) == bool(before.uncovered) == (outcome == "uncovered")
    assert {bool(arrays.mapping(data.x_train)) for data in (before, after)} == {many == 2}


@pytest.mark.parametrize("label", [np.float32, (3,), bytes], ids=["float", "one-hot", "text"])
def test_a_label_that_is_described_as_no_integer_is_refused(tmp_path, monkeypatch, label):
    """A label of 1.7 became class 1."""
    tiny = pytest.importorskip(TINY, reason="an extra")
    kinds = tiny.tfds.features
    feature, value = {np.float32: (np.float32, 1.7), bytes: (kinds.Text(), "1")}.get(
        label, (kinds.Tensor(shape=(3,), dtype=np.int64), np.arange(3)))
    monkeypatch.setattr(tiny.TinyTfds, "LABEL", feature)
    monkeypatch.setattr(tiny.TinyTfds, "_generate_examples", lambda self, count: (
        (i, {"image": Image.new("L", (8, 8)), "label": value}) for i in range(count)))
    tiny.TinyTfds(data_dir=tmp_path, file_format="array_record").download_and_prepare()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(UserError, match="describes its `label` as .*; images need one integer"):
        load("tfds:tiny_tfds", classes=3)


TABLE = """\
label: cut
columns:
  carat: {kind: continuous, min: 0, max: 5, nullable: true}
  clear: {kind: boolean}
  price: {kind: continuous, min: 0, max: 2000}
  rooms: {kind: integer, min: 0, max: 9}
  "size[0]": {kind: continuous, min: 0, max: 9}
  "size[1]": {kind: continuous, min: -9, max: 0}
  cut: {kind: categorical, categories: [Fair, Good, Ideal]}
"""


@pytest.mark.parametrize(("changed", "outcome"), [
    ({"carat": float("nan")}, "same"), ({"carat": 1e30}, "same"), ({"clear": False}, "same"),
    ({"rooms": -10**12}, "same"), ({"cut": 2}, "same"), ({"size": np.float32([9, 1])}, "same"),
    ({"carat": float("inf")}, "refused"), ({"cut": -1}, "refused"),
    ({"size": np.float32([np.nan, 1])}, "refused")])
def test_one_record_of_a_table_of_tensorflow_datasets(tmp_path, monkeypatch, changed, outcome):
    tiny = pytest.importorskip(TINY, reason="an extra")
    (tmp_path / "s.yaml").write_text(TABLE)

    def loaded(record):
        monkeypatch.setattr(tiny.TinyTable, "CHANGED", record)
        folder = tmp_path / str(len(record))
        tiny.TinyTable(data_dir=folder, file_format="array_record").download_and_prepare()
        monkeypatch.setenv("TFDS_DATA_DIR", str(folder))
        return load("tfds:tiny_table", schema=str(tmp_path / "s.yaml"))

    before = loaded({})
    if outcome == "refused":
        refused("tfds:tiny_table, train, record", loaded, changed)
        return
    after = loaded(changed)
    assert public(after) == public(before) and differing(before, after) == 1
    assert not (*before.uncovered, *after.uncovered)


def test_labels_of_an_unsigned_type_leave_empty_slots_empty(tmp_path):
    """The slot became a record of class 255, of a type that holds no -1."""
    features(tmp_path, lambda x, y: None)
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "a.npz", **arrays | {"y_train": arrays["y_train"].astype(np.uint8),
                                             "classes": np.array(256)})
    assert load(f"npz:{tmp_path / 'a.npz'}").y_train[9] == EMPTY
