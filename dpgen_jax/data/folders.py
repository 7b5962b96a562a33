"""Images in class folders: `folder:DIR`, and `places365:DIR` with its lists and groups."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable
from pathlib import Path

from dpgen_jax.data import files
from dpgen_jax.data.base import Dataset, fixed_classes, locate, nearest
from dpgen_jax.data.files import Labelled, listed, subfolders
from dpgen_jax.types import UserError

PLACES_SIZE = 64
CATEGORIES = "categories_places365.txt"
LISTS = ("places365_train_standard.txt", "places365_val.txt")
ROOTS = (("data_256", "data_256_standard", "data_large", "data_large_standard"),
         ("val_256", "val_large"))
INDOORS = "IO_places365.txt"
SEPARATOR = ";"  # names of groups hold commas

Part = dict[str, list[Path]]  # category -> its files


def folder(given: str, classes: int | None, image_size: int | None, skip_bad: bool) -> Dataset:
    """train/CLASS/*.png|jpg|jpeg and, if there, test/CLASS/...; labels follow the sorted names.

    Images stay gray if all files are gray, else all become RGB; transparency is dropped. Without
    image_size all must share one shape, with it each is centre-cropped to a square and resized.
    skip_bad: leaves out files that cannot be decoded. Errors: UserError naming the file.
    """
    root = locate(given)
    names = subfolders(root / "train")
    if not names:
        raise UserError(f"{root / 'train'} holds no class folders; expected train/CLASS/*.png")
    train, test = (_class_folders(root / part, names) for part in ("train", "test"))
    if not any(train.values()):
        raise UserError(f"{root / 'train'} holds no png, jpg or jpeg files in its class folders")
    notes = [f"class names are the folder names: {', '.join(names)}",
             "gray or RGB, and the image size unless given, are read from the files"]
    return files.labelled(
        root.resolve().name, fixed_classes(str(root), len(names), classes), _pairs(train, names),
        _pairs(test, names), notes, mode=None, image_size=image_size, skip_bad=skip_bad)


def _class_folders(path: Path, names: list[str]) -> Part:
    """The files of the class folders in path, which may lack some, or all, of the names."""
    found = subfolders(path)
    unknown = sorted(set(found) - set(names))
    if unknown:
        raise UserError(f"{path / unknown[0]} is a class that train/ lacks; known: "
                        f"{', '.join(names)}")
    return {name: listed(path / name) for name in found}


def _pairs(part: Part, classes: Iterable[str]) -> Labelled:
    return [(path, label) for label, name in enumerate(classes) for path in part.get(name, [])]


@dataclasses.dataclass(frozen=True)
class _Places:
    """Places365 as it lies: its categories in order, named as `bus_station-indoor`."""

    categories: list[str]
    train: Part
    held: Part


def places365(given: str, attribute: str | None, classes: int | None, image_size: int | None,
              skip_bad: bool) -> Dataset:
    """Places365-Standard (Zhou et al. 2017), RGB, 64 x 64 unless image_size says otherwise; val is
    the held-out part.

    Two layouts: train/CATEGORY/*.jpg and val/CATEGORY/*.jpg, or the lists categories_places365.txt,
    places365_train_standard.txt and places365_val.txt beside data_256/ and val_256/ (or
    data_256_standard/, data_large/, ...).
    attribute: the classes, as names with ; between them, each a category (`bedroom`,
      `bus_station-indoor`) or a group of categories: `indoor` and `outdoor` where IO_places365.txt
      lies in DIR, and the columns of the authors' scene hierarchy where that table lies there as
      *hierarchy*.csv (`home or hotel`; its level 2 has 16 classes). DataLens (Wang et al. 2021,
      section 5.1) trains on 120,000 images of three level-2 classes, which it does not name.
      A category in several of the named classes is left out. None: all categories.
    Errors: UserError, one line naming the file, line or name.
    """
    root = locate(given)
    held = _from_lists(root) if (root / CATEGORIES).is_file() else _from_folders(root)
    if attribute is None:
        chosen = {name: [name] for name in held.categories}
    else:
        chosen = _chosen(attribute, {name: {name} for name in held.categories} | _groups(root))
    parts = [{name: [path for category in members for path in part.get(category, [])]
              for name, members in chosen.items()} for part in (held.train, held.held)]
    for name, found in parts[0].items():
        if not found:
            raise UserError(f"{root}: no training images of the class {name!r}; unpack them there, "
                            "or name other classes with --attribute")
    what = "all categories" if attribute is None else f"{'; '.join(chosen)}, by public lists"
    return files.labelled(
        "places365", fixed_classes("places365", len(chosen), classes), _pairs(parts[0], chosen),
        _pairs(parts[1], chosen), [f"classes: {what}; the held-out part is val"],
        mode="RGB", image_size=image_size or PLACES_SIZE, skip_bad=skip_bad)


def _from_folders(root: Path) -> _Places:
    names = subfolders(root / "train")
    if not names:
        raise UserError(f"{root} holds neither train/CATEGORY/*.jpg nor {CATEGORIES}; give the "
                        "folder of Places365")
    return _Places(names, *(_class_folders(root / part, names) for part in ("train", "val")))


def _from_lists(root: Path) -> _Places:
    rows = files.lines(root / CATEGORIES)
    names = {}
    for number, words in enumerate(rows, 1):
        if len(words) != 2 or not words[1].isdigit():
            raise UserError(f"{root / CATEGORIES}, line {number}: expected `/a/airfield 0`")
        names[words[1]] = _category(words[0])
    parts = []
    for given, roots in zip(LISTS, ROOTS, strict=True):
        images = files.folder_file(root, *roots)
        parts.append({name: [] for name in names.values()})
        for number, words in enumerate(files.lines(files.folder_file(root, given)), 1):
            if len(words) != 2 or words[1] not in names:
                raise UserError(f"{root / given}, line {number}: expected an image and its "
                                f"category, one of the {len(names)} in {CATEGORIES}")
            parts[-1][names[words[1]]].append(images / words[0].lstrip("/"))
    return _Places(list(names.values()), *parts)


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
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
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
