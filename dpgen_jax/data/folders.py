"""Images in class folders: `folder:DIR`, and `places365:DIR` with its lists and groups."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path

from dpgen_jax.data import files
from dpgen_jax.data.base import Dataset, Uncovered, fixed_classes, locate, nearest, shown
from dpgen_jax.data.class_names import checked
from dpgen_jax.data.files import SKIPPED, Labelled, listed, subfolders
from dpgen_jax.types import UserError

PLACES_SIZE = 64
CATEGORIES = "categories_places365.txt"
LISTS = ("places365_train_standard.txt", "places365_val.txt")
ROOTS = (("data_256", "data_256_standard", "data_large", "data_large_standard"),
         ("val_256", "val_large"))
INDOORS = "IO_places365.txt"
SEPARATOR = ";"  # names of groups hold commas

Part = list[tuple[Path, str]]
"""files and their categories, in an order that no category decides"""


def folder(given: str, classes: int | None, image_size: int | None, channels: int | None,
           class_names: tuple[str, ...], skip_bad: bool) -> Dataset:
    """train/CLASS/*.png|jpg|jpeg and, if there, test/CLASS/...

    class_names: the classes in the order of their labels; another class folder is refused, and one
    may be absent. Where they are not declared, the sorted names of the folders in train/ are taken,
    and are `uncovered`. channels, image_size, skip_bad: as `files.labelled`.
    Records are in the order of their files' names, which are public: a file that is moved to
    another class folder leaves everybody's place as it was. Only among files of one name do the
    classes decide; that a partition hides even those places rests on its secret key.
    Errors: UserError naming the file.
    """
    root = locate(given)
    names, train = _class_folders(root / "train", class_names)
    _, test = _class_folders(root / "test", names)
    if not train:
        raise UserError(f"{root / 'train'} holds no png, jpg or jpeg files in its class folders")
    fixed_classes(shown(root), len(names), classes)
    data = files.labelled(root.resolve().name, names, *(_pairs(part, names) for part in (
        train, test)), _notes(bool(class_names), channels, image_size, skip_bad),
        channels=channels, image_size=image_size, skip_bad=skip_bad)
    return data if class_names else _with_uncovered(data, _read_names(names))


def _notes(*declared: object) -> list[str]:
    said = ("the class names are declared", "every image is converted to the declared number of "
            "channels", "every image is resized to the declared size", SKIPPED)
    return [note for given, note in zip(declared, said, strict=True) if given]


def _read_names(names: Sequence[str]) -> Uncovered:
    short = len(names) <= files.NAMED and not any("," in name for name in names)
    option = ",".join(names) if short else "FILE"
    return Uncovered(f"the names and the number of the classes, {len(names)}, are those of the "
                     "folders", f"--class-names {option}")


def _with_uncovered(data: Dataset, *more: Uncovered) -> Dataset:
    return dataclasses.replace(data, uncovered=(*more, *data.uncovered))


def _class_folders(path: Path, names: Sequence[str]) -> tuple[tuple[str, ...], Part]:
    """The names of the classes and the files of their folders in path, of which any may be absent;
    where no names are given, those of the folders. Errors: UserError for a folder of another name.
    """
    found = subfolders(path)
    if not names:
        if not found:
            raise UserError(f"{shown(path)} holds no class folders; expected CLASS/*.png or .jpg")
        names = checked(found, shown(path))
    unknown = sorted(set(found) - set(names))
    if unknown:
        raise UserError(f"{shown(path / unknown[0])} is no class; known: {', '.join(names)}; "
                        "declare it with --class-names, or take it away")
    place = {name: i for i, name in enumerate(names)}
    part = [(file, name) for name in found for file in listed(path / name)]
    return tuple(names), sorted(part, key=lambda pair: (pair[0].name, place[pair[1]]))


def _pairs(part: Part, names: Sequence[str]) -> Labelled:
    place = {name: label for label, name in enumerate(names)}
    return [(path, place[name]) for path, name in part]


@dataclasses.dataclass(frozen=True)
class _Places:
    """Places365 as it lies: its categories in order, named as `bus_station-indoor`; whether these
    are read from the folders."""

    categories: tuple[str, ...]
    train: Part
    held: Part
    from_folders: bool = False


def places365(given: str, attribute: str | None, classes: int | None, image_size: int | None,
              class_names: tuple[str, ...], skip_bad: bool) -> Dataset:
    """Places365-Standard (Zhou et al. 2017), RGB, 64 x 64 unless image_size says otherwise; val is
    the held-out part.

    Two layouts: train/CATEGORY/*.jpg and val/CATEGORY/*.jpg, or the lists categories_places365.txt,
    places365_train_standard.txt and places365_val.txt beside data_256/ and val_256/ (or
    data_256_standard/, data_large/, ...), in whose order the records then are. class_names: the
    categories of the first layout; `uncovered` where they are read from the folders.
    attribute: the classes, as names with ; between them, each a category (`bedroom`,
      `bus_station-indoor`) or a group of categories: `indoor` and `outdoor` where IO_places365.txt
      lies in DIR, and the columns of the authors' scene hierarchy where that table lies there as
      *hierarchy*.csv (`home or hotel`; its level 2 has 16 classes). DataLens (Wang et al. 2021,
      section 5.1) trains on 120,000 images of three level-2 classes, which it does not name.
      A category in several of the named classes is left out. How many images they have is a
      function of the labels, and so `uncovered`: an empty slot for each other of the 1.8 million
      would leave few teachers with records. None: all categories.
    Errors: UserError, one line naming the file, line or name.
    """
    root = locate(given)
    lists = (root / CATEGORIES).is_file()
    if class_names and (lists or attribute is not None):
        named = CATEGORIES if lists else "--attribute"
        raise UserError(f"--class-names: the classes are named by {named}; drop the option")
    held = _from_lists(root) if lists else _from_folders(root, class_names)
    if attribute is None:
        chosen = {name: [name] for name in held.categories}
    else:
        chosen = _chosen(attribute, {name: {name} for name in held.categories} | _groups(root))
    train, test = (_of_classes(part, chosen) for part in (held.train, held.held))
    _require_images(root, train, chosen, attribute)
    what = "all categories" if attribute is None else f"{'; '.join(chosen)}, by public lists"
    data = files.labelled(
        "places365", checked(tuple(chosen), CATEGORIES), _pairs(train, tuple(chosen)),
        _pairs(test, tuple(chosen)),
        [f"classes: {what}; the held-out part is val", *[SKIPPED] * skip_bad],
        channels=3, image_size=image_size or PLACES_SIZE, skip_bad=skip_bad)
    fixed_classes("places365", len(chosen), classes)
    if attribute is not None:
        return _with_uncovered(data, Uncovered(
            f"the number of records, {len(data.y_train)}, is that of the images in the named "
            "classes", "all categories, by leaving out --attribute"))
    named = held.from_folders and not class_names
    return _with_uncovered(data, _read_names(held.categories)) if named else data


def _of_classes(part: Part, chosen: dict[str, list[str]]) -> Part:
    """The files of the classes, under the names of these."""
    names = {category: name for name, members in chosen.items() for category in members}
    return [(path, names[category]) for path, category in part if category in names]


def _require_images(root: Path, train: Part, chosen: dict[str, list[str]], attribute: str | None
                    ) -> None:
    """Errors: UserError where a class that was asked for has no training images, or none has."""
    there = {name for _, name in train}
    absent = [name for name in chosen if name not in there]
    if not there or (attribute is not None and absent):
        raise UserError(f"{shown(root)}: no training images of the class {absent[0]!r}; unpack "
                        "them there, or name other classes with --attribute")


def _from_folders(root: Path, class_names: Sequence[str]) -> _Places:
    if not subfolders(root / "train"):
        raise UserError(f"{root} holds neither train/CATEGORY/*.jpg nor {CATEGORIES}; give the "
                        "folder of Places365")
    names, train = _class_folders(root / "train", class_names)
    return _Places(names, train, _class_folders(root / "val", names)[1], True)


def _from_lists(root: Path) -> _Places:
    rows = files.lines(root / CATEGORIES)
    names = {}
    for number, words in enumerate(rows, 1):
        if len(words) != 2 or not words[1].isdigit():
            raise UserError(f"{root / CATEGORIES}, line {number}: expected `/a/airfield 0`")
        names[words[1]] = _category(words[0])
    parts = []
    for given, roots in zip(LISTS, ROOTS, strict=True):
        images, part = files.folder_file(root, *roots), []
        for number, words in enumerate(files.lines(files.folder_file(root, given)), 1):
            if len(words) != 2 or words[1] not in names:
                raise UserError(f"{root / given}, line {number}: expected an image and its "
                                f"category, one of the {len(names)} in {CATEGORIES}")
            part.append((images / words[0].lstrip("/"), names[words[1]]))
        parts.append(part)
    return _Places(tuple(names.values()), *parts)


def _category(path: str) -> str:
    """`bus_station-indoor` of `/b/bus_station/indoor`; quotes around it do not count."""
    return "-".join(path.strip("' ").split("/")[2:])


def _groups(root: Path) -> dict[str, set[str]]:
    """Group -> categories, by the public lists that lie in root."""
    groups: dict[str, set[str]] = {}
    if (root / INDOORS).is_file():
        rows = files.lines(root / INDOORS)
        for number, words in enumerate(rows, 1):
            if len(words) != 2 or words[1] not in ("1", "2"):
                raise UserError(f"{root / INDOORS}, line {number}: expected `/a/airfield 2`")
        groups = {name: {_category(path) for path, value in rows if value == code}
                  for name, code in (("indoor", "1"), ("outdoor", "2"))}
    for path in sorted(root.glob("*hierarchy*.csv")):
        groups |= _hierarchy(path)
    return groups


def _hierarchy(path: Path) -> dict[str, set[str]]:
    """Columns of 0 and 1, under the line whose first cell is `category`."""
    lines = io.StringIO(files.text(path, "utf-8-sig"), newline="")
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if row]
    except csv.Error as error:
        raise UserError(f"{path} cannot be read ({error}); save the table as CSV again") from error
    top = next((i for i, row in enumerate(rows) if row[0] == "category"), None)
    if top is None:
        raise UserError(f"{path}: no line starts with `category`; save the table as CSV again")
    return {name: {_category(row[0]) for row in rows[top + 1:] if row[k:k + 1] == ["1"]}
            for k, name in enumerate(rows[top]) if k and name}


def _chosen(attribute: str, known: dict[str, set[str]]) -> dict[str, list[str]]:
    """Class -> its categories, without those that lie in several of the classes."""
    names = [name.strip() for name in attribute.split(SEPARATOR)]
    for i, name in enumerate(names):
        if name not in known:
            raise UserError(f"--attribute: {name!r} is no category or group{nearest(name, known)}; "
                            f"write them as in 'bedroom; kitchen', and put {INDOORS} or the scene "
                            "hierarchy's CSV beside the images for groups")
        if name in names[:i]:
            raise UserError(f"--attribute: {name!r} is named twice; remove one")
    if len(names) < 2:
        raise UserError("--attribute names 1 class; name 2 or more, with ; between them")
    once = {name: known[name].difference(*(known[other] for other in names if other != name))
            for name in names}
    return {name: sorted(categories) for name, categories in once.items()}
