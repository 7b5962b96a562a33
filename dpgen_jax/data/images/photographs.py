"""Public photographs: `cifar10:DIR`, `celeba:DIR` and `places365:DIR`.

CIFAR-10 may come as pickles. A pickle is a program for a stack machine that may import and call
anything. The reader here only knows the opcodes that a batch of CIFAR-10 has, and calls nothing
that a file names.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core.errors import nearest, option
from dpgen_jax.core.files import read_bytes, require_memory, require_regular
from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import (
    CIFAR10_CLASSES,
    Arrays,
    Background,
    Dataset,
    Resize,
    Uncovered,
    assemble,
    checked_classes,
    fixed_classes,
    locate,
    official_classes,
    shown,
)
from dpgen_jax.data.images import files
from dpgen_jax.data.images.files import (
    SKIPPED,
    Form,
    Part,
    class_folders,
    pairs,
    read_names,
    subfolders,
    with_uncovered,
)

OPCODES = (
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT, pickle.BININT1, pickle.BININT2),
    *(pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.BINUNICODE, pickle.EMPTY_DICT),
    *(pickle.EMPTY_LIST, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2),
    *(pickle.TUPLE3, pickle.MARK, pickle.SETITEM, pickle.SETITEMS, pickle.APPEND, pickle.APPENDS),
    *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET, pickle.GLOBAL),
    *(pickle.REDUCE, pickle.BUILD, pickle.PROTO, pickle.STOP))
"""The opcodes of a batch, all of protocol 2."""
RECONSTRUCT = tuple(f"numpy.{part}.multiarray._reconstruct" for part in ("core", "_core"))
NDARRAY, DTYPE, ENCODE = "numpy.ndarray", "numpy.dtype", "_codecs.encode"


class _Refused(Exception):
    """The file is not a batch; the message is the reason."""


class _Recorded:
    """An import of a file, or the result of a call that it would make; nothing is called.

    Attributes:
        name: What the file would import.
        called: Whether it is the result of a call.
        state: What the file gives to the result.
    """

    def __init__(self, name: str, called: bool = False) -> None:
        self.name, self.called = name, called
        self.state: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Records one of the calls of a batch, with exactly its arguments."""
        first = arguments[0]
        if self.name == ENCODE and arguments[1:] == ("latin1",) and isinstance(first, str):
            return first.encode("latin-1")
        is_array = self.name in RECONSTRUCT and isinstance(first, _Recorded) and (
            (first.name, first.called) == (NDARRAY, False))
        if self.called or not (is_array or (self.name == DTYPE and first == "u1")):
            raise _Refused(f"it would call {self.name} with other arguments")
        return _Recorded(self.name, called=True)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle._Unpickler):
    """A reader of the few opcodes of a batch, which imports nothing.

    That of C cannot be restricted, and takes memory by numbers of the file.
    """

    dispatch = {code[0]: pickle._Unpickler.dispatch[code[0]] for code in OPCODES}

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in (*RECONSTRUCT, NDARRAY, DTYPE, ENCODE):
            raise _Refused(f"it would import {module}.{name}")
        return _Recorded(f"{module}.{name}")


def read_batch(name: str, data: bytes, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads a batch: a pickled dictionary with `data` and `labels`.

    Args:
        name: The name of the file, for errors.
        data: The bytes of the file.
        width: The number of pixels of an image, over all channels.

    Returns:
        Pixels uint8 [n, width] and labels int64 [n].

    Raises:
        UserError: The file contains anything but that and other plain values.
    """
    try:
        return _content(_Unpickler(io.BytesIO(data), encoding="latin-1").load(), width)
    except _Refused as error:
        reason = str(error)
    except KeyError as error:
        reason = f"unexpected opcode {error}"
    except Exception as error:  # a malformed stack or memo
        reason = f"malformed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    raise UserError(f"{name} is not a CIFAR-10 batch ({reason}); nothing in it was executed; "
                    "unpack the official archive again")


def _content(batch: object, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pixels and labels of a batch, of which the calls are recorded."""
    if not isinstance(batch, dict):
        raise _Refused("it does not contain a dictionary")
    fields = {key.decode("latin-1") if isinstance(key, bytes) else key: value
              for key, value in batch.items()}
    array, labels = fields.get("data"), fields.get("labels")
    if not isinstance(array, _Recorded) or not isinstance(labels, list):
        raise _Refused("it lacks `data`, an array, or `labels`, a list")
    _, shape, kind, by_column, values = array.state
    if not isinstance(kind, _Recorded) or (kind.name, kind.called, by_column) != (
            DTYPE, True, False):
        raise _Refused("data is not a uint8 array in row order")
    values = values.encode("latin-1") if isinstance(values, str) else values
    pixels = np.frombuffer(values, np.uint8).reshape(shape)
    if pixels.ndim != 2 or pixels.shape[1] != width or not len(pixels):
        raise _Refused(f"data has shape {pixels.shape}, expected [n, {width}]")
    if len(labels) != len(pixels) or not all(type(label) is int for label in labels):
        raise _Refused(f"{len(pixels)} images, {len(labels)} labels; one integer per image is "
                       "needed")
    return pixels, np.array(labels, np.int64)


CLASSES = 10
SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def cifar10(path: str, classes: int | None, image_size: int | None) -> Dataset:
    """Loads the official batches, RGB of 32 x 32 pixels.

    They are cifar-10-batches-bin (records of a label and 3,072 bytes) or cifar-10-batches-py
    (pickles, which are parsed, never executed), in the folder or in one that contains it.
    """
    root = locate(path)
    classes = fixed_classes("cifar10", CLASSES, classes)
    read, paths = _layout(root)
    require_memory(f"the batches in {root}", sum(require_regular(batch).st_size for batch in paths))
    parts = [read(batch) for batch in paths]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts[:-1], strict=True))
    data = assemble("cifar10", classes, (x, y), parts[-1], ["public data"], image_size)
    return official_classes(data, CIFAR10_CLASSES)


def _layout(root: Path) -> tuple[Callable[[Path], Arrays], list[Path]]:
    """Returns the reader of the layout, and the paths of the five training batches and the test."""
    for folder, suffix, read in (("cifar-10-batches-bin", ".bin", _binary),
                                 ("cifar-10-batches-py", "", _pickled)):
        for parent in (root, root / folder):
            paths = [parent / f"{name}{suffix}" for name in BATCHES]
            missing = [path for path in paths if not path.is_file()]
            if not missing:
                return read, paths
            if len(missing) < len(paths):
                raise UserError(f"{missing[0]} is missing; unpack the archive again")
    raise UserError(f"{root} holds neither data_batch_1.bin nor data_batch_1; give the folder "
                    "cifar-10-batches-bin or cifar-10-batches-py")


def _binary(path: Path) -> Arrays:
    data = read_bytes(path)
    if not data or len(data) % (1 + PIXELS):
        raise UserError(f"{path} has {len(data)} bytes, not a multiple of {1 + PIXELS}: truncated, "
                        "or another file; unpack the archive again")
    records = np.frombuffer(data, np.uint8).reshape(-1, 1 + PIXELS)
    return _arrays(path, records[:, 1:], records[:, 0])


def _pickled(path: Path) -> Arrays:
    """Reads a batch for Python."""
    return _arrays(path, *read_batch(str(path), read_bytes(path), PIXELS))


def _arrays(path: Path, pixels: np.ndarray, labels: np.ndarray) -> Arrays:
    """Returns images [n, 32, 32, 3] of pixels [n, 3072], channel after channel, and the labels."""
    outside = np.flatnonzero((labels < 0) | (labels >= CLASSES))
    if outside.size:
        raise UserError(f"{path}: label {labels[outside[0]]} in record {outside[0]} is outside "
                        f"0..{CLASSES - 1}; unpack the archive again")
    return pixels.reshape(-1, *SHAPE).transpose(0, 2, 3, 1), labels.astype(np.int64)


IMAGES = ("img_align_celeba", "Img/img_align_celeba")
ATTRIBUTES = ("list_attr_celeba.txt", "Anno/list_attr_celeba.txt")
PARTITION = ("list_eval_partition.txt", "Eval/list_eval_partition.txt")
SPLITS = {"train": ("0",), "train+val": ("0", "1")}
"""The partitions that are trained on: of the official ones 162,770 or 182,637 images."""
TEST = ("2",)
CELEBA_SIZE = 64
LABELS = {
    "gender": (("Male",), ("female", "male"),
               "the classes are female and male, by the attribute Male"),
    "hair": (("Black_Hair", "Blond_Hair", "Brown_Hair"), ("black", "blond", "brown"),
             "the classes are black, blond and brown hair; images with none or several of the "
             "three are empty slots: they keep their places, and nobody sees them")}
"""The attributes that decide the class, the classes, and the public line, by the label."""
NOTES = {"train": "train and test are the official parts, and the validation part is unused",
         "train+val": "train is the official training and validation parts, test is the official "
         "part"}
PERSONS = "CelebA shows most people in several images: a record is one image, not one person"


def celeba(path: str, attribute: str | None, classes: int | None, image_size: int | None,
           skip_bad: bool, resize: Resize | None, split: str | None,
           background: Background | None) -> Dataset:
    """Loads CelebA in its official layout, RGB.

    The folder contains img_align_celeba/*.jpg (also in Img/), list_attr_celeba.txt (also in Anno/)
    and list_eval_partition.txt (also in Eval/). Testing is partition 2 (19,962 images). The options
    that are not described here are those of `load`.

    Args:
        path: The folder.
        attribute: `gender` (default) has classes female and male, by `Male`; `hair` has black,
            blond and brown, and images with none or several of the three are empty slots, so that n
            does not depend on how many they are. G-PATE (Long et al. 2021) and DataLens (Wang et
            al. 2021), whose label it is, do not mention them.
        classes: The number of classes that the user declares, or None.
        image_size: Pixels, 64 by default; the papers use 32 and 64.
        skip_bad: As of `Form`.
        resize: How the 178 x 218 images become squares: `crop` (default), the centre; `stretch`,
            the whole image, as the code of DP-GAN-DPAC does. The papers of G-PATE and DataLens
            "resize the images", and no code of theirs for it is public.
        split: The parts that are trained on. `train` (default) is partition 0, 162,770 images, as
            the papers say and DP-GAN-DPAC does; `train+val` has partition 1 too, 182,637 images, as
            the codes of G-PATE and DataLens. These also repeat images until the classes are even
            (189,018 in partition 0), which puts one image into several teachers and breaks what the
            papers promise; it is not offered.
        background: As of `Form`.
    """
    attribute = _one_of("attribute", attribute, LABELS, "is labelled by gender or hair")
    split = _one_of("split", split, SPLITS, "is trained on by train or train+val")
    columns, names, described = LABELS[attribute]
    root = locate(path)
    folder, table, partitions = (files.folder_file(root, *names)
                                 for names in (IMAGES, ATTRIBUTES, PARTITION))
    images, flags = files.listed(folder), _attributes(table, columns)
    partition = _partition(partitions)
    _check(images, folder, {table: flags, partitions: partition})
    labels = {image: _label(flags[image.name]) for image in images}
    train, test = ([(image, labels[image]) for image in images if partition[image.name] in parts]
                   for parts in (SPLITS[split], TEST))
    if not train:
        raise UserError(f"{root}: no training images; unpack {IMAGES[0]} there")
    fixed_classes("celeba", len(names), classes)
    data = files.labelled(
        f"celeba-{attribute}", names, train, test,
        (described, NOTES[split], PERSONS, *[files.SKIPPED] * skip_bad),
        Form(3, image_size or CELEBA_SIZE, skip_bad, resize, background))
    left_out = list(labels.values()).count(None)
    if not left_out:
        return data
    note = f"{left_out} of {len(images)} images have none or several of the three hair colours"
    return dataclasses.replace(data, private_notes=(*data.private_notes, note))


def _one_of(field: str, value: str | None, known: Mapping[str, object], what: str) -> str:
    """Returns the value of an option, by default the first that is known."""
    if value is not None and value not in known:
        raise UserError(f"{option(field, value)}{nearest(value, known)}: CelebA {what}")
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
                raise UserError(f"{table} has no row for {path.name}; download it again, or remove "
                                "images that are not CelebA's")
        for name in rows:
            if name not in names:
                raise UserError(f"{folder / name} is missing, but {table.name} has a row for it; "
                                "unpack the images again")


def _partition(path: Path) -> dict[str, str]:
    rows = {}
    for number, words in enumerate(files.lines(path), 1):
        if len(words) != 2 or words[1] not in ("0", "1", "2") or words[0] in rows:
            raise UserError(f"{path}, line {number}: expected `000001.jpg 0`, with 0, 1 or 2, and "
                            "each image once; download it again")
        rows[words[0]] = words[1]
    return rows


def _attributes(path: Path, attributes: tuple[str, ...]) -> dict[str, list[bool]]:
    lines = files.lines(path)
    if len(lines) < 2 or len(lines[0]) != 1 or not lines[0][0].isdigit():
        raise UserError(f"{path}: expected the number of images in its first line and the names of "
                        "attributes in its second; download it again")
    names, rows = lines[1], lines[2:]
    for name in attributes:
        if name not in names:
            raise UserError(f"{path}: no attribute {name}{nearest(name, names)}; download it again")
    positions = [1 + names.index(name) for name in attributes]
    flags = {}
    for number, words in enumerate(rows, 3):
        if (len(words) != 1 + len(names) or any(words[k] not in ("1", "-1") for k in positions)
                or words[0] in flags):
            raise UserError(f"{path}, line {number}: expected an image and {len(names)} times 1 or "
                            "-1, and each image once; download it again")
        flags[words[0]] = [words[k] == "1" for k in positions]
    return flags


PLACES365_SIZE = 64
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
    categories_places365.txt, places365_train_standard.txt and places365_val.txt next to data_256/
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
        skip_bad: As of `Form`.
        resize: As of `Form`.
        per_class: The number of training images that are taken of each class, evenly spread over
            its list; the papers' 120,000 are 40,000 of each of three. Which they are is a function
            of the labels, and so `uncovered`. None: all.
        background: As of `Form`.
    """
    root = locate(path)
    lists = (root / CATEGORIES).is_file()
    if class_names and (lists or attribute is not None):
        source = CATEGORIES if lists else option("attribute")
        raise UserError(f"{option('class_names')}: the classes are named by {source}; drop the "
                        "option")
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
    names = checked_classes(tuple(selected), CATEGORIES)
    data = files.labelled(
        "places365", names, pairs(train, names), pairs(test, names),
        [f"classes: {what}; the held-out part is val", *[SKIPPED] * skip_bad],
        Form(3, image_size or PLACES365_SIZE, skip_bad, resize, background))
    fixed_classes("places365", len(names), classes)
    return with_uncovered(data, *_uncovered(places, len(train), attribute, per_class,
                                            bool(class_names)))


def _uncovered(places: _Places, count: int, attribute: str | None, per_class: int | None,
               declared: bool) -> Iterator[Uncovered]:
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
        raise UserError(f"{option('per_class', count)}: take 1 image of each class or more")
    taken: set[int] = set()
    for name in classes:
        rows = [i for i, (_, other) in enumerate(part) if other == name]
        if len(rows) < count:
            raise UserError(f"{option('per_class', count)}: the class {name!r} has {len(rows)} "
                            "training images; take fewer, or name other classes with "
                            f"{option('attribute')}")
        taken.update(rows[i * len(rows) // count] for i in range(count))
    return [pair for i, pair in enumerate(part) if i in taken]


def _of_classes(part: Part, classes: Classes) -> Part:
    names = {category: name for name, members in classes.items() for category in members}
    return [(path, names[category]) for path, category in part if category in names]


def _require_images(root: Path, train: Part, classes: Classes, attribute: str | None) -> None:
    present = {name for _, name in train}
    absent = [name for name in classes if name not in present]
    if not present or (attribute is not None and absent):
        raise UserError(f"{shown(root)}: no training images of the class {absent[0]!r}; unpack "
                        f"them there, or name other classes with {option('attribute')}")


def _from_folders(root: Path, class_names: Sequence[str]) -> _Places:
    if not subfolders(root / "train"):
        raise UserError(f"{root} holds neither train/CATEGORY/*.jpg nor {CATEGORIES}; give the "
                        "folder of Places365")
    names, train = class_folders(root / "train", class_names)
    return _Places(names, train, class_folders(root / "val", names)[1], True)


def _from_lists(root: Path) -> _Places:
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
            raise UserError(f"{option('attribute')}: {name!r} is not a category or "
                            f"group{nearest(name, groups)}; write them as in 'bedroom; kitchen', "
                            f"and put {INDOORS} or the scene hierarchy's CSV next to the images to "
                            "use groups")
        if name in names[:i]:
            raise UserError(f"{option('attribute')}: {name!r} is named twice; remove one")
    if len(names) < 2:
        raise UserError(f"{option('attribute')} names 1 class; name 2 or more, with ; between them")
    unique = {name: groups[name].difference(*(groups[other] for other in names if other != name))
              for name in names}
    return {name: sorted(categories) for name, categories in unique.items()}
