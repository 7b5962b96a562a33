"""Images of tensorflow-datasets: from `files.MANY` on they are decoded to the cache, and mapped."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core.reading import require_memory
from dpgen_jax.core.types import UserError
from dpgen_jax.data import cache, files, mapped
from dpgen_jax.data.base import Arrays, fit, same_shape
from dpgen_jax.data.cache import Decoded


def read(name: str, builder: Any, split: str, records: Iterable[Any], image_size: int | None
         ) -> Arrays:
    """Reads the images and labels of one split.

    Args:
        name: The name of the data set, for errors.
        builder: Its builder, prepared.
        split: The name of the split.
        records: Its records, which are not begun where the cache has their images and labels.
        image_size: Pixels to which images are resized, or None.

    Returns:
        Images uint8 [n, H, W, ch], and labels int64 [n].

    Raises:
        UserError: An image or a label does not fit, there are more or fewer records than the
            description states, or the cache folder cannot be used.
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


def notes(builder: Any) -> tuple[str, ...]:
    """Returns the line for the data holder on where decoded images are kept, if they are.

    Args:
        builder: The builder of a data set, prepared.
    """
    splits = [builder.info.splits[split].num_examples for split in ("train", "test")
              if split in builder.info.splits]
    return tuple(files.where_kept(max(splits) if _prepared(Path(builder.data_dir)) else 0))


def _prepared(folder: Path) -> list[Path]:
    """Returns the files of a data set: its records in any format, and what describes them.

    Of one that does not lie on a disk there are none: nothing would tell that they have changed.
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
            needs = mapped.require_memory if is_mapped else require_memory
            needs(f"an array of {count:,} images like {split} image 0", count * images[0].nbytes)
        done += len(part)
        if done > count:
            break
        yield Decoded(np.stack(images), labels=tuple(int(record["label"]) for record in part))
    if done != count or not count:
        raise UserError(f"{source}: split {split!r} holds {done}{' or more' * (done > count)} "
                        f"records and states {count}; prepare it again")
