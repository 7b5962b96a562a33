"""Samplers that need NumPy only, of the methods whose generator is a few arrays.

Each draws what the `sample` of its method draws, up to rounding: it takes random bits from JAX's
counter-based generator, which is written here in NumPy, in the same order. The arrays are those
that `for_numpy` of the method's module returns. Keys are uint32 [2].

Source of the generator: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
3", SC 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Array = np.ndarray
Arrays = Mapping[str, Array]


@np.errstate(over="ignore")  # sums are modulo 2**32
def threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Returns 64 random bits for each counter, in two halves: 20 rounds of Threefry-2x32."""
    a, b = (np.asarray(half, np.uint32) for half in (high, low))
    parts = [key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)]
    a, b = a + parts[0], b + parts[1]
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            a = a + b
            b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
        a = a + parts[(block + 1) % 3]
        b = b + parts[(block + 2) % 3] + np.uint32(block + 1)
    return a, b


def key_of(seed: int) -> Array:
    """Returns the key of a seed below 2**32."""
    return np.array([0, seed], np.uint32)


def fold_in(key: Array, number: int) -> Array:
    """Returns another key, of a key and a number below 2**32."""
    return np.stack(threefry(key, np.array(0), np.array(number)), -1)


def split(key: Array, count: int = 2) -> Array:
    """Returns further keys of a key: uint32 [count, 2]."""
    return np.stack(threefry(key, np.zeros(count), np.arange(count)), -1)


def words(key: Array, shape: Sequence[int]) -> Array:
    """Returns random words, uint32 of this shape."""
    count = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    high, low = threefry(key, count >> np.uint64(32), count & np.uint64(2**32 - 1))
    return high ^ low


def uniform(key: Array, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Array:
    """Returns numbers from low to high, float32 of this shape; high itself is not drawn."""
    least, most = np.float32(low), np.float32(high)
    ones = ((words(key, shape) >> np.uint32(9)) | np.uint32(0x3F800000)).view(np.float32)
    return np.maximum(least, (ones - np.float32(1)) * (most - least) + least)


NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
        -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
       -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)


def normal(key: Array, shape: Sequence[int]) -> Array:
    """Returns standard normal numbers, float32 of this shape.

    Source of the inverse error function: Giles, "Approximating the erfinv function", GPU Computing
    Gems, 2011.
    """
    x = uniform(key, shape, float(np.nextafter(np.float32(-1), np.float32(0))))
    w = -np.log1p(-x * x)
    near, far = w - np.float32(2.5), np.sqrt(np.maximum(w, 5)) - np.float32(3)
    inverse = x * np.where(w < 5, np.polyval(np.array(NEAR, np.float32), near),
                           np.polyval(np.array(FAR, np.float32), far))
    return np.float32(np.sqrt(2)) * inverse


def categorical(key: Array, masses: Array) -> Array:
    """Draws one place of each row of masses float32 [n, k], which need no sum of 1: int [n]."""
    drawn = uniform(key, masses.shape, float(np.finfo(np.float32).tiny))
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
        return np.argmax(-np.log(-np.log(drawn)) + np.log(masses), -1)


def whole(key: Array, count: int, below: int) -> Array:
    """Draws whole numbers from 0 to below - 1: int [count]."""
    high, low = (words(k, (count,)).astype(np.uint64) for k in split(key))
    return ((high % below * (2**32 % below) + low % below) % below).astype(np.int64)


def rows(arrays: Arrays, key: Array, labels: Array) -> Array:
    """Draws encoded rows of a table, float32 [n, F], as `marginals` does.

    A tree over columns is drawn column by column, each given the groups of its parents. A network
    draws a component of the class first, and each column given that.
    """
    columns, n = len(arrays["inside"]), len(labels)
    cells, bins = (np.zeros((n, columns), np.int64) for _ in range(2))
    values = np.zeros((n, columns), np.float32)
    if "mix" in arrays:
        first, *keys = split(key, columns + 1)
        component = _place(arrays["mix"][labels], uniform(first, (n,)))
        order = np.arange(columns)
    else:
        order, keys = arrays["order"], [*split(key, columns)]
    for node, column_key in zip(order.tolist(), keys, strict=True):
        of_bin, of_cell, within = uniform(column_key, (3, n))
        if "mix" in arrays:
            mass = (arrays["table"][node][labels, component][:, arrays["group_of"][node]]
                    * arrays["within"][node][labels])
        else:
            mass = arrays["table"][node][labels, _above(arrays, node, bins)]
        bins[:, node] = _place(mass, of_bin)
        among = arrays["bin_of"][node] == np.arange(arrays["group_of"].shape[1])[:, None]
        cell = _place((among * arrays["fine"][node])[bins[:, node]], of_cell)
        cells[:, node] = cell
        values[:, node] = arrays["start"][node, cell] + within * arrays["width"][node, cell]
    return _with_gaps(arrays, _features(arrays, cells, values))


def _above(arrays: Arrays, node: int, bins: Array) -> Array:
    """The place of the parents' groups in the table of a column, int [n]."""
    def group(parent: int) -> Array:
        if parent < 0:
            return np.zeros(len(bins), np.int64)
        return arrays["group_of"][parent, bins[:, parent]]

    above = group(arrays["parent"][node])
    if "second" not in arrays:
        return above
    return above * round(arrays["table"].shape[2]**0.5) + group(arrays["second"][node])


def _place(masses: Array, uniforms: Array) -> Array:
    """Draws one place of each row of masses [n, k], by uniform numbers [n]: int [n]."""
    cumulative = np.cumsum(masses, -1, dtype=np.float32)
    total = cumulative[:, -1]
    aim = np.minimum(uniforms * total, np.nextafter(total, np.float32(0)))
    return np.minimum((cumulative <= aim[:, None]).sum(-1), masses.shape[1] - 1)


def _features(arrays: Arrays, cells: Array, values: Array) -> Array:
    """Encoded rows of cells and values, with placeholders of columns that follow from others."""
    column = arrays["column"]
    which = np.where(arrays["category"], cells, np.maximum(cells - arrays["inside"] + 1, 0))
    learned = np.where(arrays["is_value"], np.clip(values, 0, 1)[:, column],
                       which[:, column] == arrays["place"])
    made = np.repeat(arrays["empty"][None], len(cells), 0)
    made[:, arrays["learned"]] = learned
    return made


def _with_gaps(arrays: Arrays, rows: Array) -> Array:
    """Rows whose columns that were learned by a gap lie that far above the lower column."""
    for gap in arrays["gaps"]:
        at, above, is_whole, null = gap[:4].astype(int)
        log_most, offset, low_range, high_range = gap[4:].astype(np.float32)
        apart = np.expm1(rows[:, above] * log_most)
        apart = np.rint(apart) if is_whole else apart
        value = np.clip((apart + (offset + rows[:, at] * low_range)) / high_range, 0, 1)
        flag = rows[:, above + 1] > 0.5 if null else np.zeros(len(rows), bool)
        kept = ~flag if null == 2 else flag
        rows[:, above] = np.where(kept, rows[:, above], value)
    return rows


def mixture(arrays: Arrays, key: Array, labels: Array) -> Array:
    """Draws images float32 [n, H, W, ch] in [0, 1] of a mixture of Gaussians of each class.

    With a classifier, some are drawn for each label, and the first that is classified so is kept,
    or else the one that is most like it.
    """
    if "classifier" not in arrays:
        return _of_mixture(arrays, key, labels)
    n, best = len(labels), np.full(len(labels), -np.inf)
    images = np.zeros((n, *arrays["base"].shape), np.float32)
    for i in range(int(arrays["candidates"])):
        drawn = _of_mixture(arrays, fold_in(key, i), labels)
        about = _oriented(arrays, drawn) - arrays["features"]
        length = np.linalg.norm(about, axis=-1, keepdims=True)
        logits = about / np.maximum(length, 1e-6) @ arrays["classifier"]
        own = logits[np.arange(n), labels]
        logits[np.arange(n), labels] = -np.inf
        ahead = np.minimum(own - logits.max(1), 0)
        better = (ahead > best) | (i == 0)
        images[better] = drawn[better]
        best = np.maximum(best, ahead)
    return images


def _of_mixture(arrays: Arrays, key: Array, labels: Array) -> Array:
    """Images, each from a cell of its class and a place in it."""
    k_draw, k_warp = split(key)
    k_cell, k_place = split(k_draw)
    cell = categorical(k_cell, arrays["weight"][labels])
    directions = arrays["directions"]
    drawn = normal(k_place, (len(labels), len(directions)))
    place = arrays["mean"][labels, cell] + np.einsum(
        "nij,nj->ni", arrays["root"][labels, cell], drawn)
    images = arrays["base"] + np.tensordot(place, directions, 1)
    images = np.interp(images, arrays["raw"], arrays["shade"]).astype(np.float32)
    return np.clip(_warped(arrays, k_warp, images), 0, 1)


def _oriented(arrays: Arrays, images: Array) -> Array:
    """The features of images that `nets.frequencies.oriented` describes, [n, F]."""
    grey = np.pad(images.mean(-1), ((0, 0), (1, 1), (1, 1)), mode="edge")
    across = (grey[:, 1:-1, 2:] - grey[:, 1:-1, :-2]) / 2
    down = (grey[:, 2:, 1:-1] - grey[:, :-2, 1:-1]) / 2
    cosines, sines = arrays["angles"]
    along = np.maximum(across[..., None] * cosines + down[..., None] * sines, 0)
    strength = np.sqrt(across**2 + down**2)[..., None]
    planes = np.concatenate([along**2 / (strength + 1e-3), arrays["brightness"] * images], -1)
    pooled = np.einsum("nhwc,gh,kw->ngkc", planes, arrays["window_rows"],
                       arrays["window_columns"], optimize=True)
    return pooled.reshape(len(images), -1)


def prototypes(arrays: Arrays, key: Array, labels: Array) -> Array:
    """Draws images float32 [n, H, W, ch], each a prototype of its class that is moved."""
    k_which, k_warp = split(key)
    images = arrays["images"]
    return _warped(arrays, k_warp, images[labels, whole(k_which, len(labels), images.shape[1])])


def _warped(arrays: Arrays, key: Array, images: Array) -> Array:
    """Images turned, sheared, scaled and moved by random maps, as `nets.image.affine` does it."""
    warp = float(arrays["warp"])
    if not warp:
        return images
    n, height, width, _ = images.shape
    e = (warp * uniform(key, (n, 6), -1.0))[..., None, None]
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    shift = float(arrays["shift"])
    lines = ((1 + e[:, 0]) * y + e[:, 1] * x + shift * e[:, 4] + 1) * (height - 1) / 2
    places = (e[:, 2] * y + (1 + e[:, 3]) * x + shift * e[:, 5] + 1) * (width - 1) / 2
    top, left = np.floor(lines).astype(int), np.floor(places).astype(int)
    made = np.zeros_like(images)
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        line, place = top + i, left + j
        weight = (1 - np.abs(lines - line)) * (1 - np.abs(places - place))
        if not arrays["goes_on"]:
            weight *= (line >= 0) & (line < height) & (place >= 0) & (place < width)
        here = images[np.arange(n)[:, None, None], line.clip(0, height - 1),
                      place.clip(0, width - 1)]
        made += (weight[..., None] * here).astype(np.float32)
    return made


SAMPLERS: dict[str, Callable[[Arrays, Array, Array], Array]] = {
    "marginals": rows, "mixture": mixture, "prototypes": prototypes}
"""By the names of methods: from arrays, a key and labels int [n] to records as methods draw them.
"""
