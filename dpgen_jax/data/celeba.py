"""`celeba:DIR`: the aligned faces of CelebA (Liu et al. 2015) with one of two labels."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dpgen_jax.data import files
from dpgen_jax.data.base import Dataset, fixed_classes, locate, nearest
from dpgen_jax.types import UserError

IMAGES = ("img_align_celeba", "Img/img_align_celeba")
ATTRIBUTES = ("list_attr_celeba.txt", "Anno/list_attr_celeba.txt")
PARTITION = ("list_eval_partition.txt", "Eval/list_eval_partition.txt")
TRAIN, VALIDATION, TEST = "0", "1", "2"
SIZE = 64
GENDER, HAIR = ("Male",), ("Black_Hair", "Blond_Hair", "Brown_Hair")
CLASSES = {GENDER: ("female", "male"), HAIR: ("black", "blond", "brown")}
WHAT = {GENDER: "the classes are female and male, by the attribute Male",
        HAIR: "the classes are black, blond and brown hair; images with none or several of the "
        "three are empty slots: they keep their places, and nobody sees them"}
NOTES = ("train and test are the official parts, and the validation part is unused",
         "CelebA shows most people in several images: a record is one image, not one person")


def celeba(given: str, attribute: str | None, classes: int | None, image_size: int | None,
           skip_bad: bool) -> Dataset:
    """The official layout: img_align_celeba/*.jpg (also in Img/), list_attr_celeba.txt (also in
    Anno/) and list_eval_partition.txt (also in Eval/).

    attribute: `gender` (default) has classes female and male, by `Male`; `hair` has black, blond
      and brown, and images with none or several of the three are empty slots, so that n does not
      tell how many they are; G-PATE (Long et al. 2021) and DataLens (Wang et al. 2021), whose label
      it is, are silent on them.
    image_size: 64 unless given; the papers use 32 and 64. The 178 x 218 images are centre-cropped
      to a square first.
    Training is partition 0 (162,770 images) and testing 2 (19,962); partition 1 goes unused, as in
    DP-GAN-DPAC. (The code of G-PATE trains on 1 as well, its paper says the official partition.)
    Errors: UserError naming the file, line or image.
    """
    if attribute not in (None, "gender", "hair"):
        raise UserError(f"--attribute {attribute}{nearest(attribute, ('gender', 'hair'))}: CelebA "
                        "is labelled by gender or hair")
    columns = HAIR if attribute == "hair" else GENDER
    root = locate(given)
    folder, table, split = (files.folder_file(root, *names)
                            for names in (IMAGES, ATTRIBUTES, PARTITION))
    images, flags, partition = files.listed(folder), _attributes(table, columns), _partition(split)
    _check(images, folder, {table: flags, split: partition})
    parts, left_out = {TRAIN: [], VALIDATION: [], TEST: []}, 0
    for path in images:
        label = _label(flags[path.name])
        left_out += label is None
        parts[partition[path.name]].append((path, label))
    if not parts[TRAIN]:
        raise UserError(f"{root}: no training images; unpack {IMAGES[0]} there")
    names = CLASSES[columns]
    fixed_classes("celeba", len(names), classes)
    data = files.labelled(
        f"celeba-{attribute or 'gender'}", names, parts[TRAIN], parts[TEST],
        (WHAT[columns], *NOTES, *[files.SKIPPED] * skip_bad), channels=3,
        image_size=image_size or SIZE, skip_bad=skip_bad)
    if not left_out:
        return data
    told = f"{left_out} of {len(images)} images have none or several of the three hair colours"
    return dataclasses.replace(data, private_notes=(*data.private_notes, told))


def _label(true: list[bool]) -> int | None:
    """Of one flag, whether it is set; of several, the place of the only one that is."""
    if len(true) == 1:
        return int(true[0])
    return true.index(True) if sum(true) == 1 else None


def _check(images: list[Path], folder: Path, tables: dict[Path, dict]) -> None:
    """Every image has a row in every table, and every row an image."""
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
    """Image -> 0, 1 or 2."""
    rows = {}
    for number, words in enumerate(files.lines(path), 1):
        if len(words) != 2 or words[1] not in (TRAIN, VALIDATION, TEST):
            raise UserError(f"{path}, line {number}: expected `000001.jpg 0`, with 0, 1 or 2; "
                            "fetch it again")
        rows[words[0]] = words[1]
    return rows


def _attributes(path: Path, wanted: tuple[str, ...]) -> dict[str, list[bool]]:
    """Image -> whether it has each of the wanted attributes.

    The count in the first line is not held against the rows: `_check` names what is missing.
    """
    lines = files.lines(path)
    if len(lines) < 2 or len(lines[0]) != 1 or not lines[0][0].isdigit():
        raise UserError(f"{path}: expected the number of images in its first line and the names of "
                        "attributes in its second; fetch it again")
    names, rows = lines[1], lines[2:]
    for name in wanted:
        if name not in names:
            raise UserError(f"{path}: no attribute {name}{nearest(name, names)}; fetch it again")
    places, found = [1 + names.index(name) for name in wanted], {}
    for number, words in enumerate(rows, 3):
        if len(words) != 1 + len(names) or any(words[k] not in ("1", "-1") for k in places):
            raise UserError(f"{path}, line {number}: expected an image and {len(names)} times 1 or "
                            "-1; fetch it again")
        found[words[0]] = [words[k] == "1" for k in places]
    return found
