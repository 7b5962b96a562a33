"""Floating-point operations of any function, counted in its jaxpr.

Counted are matrix products and convolutions, a multiplication and an addition as two; what is done
element by element is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax

from dpgen_jax.run.capacity import inner_jaxprs


def traced_flops(function: Callable, *shapes: Any, loop_length: int | None = None) -> int:
    """Count the operations of a function.

    Args:
      function: The function.
      *shapes: Its arguments, as arrays or `jax.ShapeDtypeStruct`.
      loop_length: How often a loop is run through whose length is an array, as `fori_loop` to an
        array's value.

    Returns:
      The number of operations.

    Raises:
      ValueError: For such a loop, without `loop_length`.
    """
    return _count(jax.make_jaxpr(function)(*shapes).jaxpr, loop_length)


def _count(jaxpr: Any, loop_length: int | None) -> int:
    return sum(_of(equation, loop_length) for equation in jaxpr.eqns)


def _of(equation: Any, loop_length: int | None) -> int:
    name, out = equation.primitive.name, equation.outvars[0].aval
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return 2 * math.prod(out.shape) * math.prod(shape[i] for i in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        out_channels = equation.params["dimension_numbers"].rhs_spec[0]
        return 2 * math.prod(out.shape) * math.prod(kernel) // kernel[out_channels]
    inner = [_count(jaxpr, loop_length) for jaxpr in inner_jaxprs(equation.params)]
    if name == "cond":
        return max(inner)
    if name != "while" or not any(inner):
        return sum(inner) * (equation.params["length"] if name == "scan" else 1)
    if loop_length is None:
        raise ValueError("a loop with products has no length that is known before it runs")
    return sum(inner) * loop_length
