"""The model of a release: compiled functions of it, and its arrays as a file holds them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from flax import traverse_util

from dpgen_jax import methods
from dpgen_jax.core import checks
from dpgen_jax.core.types import (
    CountTable,
    ImageSpec,
    Method,
    PyTree,
    Refinement,
    Spec,
    UserError,
)
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.release.sampling import CHUNK, key_at


@functools.lru_cache(64)
def built(method: str, config: MethodConfig, spec: Spec) -> Method:
    """Builds a method once for each configuration and schema.

    Args:
        method: The name of the method.
        config: Its complete configuration.
        spec: The schema of the records.
    """
    return methods.get(method).build(config, spec)


def tables(method: str, config: MethodConfig, spec: Spec, arrays: Any, privacy: dict[str, Any]
           ) -> tuple[CountTable, ...]:
    """Returns the noisy tables of counts that a release was made of, if its method lists them.

    Args:
        method: The name of the method.
        config: Its complete configuration.
        spec: The schema of the records.
        arrays: The released arrays.
        privacy: The statement, which says how many steps there were.
    """
    listed = built(method, config, spec).tables
    return listed(arrays, privacy["steps"]) if listed and "steps" in privacy else ()


@functools.lru_cache(64)
def compiled(method: str, config: MethodConfig, spec: Spec) -> Callable[..., Any]:
    """Returns the jitted `sample` of a generator, or `predict` of a classifier.

    Args:
        method: The name of the method.
        config: Its complete configuration.
        spec: The schema of the records.

    Raises:
        ValueError: For a method with neither.
    """
    function = (of_method := built(method, config, spec)).predict or of_method.sample
    if function is None:
        raise ValueError(f"{method} has neither sample nor predict")
    return jax.jit(function)


def drawing(method: str, config: MethodConfig, spec: Spec, arrays: dict[str, Any], seed: int
            ) -> Callable[[int, np.ndarray], np.ndarray]:
    """Returns the function that draws the records of a generator, `CHUNK` or fewer at a time.

    Args:
        method: The name of the method.
        config: Its complete configuration.
        spec: The schema of the records.
        arrays: The model.
        seed: 0 or above, below `SEEDS`.

    Returns:
        From the number of records drawn before, and labels int32 [n], to records float32 [n, ...].
    """
    key, sampler = jax.random.key(seed), compiled(method, config, spec)

    def draw(start: int, labels: np.ndarray) -> np.ndarray:
        # Padded to a fixed shape: compiled once, and a record does not depend on how many are
        # asked for.
        padded = np.zeros(CHUNK, np.int32)
        padded[:len(labels)] = labels
        made = sampler(arrays, key_at(jax.random.fold_in, key, start), padded)
        return np.asarray(made)[:len(labels)]

    return draw


def parse(path: Path, data: bytes, expected: dict[str, jax.ShapeDtypeStruct]) -> dict[str, Any]:
    """Reads the arrays of a release, which must be those that its method releases.

    Args:
        path: The file, for messages.
        data: Its contents, safetensors.
        expected: The `arrays` of its configuration.

    Returns:
        Nested dict of arrays.

    Raises:
        UserError: For other contents, or an array of another name, shape or type.
    """
    try:
        flat = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: no file of arrays ({error})") from error
    for name, wanted, present in _differing(expected, flat):
        raise UserError(f"{path} is damaged: the array {name[:100]!r} is {present}, by "
                        f"config.json it is {wanted}")
    return traverse_util.unflatten_dict(flat, sep="/")


@functools.lru_cache(64)
def arrays(method: str, config: MethodConfig, spec: Spec) -> dict[str, jax.ShapeDtypeStruct]:
    """Finds the shape and type of each array of a release by its name; nothing is computed.

    Args:
        method: The name of the method.
        config: Its complete configuration.
        spec: The schema of the records.

    Raises:
        UserError: For a configuration of which no model can be built.
    """
    def model(key: jax.Array) -> Any:
        of_method = built(method, config, spec)
        public, training = of_method.init(key), of_method.post_training
        return of_method.finalize(key, training.init(key, public) if training else public)

    try:
        return named(jax.eval_shape(model, jax.random.key(0)))
    except UserError:
        raise
    except Exception as error:  # what networks make of sizes that nobody trained
        raise UserError("config.json is damaged: it describes no model that can be built "
                        f"({type(error).__name__})") from error


def named(model: PyTree) -> dict[str, Any]:
    """Returns the arrays of a model by the names that they have in the file of a release.

    Args:
        model: Nested dict of arrays, or of their shapes.
    """
    flat: dict[str, Any] = traverse_util.flatten_dict(model, sep="/")
    return flat


def check(method: Method, spec: Spec) -> None:
    """Checks that the state after the last step can become a release, which must not fail then.

    The functions of the method get shapes and types, and nothing is computed. It is called before
    anything is spent.

    Args:
        method: The method, built.
        spec: The schema of the records.

    Raises:
        TypeError: For a function of the method that cannot take what it will be given, or whose
            result cannot be stored or used.
        UserError: From the method.
    """
    key, size = jax.random.key(0), jax.ShapeDtypeStruct
    state = _result("init", method.init, key)
    if training := method.post_training:
        state = _result("post_training.init", training.init, key, state)
        after, metrics = _result("post_training.step", lambda *args: tuple(training.step(*args)),
                                 key, state, size((), np.int32))
        _require("post_training.step", (after, metrics),
                 (state, dict.fromkeys(metrics, size((), np.float32))))
    model = _result("finalize", method.finalize, key, state)
    _require_storable(model)
    if method.predict:
        rows = size((CHUNK, *spec.shape), np.float32)
        _require("predict", _result("predict", method.predict, model, rows),
                 size((CHUNK, spec.classes), np.float32))
    elif method.sample:
        labels = size((CHUNK,), np.int32)
        _require("sample", _result("sample", method.sample, model, key, labels),
                 size((CHUNK, *spec.shape), np.float32))
    else:
        raise TypeError("the method has neither `sample` nor `predict`, so nothing can be done "
                        "with its release")
    if method.class_shares:
        _require("class_shares", _result("class_shares", method.class_shares, model),
                 size((spec.classes,), np.float32))


def refined(refinement: Refinement, public: PyTree, model: dict[str, Any]) -> dict[str, Any]:
    """Returns the model as its refinement makes it.

    Args:
        refinement: What goes on from `Method.finalize`.
        public: The state that `Method.finalize` got, of NumPy.
        model: Nested dict of arrays of NumPy.

    Raises:
        TypeError: The refinement changes the name, the shape or the type of an array.
        Exception: From the refinement, of any kind.
    """
    made: dict[str, Any] = jax.tree.map(np.asarray, refinement.apply(public, model))
    for name, wanted, present in _differing(named(model), named(made)):
        raise TypeError(f"the array {name!r} is {present}, expected {wanted}")
    return made


def _result(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """The shapes and types of what a function of a method makes of such arguments."""
    try:
        return jax.eval_shape(function, *args)
    except UserError:
        raise
    except Exception as error:  # of any kind, as the author of a method may err in any way
        raise TypeError(f"`Method.{name}` fails on what it will be given "
                        f"({type(error).__name__}: {error})") from error


def _require(name: str, made: PyTree, expected: PyTree) -> None:
    """Refuses a function of a method by the shapes and types of what it makes."""
    found, wanted = (jax.tree.map(_kind, tree) for tree in (made, expected))
    if found != wanted:
        raise TypeError(f"`Method.{name}` returns {found}, expected {wanted}")


def _require_storable(model: PyTree) -> None:
    """Refuses a model that the file of a release would not give back."""
    try:
        empty = jax.tree.map(lambda array: np.zeros(0, array.dtype), model)
        data = safetensors.numpy.save(named(empty))
        read = traverse_util.unflatten_dict(safetensors.numpy.load(data), sep="/")
        _require("finalize", read, empty)
    except Exception as error:  # flax and safetensors raise many kinds
        raise TypeError(f"`Method.finalize` returns {str(model)[:200]}, which cannot be released: "
                        "return a dictionary of arrays, which may be nested, whose names hold no "
                        "'/'") from error


def _kind(array: Any) -> str:
    """The type and the shape of an array, in words."""
    return f"{array.dtype} of shape {list(array.shape)}"


def _differing(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The arrays that differ in type or shape: the name, what is expected, and what is found."""
    for name in sorted(expected.keys() | found.keys()):
        wanted, present = (_kind(part[name]) if name in part else "absent"
                           for part in (expected, found))
        if wanted != present:
            yield name, wanted, present


def as_generated(spec: Spec, x: object) -> np.ndarray:
    """Returns checked records as a method draws them, float32 [n, *spec.shape] in [0, 1].

    Args:
        spec: The schema.
        x: As for `Release.predict`.

    Raises:
        UserError: For other shapes, types and values.
    """
    x = np.asarray(x)
    if isinstance(spec, ImageSpec) and spec.channels == 1 and x.shape[1:] == spec.shape[:2]:
        x = x[..., None]
    if x.shape[1:] != spec.shape or x.ndim == 0:
        raise UserError(f"records have shape {x.shape}, expected [n, "
                        f"{', '.join(map(str, spec.shape))}]")
    if x.dtype == np.uint8 and isinstance(spec, ImageSpec):
        return x / np.float32(255)
    if not np.issubdtype(x.dtype, np.floating):
        raise UserError(f"records are {x.dtype}; give uint8 images, or floats in [0, 1]")
    checks.unit_range("records", x)
    return x.astype(np.float32)
