"""`tfds:NAME`: a data set of tensorflow-datasets, prepared where it is not, read by its own reader.

A data set is prepared once, under TFDS_DATA_DIR, in the array_record format, which is read without
TensorFlow. What others prepared is read in any format that tensorflow-datasets reads: array_record
and parquet by random access, tfrecord and riegeli with TensorFlow.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpgen_jax.core import console
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.data import tfds_images, tfds_tables
from dpgen_jax.data.base import Arrays, Dataset, Uncovered, assemble
from dpgen_jax.data.class_names import fixed_classes, official
from dpgen_jax.data.parsing import Cells

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

    Returns:
        The data set.

    Raises:
        UserError: Naming the data set and the mend.
    """
    builder = prepared(name, download, confirm)
    features = builder.info.features
    if "image" not in features:
        for option, value in (("--classes", classes), ("--image-size", image_size)):
            if value is not None:
                raise UserError(f"tfds:{name} is a table, to which {option} does not apply; drop "
                                "the option")
        return tfds_tables.load(name, builder.info, lambda split: records(name, builder, split),
                                schema_file)
    if "label" not in features or schema_file is not None:
        raise UserError(f"tfds:{name} has features {', '.join(features)}; images need `label`, and "
                        "take no --schema")
    kind = np.dtype(getattr(features["label"], "np_dtype", object)).kind
    if kind not in "iu" or features["label"].shape:
        raise UserError(f"tfds:{name} describes its `label` as {features['label']!r}; images need "
                        "one integer each, the number of the class")
    stated = getattr(features["label"], "num_classes", None)
    if stated is not None:
        classes = fixed_classes(f"tfds:{name}", stated, classes)
    elif classes is None:
        raise UserError(f"tfds:{name} does not state its number of classes; pass --classes N")
    test = _read(name, builder, "test", image_size) if "test" in builder.info.splits else None
    data = assemble(name, classes, _read(name, builder, "train", image_size), test,
                    ["class count and image shape, unless resized, are those of the data set's "
                     "description"], image_size)
    data = official(data, tuple(getattr(features["label"], "names", None) or ()))
    shape = getattr(features["image"], "shape", None) or (None,) * 3
    return dataclasses.replace(data, uncovered=tuple(_undescribed(data, shape, image_size)),
                               private_notes=(*data.private_notes, *tfds_images.notes(builder)))


def prepared(name: str, download: bool, confirm: Callable[[str], bool | None]) -> Any:
    """Returns the builder of a data set, prepared now if it was not.

    Args:
        name: The name of the data set, as tfds knows it.
        download: Download and prepare without a question.
        confirm: Asks the user a question: whether they agreed, or None where nobody can answer.

    Raises:
        UserError: Naming the data set and the mend.
    """
    builder = _builder(name)
    if not builder.is_prepared():
        _prepare(name, builder, download, confirm)
        builder = _builder(name)
    return builder


def training_cells(name: str, texts: Iterable[str] = ()) -> tuple[Cells, dict[str, Json]]:
    """Returns the cells of the training part of a table, and what its description declares.

    Args:
        name: The name of the data set, as tfds knows it.
        texts: The columns of texts that are wanted.

    Raises:
        UserError: Naming the data set and the mend.
    """
    builder = prepared(name, False, console.confirm)
    described = tfds_tables.Description(name, builder.info)
    cells = described.cells(f"tfds:{name}, train", records(name, builder, "train"),
                            builder.info.splits["train"].num_examples, texts)
    return cells, described.entries


def records(name: str, builder: Any, split: str) -> Iterator[Any]:
    """Yields the records of one split, in the order of the files.

    Args:
        name: The name of the data set, for errors.
        builder: What `prepared` returns.
        split: The name of the split.

    Raises:
        UserError: The files cannot be read.
    """
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
    """Returns the folder of prepared data sets."""
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
        raise UserError(f"tfds:{name} not found under {_folder()}; mend the name or set "
                        "TFDS_DATA_DIR") from error
    except Exception as error:  # names that it cannot parse, folders that it cannot read
        raise UserError(f"tfds:{name} cannot be read ({_reason(error)}); mend the name or set "
                        "TFDS_DATA_DIR") from error


def _prepare(name: str, builder: Any, download: bool, confirm: Callable[[str], bool | None]
             ) -> None:
    """Downloads and prepares a data set, once the user agreed."""
    what = f"tfds:{name} is not prepared under {_folder()}"
    if not download:
        agreed = confirm(f"{what}. Download {_size(builder)} and prepare it there?")
        if not agreed:
            raise UserError(f"{what}; pass --download to download {_size(builder)} and prepare it, "
                            "or set TFDS_DATA_DIR to the folder where it is")
    with _failures(name, "be prepared", "prepare it where there is a network and TensorFlow, and "
                   "set TFDS_DATA_DIR"):
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
    """Returns the records of one split, in the order of the files."""
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
        return tfds_images.read(name, builder, split, records(name, builder, split), image_size)
