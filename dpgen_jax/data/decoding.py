"""One image file to an array of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import Resize, fit, same_shape, shown

DEEP_MODES = ("I", "F")  # 'I;16' and its variants too: more than 8 bits a channel
MAX_PIXELS = 89_478_485  # of one image: from there on Pillow warns of decompression bombs
CHANNELS = {"L": 1, "RGB": 3}
MODES: dict[int | None, str] = {channels: mode for mode, channels in CHANNELS.items()}


class Unreadable(UserError):
    """A file that cannot be decoded, which --skip-bad leaves out."""


def pixels(path: Path, mode: str, size: int | None, shape: tuple[int, ...] | None = None,
           resize: Resize = "crop") -> np.ndarray:
    """Decodes a file.

    Args:
        path: The file.
        mode: "L" or "RGB", to which it is converted.
        size: Pixels on a side of the square that it is made; None for its own shape.
        shape: The shape that it must have, [H, W, ch]; None for any.
        resize: How it is made a square.

    Returns:
        The image, upright: uint8 [H, W, ch].

    Raises:
        Unreadable: It cannot be decoded.
        UserError: It has another shape, which is seen before it is decoded, or more than 8 bits a
            channel.
    """
    def check() -> None:
        same_shape(shown(path), (image.height, image.width, CHANNELS[mode]), shape)

    with _opened(path) as image:
        if shape and {*image.size} != {*shape[:2]}:
            check()
        ImageOps.exif_transpose(image, in_place=True)  # decodes some kinds
        check()
        image = image.convert(mode)
    array = fit(image, size, resize) if size else np.asarray(image)
    return array.reshape(*array.shape[:2], -1)


def is_gray(path: Path) -> bool:
    """Returns whether an image is gray, by its header alone.

    Args:
        path: The file.

    Raises:
        Unreadable: It is no image.
    """
    with _opened(path) as image:
        return image.mode in ("1", "L", "LA")


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Opens an image; all that fails while it is open is `Unreadable`."""
    if not path.is_file():  # a pipe never ends
        raise Unreadable(f"{shown(path)} cannot be read as an image: it is missing, or no regular "
                         "file; replace it, or leave out such files with --skip-bad")
    try:
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if image.mode.startswith(DEEP_MODES):
                raise UserError(f"{shown(path)} has more than 8 bits a channel; convert it to 8 "
                                "bits")
            yield image
    except UserError:
        raise
    except Image.DecompressionBombError as error:
        raise Unreadable(f"{shown(path)} unpacks to more than {MAX_PIXELS:,} pixels; make it "
                         "smaller, or leave out such files with --skip-bad") from error
    except Exception as error:  # each decoder raises exceptions of its own
        raise unreadable(path) from error


def unreadable(path: Path) -> Unreadable:
    """Returns the error of a file that cannot be decoded.

    Args:
        path: The file.
    """
    return Unreadable(f"{shown(path)} cannot be read as an image; replace it, or leave out such "
                      "files with --skip-bad")
