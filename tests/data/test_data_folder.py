"""`folder:DIR`: images in class folders."""

import numpy as np
import pytest
from PIL import Image
from refusals import refused

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.data import load


def draw(path, mode="L", size=(10, 8), value=100, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = value if mode in ("L", "I;16") else (value,) * len(mode)
    Image.new(mode, size, colour).save(path, **options)


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "pets"
    draw(path / "train" / "dog" / "1.png", value=10)
    draw(path / "train" / "dog" / "2.JPG", value=20)
    draw(path / "train" / "cat" / "1.jpeg", value=30)
    draw(path / "test" / "dog" / "1.png", value=40)
    (path / "train" / "dog" / "readme.txt").write_text("ignored")
    (path / "train" / "dog" / ".hidden.png").write_text("ignored")
    (path / "train" / ".git").mkdir()
    return path


def test_gray(root):
    data = load(f"folder:{root}")
    assert data.name == "pets" and data.spec == ImageSpec(8, 10, 1, 2)
    assert data.y_train.tolist() == [0, 1, 1] and data.y_test.tolist() == [1]
    assert data.x_train[:, 0, 0, 0].tolist() == [30, 10, 20]
    assert data.spec.class_names == ("cat", "dog")
    assert [entry.declare for entry in data.uncovered] == [
        "--class-names cat,dog", "--channels 1", "--image-size 8"]
    assert not data.x_test.flags.writeable


def test_one_colour_file_makes_all_rgb(root):
    draw(root / "test" / "cat" / "9.png", mode="RGBA", value=50)
    data = load(f"folder:{root}", classes=2)
    assert data.spec == ImageSpec(8, 10, 3, 2) and (data.x_test[1] == 215).all()  # over white


def test_odd_size_needs_image_size(root):
    draw(root / "train" / "dog" / "3.png", size=(8, 8))
    refused(r"dog.3.png has shape \(8, 8, 1\).*--image-size N", load, f"folder:{root}")
    assert load(f"folder:{root}", image_size=6).spec == ImageSpec(6, 6, 1, 2)


def test_camera_orientation_is_applied(root):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    draw(root / "train" / "dog" / "3.jpg", size=(8, 10), exif=exif)
    assert len(load(f"folder:{root}").y_train) == 4


def test_a_file_of_16_bits_is_gray_as_the_others_are(root):
    draw(root / "train" / "dog" / "5.png", mode="I;16", value=40000)
    data = load(f"folder:{root}")
    assert data.spec == ImageSpec(8, 10, 1, 2) and (data.x_train[-1] == 40000 >> 8).all()


def test_test_class_not_in_train(root):
    draw(root / "test" / "emu" / "1.png")
    refused("emu is not a class; known: cat, dog; declare", load, f"folder:{root}")


def test_other_class_count(root):
    refused("has 2 classes, --classes 3 was given", load, f"folder:{root}", classes=3)


def test_empty_folders(tmp_path):
    refused("contains no class folders", load, f"folder:{tmp_path}")
    (tmp_path / "train" / "cat").mkdir(parents=True)
    refused("contains no image files .*.webp", load, f"folder:{tmp_path}")


def test_no_test_part_and_channels_last(root):
    draw(root / "train" / "cat" / "0.png", mode="RGB", value=7)
    (root / "test" / "dog" / "1.png").unlink()
    data = load(f"folder:{root}")
    assert data.x_test is None and np.unique(data.x_train[0]).tolist() == [7]


def test_test_images_of_which_none_can_be_used_are_refused(root):
    """Else it would depend on one of them whether training images are held out."""
    draw(root / "test" / "emu" / "1.png")
    (root / "test" / "dog" / "1.png").unlink()
    with pytest.raises(UserError, match="none of 1 test images can be used"):
        load(f"folder:{root}", channels=1, class_names="cat,dog,*", image_size=8)


def test_a_declared_schema_takes_nothing_from_the_files(root):
    draw(root / "train" / "dog" / "0.png", mode="RGB", size=(30, 20), value=7)
    data = load(f"folder:{root}", channels=1, class_names="dog,emu,cat", image_size=8)
    assert data.spec == ImageSpec(8, 8, 1, 3) and data.spec.class_names == ("dog", "emu", "cat")
    assert not data.uncovered and data.y_train.tolist() == [0, 2, 0, 0]
    absent, unread = data.private_notes
    assert absent == "no training images of the class emu" and unread.endswith(": dog/readme.txt")
    names = root / "names.txt"
    names.write_text("dog\nemu\ncat\n")
    again = load(f"folder:{root}", channels=1, class_names=str(names), image_size=8)
    assert again.notes == data.notes and again.spec.class_names == data.spec.class_names


@pytest.mark.parametrize(("names", "match"), [
    ("dog", "train.cat is not a class; known: dog"),
    ("dog,,cat", "'' cannot be the name of a class"),
    ("dog,cat,dog", "'dog' is named twice"), ("dog,c\nat", r"'c\\nat' cannot be the name"),
    ([], "does not name a class")])
def test_bad_class_names(root, names, match):
    refused(match, load, f"folder:{root}", class_names=names)
    with pytest.raises(UserError, match="--class-names has 2 names, --classes 3 was given"):
        load(f"folder:{root}", class_names="cat,dog", classes=3)
    refused("--channels 2: give 1 for grey or 3", load, f"folder:{root}", channels=2)
