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
from typing import Any

import numpy as np

from dpgen_jax.types import UserError

MAX_PROTOCOL = 2
MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
RECONSTRUCT = tuple(f"{module} _reconstruct" for module in MODULES)
NDARRAY, DTYPE, ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"
MARK = object()
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
MAKERS = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
LITERALS = {"BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING", "BINUNICODE"}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Refused(Exception):
    """What the file holds that a batch does not."""


@dataclasses.dataclass
class _Name:
    """A name that the file would import."""

    name: str


@dataclasses.dataclass
class _Object:
    """A call of `name` that was written down, and the state that the file gives to it."""

    name: str
    state: tuple | None = None


def read_batch(name: str, data: bytes, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(pixels uint8 [n, width], labels int64 [n]) of a pickled dictionary with `data` and `labels`.

    Errors: UserError, one line, if the file holds anything but that and other plain values.
    """
    try:
        return _content(_parse(data), width)
    except _Refused as error:
        reason = str(error)
    except Exception as error:  # a malformed stack, memo or opcode
        reason = f"malformed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    raise UserError(f"{name} is no CIFAR-10 batch ({reason}); nothing in it was executed; unpack "
                    "the official archive again")


def _content(held: Any, width: int) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(held, dict):
        raise _Refused("it holds no dictionary")
    held = {key.decode("latin-1") if isinstance(key, bytes) else key: held[key] for key in held}
    array, labels = held.get("data"), held.get("labels")
    if not isinstance(array, _Object) or not isinstance(labels, list):
        raise _Refused("it lacks `data`, an array, or `labels`, a list")
    pixels = _array(array)
    if pixels.ndim != 2 or pixels.shape[1] != width or not len(pixels):
        raise _Refused(f"data has shape {pixels.shape}, expected [n, {width}]")
    if len(labels) != len(pixels) or not all(type(label) is int for label in labels):
        raise _Refused(f"{len(pixels)} images, {len(labels)} labels; one integer an image is "
                       "needed")
    return pixels, np.array(labels, np.int64)


def _array(held: _Object) -> np.ndarray:
    """The state of an array: version, shape, element type, column order, bytes."""
    _, shape, kind, by_column, data = held.state
    if not isinstance(kind, _Object) or kind.name != DTYPE or by_column is not False:
        raise _Refused("data is no uint8 array in row order")
    data = data.encode("latin-1") if isinstance(data, str) else data
    return np.frombuffer(data, np.uint8).reshape(shape)


def _parse(data: bytes) -> Any:
    """The value that the opcodes describe."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for code, argument, place in pickletools.genops(data):
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
            raise _Refused(f"unexpected opcode {name} at byte {place}")
    raise _Refused("it ends too early")


def _marked(stack: list[Any]) -> list[Any]:
    """Takes off what lies above the last mark, and the mark."""
    start = len(stack) - 1 - next(i for i, value in enumerate(reversed(stack)) if value is MARK)
    values = stack[start + 1:]
    del stack[start:]
    return values


def _set_items(stack: list[Any]) -> None:
    values = _marked(stack)
    _typed(stack[-1], dict).update(zip(values[::2], values[1::2], strict=True))


def _set_item(stack: list[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    _typed(stack[-1], dict)[key] = value


def _append(stack: list[Any]) -> None:
    value = stack.pop()
    _typed(stack[-1], list).append(value)


def _extend(stack: list[Any]) -> None:
    values = _marked(stack)
    _typed(stack[-1], list).extend(values)


def _close_tuple(stack: list[Any]) -> None:
    stack.append(tuple(_marked(stack)))


def _call(stack: list[Any]) -> None:
    """One of the known calls, of exactly the known arguments, written down."""
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
    state = _typed(stack.pop(), tuple)
    _typed(stack[-1], _Object).state = state


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _Refused(f"a {type(value).__name__} where a {kind.__name__.strip('_')} belongs")
    return value


STEPS: dict[str, Callable[[list[Any]], None]] = {
    "SETITEMS": _set_items, "SETITEM": _set_item, "APPEND": _append, "APPENDS": _extend,
    "TUPLE": _close_tuple, "REDUCE": _call, "BUILD": _set_state}
