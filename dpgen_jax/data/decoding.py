"""One image file to an array of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import Background, Resize, fit, listed, same_shape, shown

DEEP = ("I;16", "I;16B", "I;16L", "I;16N")  # gray of 12 or 16 bits
GRAY = ("1", "L", "LA", *DEEP)
MODES_READ = {*GRAY, "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"}
"""The modes of Pillow that become gray or RGB by a fixed rule; of floats and of whole numbers of 32
bits none is known, since they have no fixed range."""
TIFF_BITS, TIFF_ZERO = 258, 262
"""The tags of TIFF for the bits of a channel, and for what 0 means: 0 where it is white."""
MAX_PIXELS = 89_478_485  # of one image: from there on Pillow warns of decompression bombs
CHANNELS = {"L": 1, "RGB": 3}
MODES: dict[int | None, str] = {channels: mode for mode, channels in CHANNELS.items()}


class Unreadable(UserError):
    """A file that cannot be used as an image, which --skip-bad leaves out.

    Args:
        path: The file.
        fault: What is wrong with it, after its name.
    """

    def __init__(self, path: Path, fault: str = "cannot be read as an image") -> None:
        self.line = f"{shown(path)} {fault}"
        super().__init__(f"{self.line}; replace it, or leave out such files with --skip-bad")


def unreadable(faults: Sequence[Unreadable], count: int) -> UserError:
    """Returns the one error of all files that cannot be used.

    Args:
        faults: Their errors, of which there is one at least.
        count: The number of all files.
    """
    if len(faults) == 1:
        return faults[0]
    return UserError(f"{len(faults):,} of {count:,} images cannot be used: "
                     f"{listed(fault.line for fault in faults)}; replace them, or leave out such "
                     "files with --skip-bad")


def pixels(path: Path, mode: str, size: int | None, shape: tuple[int, ...] | None = None,
           resize: Resize = "crop", background: Background = "white") -> np.ndarray:
    """Decodes a file, by rules that are the same for all files.

    A channel of 16 bits keeps its high 8, in gray as in colour; what is transparent is laid over
    the background.

    Args:
        path: The file.
        mode: "L" or "RGB", to which it is converted.
        size: Pixels on a side of the square that it is made; None for its own shape.
        shape: The shape that it must have, [H, W, ch]; None for any.
        resize: How it is made a square.
        background: The colour that transparent pixels show.

    Returns:
        The image, upright: uint8 [H, W, ch].

    Raises:
        Unreadable: It cannot be decoded, or no fixed rule makes it one image of 8 bits a channel.
        UserError: It has another shape, which is seen before it is decoded.
    """
    def check() -> None:
        same_shape(shown(path), (image.height, image.width, CHANNELS[mode]), shape)

    with _opened(path) as image:
        if shape and {*image.size} != {*shape[:2]}:
            check()
        ImageOps.exif_transpose(image, in_place=True)  # decodes some kinds
        check()
        image = _opaque(image, background).convert(mode)
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
        return image.mode in GRAY


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Opens an image; all that fails while it is open is `Unreadable`."""
    if not path.is_file():  # a pipe never ends
        raise Unreadable(path, "cannot be read as an image: it is missing, or no regular file")
    try:
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if fault := _fault(image):
                raise Unreadable(path, fault)
            yield image
    except UserError:
        raise
    except Image.DecompressionBombError as error:
        raise Unreadable(path, f"unpacks to more than {MAX_PIXELS:,} pixels") from error
    except Exception as error:  # each decoder raises exceptions of its own
        raise Unreadable(path) from error


def _fault(image: Image.Image) -> str:
    """Returns why no fixed rule makes one image of 8 bits of a file; empty where one does."""
    if image.mode not in MODES_READ:
        return (f"has pixels of the mode {image.mode}, which no fixed rule brings to 8 bits: save "
                "it as gray or RGB with 8 or 16 bits a channel")
    if getattr(image, "is_animated", False) and image.format != "MPO":  # a photo with its preview
        return "holds several images: save one of them as a file of its own"
    if (image.format == "PNG" and image.mode in ("L", "RGB") and "transparency" in image.info
            and any(tile[3] != image.mode for tile in getattr(image, "tile", ()))):
        return ("has a transparent colour, which is read in channels of 8 bits alone: save it with "
                "an alpha channel")
    return ""


def _opaque(image: Image.Image, background: Background) -> Image.Image:
    """Returns an image of 8 bits a channel, in which nothing is transparent."""
    if image.mode in DEEP:
        return _of_high_bits(image, background)
    if not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, background), image)


def _of_high_bits(image: Image.Image, background: Background) -> Image.Image:
    """Returns the high 8 bits of gray pixels, as Pillow reads channels of 16 bits in colour."""
    values, tags = np.asarray(image), getattr(image, "tag_v2", {})
    gray = (values >> (4 if tags.get(TIFF_BITS) == (12,) else 8)).astype(np.uint8)
    if tags.get(TIFF_ZERO) == 0:  # which Pillow minds in images of 8 bits only
        gray = 255 - gray
    if "transparency" in image.info:
        gray[values == image.info["transparency"]] = 255 if background == "white" else 0
    return Image.fromarray(gray)
