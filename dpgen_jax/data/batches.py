"""Pickled CIFAR-10 batches as plain values: the opcodes are parsed, and nothing is ever called.

A pickle is a program for a stack machine that may import and call anything. This reader knows the
few opcodes of those files. A name to import stays a name; a call is carried out only where it is
one of four, by code that stands here: an array, its element type, and `_codecs.encode`, by which
Python 3 writes bytes. All else is refused.
"""

from __future__ import annotations

import dataclasses
import pickletools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dpgen_jax.core.types import UserError

MAX_PROTOCOL = 2
MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
RECONSTRUCT = tuple(f"{module} _reconstruct" for module in MODULES)
NDARRAY, DTYPE, ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"
MARK = object()
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
MAKERS = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
LITERALS = {"BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING", "BINUNICODE"}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


T = TypeVar("T")


class _Refused(Exception):
    """The file is no batch; the message is the reason."""


@dataclasses.dataclass
class _Name:
    """A name that the file would import."""

    name: str


@dataclasses.dataclass
class _Object:
    """A call of `name`, noted and not made, and the state that the file gives to its result."""

    name: str
    state: tuple[Any, ...] | None = None


def read_batch(name: str, data: bytes, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads a batch: a pickled dictionary with `data` and `labels`.

    Args:
        name: The name of the file, for errors.
        data: The bytes of the file.
        width: The number of pixels of an image, over all channels.

    Returns:
        Pixels uint8 [n, width] and labels int64 [n].

    Raises:
        UserError: The file contains anything but that and other plain values.
    """
    try:
        return _content(_parse(data), width)
    except _Refused as error:
        reason = str(error)
    except Exception as error:  # a malformed stack, memo or opcode
        reason = f"malformed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    raise UserError(f"{name} is no CIFAR-10 batch ({reason}); nothing in it was executed; unpack "
                    "the official archive again")


def _content(batch: object, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pixels and labels of a parsed batch."""
    if not isinstance(batch, dict):
        raise _Refused("it holds no dictionary")
    fields = {key.decode("latin-1") if isinstance(key, bytes) else key: value
              for key, value in batch.items()}
    array, labels = fields.get("data"), fields.get("labels")
    if not isinstance(array, _Object) or not isinstance(labels, list):
        raise _Refused("it lacks `data`, an array, or `labels`, a list")
    pixels = _array(array)
    if pixels.ndim != 2 or pixels.shape[1] != width or not len(pixels):
        raise _Refused(f"data has shape {pixels.shape}, expected [n, {width}]")
    if len(labels) != len(pixels) or not all(type(label) is int for label in labels):
        raise _Refused(f"{len(pixels)} images, {len(labels)} labels; one integer an image is "
                       "needed")
    return pixels, np.array(labels, np.int64)


def _array(parsed: _Object) -> np.ndarray:
    """Makes the array of a parsed one, whose state is version, shape, type, column order, bytes."""
    if parsed.state is None:
        raise _Refused("data has no state")
    _, shape, kind, by_column, data = parsed.state
    if not isinstance(kind, _Object) or kind.name != DTYPE or by_column is not False:
        raise _Refused("data is no uint8 array in row order")
    data = data.encode("latin-1") if isinstance(data, str) else data
    return np.frombuffer(data, np.uint8).reshape(shape)


def _parse(data: bytes) -> Any:
    """Returns the value that the opcodes describe."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    argument: Any  # of another type for each opcode
    for code, argument, position in pickletools.genops(data):
        name = code.name
        if name in LITERALS:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in MAKERS:
            stack.append(MAKERS[name]())
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in STEPS:
            STEPS[name](stack)
        elif name in TUPLES:
            stack[-TUPLES[name]:] = [tuple(stack[-TUPLES[name]:])]
        elif name == "MARK":
            stack.append(MARK)
        elif name == "GLOBAL":
            if argument not in (*RECONSTRUCT, NDARRAY, DTYPE, ENCODE):
                raise _Refused(f"it would import {argument.replace(' ', '.')}")
            stack.append(_Name(argument))
        elif name == "STOP":
            (value,) = stack
            return value
        elif name != "PROTO" or argument > MAX_PROTOCOL:
            raise _Refused(f"unexpected opcode {name} at byte {position}")
    raise _Refused("it ends too early")


def _marked(stack: list[Any]) -> list[Any]:
    """Pops the values above the last mark, and the mark."""
    start = len(stack) - 1 - next(i for i, value in enumerate(reversed(stack)) if value is MARK)
    values = stack[start + 1:]
    del stack[start:]
    return values


def _set_items(stack: list[Any]) -> None:
    """Sets several items of the dictionary below the mark."""
    values = _marked(stack)
    _typed(stack[-1], dict).update(zip(values[::2], values[1::2], strict=True))


def _set_item(stack: list[Any]) -> None:
    """Sets one item of a dictionary."""
    value, key = stack.pop(), stack.pop()
    _typed(stack[-1], dict)[key] = value


def _append(stack: list[Any]) -> None:
    """Appends one value to a list."""
    value = stack.pop()
    _typed(stack[-1], list).append(value)


def _extend(stack: list[Any]) -> None:
    """Appends several values to the list below the mark."""
    values = _marked(stack)
    _typed(stack[-1], list).extend(values)


def _close_tuple(stack: list[Any]) -> None:
    """Makes a tuple of the values above the mark."""
    stack.append(tuple(_marked(stack)))


def _call(stack: list[Any]) -> None:
    """Carries out or notes one of the allowed calls, with exactly the allowed arguments."""
    arguments, called = _typed(stack.pop(), tuple), _typed(stack.pop(), _Name).name
    if called == ENCODE and len(arguments) == 2 and arguments[1] == "latin1":
        stack.append(_typed(arguments[0], str).encode("latin-1"))
    elif called == DTYPE and arguments[0] == "u1":
        stack.append(_Object(DTYPE))
    elif called in RECONSTRUCT and arguments[0] == _Name(NDARRAY):
        stack.append(_Object(called))
    else:
        raise _Refused(f"it would call {called.replace(' ', '.')} with other arguments")


def _set_state(stack: list[Any]) -> None:
    """Sets the state of a noted object."""
    state = _typed(stack.pop(), tuple)
    _typed(stack[-1], _Object).state = state


def _typed(value: object, kind: type[T]) -> T:
    """Returns the value, which must be of this type."""
    if not isinstance(value, kind):
        raise _Refused(f"a {type(value).__name__} where a {kind.__name__.strip('_')} belongs")
    return value


STEPS: dict[str, Callable[[list[Any]], None]] = {
    "SETITEMS": _set_items, "SETITEM": _set_item, "APPEND": _append, "APPENDS": _extend,
    "TUPLE": _close_tuple, "REDUCE": _call, "BUILD": _set_state}
