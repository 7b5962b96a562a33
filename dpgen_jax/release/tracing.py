"""The program of a function that JAX can trace, as `standalone.program` runs it."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core

from dpgen_jax.core.types import UserError
from dpgen_jax.release.standalone.program import LOOPS, OPERATIONS

CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call",
         "custom_vjp_call_jaxpr", "remat2", "checkpoint")
"""Primitives that only run another program, which takes their place."""
COMPOUND = "call_hi_primitive"
"""The primitive of JAX 0.12 for an operation that is made of others."""
PROGRAMS = ("jaxpr", "cond_jaxpr", "body_jaxpr", "branches")
"""The parameters of loops that are programs."""
LEFT_OUT = ("sharding", "out_sharding", "update_jaxpr", "update_consts", "precision", "accuracy",
            "jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "linear", "unroll", "_split_transpose",
            "ft_in", "ft_out")
"""Parameters that change no value, or are read elsewhere (`_parts_of_scan`)."""
MODES = ("fill", "clip", "promise")


def traced(function: Callable[..., Any], *inputs: Any) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Traces a function of arrays.

    Args:
        function: The function.
        inputs: Arrays, or their shapes and types; any trees of them.

    Returns:
        The program, whose inputs are the leaves of the inputs and then its constants; and those.

    Raises:
        UserError: For an operation that `standalone.program` does not have.
    """
    closed = jax.make_jaxpr(function)(*inputs)
    program = _program(closed.jaxpr, [])
    return program, [np.asarray(constant) for constant in closed.consts]


def _program(jaxpr: Any, constants: list[Any]) -> dict[str, Any]:
    """The program of a jaxpr; the values of its constants, if any are given, become literals."""
    numbers, steps, names = itertools.count(), list[Any](), dict[Any, Any]()
    inputs = [*jaxpr.invars, *([] if constants else jaxpr.constvars)]
    for variable in inputs:
        names[variable] = next(numbers)
    for variable, value in zip(jaxpr.constvars if constants else [], constants, strict=True):
        names[variable] = _literal(value)
    _add(jaxpr, names, numbers, steps)
    return {"inputs": [names[variable] for variable in inputs], "steps": steps,
            "outputs": [_source(variable, names) for variable in jaxpr.outvars]}


def _add(jaxpr: Any, names: dict[Any, Any], numbers: Any, steps: list[Any]) -> None:
    """Adds the steps of a jaxpr, whose inputs have names, and names what they make."""
    for equation in jaxpr.eqns:
        name, p = equation.primitive.name, equation.params
        sources = [_source(variable, names) for variable in equation.invars]
        if name in CALLS or name == COMPOUND:
            inner = _parts(equation) if name == COMPOUND else p.get("jaxpr", p.get("call_jaxpr"))
            body, constants = getattr(inner, "jaxpr", inner), getattr(inner, "consts", [])
            inside = dict(zip(body.invars, sources, strict=True))
            inside |= {v: _literal(c) for v, c in zip(body.constvars, constants, strict=True)}
            _add(body, inside, numbers, steps)
            made = [_source(variable, inside) for variable in body.outvars]
            names.update(zip(equation.outvars, made, strict=True))
            continue
        if name not in OPERATIONS and name not in LOOPS:
            raise UserError(f"the generator uses the operation {name!r}, which an exported folder "
                            "does not have; share release/ itself, or files of samples")
        names.update((variable, next(numbers)) for variable in equation.outvars)
        plain = {key: _plain(key, value) for key, value in p.items() if key not in LEFT_OUT}
        if name == "scan":
            plain |= _parts_of_scan(equation)
        steps.append([name, plain, sources, [names[variable] for variable in equation.outvars]])


def _parts(equation: Any) -> Any:
    """Returns the program of others that an operation of JAX 0.12 is made of."""
    inputs = (jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars)
    whole: Any = jax.jit(lambda *arrays: equation.primitive.bind(*arrays, **equation.params))
    return whole.trace(*inputs).lojax.jaxpr


def _parts_of_scan(equation: Any) -> dict[str, int]:
    """Returns how many inputs of a scan are constants and how many it carries.

    Versions of JAX state it in different ways. In all of them a step has these inputs as the whole
    scan does, and all others without their first axis.
    """
    body = equation.params["jaxpr"]
    same_in, same_out = (sum(v.aval.ndim == of_step.ndim for v, of_step in zip(*pair, strict=True))
                         for pair in ((equation.invars, body.in_avals),
                                      (equation.outvars, body.out_avals)))
    return {"num_consts": same_in - same_out, "num_carry": same_out}


def _source(variable: Any, names: dict[Any, Any]) -> Any:
    return _literal(variable.val) if isinstance(variable, core.Literal) else names[variable]


def _literal(value: object) -> list[Any]:
    """[type, value]; JSON has no infinity, and it is a text."""
    array = np.asarray(value)
    return [array.dtype.name, _listed(array.tolist())]


def _listed(value: object) -> Any:
    if isinstance(value, list):
        return [_listed(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _plain(key: str, value: Any) -> Any:
    """A parameter as JSON has it."""
    if key in PROGRAMS:
        several = isinstance(value, tuple)
        programs = [_program(inner.jaxpr, inner.consts) for inner in
                    (value if several else (value,))]
        return programs if several else programs[0]
    if key == "mode":
        text = str(value).lower()
        return next((mode for mode in MODES if mode in text), "clip")
    fields = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None)
    if fields:
        return {name: _plain(name, getattr(value, name)) for name in fields}
    if isinstance(value, tuple | list):
        return [_plain(key, entry) for entry in value]
    if isinstance(value, enum.IntEnum | np.integer):
        return int(value)
    if isinstance(value, bool | int | float | str) or value is None:
        return _listed(value)
    return np.dtype(value).name if key.endswith("dtype") else str(value)
