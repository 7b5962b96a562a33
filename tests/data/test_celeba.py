"""`celeba:DIR`: the official layout, its two labels, and each way in which it can be wrong."""

import numpy as np
import pytest
from PIL import Image
from refusals import refused

from dpgen_jax.core.types import EMPTY, ImageSpec, UserError
from dpgen_jax.data import content, load

NAMES = ["5_o_Clock_Shadow", "Black_Hair", "Blond_Hair", "Brown_Hair", "Male", "Young"]
# image -> partition, black, blond, brown, male; its colour is its number times 20
ROWS = {1: (0, 1, 0, 0, 1), 2: (0, 0, 1, 0, 0), 3: (0, 0, 0, 1, 1), 4: (0, 0, 0, 0, 1),
        5: (0, 1, 0, 1, 0), 6: (1, 1, 0, 0, 0), 7: (2, 0, 0, 1, 0), 8: (2, 0, 0, 0, 1)}


def name(i):
    return f"{i:06d}.jpg"


def write(root, images="img_align_celeba", tables="", split=""):
    for folder in (images, tables, split):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for i in ROWS:
        Image.new("RGB", (178, 218), (20 * i,) * 3).save(root / images / name(i), quality=95)
    rows = [f"{name(i)}  " + "  ".join(
        str(2 * flag - 1).rjust(2) for flag in (0, *row[1:], 1)) for i, row in ROWS.items()]
    (root / tables / "list_attr_celeba.txt").write_text(
        f"{len(ROWS)}\n{' '.join(NAMES)} \n" + "\n".join(rows) + "\n")
    (root / split / "list_eval_partition.txt").write_text(
        "".join(f"{name(i)} {row[0]}\n" for i, row in ROWS.items()))
    return root


@pytest.fixture
def root(tmp_path):
    return write(tmp_path / "CelebA")


def numbers(x):
    """Which images these are, by their colour."""
    return np.rint(x.mean((1, 2, 3)) / 20).astype(int).tolist()


def test_the_same_folder_is_known_whatever_is_learned_from_it(root):
    """For the journal: another attribute, size or split of CelebA is of the same people."""
    known = {load(f"celeba:{root}", **options).content
             for options in ({}, {"attribute": "hair", "skip_bad": True}, {"image_size": 32})}
    assert known == {content(f"celeba:{root}")} and known != {""}
    (root / "img_align_celeba" / name(1)).write_bytes(b"")
    assert content(f"celeba:{root}") not in known


def test_gender(root):
    data = load(f"celeba:{root}")
    assert data.name == "celeba-gender" and data.spec == ImageSpec(64, 64, 3, 2)
    assert numbers(data.x_train) == [1, 2, 3, 4, 5] and numbers(data.x_test) == [7, 8]
    assert data.y_train.tolist() == [1, 0, 1, 1, 0] and data.y_test.tolist() == [0, 1]
    assert "the classes are female and male, by the attribute Male" in data.notes
    assert any("not one person" in note for note in data.notes) and not data.private_notes


def test_hair(root):
    data = load(f"celeba:{root}", attribute="hair", image_size=32, classes=3)
    assert data.name == "celeba-hair" and data.spec == ImageSpec(32, 32, 3, 3)
    assert numbers(data.x_train) == [1, 2, 3, 0, 0]  # 4 and 5 keep their places
    assert data.y_train.tolist() == [0, 1, 2, EMPTY, EMPTY]
    assert data.spec.class_names == ("black", "blond", "brown")
    assert numbers(data.x_test) == [7] and data.y_test.tolist() == [2]
    assert data.private_notes == (
        "3 of 8 images have none or several of the three hair colours",)
    assert not any("8" in note for note in data.notes)  # no count of private records


def test_validation_part_may_be_trained_on(root):
    data = load(f"celeba:{root}", split="train+val")
    assert numbers(data.x_train) == [1, 2, 3, 4, 5, 6] and numbers(data.x_test) == [7, 8]
    assert any("official training and validation parts" in note for note in data.notes)
    assert load(f"celeba:{root}", split="train").notes == load(f"celeba:{root}").notes


def test_stretching_keeps_what_cropping_cuts_off(root):
    """An image with a white band at its top, which is above the centre square."""
    image = Image.new("RGB", (178, 218))
    image.paste((255, 255, 255), (0, 0, 178, 20))
    image.save(root / "img_align_celeba" / name(1), quality=95)
    cropped, stretched = (load(f"celeba:{root}", image_size=32, resize=resize)
                          for resize in ("crop", "stretch"))
    assert cropped.x_train[0].max() < 60 and stretched.x_train[0, 0].min() > 200
    known = image.resize((32, 32), Image.Resampling.BICUBIC)
    assert np.abs(stretched.x_train[0].astype(int) - np.asarray(known)).max() < 30  # JPEG
    assert any("stretched" in note for note in stretched.notes)
    assert not any("stretched" in note for note in cropped.notes)
    assert cropped.notes == load(f"celeba:{root}").notes


def test_folders_as_downloaded(tmp_path):
    root = write(tmp_path / "CelebA", "Img/img_align_celeba", "Anno", "Eval")
    assert numbers(load(f"celeba:{root}").x_train) == [1, 2, 3, 4, 5]


def test_skip_bad_empties_the_slot(root):
    (root / "img_align_celeba" / name(2)).write_bytes(b"no jpg")
    refused("000002.jpg cannot be read as an image", load, f"celeba:{root}")
    data = load(f"celeba:{root}", skip_bad=True)
    assert data.y_train.tolist() == [1, EMPTY, 1, 1, 0]
    assert numbers(data.x_train) == [1, 0, 3, 4, 5]
    assert "000002.jpg" in data.private_notes[0] and "000002" not in repr(data.notes)


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def cut(file, lines):
    file.write_text("\n".join(file.read_text().splitlines()[:lines]))


ATTR, SPLIT = "list_attr_celeba.txt", "list_eval_partition.txt"


@pytest.mark.parametrize(("change", "match"), [
    (lambda root: (root / ATTR).unlink(), "list_attr_celeba.txt is missing"),
    (lambda root: (root / SPLIT).unlink(), "list_eval_partition.txt is missing"),
    (lambda root: (root / "img_align_celeba").rename(root / "x"), "img_align_celeba is missing"),
    (lambda root: edit(root / SPLIT, "000003.jpg 0\n", ""), "partition.txt has no row for 000003"),
    (lambda root: edit(root / SPLIT, "000003.jpg 0", "000003.jpg 3"), "partition.txt, line 3"),
    (lambda root: edit(root / SPLIT, "000003.jpg 0", "\n000003.jpg"), "partition.txt, line 3"),
    (lambda root: cut(root / ATTR, 5), "list_attr_celeba.txt has no row for 000004.jpg"),
    (lambda root: cut(root / SPLIT, 2), "list_eval_partition.txt has no row for 000003.jpg"),
    (lambda root: edit(root / ATTR, "8\n", ""), "expected the number of images"),
    (lambda root: (root / ATTR).write_text(""), "expected the number of images"),
    (lambda root: (root / ATTR).write_bytes(b"\xff\xfe"), "celeba.txt cannot be read"),
    (lambda root: edit(root / ATTR, "Male", "male"), "no attribute Male, did you mean 'male'"),
    (lambda root: edit(root / ATTR, "000003.jpg", "000033.jpg"), "has no row for 000003.jpg"),
    (lambda root: edit(root / ATTR, "000002.jpg  -1", "000002.jpg"), "celeba.txt, line 4: expec"),
    (lambda root: edit(root / ATTR, " 1   1\n", " 0   1\n"), "celeba.txt, line 3: expected"),
    (lambda root: (root / "img_align_celeba" / name(4)).unlink(),
     "000004.jpg is missing, but list_attr_celeba.txt has a row"),
    (lambda root: Image.new("L", (9, 9)).save(root / "img_align_celeba" / "me.jpg"),
     "list_attr_celeba.txt has no row for me.jpg"),
    (lambda root: (root / SPLIT).write_text("".join(f"{name(i)} 2\n" for i in ROWS)),
     "no training images")])
def test_faults(root, change, match):
    change(root)
    refused(match, load, f"celeba:{root}")


def test_options(root):
    with pytest.raises(UserError, match="--attribute hairs, did you mean 'hair'.*gender or hair"):
        load(f"celeba:{root}", attribute="hairs")
    refused("celeba has 2 classes, --classes 3 was given", load, f"celeba:{root}", classes=3)
    with pytest.raises(UserError, match="--split val: CelebA is trained on by train or train.val"):
        load(f"celeba:{root}", split="val")
    refused("--per-class does not apply to celeba", load, f"celeba:{root}", per_class=3)
    refused("--schema does not apply to celeba", load, f"celeba:{root}", schema="adult")
