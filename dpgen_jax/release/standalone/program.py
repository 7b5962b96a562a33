"""Runs an exported generator with NumPy alone: the steps of its program, one function for each.

A program is what JAX traced of a generator's `sample`: a list of steps, each an operation with its
parameters, the numbers of the values that it reads, and of those that it makes. Random bits come
from the same counter-based generator, so a seed gives the records that the library gives, up to
rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpgen_jax.release.standalone.operations import OPERATIONS, Operation, Parameters

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
    """JSON has no infinity: they and NaN are texts."""
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
