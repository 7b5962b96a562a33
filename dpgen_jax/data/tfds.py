"""`tfds:NAME`: a data set that tensorflow-datasets has prepared, read without TensorFlow."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpgen_jax.data.base import (
    Arrays,
    Dataset,
    Uncovered,
    assemble,
    fit,
    fixed_classes,
    stack,
)
from dpgen_jax.types import UserError

DEFAULT_FOLDER = "~/tensorflow_datasets"


def prepared(given: str, classes: int | None, image_size: int | None) -> Dataset:
    """Splits `train` and, if there, `test`, with features `image` and `label`.

    Looks under the folder TFDS_DATA_DIR (default ~/tensorflow_datasets); nothing is downloaded.
    The data must be prepared in a random-access format (array_record or parquet).
    Errors: UserError.
    """
    source = _data_source(given, "train")
    features = source.dataset_info.features
    missing = [name for name in ("image", "label") if name not in features]
    if missing:
        raise UserError(f"tfds:{given} has features {', '.join(features)}; an image data set with "
                        "`image` and `label` is needed")
    stated = getattr(features["label"], "num_classes", None)
    if stated is not None:
        classes = fixed_classes(f"tfds:{given}", stated, classes)
    elif classes is None:
        raise UserError(f"tfds:{given} does not state its number of classes; pass --classes N")
    test = None
    if "test" in source.dataset_info.splits:
        test = _read(_data_source(given, "test"), "test", image_size)
    data = assemble(given, classes, _read(source, "train", image_size), test,
                    ["class count and image shape, unless resized, are those of the data set's "
                     "description"], image_size)
    described = getattr(features["image"], "shape", None) or (None,) * 3
    return dataclasses.replace(data, uncovered=tuple(_undescribed(data, described, image_size)))


def _undescribed(data: Dataset, shape: tuple[int | None, ...], image_size: int | None
                 ) -> Iterator[Uncovered]:
    """What the description leaves open, and the first record decides."""
    height, width, channels = data.spec.shape
    if None in shape[:2] and image_size is None:
        yield Uncovered(f"the height and width, {height} x {width}, are read from the records",
                        f"--image-size {min(height, width)}")
    if shape[2] is None:
        yield Uncovered(f"the number of channels, {channels}, is read from the records",
                        "the number of channels in the data set's description")


def _data_source(given: str, split: str) -> Any:
    try:
        import tensorflow_datasets as tfds  # slow to import, and needed by this source only
    except ImportError as error:
        raise UserError(f"tfds:{given} needs pip install tensorflow-datasets array-record "
                        f"importlib_resources ({error})") from error
    folder = os.path.expanduser(os.environ.get("TFDS_DATA_DIR", DEFAULT_FOLDER))
    try:
        return tfds.data_source(given, split=split, data_dir=folder, download=False)
    except tfds.core.DatasetNotFoundError as error:
        raise UserError(f"tfds:{given} not found under {folder}; mend the name or set "
                        "TFDS_DATA_DIR") from error
    except (NotImplementedError, AssertionError, OSError) as error:
        raise UserError(f"tfds:{given} is not prepared under {folder} in a random-access format; "
                        "run tfds.builder(NAME, data_dir=..., file_format='array_record')"
                        ".download_and_prepare(), or set TFDS_DATA_DIR") from error
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"tfds:{given} cannot be read (split {split!r}): {reason}") from error


def _read(source: Any, split: str, image_size: int | None) -> Arrays:
    y = np.empty(len(source), np.int64)

    def images() -> Iterator[tuple[str, np.ndarray]]:
        for i, record in enumerate(source):
            y[i] = record["label"]
            image = record["image"]
            yield f"{split} image {i}", fit(image, image_size) if image_size else image

    return stack(images(), len(source)), y
