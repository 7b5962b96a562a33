"""`glyphs`: the ten digits drawn from the fonts that matplotlib ships, randomly deformed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from dpgen_jax.core.reading import require_memory
from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import MIN_SIDE, Dataset, assemble

# Upright faces of one family, which draw a digit alike: the other fonts there hold no digits, or
# old-style figures of unequal height, or hairlines that vanish at 12 pixels.
FONTS = tuple(f"DejaVu{face}{style}" for face in ("Sans", "SansMono", "Serif")
              for style in ("", "-Bold"))
DIGITS = 10
TILE = 192  # pixels on a side of a master drawing
GLYPH = 128  # pixels of the longer side of the digit in it; the rest is margin for the blur
FILL = (0.84, 1.0)  # longer side of the deformed digit's box, as a part of the frame
MAX_SHIFT = 0.06  # part of the frame
MAX_ANGLE = 8.0  # degrees
MAX_STRETCH = 0.08  # logarithm of the change of width over height
SLANT = (-0.1, 0.15)  # shift to the right per unit of height


def glyphs(size: int = 12, n_train: int = 30000, n_test: int = 6000, seed: int = 0) -> Dataset:
    """Draws white digits on black; the classes are balanced within 1 and shuffled.

    Each is in a random font, rotated by up to 8 degrees, slanted, stretched, scaled and shifted
    inside the frame. The same arguments give the same images; n_train does not change the test
    part. The data are public: nothing here needs protection. 36,000 images take about a second.

    Args:
        size: Pixels on a side.
        n_train: The number of training images.
        n_test: The number of test images.
        seed: Decides all of them.

    Returns:
        The data set, of images uint8 [n, size, size, 1].

    Raises:
        UserError: A number is too small, or the memory does not suffice.
    """
    if size < MIN_SIDE or n_train < 1 or n_test < 0:
        raise UserError(f"glyphs: size {size}, n_train {n_train}, n_test {n_test}; at least "
                        f"{MIN_SIDE} pixels, 1 train and 0 test images are needed")
    require_memory(f"{n_train + n_test:,} glyphs of {size} x {size} pixels",
                   (n_train + n_test) * size**2)
    masters = _masters(size)
    rng_train, rng_test = (np.random.default_rng([seed, part]) for part in range(2))
    test = _draw(rng_test, masters, size, n_test) if n_test else None
    return assemble("glyphs", DIGITS, _draw(rng_train, masters, size, n_train), test,
                    ["drawn from public fonts; no private data"])


def _masters(size: int) -> list[Image.Image]:
    """Draws each font and digit large and centred on its tile, at the index font * 10 + digit.

    It is blurred once by the width of an output pixel, so that point samples of it are antialiased.
    """
    import matplotlib  # only for the folder of its fonts; slow to import

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    blur = ImageFilter.BoxBlur(max(0.0, (GLYPH / (sum(FILL) / 2 * size) - 1) / 2))
    masters = []
    for name in FONTS:
        font = ImageFont.truetype(folder / f"{name}.ttf", 2 * GLYPH,
                                  layout_engine=ImageFont.Layout.BASIC)
        masters += [_master(font, str(digit)).filter(blur) for digit in range(DIGITS)]
    return masters


def _master(font: ImageFont.FreeTypeFont, text: str) -> Image.Image:
    """Draws one digit, scaled to the length of `GLYPH`."""
    left, top, right, bottom = font.getbbox(text)
    drawing = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(drawing).text((-left, -top), text, fill=255, font=font)
    drawing = drawing.crop(drawing.getbbox())
    shrink = GLYPH / max(drawing.size)
    drawing = drawing.resize([max(1, round(side * shrink)) for side in drawing.size],
                             Image.Resampling.LANCZOS)
    tile = Image.new("L", (TILE, TILE))
    width, height = drawing.size
    tile.paste(drawing, ((TILE - width) // 2, (TILE - height) // 2))
    return tile


def _draw(rng: np.random.Generator, masters: list[Image.Image], size: int,
          n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws n images uint8 [n, size, size, 1]; also returns their labels int [n]."""
    y = rng.permutation(np.arange(n) % DIGITS)
    which = rng.integers(len(FONTS), size=n) * DIGITS + y
    boxes = np.array([_half_box(tile) for tile in masters])
    coefficients = _inverse_maps(rng, boxes[which], size).tolist()
    x = np.empty((n, size, size, 1), np.uint8)
    for i, (tile, row) in enumerate(zip(which, coefficients, strict=True)):
        image = masters[tile].transform((size, size), Image.Transform.AFFINE, row,
                                        Image.Resampling.BILINEAR)
        x[i, ..., 0] = image
    return x, y


def _half_box(tile: Image.Image) -> np.ndarray:
    """Returns half the width and height of what is drawn on a tile: float [2]."""
    box = tile.getbbox()
    assert box is not None, "an empty tile"
    return np.subtract(box[2:], box[:2]) / 2


def _inverse_maps(rng: np.random.Generator, half: np.ndarray, size: int) -> np.ndarray:
    """Samples affine maps [n, 6] from output to tile pixels; `half` is half of the boxes [n, 2].

    The deformed box is scaled to a random part of the frame and shifted inside it, so that no
    digit is cut off.
    """
    n = len(half)
    angle = np.deg2rad(rng.uniform(-MAX_ANGLE, MAX_ANGLE, n))
    stretch = np.exp(rng.uniform(-MAX_STRETCH, MAX_STRETCH, n))
    slant = rng.uniform(*SLANT, n)
    rotate = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], -1)
    deform = np.stack([stretch, slant, np.zeros(n), 1 / stretch], -1)
    forward = rotate.reshape(n, 2, 2) @ deform.reshape(n, 2, 2)
    extent = (np.abs(forward) @ half[..., None])[..., 0]
    scale = rng.uniform(*FILL, n) * size / 2 / extent.max(-1)
    slack = size / 2 - extent * scale[:, None]
    shift = rng.uniform(-1, 1, (n, 2)) * np.minimum(slack, MAX_SHIFT * size)
    inverse = np.linalg.inv(forward * scale[:, None, None])
    offset = TILE / 2 - (inverse @ (size / 2 + shift)[..., None])
    return np.concatenate([inverse, offset], -1).reshape(n, 6)
