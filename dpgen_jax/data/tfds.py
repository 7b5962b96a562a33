"""`tfds:NAME`: a data set of tensorflow-datasets, prepared if necessary, read by its own reader.

A data set is prepared once, under TFDS_DATA_DIR, in the array_record format, which is read without
TensorFlow. Data sets that were prepared elsewhere are read in any format of tensorflow-datasets:
array_record and parquet by random access, tfrecord and riegeli with TensorFlow.

The schema of a table comes from the description of the data set. The names of a `ClassLabel` are
public, and so is the fact that a feature is a number or a boolean. No description has the bounds of
numbers: where no schema declares them, they are read from the records, and `uncovered`. Features
that are texts are left out unless a schema declares them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core import console
from dpgen_jax.core.errors import listed, option
from dpgen_jax.core.files import Json, require_memory
from dpgen_jax.core.types import UserError
from dpgen_jax.data import base, cache
from dpgen_jax.data.base import (
    Arrays,
    Dataset,
    Uncovered,
    assemble,
    fit,
    fixed_classes,
    official_classes,
    same_shape,
)
from dpgen_jax.data.cache import Decoded
from dpgen_jax.data.images import files
from dpgen_jax.data.table import draft, parsing, schema, tables
from dpgen_jax.data.table.parsing import Cells, coded, joined


def read_images(name: str, builder: Any, split: str, records: Iterable[Any], image_size: int | None
                ) -> Arrays:
    """Reads the images uint8 [n, H, W, ch] and the labels int64 [n] of one split.

    Args:
        name: The name of the data set, for errors.
        builder: Its builder, prepared.
        split: The name of the split.
        records: Its records, which are not begun where the cache has their images and labels.
        image_size: Pixels to which images are resized, or None.
    """
    count = builder.info.splits[split].num_examples
    prepared = _prepared(Path(builder.data_dir)) if count >= files.MANY else []
    blocks = _blocks(f"tfds:{name}", split, count, records, image_size, bool(prepared))
    if not prepared:
        decoded = files.together(blocks)
    else:
        # It decodes with OpenCV where that is installed, and else with Pillow.
        reader = ("tfds", version("tensorflow-datasets"), str(find_spec("cv2") is not None), split)
        entry = cache.entry(prepared, None, image_size, reader=reader)
        decoded = cache.kept(entry, count, blocks)
    return decoded.pixels, np.array(decoded.labels, np.int64)


def image_notes(builder: Any) -> tuple[str, ...]:
    """Returns the line for the data holder on where decoded images are kept, if they are."""
    splits = [builder.info.splits[split].num_examples for split in ("train", "test")
              if split in builder.info.splits]
    return tuple(files.where_kept(max(splits) if _prepared(Path(builder.data_dir)) else 0))


def _prepared(folder: Path) -> list[Path]:
    """Returns the files of a data set: its records in any format, and what describes them.

    A data set that is not on a disk has none: changes of them could not be noticed.
    """
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


def _blocks(source: str, split: str, count: int, records: Iterable[Any], image_size: int | None,
            is_mapped: bool) -> Iterator[Decoded]:
    """Yields images with their labels, some at a time."""
    rest, shape, done = iter(records), None, 0
    while part := list(itertools.islice(rest, files.BLOCK)):
        images = [fit(record["image"], image_size) if image_size else record["image"]
                  for record in part]
        for i, image in enumerate(images, done):
            shape = same_shape(f"{split} image {i}", image.shape, shape)
            if image.dtype != np.uint8 or len(shape) != 3:
                raise UserError(f"{source}, {split}: images are {image.dtype} of shape {shape}, "
                                "expected uint8 [H, W, ch]")
        if not done:
            needs = base.require_mapped_memory if is_mapped else require_memory
            needs(f"an array of {count:,} images like {split} image 0", count * images[0].nbytes)
        done += len(part)
        if done > count:
            break
        yield Decoded(np.stack(images), labels=tuple(int(record["label"]) for record in part))
    if done != count or not count:
        raise UserError(f"{source}: split {split!r} holds {done}{' or more' * (done > count)} "
                        f"records and states {count}; prepare it again")


MAX_LENGTH = 10_000
"""The most numbers of one feature, each of which is a column."""
NOTE = "columns, kinds and categories are those of the data set's description"


def leaves(features: Mapping[str, Any], before: tuple[str, ...] = ()
           ) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the path and the feature of each part of a description, in the order of their names.

    The description itself has another order in each process.
    """
    for name, feature in sorted(features.items()):
        if hasattr(feature, "items"):
            yield from leaves(feature, (*before, name))
        else:
            yield (*before, name), feature


class Description:
    """The columns that the description of a data set declares.

    Attributes:
        entries: Entries of each column's schema that are known without the data.
        texts: The columns that are texts.
        label: The column of the classes: the one that is meant to be predicted, or else the last
            one of names; None where there is none.
    """

    def __init__(self, name: str, info: Any) -> None:
        """Reads a description; a UserError names a feature that cannot be a cell of a table."""
        self.entries: dict[str, Json] = {}
        self.texts: list[str] = []
        self._places: dict[str, tuple[tuple[str, ...], Any, int | None]] = {}
        for path, feature in leaves(info.features):
            shape = getattr(feature, "shape", None)
            kind = np.dtype(getattr(feature, "np_dtype", object)).kind
            if shape is None or len(shape) > 1 or None in shape or kind not in "biufOSU":
                raise UserError(f"tfds:{name} has a feature {'/'.join(path)} that is neither a "
                                "number nor a category; an image data set has `image` and `label`")
            if math.prod(shape) > MAX_LENGTH:
                raise UserError(f"tfds:{name}: the feature {'/'.join(path)} holds "
                                f"{math.prod(shape):,} numbers, and at most {MAX_LENGTH:,} are "
                                "columns")
            column = path[-1] if path[-1] not in self._places else "/".join(path)
            for i in range(shape[0]) if shape else [None]:
                self._add(column if i is None else f"{column}[{i}]", path, feature, i, kind)
        wanted = (info.supervised_keys or (None, None))[1]
        classes = sorted((column for column, made in self.entries.items() if "categories" in made),
                         key=lambda column: self.entries[column]["kind"] == "categorical")
        self.label = wanted if wanted in classes else classes[-1] if classes else None

    def _add(self, column: str, path: tuple[str, ...], feature: Any, i: int | None, kind: str
             ) -> None:
        self._places[column] = path, feature, i
        self.entries[column] = {}
        if getattr(feature, "names", None):
            self.entries[column] = {"kind": "categorical", "categories": list(feature.names),
                                    "nullable": "false"}
        elif kind == "b":
            self.entries[column] = {"kind": "boolean", "categories": ["false", "true"],
                                    "nullable": "false"}
        elif kind == "f":
            self.entries[column] = {"kind": "continuous"}
        elif kind in "iu":
            self.entries[column] = {"nullable": "false"}
        else:
            self.texts.append(column)

    def cells(self, source: str, records: Iterable[Any], count: int, texts: Iterable[str] = ()
              ) -> Cells:
        """Returns all cells of records; it takes what `blocks` does."""
        columns = tuple(texts)
        cells = count * len(self._wanted(columns))
        require_memory(f"{source}: a table of {cells:,} cells", parsing.CELL_BYTES * cells)
        return joined(list(self.blocks(source, records, count, columns)))

    def blocks(self, source: str, records: Iterable[Any], count: int, texts: Iterable[str] = ()
               ) -> Iterator[Cells]:
        """Yields the cells of records, some at a time; of no records an empty block.

        Args:
            source: The name of the table, for errors.
            records: Nested dicts of values, as the reader of tensorflow-datasets gives them.
            count: How many there are; more or fewer are a UserError.
            texts: The columns of texts that are wanted.
        """
        wanted, rest, read = self._wanted(texts), iter(records), 0
        size = max(1, parsing.BLOCK_CELLS // max(1, len(wanted)))
        block = list(itertools.islice(rest, size))
        while True:
            yield Cells(source, {column: [self._cell(record, column) for record in block]
                                 for column in wanted},
                        [f"record {read + i}" for i in range(len(block))])
            read += len(block)
            if not (block := list(itertools.islice(rest, size))):
                break
        if read != count:
            raise UserError(f"{source} holds {read} records and states {count}; prepare it again")

    def _wanted(self, texts: Iterable[str]) -> list[str]:
        """Returns the columns that are read; of the columns of texts only these."""
        known = set(texts)
        return [column for column in self._places
                if column not in self.texts or column in known]

    def _cell(self, record: Any, column: str) -> str:
        path, feature, i = self._places[column]
        for key in path:
            record = record[key]
        return _text(record if i is None else record[i], feature)


def _text(value: Any, feature: Any) -> str:
    names = getattr(feature, "names", None)
    if names:
        return str(names[value]) if 0 <= value < len(names) else ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return str(value).strip()


def load_table(name: str, info: Any, read: Callable[[str], Iterable[Any]], schema_file: str | None
               ) -> Dataset:
    """Loads a table of tensorflow-datasets.

    Args:
        name: The name of the data set.
        info: Its description.
        read: From the name of a split to its records.
        schema_file: A schema; None for that of the description, with bounds read from the records.
    """
    described = Description(name, info)
    declared = None if schema_file is None else schema.read(schema_file)
    texts = () if declared is None else [
        column.name for column in declared.spec.all_columns]

    def blocks(split: str) -> Iterator[Cells]:
        return described.blocks(f"tfds:{name}, {split}", read(split),
                                info.splits[split].num_examples, texts)

    train: Iterable[Cells] = blocks("train")
    if declared is None:
        whole = described.cells(f"tfds:{name}, train", read("train"),
                                info.splits["train"].num_examples)
        drafted, train = draft.draft(whole, described.label, described.entries), [whole]
        declared = schema.parse(drafted.document, f"tfds:{name}")
    notes = [NOTE] if schema_file is None else []
    if described.texts and schema_file is None:
        notes.append(f"features that are texts are left out: {listed(described.texts)}")
    code = partial(coded, declared)
    test = map(code, blocks("test")) if "test" in info.splits else None
    return tables.table(name, declared, map(code, train), test, notes)


DEFAULT_FOLDER = "~/tensorflow_datasets"
FILE_FORMAT = "array_record"
"""The format in which data sets are prepared here."""


def tfds(name: str, classes: int | None, image_size: int | None, download: bool = False,
         confirm: Callable[[str], bool | None] = console.confirm, schema_file: str | None = None
         ) -> Dataset:
    """Loads the splits `train` and, if there, `test`: images with a `label`, or a table.

    They are under the folder TFDS_DATA_DIR (default ~/tensorflow_datasets). A data set that is not
    there is downloaded and prepared, once the user agreed.

    Args:
        name: The name of the data set, as tfds knows it.
        classes: The number of classes that the user declares, or None.
        image_size: Pixels to which images are resized, or None.
        download: Download and prepare without a question.
        confirm: Asks the user a question: whether they agreed, or None where nobody can answer.
        schema_file: The schema of a table, or None.
    """
    builder = prepared(name, download, confirm)
    features = builder.info.features
    if "image" not in features:
        for name_of, value in (("classes", classes), ("image_size", image_size)):
            if value is not None:
                raise UserError(f"tfds:{name} is a table, to which {option(name_of)} does not "
                                "apply; drop the option")
        return load_table(name, builder.info, lambda split: records(name, builder, split),
                          schema_file)
    if "label" not in features or schema_file is not None:
        raise UserError(f"tfds:{name} has features {', '.join(features)}; images need `label`, and "
                        f"take no {option('schema')}")
    kind = np.dtype(getattr(features["label"], "np_dtype", object)).kind
    if kind not in "iu" or features["label"].shape:
        raise UserError(f"tfds:{name} describes its `label` as {features['label']!r}; images need "
                        "one integer each, the number of the class")
    stated = getattr(features["label"], "num_classes", None)
    if stated is not None:
        classes = fixed_classes(f"tfds:{name}", stated, classes)
    elif classes is None:
        raise UserError(f"tfds:{name} does not state its number of classes; pass "
                        f"{option('classes', 'N')}")
    test = _read(name, builder, "test", image_size) if "test" in builder.info.splits else None
    data = assemble(name, classes, _read(name, builder, "train", image_size), test,
                    ["class count and image shape, unless resized, are those of the data set's "
                     "description"], image_size)
    data = official_classes(data, tuple(getattr(features["label"], "names", None) or ()))
    shape = getattr(features["image"], "shape", None) or (None,) * 3
    return dataclasses.replace(data, uncovered=tuple(_undescribed(data, shape, image_size)),
                               private_notes=(*data.private_notes, *image_notes(builder)))


def prepared(name: str, download: bool, confirm: Callable[[str], bool | None]) -> Any:
    """Returns the builder of a data set, prepared now if it was not; it takes what `tfds` does."""
    builder = _builder(name)
    if not builder.is_prepared():
        _prepare(name, builder, download, confirm)
        builder = _builder(name)
    return builder


def training_cells(name: str, texts: Iterable[str] = ()) -> tuple[Cells, dict[str, Json]]:
    """Returns the cells of the training part of a table, and what its description declares.

    Of its columns of texts those in `texts` are wanted.
    """
    builder = prepared(name, False, console.confirm)
    described = Description(name, builder.info)
    cells = described.cells(f"tfds:{name}, train", records(name, builder, "train"),
                            builder.info.splits["train"].num_examples, texts)
    return cells, described.entries


def records(name: str, builder: Any, split: str) -> Iterator[Any]:
    """Yields the records of one split, in the order of the files."""
    with _failures(name, f"be read (split {split!r})", "prepare it again, with "
                   f"file_format='{FILE_FORMAT}', and set TFDS_DATA_DIR to its folder"):
        yield from _records(builder, split)


def _undescribed(data: Dataset, shape: tuple[int | None, ...], image_size: int | None
                 ) -> Iterator[Uncovered]:
    """Yields the parts of the shape that the description leaves open: records decide them."""
    height, width, channels = data.x_train.shape[1:]
    if None in shape[:2] and image_size is None:
        yield Uncovered(f"the height and width, {height} x {width}, are read from the records",
                        f"--image-size {min(height, width)}")
    if shape[2] is None:
        yield Uncovered(f"the number of channels, {channels}, is read from the records",
                        "the number of channels in the data set's description")


def _folder() -> str:
    return os.path.expanduser(os.environ.get("TFDS_DATA_DIR", DEFAULT_FOLDER))


def _builder(name: str) -> Any:
    """Returns the builder of a data set: of its prepared files, or of its code."""
    try:
        import tensorflow_datasets  # slow to import, and needed by this source only
    except ImportError as error:
        raise UserError(f"tfds:{name} needs pip install tensorflow-datasets array-record "
                        f"importlib_resources ({error})") from error
    try:
        return tensorflow_datasets.builder(name, data_dir=_folder())
    except tensorflow_datasets.core.DatasetNotFoundError as error:
        raise UserError(f"tfds:{name} not found under {_folder()}; correct the name or set "
                        "TFDS_DATA_DIR") from error
    except Exception as error:  # names that it cannot parse, folders that it cannot read
        raise UserError(f"tfds:{name} cannot be read ({_reason(error)}); correct the name or set "
                        "TFDS_DATA_DIR") from error


def _prepare(name: str, builder: Any, download: bool, confirm: Callable[[str], bool | None]
             ) -> None:
    what = f"tfds:{name} is not prepared under {_folder()}"
    if not download:
        agreed = confirm(f"{what}. Download {_size(builder)} and prepare it there?")
        if not agreed:
            raise UserError(f"{what}; pass {option('download', True)} to download {_size(builder)} "
                            "and prepare it, or set TFDS_DATA_DIR to the folder where it is")
    with _failures(name, "be prepared", "prepare it on a machine with a network and TensorFlow, "
                   "and set TFDS_DATA_DIR"):
        builder.download_and_prepare(file_format=FILE_FORMAT)


def _size(builder: Any) -> str:
    """Returns how much is downloaded, as the data set's description or its checksums say."""
    size = builder.info.download_size
    if not size and builder.url_infos:
        size = type(size)(sum(url.size for url in builder.url_infos.values()))
    return str(size) if size else "an unknown number of bytes"


@contextmanager
def _failures(name: str, act: str, mend: str) -> Iterator[None]:
    """Turns what tensorflow-datasets raises, which has no common class, into one line."""
    try:
        yield
    except UserError:
        raise
    except ImportError as error:
        missing = (error.name or "").partition(".")[0] or "tensorflow"
        raise UserError(f"tfds:{name} cannot {act} without the package {missing}; pip install "
                        f"{missing}, or {mend}") from error
    except Exception as error:
        raise UserError(f"tfds:{name} cannot {act} ({_reason(error)}); {mend}") from error


def _reason(error: Exception) -> str:
    """Returns the first line of an error that says anything."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _records(builder: Any, split: str) -> Iterable[Any]:
    import tensorflow_datasets

    formats = builder.info.available_file_formats()
    if formats & tensorflow_datasets.core.FileFormat.with_random_access():
        return builder.as_data_source(split=split)
    if sys.modules.get("tensorflow") is None:
        import tensorflow

        tensorflow.config.set_visible_devices([], "GPU")  # or it would take all of its memory
    in_order = tensorflow_datasets.ReadConfig(interleave_cycle_length=1)
    return tensorflow_datasets.as_numpy(builder.as_dataset(split=split, read_config=in_order))


def _read(name: str, builder: Any, split: str, image_size: int | None) -> Arrays:
    """Reads the images and labels of one split."""
    with _failures(name, f"be read (split {split!r})", "prepare it again, with "
                   f"file_format='{FILE_FORMAT}', and set TFDS_DATA_DIR to its folder"):
        return read_images(name, builder, split, records(name, builder, split), image_size)
