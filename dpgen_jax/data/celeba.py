"""`celeba:DIR`: the aligned faces of CelebA (Liu et al. 2015) with one of two labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import UserError
from dpgen_jax.data import files
from dpgen_jax.data.base import Background, Dataset, Resize, locate
from dpgen_jax.data.class_names import fixed_classes
from dpgen_jax.data.image_form import Form

IMAGES = ("img_align_celeba", "Img/img_align_celeba")
ATTRIBUTES = ("list_attr_celeba.txt", "Anno/list_attr_celeba.txt")
PARTITION = ("list_eval_partition.txt", "Eval/list_eval_partition.txt")
SPLITS = {"train": ("0",), "train+val": ("0", "1")}
"""The partitions that are trained on: of the official ones 162,770 or 182,637 images."""
TEST = ("2",)
SIZE = 64
GENDER, HAIR = ("Male",), ("Black_Hair", "Blond_Hair", "Brown_Hair")
LABELS = {"gender": GENDER, "hair": HAIR}
CLASSES = {GENDER: ("female", "male"), HAIR: ("black", "blond", "brown")}
DESCRIPTIONS = {GENDER: "the classes are female and male, by the attribute Male",
        HAIR: "the classes are black, blond and brown hair; images with none or several of the "
        "three are empty slots: they keep their places, and nobody sees them"}
NOTES = {SPLITS["train"]: "train and test are the official parts, and the validation part is "
         "unused", SPLITS["train+val"]: "train is the official training and validation parts, test "
         "is the official part"}
PERSONS = "CelebA shows most people in several images: a record is one image, not one person"


def celeba(path: str, attribute: str | None, classes: int | None, image_size: int | None,
           skip_bad: bool, resize: Resize | None, split: str | None,
           background: Background | None) -> Dataset:
    """Loads CelebA in its official layout.

    The folder contains img_align_celeba/*.jpg (also in Img/), list_attr_celeba.txt (also in Anno/)
    and list_eval_partition.txt (also in Eval/). Testing is partition 2 (19,962 images).

    Args:
        path: The folder.
        attribute: `gender` (default) has classes female and male, by `Male`; `hair` has black,
            blond and brown, and images with none or several of the three are empty slots, so that n
            does not depend on how many they are. G-PATE (Long et al. 2021) and DataLens (Wang et
            al. 2021), whose label it is, are silent on them.
        classes: The number of classes that the user declares, or None.
        image_size: Pixels, 64 by default; the papers use 32 and 64.
        skip_bad: As `files.labelled`.
        resize: How the 178 x 218 images become squares: `crop` (default), the centre; `stretch`,
            the whole image, as the code of DP-GAN-DPAC does. The papers of G-PATE and DataLens
            "resize the images", and no code of theirs for it is public.
        split: The parts that are trained on. `train` (default) is partition 0, 162,770 images, as
            the papers say and DP-GAN-DPAC does; `train+val` has partition 1 too, 182,637 images, as
            the codes of G-PATE and DataLens. These also repeat images until the classes are even
            (189,018 in partition 0), which puts one image into several teachers and breaks what the
            papers promise; it is not offered.
        background: As `files.labelled`.

    Returns:
        The data set, RGB.

    Raises:
        UserError: Naming the file, line or image.
    """
    columns = LABELS[_one_of("attribute", attribute, LABELS, "is labelled by gender or hair")]
    trained = SPLITS[_one_of("split", split, SPLITS, "is trained on by train or train+val")]
    root = locate(path)
    folder, table, partitions = (files.folder_file(root, *names)
                                 for names in (IMAGES, ATTRIBUTES, PARTITION))
    images, flags = files.listed(folder), _attributes(table, columns)
    partition = _partition(partitions)
    _check(images, folder, {table: flags, partitions: partition})
    labels = {image: _label(flags[image.name]) for image in images}
    train, test = ([(image, labels[image]) for image in images if partition[image.name] in parts]
                   for parts in (trained, TEST))
    if not train:
        raise UserError(f"{root}: no training images; unpack {IMAGES[0]} there")
    names = CLASSES[columns]
    fixed_classes("celeba", len(names), classes)
    data = files.labelled(
        f"celeba-{attribute or 'gender'}", names, train, test,
        (DESCRIPTIONS[columns], NOTES[trained], PERSONS, *[files.SKIPPED] * skip_bad),
        Form(3, image_size or SIZE, skip_bad, resize, background))
    left_out = list(labels.values()).count(None)
    if not left_out:
        return data
    note = f"{left_out} of {len(images)} images have none or several of the three hair colours"
    return dataclasses.replace(data, private_notes=(*data.private_notes, note))


def _one_of(option: str, value: str | None, known: Mapping[str, object], what: str) -> str:
    """Returns the value of an option, by default the first that is known."""
    if value is not None and value not in known:
        raise UserError(f"--{option} {value}{nearest(value, known)}: CelebA {what}")
    return value or next(iter(known))


def _label(flags: list[bool]) -> int | None:
    """Returns the label by one flag, or by the only one of several that is set; else None."""
    if len(flags) == 1:
        return int(flags[0])
    return flags.index(True) if sum(flags) == 1 else None


def _check(images: list[Path], folder: Path, tables: dict[Path, Mapping[str, object]]) -> None:
    """Checks that every image has a row in every table, and every row an image."""
    names = {path.name for path in images}
    for table, rows in tables.items():
        for path in images:
            if path.name not in rows:
                raise UserError(f"{table} has no row for {path.name}; fetch it again, or remove "
                                "images that are not CelebA's")
        for name in rows:
            if name not in names:
                raise UserError(f"{folder / name} is missing, but {table.name} has a row for it; "
                                "unpack the images again")


def _partition(path: Path) -> dict[str, str]:
    """Reads the partition of each image: 0, 1 or 2."""
    rows = {}
    for number, words in enumerate(files.lines(path), 1):
        if len(words) != 2 or words[1] not in ("0", "1", "2") or words[0] in rows:
            raise UserError(f"{path}, line {number}: expected `000001.jpg 0`, with 0, 1 or 2, and "
                            "each image once; fetch it again")
        rows[words[0]] = words[1]
    return rows


def _attributes(path: Path, attributes: tuple[str, ...]) -> dict[str, list[bool]]:
    """Reads the flags of each image, one for each attribute.

    The count in the first line is not compared with the rows: `_check` names what is missing.
    """
    lines = files.lines(path)
    if len(lines) < 2 or len(lines[0]) != 1 or not lines[0][0].isdigit():
        raise UserError(f"{path}: expected the number of images in its first line and the names of "
                        "attributes in its second; fetch it again")
    names, rows = lines[1], lines[2:]
    for name in attributes:
        if name not in names:
            raise UserError(f"{path}: no attribute {name}{nearest(name, names)}; fetch it again")
    positions = [1 + names.index(name) for name in attributes]
    flags = {}
    for number, words in enumerate(rows, 3):
        if (len(words) != 1 + len(names) or any(words[k] not in ("1", "-1") for k in positions)
                or words[0] in flags):
            raise UserError(f"{path}, line {number}: expected an image and {len(names)} times 1 or "
                            "-1, and each image once; fetch it again")
        flags[words[0]] = [words[k] == "1" for k in positions]
    return flags
