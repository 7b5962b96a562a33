"""Runs an exported generator with only NumPy: its steps, their operations, JAX's random bits.

A program is what JAX traced of a generator's `sample`: a list of steps, each an operation with its
parameters, the numbers of the values that it reads, and those of the values that it makes.

Random bits come from JAX's counter-based generator, written in NumPy: a key and a counter give 64
bits. So a seed gives the records that the library gives, up to rounding. Keys are uint32 [..., 2].
Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


@np.errstate(over="ignore")  # sums are modulo 2**32
def bits(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Returns 64 random bits for each counter, in two halves: 20 rounds of Threefry-2x32."""
    a, b = (np.asarray(half, np.uint32) for half in (high, low))
    parts = [key[..., 0], key[..., 1], key[..., 0] ^ key[..., 1] ^ np.uint32(0x1BD11BDA)]
    a, b = a + parts[0], b + parts[1]
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            a = a + b
            b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
        a = a + parts[(block + 1) % 3]
        b = b + parts[(block + 2) % 3] + np.uint32(block + 1)
    return a, b


def key_of(seed: int) -> Array:
    """Returns the key of a seed below 2**32: uint32 [2]."""
    return np.array([0, seed], np.uint32)


def fold_in(key: Array, number: int) -> Array:
    """Returns another key, of a key and a number below 2**32."""
    return np.stack(bits(key, np.array(0), np.array(number)), -1)


def _counters(shape: Sequence[int]) -> tuple[Array, Array]:
    count = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    return (count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32)


def split(key: Array, shape: Sequence[int]) -> Array:
    """Returns further keys of a key: uint32 [*shape, 2]."""
    return np.stack(bits(key, *_counters(shape)), -1)


def words(key: Array, shape: Sequence[int]) -> Array:
    """Returns random words: uint32 [*shape]."""
    high, low = bits(key, *_counters(shape))
    return high ^ low


Parameters = Mapping[str, Any]
Operation = Callable[..., Any]


def _places(starts: Array, sizes: list[int], axes: list[int], batching: tuple[list[int], list[int]],
            rank: int) -> list[Array]:
    """Returns an index for each axis of windows: of the shape of the batch, then of the window."""
    batch = starts.shape[:-1]
    origin = np.zeros((*batch, rank), np.int64)
    origin[..., axes] = starts
    for axis, of_batch in zip(*batching, strict=True):
        origin[..., axis] = np.arange(batch[of_batch]).reshape(
            [-1 if i == of_batch else 1 for i in range(len(batch))])
    grids = np.meshgrid(*map(np.arange, sizes), indexing="ij", sparse=True)
    return [origin[(..., axis, *[None] * rank)] + grids[axis] for axis in range(rank)]


def _outside(p: Parameters, dtype: np.dtype) -> Array:
    """The value that is read outside of an array."""
    unsaid = {"f": np.nan, "b": True}.get(dtype.kind)
    if unsaid is None:
        unsaid = getattr(np.iinfo(dtype), "min" if dtype.kind == "i" else "max")
    return np.array(unsaid if p["fill_value"] is None else p["fill_value"], dtype)


def _gather(p: Parameters, x: Array, starts: Array) -> Array:
    d, sizes = p["dimension_numbers"], p["slice_sizes"]
    batching = d["operand_batching_dims"], d["start_indices_batching_dims"]
    limits = np.array(x.shape)[d["start_index_map"]] - np.array(sizes)[d["start_index_map"]]
    outside = np.any((starts < 0) | (starts > limits), -1)
    places = _places(np.clip(starts, 0, limits), sizes, d["start_index_map"], batching, x.ndim)
    found = x[tuple(places)]
    if p["mode"] == "fill" and outside.any():
        found = np.where(outside[(..., *[None] * x.ndim)], _outside(p, x.dtype), found)
    batch = starts.ndim - 1
    dropped = d["collapsed_slice_dims"] + d["operand_batching_dims"]
    found = found.squeeze(tuple(batch + axis for axis in dropped))
    return np.moveaxis(found, range(batch, found.ndim), d["offset_dims"])


def _scatter(put: Callable[[Array, tuple[Array, ...], Array], object]) -> Callable[..., Array]:
    def operation(p: Parameters, x: Array, starts: Array, updates: Array) -> Array:
        d = p["dimension_numbers"]
        batching = d["operand_batching_dims"], d["scatter_indices_batching_dims"]
        single = sorted(d["inserted_window_dims"] + d["operand_batching_dims"])
        batch, windows = starts.ndim - 1, d["update_window_dims"]
        values = np.moveaxis(updates, windows, range(batch, updates.ndim))
        values = np.expand_dims(values, tuple(batch + axis for axis in single))
        places = np.broadcast_arrays(*_places(
            starts, list(values.shape[batch:]), d["scatter_dims_to_operand_dims"], batching,
            x.ndim))
        inside = np.all([(at >= 0) & (at < size)
                         for at, size in zip(places, x.shape, strict=True)], 0)
        result = x.copy()
        put(result, tuple(at[inside] for at in places), values[inside])
        return result

    return operation


def _dot(p: Parameters, a: Array, b: Array) -> Array:
    (of_a, of_b), (batch_a, batch_b) = p["dimension_numbers"]
    free_a, free_b = ([axis for axis in range(x.ndim) if axis not in (*of, *batch)]
                      for x, of, batch in ((a, of_a, batch_a), (b, of_b, batch_b)))
    shape = [a.shape[axis] for axis in (*batch_a, *free_a)] + [b.shape[axis] for axis in free_b]
    inner, groups = (math.prod(a.shape[axis] for axis in axes) for axes in (of_a, batch_a))
    left = a.transpose(*batch_a, *free_a, *of_a).reshape(groups, -1, inner)
    right = b.transpose(*batch_b, *of_b, *free_b).reshape(groups, inner, -1)
    return (left @ right).reshape(shape)


def _broadcast(p: Parameters, x: Array) -> Array:
    axes = [1] * len(p["shape"])
    for axis, size in zip(p["broadcast_dimensions"], x.shape, strict=True):
        axes[axis] = size
    return np.broadcast_to(x.reshape(axes), p["shape"])


def _pad(p: Parameters, x: Array, value: Array) -> Array:
    for axis, (low, high, inner) in enumerate(p["padding_config"]):
        size = x.shape[axis]
        spaced = np.full((*x.shape[:axis], max(0, size + (size - 1) * inner), *x.shape[axis + 1:]),
                         value, x.dtype)
        spaced[(slice(None),) * axis + (slice(None, None, inner + 1),)] = x
        widths = [(0, 0)] * x.ndim
        widths[axis] = max(0, low), max(0, high)
        spaced = np.pad(spaced, widths, constant_values=value)
        kept = slice(max(0, -low), spaced.shape[axis] + min(0, high))
        x = spaced[(slice(None),) * axis + (kept,)]
    return x


def _dynamic_slice(p: Parameters, x: Array, *starts: Array) -> Array:
    first = [min(max(int(start), 0), most - size)
             for start, size, most in zip(starts, p["slice_sizes"], x.shape, strict=True)]
    return x[tuple(slice(at, at + size)
                   for at, size in zip(first, p["slice_sizes"], strict=True))]


def _iota(p: Parameters) -> Array:
    shape, axis = p["shape"], p["dimension"]
    return _broadcast({"shape": shape, "broadcast_dimensions": [axis]},
                      np.arange(shape[axis]).astype(p["dtype"]))


def _erf_inv(p: Parameters, x: Array) -> Array:
    """Source: Giles, "Approximating the erfinv function", GPU Computing Gems, 2011."""
    w = -np.log1p(-x * x)
    near, far = w - np.float32(2.5), np.sqrt(np.maximum(w, 5)) - np.float32(3)
    with np.errstate(invalid="ignore"):
        return (x * np.where(w < 5, np.polyval(np.array(NEAR, x.dtype), near),
                             np.polyval(np.array(FAR, x.dtype), far))).astype(x.dtype)


NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
        -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
       -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)


def _plain(function: Operation) -> Operation:
    """An operation of arrays only, which keeps the type of the first."""
    return lambda p, x, *others: np.asarray(function(x, *others)).astype(x.dtype)


def _test(function: Operation) -> Operation:
    return lambda p, *arrays: np.asarray(function(*arrays))


def _over(function: Operation) -> Operation:
    """A reduction over axes."""
    return lambda p, x: np.asarray(function(x, axis=tuple(p["axes"]))).astype(x.dtype)


def _running(function: Operation) -> Operation:
    def operation(p: Parameters, x: Array) -> Array:
        turn = (lambda a: np.flip(a, p["axis"])) if p["reverse"] else (lambda a: a)
        return turn(function(turn(x), axis=p["axis"], dtype=x.dtype))

    return operation


def _divided(x: Array, y: Array) -> Array:
    """Whole numbers are divided towards zero."""
    return x / y if x.dtype.kind == "f" else np.trunc(x / y)


def _sorted(p: Parameters, *arrays: Array) -> list[Array]:
    order = np.lexsort([np.moveaxis(a, p["dimension"], -1) for a in arrays[:p["num_keys"]]][::-1])
    order = np.moveaxis(order, -1, p["dimension"])
    return [np.take_along_axis(a, order, p["dimension"]) for a in arrays]


OF_ENTRIES: dict[str, Operation] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divided, "neg": np.negative,
    "max": np.maximum, "min": np.minimum, "pow": np.power, "sign": np.sign, "abs": np.abs,
    "exp": np.exp, "log": np.log, "log1p": np.log1p, "expm1": np.expm1, "tanh": np.tanh,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "square": np.square, "sin": np.sin,
    "cos": np.cos, "floor": np.floor, "ceil": np.ceil, "nextafter": np.nextafter,
    "logistic": lambda x: 1 / (1 + np.exp(-x)), "rem": np.fmod, "or": np.bitwise_or,
    "and": np.bitwise_and, "xor": np.bitwise_xor, "not": np.invert,
    "shift_right_logical": np.right_shift, "shift_left": np.left_shift, "stop_gradient": np.copy,
    "copy": np.copy}
"""Operations whose result has the type of the first array."""
TESTS: dict[str, Operation] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "lt_to": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "is_finite": np.isfinite, "random_wrap": np.asarray,
    "random_unwrap": np.asarray}
"""Operations whose result has a type of its own."""
OVER_AXES: dict[str, Operation] = {
    "sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod, "and": np.all, "or": np.any}
"""Over axes."""
OPERATIONS: dict[str, Operation] = {
    **{name: _plain(function) for name, function in OF_ENTRIES.items()},
    **{name: _test(function) for name, function in TESTS.items()},
    **{f"reduce_{name}": _over(function) for name, function in OVER_AXES.items()},
    "cumsum": _running(np.cumsum),
    "cumprod": _running(np.cumprod),
    "cummax": _running(np.maximum.accumulate),
    "argmax": lambda p, x: x.argmax(p["axes"][0]).astype(p["index_dtype"]),
    "argmin": lambda p, x: x.argmin(p["axes"][0]).astype(p["index_dtype"]),
    "sort": _sorted,
    "clamp": lambda p, low, x, high: np.clip(x, low, high),
    "select_n": lambda p, which, *cases: np.choose(which.astype(np.intp), cases),
    "convert_element_type": lambda p, x: x.astype(p["new_dtype"]),
    "bitcast_convert_type": lambda p, x: np.ascontiguousarray(x).view(p["new_dtype"]),
    "integer_pow": lambda p, x: x ** p["y"],
    "erf_inv": _erf_inv,
    "round": lambda p, x: np.rint(x) if p["rounding_method"] else np.trunc(x + np.copysign(0.5, x)),
    "iota": _iota,
    "reshape": lambda p, x: x.reshape(p["new_sizes"]),
    "squeeze": lambda p, x: x.squeeze(tuple(p["dimensions"])),
    "expand_dims": lambda p, x: np.expand_dims(x, tuple(p["dimensions"])),
    "transpose": lambda p, x: x.transpose(p["permutation"]),
    "rev": lambda p, x: np.flip(x, tuple(p["dimensions"])),
    "concatenate": lambda p, *parts: np.concatenate(parts, p["dimension"]),
    "stack": lambda p, *parts: np.stack(parts, p["axis"]),
    "unstack": lambda p, x: [*np.moveaxis(x, p["axis"], 0)],
    "slice": lambda p, x: x[tuple(map(slice, p["start_indices"], p["limit_indices"], p["strides"]
                                      or [1] * x.ndim))],
    "dynamic_slice": _dynamic_slice,
    "broadcast_in_dim": _broadcast,
    "pad": _pad,
    "dot_general": _dot,
    "gather": _gather,
    "scatter": _scatter(lambda x, at, values: x.__setitem__(at, values)),
    "scatter-add": _scatter(np.add.at),
    "scatter-max": _scatter(np.maximum.at),
    "scatter-min": _scatter(np.minimum.at),
    "random_bits": lambda p, key: words(key, p["shape"]),
    "random_split": lambda p, key: split(key, p["shape"]),
    "random_fold_in": lambda p, key, number: fold_in(key, int(number)),
}


Array = np.ndarray
Step = list[Any]
"""[operation, parameters, numbers or literals that are read, numbers that are made]"""


@np.errstate(all="ignore")  # the logarithm of 0 is -inf, as it is there
def run(program: Mapping[str, Any], inputs: list[Array]) -> list[Array]:
    """Runs a program.

    Args:
        program: `inputs` and `outputs`, numbers of values, and `steps`.
        inputs: The values of `inputs`.

    Returns:
        The values of `outputs`.
    """
    values: dict[int, Array] = dict(zip(program["inputs"], inputs, strict=True))

    def read(source: Any) -> Array:
        if isinstance(source, int):
            return values[source]
        return np.array(_number(source[1]), source[0])  # a literal: its type and value

    for name, parameters, sources, made in program["steps"]:
        operation = LOOPS.get(name) or OPERATIONS[name]
        results = operation(parameters, *map(read, sources))
        values.update(zip(made, results if isinstance(results, list) else [results], strict=True))
    return [read(source) for source in program["outputs"]]


def _number(value: Any) -> Any:
    """JSON has no infinity or NaN: both are texts."""
    return float(value) if isinstance(value, str) else value


def _loop(p: Parameters, *values: Array) -> list[Array]:
    """A loop over the first axis of some values, which carries others along."""
    constants, carry = p["num_consts"], p["num_carry"]
    fixed, state = list(values[:constants]), list(values[constants:constants + carry])
    each = values[constants + carry:]
    made: list[list[Array]] = []
    for i in range(p["length"])[::-1 if p["reverse"] else 1]:
        results = run(p["jaxpr"], [*fixed, *state, *(value[i] for value in each)])
        state = results[:carry]
        made.append(results[carry:])
    stacked = [np.stack(parts[::-1 if p["reverse"] else 1]) for parts in zip(*made, strict=True)]
    return [*state, *stacked]


def _while(p: Parameters, *values: Array) -> list[Array]:
    of_test, of_body = p["cond_nconsts"], p["body_nconsts"]
    test, body = list(values[:of_test]), list(values[of_test:of_test + of_body])
    state = list(values[of_test + of_body:])
    while run(p["cond_jaxpr"], [*test, *state])[0]:
        state = run(p["body_jaxpr"], [*body, *state])
    return state


def _branch(p: Parameters, which: Array, *values: Array) -> list[Array]:
    return run(p["branches"][min(max(int(which), 0), len(p["branches"]) - 1)], list(values))


LOOPS: dict[str, Operation] = {"scan": _loop, "while": _while, "cond": _branch}
"""The operations that run programs themselves."""
