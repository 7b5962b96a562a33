"""`places365:DIR`: both layouts, and classes by category, by indoor/outdoor and by hierarchy."""

import numpy as np
import pytest
from PIL import Image
from refusals import refused

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.data import load

CATEGORIES = ["/a/alley", "/b/bedroom", "/b/bus_station/indoor", "/k/kitchen"]
FLAT = ["alley", "bedroom", "bus_station-indoor", "kitchen"]
# As the authors' table is exported: a line of super-headings, then the names; some have commas.
HIERARCHY = """\
,,,,,"level 2",,
category,indoor,"outdoor, natural","outdoor, man-made",home or hotel,"transport (stations, etc.)"
'/a/alley',0,0,1,0,1
'/b/bedroom',1,0,0,1,0
'/b/bus_station/indoor',1,0,0,0,1
'/k/kitchen',1,0,0,1,0
"""


def draw(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (80, 80), (value,) * 3).save(path, quality=95)


@pytest.fixture
def flat(tmp_path):
    """train/ and val/ by category; the colour is 40 x (category + 1) + (0 train, 10 val)."""
    for k, name in enumerate(FLAT):
        for i in range(2):
            draw(tmp_path / "places" / "train" / name / f"{i:08d}.jpg", 40 * (k + 1))
        draw(tmp_path / "places" / "val" / name / f"Places365_val_{k:08d}.jpg", 40 * (k + 1) + 10)
    return tmp_path / "places"


@pytest.fixture(params=[("data_256", "val_256"), ("data_large_standard", "val_large")])
def official(tmp_path, request):
    root, (train, val) = tmp_path / "places", request.param
    rows, held_out = [], []
    for k, name in enumerate(CATEGORIES):
        draw(root / f"{train}{name}" / "00000001.jpg", 40 * (k + 1))
        draw(root / val / f"Places365_val_{k:08d}.jpg", 40 * (k + 1) + 10)
        rows.append(f"{name}/00000001.jpg {k}")
        held_out.append(f"Places365_val_{k:08d}.jpg {k}")
    names = [f"{name} {k}" for k, name in enumerate(CATEGORIES)]
    for file, lines in (("categories_places365.txt", names), ("places365_val.txt", held_out),
                        ("places365_train_standard.txt", rows)):
        (root / file).write_text("\n".join(lines) + "\n")
    return root


def colours(x):
    return np.rint(x.mean((1, 2, 3))).astype(int).tolist()


def test_all_categories(flat):
    data = load(f"places365:{flat}")
    assert data.name == "places365" and data.spec == ImageSpec(64, 64, 3, 4)
    assert colours(data.x_train) == [40, 80, 120, 160] * 2  # by the names of the files
    assert data.y_train.tolist() == [0, 1, 2, 3] * 2 and data.spec.class_names == tuple(FLAT)
    assert data.y_test.tolist() == [0, 1, 2, 3]
    assert colours(data.x_test) == [50, 90, 130, 170]


def test_official_lists(official):
    data = load(f"places365:{official}", image_size=32, classes=4)
    assert data.spec == ImageSpec(32, 32, 3, 4)
    assert colours(data.x_train) == [40, 80, 120, 160] and data.y_train.tolist() == [0, 1, 2, 3]
    assert colours(data.x_test) == [50, 90, 130, 170] and data.y_test.tolist() == [0, 1, 2, 3]


def test_named_categories(flat):
    data = load(f"places365:{flat}", attribute="kitchen; bus_station-indoor")
    assert data.spec.classes == 2 and data.y_train.tolist() == [1, 0, 1, 0]
    assert colours(data.x_train) == [120, 160] * 2 and colours(data.x_test) == [130, 170]
    assert data.notes[0].startswith("classes: kitchen; bus_station-indoor")


def test_indoor_and_outdoor(official):
    (official / "IO_places365.txt").write_text(
        "/a/alley 2\n/b/bedroom 1\n/b/bus_station/indoor 1\n/k/kitchen 1\n")
    data = load(f"places365:{official}", attribute="outdoor; indoor")
    assert data.y_train.tolist() == [0, 1, 1, 1] and colours(data.x_train) == [40, 80, 120, 160]


def test_level_2_classes(flat):
    (flat / "Scene hierarchy - Places365.csv").write_text(HIERARCHY)
    data = load(f"places365:{flat}", attribute="transport (stations, etc.); kitchen; bedroom")
    assert data.spec.classes == 3 and data.y_train.tolist() == [0, 2, 0, 1] * 2
    assert colours(data.x_train) == [40, 80, 120, 160] * 2
    data = load(f"places365:{flat}", attribute="indoor; transport (stations, etc.)")
    assert colours(data.x_train) == [40, 80, 160] * 2  # stations are both: left out
    assert data.y_test.tolist() == [1, 0, 0]
    with pytest.raises(UserError, match="no training images of the class 'kitchen'"):
        load(f"places365:{flat}", attribute="indoor; kitchen")


def test_images_per_class_are_spread_over_its_list(flat):
    for i in range(2, 6):
        draw(flat / "train" / "kitchen" / f"{i:08d}.jpg", 20 * i)
    data = load(f"places365:{flat}", attribute="bedroom; kitchen", per_class=2)
    assert np.bincount(data.y_train).tolist() == [2, 2]
    kitchens = data.x_train[data.y_train == 1]
    assert colours(kitchens) == [160, 60]  # the first and the fourth of six
    (uncovered,) = data.uncovered
    assert "which images of a class are taken" in uncovered.what
    assert "--per-class" in uncovered.declare
    every = load(f"places365:{flat}", per_class=1)
    assert len(every.y_train) == 4 and len(every.uncovered) == 2  # the names of the classes too


@pytest.mark.parametrize(("count", "match"), [
    (3, "the class 'alley' has 2 training images; take fewer"), (0, "take 1 image of each class")])
def test_no_such_number_of_images_per_class(flat, count, match):
    refused(match, load, f"places365:{flat}", per_class=count)


@pytest.mark.parametrize(("attribute", "match"), [
    ("bedrom; kitchen", "'bedrom' is not a category or group, did you mean 'bedroom'"),
    ("bedroom", "names 1 class"), ("bedroom;bedroom", "named twice"), ("", "'' is not a category"),
    ("indoor;outdoor", "'indoor' is not a category.*IO_places365.txt")])
def test_bad_attributes(flat, attribute, match):
    refused(match, load, f"places365:{flat}", attribute=attribute)


@pytest.mark.parametrize(("file", "text", "match"), [
    ("categories_places365.txt", "/a/alley\n", "categories_places365.txt, line 1: expected"),
    ("places365_val.txt", "x.jpg 7\n", "places365_val.txt, line 1: .*one of the 4"),
    ("places365_train_standard.txt", "\n\nx.jpg\n", "train_standard.txt, line 1"),
    ("places365_train_standard.txt", "", "no training images of the class 'al"),
    ("places365_train_standard.txt", "/b/bedroom/9.jpg 1\n", "9.jpg cannot be read"),
    ("places365_val.txt", "9.jpg 1\n", "9.jpg cannot be read"),
    ("IO_places365.txt", "/a/alley 3\n", "IO_places365.txt, line 1"),
    ("Scene hierarchy.csv", "a,b\n", "no line starts with `category`")])
def test_faulty_lists(official, file, text, match):
    (official / file).write_text(text)
    attribute = "alley; bedroom" if file.startswith(("IO", "Scene")) else None
    refused(match, load, f"places365:{official}", attribute=attribute)


def test_wrong_layouts(tmp_path, flat, official):
    refused("holds neither train/CATEGORY", load, f"places365:{tmp_path}")
    (official / "places365_val.txt").unlink()
    refused("places365_val.txt is missing", load, f"places365:{official}")
    (official / "categories_places365.txt").unlink()
    (flat / "val" / "moon").mkdir()
    refused("moon is not a class; known: alley, ", load, f"places365:{flat}")
