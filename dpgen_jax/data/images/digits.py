"""Images of characters: `digits`, `idx:DIR`, `glyphs` and `femnist:FILE.h5`."""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from dpgen_jax.core import arrays
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import CHUNK, content_of, opened, require_memory, require_regular
from dpgen_jax.core.types import UserError
from dpgen_jax.data import base
from dpgen_jax.data.base import (
    FASHION_CLASSES,
    MIN_SIDE,
    Arrays,
    Dataset,
    assemble,
    fixed_classes,
    frozen,
    locate,
    official_classes,
    shown,
)

DIGITS_TRAIN = 1437
IDX_CLASSES = 10
IDX_MAGIC = {3: b"\0\0\x08\x03", 1: b"\0\0\x08\x01"}  # unsigned bytes, by number of dimensions


def digits(classes: int | None, image_size: int | None) -> Dataset:
    """Loads scikit-learn's 8 x 8 digits: 1,437 training and 360 test images, by a fixed split."""
    from sklearn.datasets import load_digits  # slow to import

    source = load_digits()
    x = np.rint(source.images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:DIGITS_TRAIN], order[DIGITS_TRAIN:]
    y = source.target
    return assemble("digits", fixed_classes("digits", 10, classes), (x[train], y[train]),
                    (x[test], y[test]), ["public data"], image_size)


def idx(path: str, classes: int | None, image_size: int | None) -> Dataset:
    """Loads the MNIST layout: {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz.

    The t10k pair may be absent. By default there are 10 classes.
    """
    folder = locate(path)
    train = _idx_part(folder, "train")
    test = _idx_part(folder, "t10k") if any(folder.glob("t10k-*-ubyte*")) else None
    data = assemble(folder.resolve().name, IDX_CLASSES if classes is None else classes, train, test,
                    ["image height and width are read from the file headers"], image_size)
    called = {re.sub("[^a-z]", "", part.lower()) for part in folder.resolve().parts[-2:]}
    return official_classes(data, FASHION_CLASSES if called & {"fashion", "fashionmnist"} else ())


def idx_content(path: str) -> str:
    """Returns a digest of the training images and labels, in hex. It is as private as these."""
    names = (f"train-{part}-ubyte" for part in ("images-idx3", "labels-idx1"))
    return "".join(content_of(_idx_file(locate(path), name)) for name in names)


def _idx_part(folder: Path, part: str) -> Arrays:
    images_path = _idx_file(folder, f"{part}-images-idx3-ubyte")
    labels_path = _idx_file(folder, f"{part}-labels-idx1-ubyte")
    images, labels = _read_idx(images_path, 3), _read_idx(labels_path, 1)
    if len(images) != len(labels):
        raise UserError(f"{images_path} holds {len(images)} images, {labels_path.name} "
                        f"{len(labels)} labels; download both files of one release")
    return images, labels


def _idx_file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise UserError(f"{folder / name}[.gz] is missing; put it there or correct the folder")


def _read_idx(path: Path, dims: int) -> np.ndarray:
    """Reads an array uint8 of the dimensions that the header states.

    The length must match: of a .gz file no more is unpacked than the header states.
    """
    size, header = require_regular(path).st_size, 4 * (1 + dims)
    with opened(path) as file:
        shape = _idx_shape(path, file.read(header), dims)
        promised = math.prod(shape)
        if path.suffix != ".gz":
            _require_length(path, shape, size - header)
        if not promised:
            raise UserError(f"{path} has {shape[0]} images without pixels" if shape[0] else
                            f"{path} holds 0 {'images' if dims > 1 else 'labels'}; at least 1 is "
                            "needed")
        if path.suffix != ".gz" and promised >= base.LARGE_ARRAY:
            return base.mapped_array(path, np.dtype(np.uint8), header, shape)
        require_memory(f"{path}, by its header {shape},", promised)
        data = file.read(promised)
        _require_length(path, shape, len(data) + len(file.read(CHUNK)))
    return np.frombuffer(data, np.uint8).reshape(shape)


def _idx_shape(path: Path, head: bytes, dims: int) -> tuple[int, ...]:
    if not IDX_MAGIC[dims].startswith(head[:4]):
        raise UserError(f"{path} starts with bytes {head[:4].hex()}, an idx{dims} file with "
                        f"{IDX_MAGIC[dims].hex()}; is it another file with this name?")
    if len(head) < 4 * (1 + dims):
        raise UserError(f"{path} is truncated: {len(head)} bytes, and its header needs "
                        f"{4 * (1 + dims)}; download it again")
    return struct.unpack(f">{dims}I", head[4:])


def _require_length(path: Path, shape: tuple[int, ...], present: int) -> None:
    missing = math.prod(shape) - present
    if missing:
        fault = f"truncated by {missing}" if missing > 0 else f"too long by {-missing}"
        raise UserError(f"{path} is {fault} bytes compared with its header {shape}; download it "
                        "again")


def to_bytes(name: str, x: np.ndarray) -> np.ndarray:
    """Returns images as bytes: uint8 unchanged, floats in [0, 1] as round(255 x).

    A UserError names the array, and the first image with a value outside of [0, 1].
    """
    if not np.issubdtype(x.dtype, np.floating):
        return x
    arrays.check_unit_range(name, x)
    return np.rint(x * x.dtype.type(255)).astype(np.uint8)


# Upright faces of one family, which draw a digit alike: the other fonts there hold no digits, or
# old-style figures of unequal height, or hairlines that vanish at 12 pixels.
FONTS = tuple(f"DejaVu{face}{style}" for face in ("Sans", "SansMono", "Serif")
              for style in ("", "-Bold"))
GLYPH_DIGITS = 10
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
    """
    if size < MIN_SIDE or n_train < 1 or n_test < 0:
        raise UserError(f"glyphs: size {size}, n_train {n_train}, n_test {n_test}; at least "
                        f"{MIN_SIDE} pixels, 1 train and 0 test images are needed")
    require_memory(f"{n_train + n_test:,} glyphs of {size} x {size} pixels",
                   (n_train + n_test) * size**2)
    masters = _masters(size)
    rng_train, rng_test = (np.random.default_rng([seed, part]) for part in range(2))
    test = _draw(rng_test, masters, size, n_test) if n_test else None
    return assemble("glyphs", GLYPH_DIGITS, _draw(rng_train, masters, size, n_train), test,
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
        masters += [_master(font, str(digit)).filter(blur) for digit in range(GLYPH_DIGITS)]
    return masters


def _master(font: ImageFont.FreeTypeFont, text: str) -> Image.Image:
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
    y = rng.permutation(np.arange(n) % GLYPH_DIGITS)
    which = rng.integers(len(FONTS), size=n) * GLYPH_DIGITS + y
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


CLASSES = {"fed_emnist_digitsonly": 10, "fed_emnist": 62}  # by how the file's name starts
MERGED = 36  # digits and letters, whatever their case
SMALL_LETTERS, LETTERS = 36, 26  # the first label of the 62, and how many there are
SIDE = 28


def femnist(path_text: str, classes: int | None, image_size: int | None) -> Dataset:
    """Loads handwriting by writer, of LEAF (Caldas et al. 2018).

    The file is fed_emnist_train.h5 (62 classes: digits, capitals, small letters) or
    fed_emnist_digitsonly_train.h5 (10): a group `examples` with a group per client, of `pixels`
    float [n, 28, 28] in [0, 1] and `label` int [n]. Pixels become round(255 x) and are not
    inverted: ink is dark on white paper, unlike MNIST. `clients` ranks the sorted names of the
    groups. The held-out part is the file of the same name with `test` for `train` where it lies in
    the same folder; it has the same writers.

    The number of classes is needed where the file's name does not state it, since it is never read
    off the labels. With 36 declared classes the 62 of fed_emnist_train.h5 are merged: a capital and
    a small letter are one class, as Augenstein et al. 2020 and GS-WGAN (Chen et al. 2020, appendix
    C.2) have it.
    """
    path = locate(path_text)
    stated = next((count for start, count in CLASSES.items() if path.name.startswith(start)), None)
    merged = (stated, classes) == (CLASSES["fed_emnist"], MERGED)
    if stated is not None:
        classes = MERGED if merged else fixed_classes(path.name, stated, classes)
    elif classes is None:
        raise UserError(f"{path.name} does not state its number of classes, as fed_emnist_train.h5 "
                        f"and fed_emnist_digitsonly_train.h5 do; pass {option('classes', 'N')}")
    beside = path.with_name(path.name.replace("train", "test"))
    x, y, clients = _read(path, stated or classes)
    test = (_read(beside, stated or classes)[:2] if beside != path and beside.is_file() else None)
    notes = ["the number of classes is that of the data set's variant, the clients are its writers",
             "dark ink on white, as in the file"]
    if merged:
        notes.append("a capital and a small letter are one class")
        y, test = _without_case(y), test and (test[0], _without_case(test[1]))
    data = assemble(path.stem, classes, (x, y), test, notes, image_size)
    return dataclasses.replace(data, clients=frozen(clients, np.int32))


def _without_case(y: np.ndarray) -> np.ndarray:
    """Returns the labels 0..35 of labels 0..61: a small letter gets that of the capital."""
    return np.where(y < SMALL_LETTERS, y, y - LETTERS)


def _read(path: Path, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads images uint8 [n, 28, 28], labels [n] and the rank of each one's client [n]."""
    try:
        import h5py
    except ImportError as error:
        raise UserError("femnist needs h5py; pip install 'dpgen_jax[femnist]'") from error
    require_regular(path)
    try:
        with h5py.File(path, "r") as file:
            clients = _member(file, "examples", h5py.Group)
            if clients is None or not len(clients):
                raise UserError(f"{path} holds {shown(sorted(file) or 'nothing')}, expected a "
                                "group `examples` with a group per client")
            parts = {name: _checked(f"{path}, client {shown(name)}", clients, name)
                     for name in sorted(clients)}
            require_memory(f"{path}, by its {len(parts):,} clients,", sum(
                x.size * x.dtype.itemsize for x, _ in parts.values()))
            arrays = [_client(f"{path}, client {shown(name)}", *part, classes)
                      for name, part in parts.items()]
    except UserError:
        raise
    except Exception as error:  # h5py raises exceptions of many kinds
        reason = shown((str(error).splitlines() or [type(error).__name__])[0])
        raise UserError(f"{path} cannot be read as HDF5 ({reason}); download it again") from error
    sizes = [len(y) for _, y in arrays]
    x, y = (np.concatenate([part[i] for part in arrays]) for i in (0, 1))
    return x, y, np.repeat(np.arange(len(arrays)), sizes)


def _member(group: Any, name: str, kind: type) -> Any:
    """Returns a member of a group by its name; None where it is of another kind.

    A link to another file is None too: it could name any file of the machine.
    """
    import h5py

    link = group.get(name, getlink=True) if name in group else None
    return group.get(name) if isinstance(link, h5py.HardLink) and isinstance(
        group.get(name), kind) else None


def _checked(name: str, clients: Any, key: str) -> tuple[Any, Any]:
    """Returns the arrays `pixels` and `label` of a client, checked by their headers, unread."""
    import h5py

    group = _member(clients, key, h5py.Group)
    x, y = (None if group is None else _member(group, part, h5py.Dataset)
            for part in ("pixels", "label"))
    if x is None or y is None or any(part.external or part.is_virtual for part in (x, y)):
        raise UserError(f"{name}: no `pixels` and `label`; download the file again")
    if not x.shape or x.shape[1:] != (SIDE, SIDE) or x.dtype.kind != "f":
        raise UserError(f"{name}: pixels are {x.dtype} of shape {x.shape}, expected floats "
                        f"[n, {SIDE}, {SIDE}]")
    if y.shape != x.shape[:1] or y.dtype.kind not in "iu" or not len(y):
        raise UserError(f"{name}: {len(x)} images but label is {y.dtype} of shape {y.shape}; one "
                        "integer per image is needed, and at least 1 image")
    return x, y


def _client(name: str, pixels: Any, label: object, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads the images and labels of a client, and checks their values."""
    x, y = np.asarray(pixels), np.asarray(label)
    if not ((x >= 0) & (x <= 1)).all():  # NaN too
        raise UserError(f"{name}: pixels outside [0, 1] or NaN; download the file again")
    if not ((y >= 0) & (y < classes)).all():
        raise UserError(f"{name}: a label lies outside 0..{classes - 1}; download the file again, "
                        "or name its number of classes")
    return np.rint(x * x.dtype.type(255)).astype(np.uint8), y
