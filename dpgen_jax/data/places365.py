"""`places365:DIR`: the scenes of Places365 (Zhou et al. 2017), by category or group of them."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import UserError
from dpgen_jax.data import files
from dpgen_jax.data.base import Background, Dataset, Resize, Uncovered, locate, shown
from dpgen_jax.data.class_names import checked, fixed_classes
from dpgen_jax.data.files import SKIPPED, subfolders
from dpgen_jax.data.folders import Part, class_folders, pairs, read_names, with_uncovered
from dpgen_jax.data.image_form import Form

SIZE = 64
CATEGORIES = "categories_places365.txt"
LISTS = ("places365_train_standard.txt", "places365_val.txt")
ROOTS = (("data_256", "data_256_standard", "data_large", "data_large_standard"),
         ("val_256", "val_large"))
INDOORS = "IO_places365.txt"
SEPARATOR = ";"  # names of groups hold commas

Groups = dict[str, set[str]]
"""The categories of each class or group, by its name."""
Classes = dict[str, list[str]]
"""The categories of each class, by its name, in the order of the labels."""


@dataclasses.dataclass(frozen=True)
class _Places:
    """The files of Places365.

    Attributes:
        categories: The categories in order, named as `bus_station-indoor`.
        train: The files of training.
        test: The files of val, the held-out part.
        from_folders: Whether the categories are read from the folders.
    """

    categories: tuple[str, ...]
    train: Part
    test: Part
    from_folders: bool = False


def places365(path: str, attribute: str | None, classes: int | None, image_size: int | None,
              class_names: tuple[str, ...], skip_bad: bool, resize: Resize | None,
              per_class: int | None, background: Background | None) -> Dataset:
    """Loads Places365-Standard (Zhou et al. 2017), RGB; val is the held-out part.

    It has two layouts: train/CATEGORY/*.jpg and val/CATEGORY/*.jpg, or the lists
    categories_places365.txt, places365_train_standard.txt and places365_val.txt beside data_256/
    and val_256/ (or data_256_standard/, data_large/, ...), in whose order the records then are.

    Args:
        path: The folder, DIR.
        attribute: The classes, as names with ; between them, each a category (`bedroom`,
            `bus_station-indoor`) or a group of categories: `indoor` and `outdoor` where
            IO_places365.txt lies in DIR, and the columns of the authors' scene hierarchy where that
            table lies there as *hierarchy*.csv (`home or hotel`; its level 2 has 16 classes).
            DataLens (Wang et al. 2021, section 5.1) trains on 120,000 images of three level-2
            classes, which it does not name. A category in several of the classes is left out. How
            many images they have is a function of the labels, and so `uncovered`: an empty slot for
            each other of the 1.8 million would leave few teachers with records. None: all
            categories.
        classes: The number of classes that the user declares, or None.
        image_size: Pixels, 64 by default.
        class_names: The categories of the first layout; `uncovered` where they are read from the
            folders.
        skip_bad: As `files.labelled`.
        resize: As `files.labelled`.
        per_class: The number of training images that are taken of each class, evenly spread over
            its list; the papers' 120,000 are 40,000 of each of three. Which they are is a function
            of the labels, and so `uncovered`. None: all.
        background: As `files.labelled`.

    Returns:
        The data set.

    Raises:
        UserError: Naming the file, line or name.
    """
    root = locate(path)
    lists = (root / CATEGORIES).is_file()
    if class_names and (lists or attribute is not None):
        source = CATEGORIES if lists else "--attribute"
        raise UserError(f"--class-names: the classes are named by {source}; drop the option")
    places = _from_lists(root) if lists else _from_folders(root, class_names)
    if attribute is None:
        selected = {name: [name] for name in places.categories}
    else:
        selected = _select(attribute, {name: {name} for name in places.categories} | _groups(root))
    train, test = (_of_classes(part, selected) for part in (places.train, places.test))
    _require_images(root, train, selected, attribute)
    if per_class is not None:
        train = _limited(train, selected, per_class)
    what = "all categories" if attribute is None else f"{'; '.join(selected)}, by public lists"
    names = checked(tuple(selected), CATEGORIES)
    data = files.labelled(
        "places365", names, pairs(train, names), pairs(test, names),
        [f"classes: {what}; the held-out part is val", *[SKIPPED] * skip_bad],
        Form(3, image_size or SIZE, skip_bad, resize, background))
    fixed_classes("places365", len(names), classes)
    return with_uncovered(data, *_uncovered(places, len(train), attribute, per_class,
                                            bool(class_names)))


def _uncovered(places: _Places, count: int, attribute: str | None, per_class: int | None,
               declared: bool) -> Iterator[Uncovered]:
    """Yields what is read from the labels: which images are taken, or the categories."""
    if per_class is not None:
        yield Uncovered("which images of a class are taken is a function of the labels",
                        "all of them, by leaving out --per-class")
    elif attribute is not None:
        yield Uncovered(f"the number of records, {count}, is that of the images in the named "
                        "classes", "all categories, by leaving out --attribute")
    if attribute is None and places.from_folders and not declared:
        yield read_names(places.categories)


def _limited(part: Part, classes: Classes, count: int) -> Part:
    """Returns this number of images of each class, evenly spread over those that it has.

    A list is in the order of the categories, so that the first images of a class would be of a few
    of its categories only.
    """
    if count < 1:
        raise UserError(f"--per-class {count}: take 1 image of each class or more")
    taken: set[int] = set()
    for name in classes:
        rows = [i for i, (_, other) in enumerate(part) if other == name]
        if len(rows) < count:
            raise UserError(f"--per-class {count}: the class {name!r} has {len(rows)} training "
                            "images; take fewer, or name other classes with --attribute")
        taken.update(rows[i * len(rows) // count] for i in range(count))
    return [pair for i, pair in enumerate(part) if i in taken]


def _of_classes(part: Part, classes: Classes) -> Part:
    """Returns the files of the classes, with the names of their classes."""
    names = {category: name for name, members in classes.items() for category in members}
    return [(path, names[category]) for path, category in part if category in names]


def _require_images(root: Path, train: Part, classes: Classes, attribute: str | None) -> None:
    """Checks that the classes have training images; where none is requested, that any has."""
    present = {name for _, name in train}
    absent = [name for name in classes if name not in present]
    if not present or (attribute is not None and absent):
        raise UserError(f"{shown(root)}: no training images of the class {absent[0]!r}; unpack "
                        "them there, or name other classes with --attribute")


def _from_folders(root: Path, class_names: Sequence[str]) -> _Places:
    """Reads the layout of folders."""
    if not subfolders(root / "train"):
        raise UserError(f"{root} holds neither train/CATEGORY/*.jpg nor {CATEGORIES}; give the "
                        "folder of Places365")
    names, train = class_folders(root / "train", class_names)
    return _Places(names, train, class_folders(root / "val", names)[1], True)


def _from_lists(root: Path) -> _Places:
    """Reads the layout of lists."""
    rows = files.lines(root / CATEGORIES)
    names = {}
    for number, words in enumerate(rows, 1):
        if len(words) != 2 or not words[1].isdigit():
            raise UserError(f"{root / CATEGORIES}, line {number}: expected `/a/airfield 0`")
        names[words[1]] = _category(words[0])
    train, test = (_read_list(root, file_name, roots, names)
                   for file_name, roots in zip(LISTS, ROOTS, strict=True))
    return _Places(tuple(names.values()), train, test)


def _read_list(root: Path, file_name: str, roots: Sequence[str], names: dict[str, str]) -> Part:
    """Reads one list of images, which lie in one of the roots, with their categories' names."""
    images, part = files.folder_file(root, *roots), []
    for number, words in enumerate(files.lines(files.folder_file(root, file_name)), 1):
        if len(words) != 2 or words[1] not in names:
            raise UserError(f"{root / file_name}, line {number}: expected an image and its "
                            f"category, one of the {len(names)} in {CATEGORIES}")
        part.append((images / words[0].lstrip("/"), names[words[1]]))
    return part


def _category(path: str) -> str:
    """Returns `bus_station-indoor` of `/b/bus_station/indoor`, with or without quotes."""
    return "-".join(path.strip("' ").split("/")[2:])


def _groups(root: Path) -> Groups:
    """Returns the groups of the public lists that lie in root."""
    groups: Groups = {}
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


def _hierarchy(path: Path) -> Groups:
    """Reads groups from columns of 0 and 1, under the line whose first cell is `category`."""
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


def _select(attribute: str, groups: Groups) -> Classes:
    """Returns the requested classes, without categories that lie in several of them."""
    names = [name.strip() for name in attribute.split(SEPARATOR)]
    for i, name in enumerate(names):
        if name not in groups:
            raise UserError(f"--attribute: {name!r} is no category or group{nearest(name, groups)};"
                            f" write them as in 'bedroom; kitchen', and put {INDOORS} or the scene "
                            "hierarchy's CSV beside the images for groups")
        if name in names[:i]:
            raise UserError(f"--attribute: {name!r} is named twice; remove one")
    if len(names) < 2:
        raise UserError("--attribute names 1 class; name 2 or more, with ; between them")
    unique = {name: groups[name].difference(*(groups[other] for other in names if other != name))
              for name in names}
    return {name: sorted(categories) for name, categories in unique.items()}
