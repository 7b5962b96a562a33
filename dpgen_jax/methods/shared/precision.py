"""The precision in which units compute the products of matrices."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax

from dpgen_jax.core.config import Compute, Runtime
from dpgen_jax.core.types import Method

ALGORITHMS: dict[Compute, str | None] = {"float32": None, "bfloat16": "BF16_BF16_F32"}
"""An accelerator's way to multiply matrices: bfloat16 factors, float32 sums; None: JAX's own."""


def as_begun(runtime: Runtime, written: object) -> Runtime:
    """Returns the runtime of a run that goes on, in the precision in which it began.

    Args:
        runtime: What the user asked for; another precision than the default stays.
        written: The precision that the run folder says, if it does.
    """
    began = next((compute for compute in ALGORITHMS if compute == written), Runtime.compute)
    return runtime if runtime.compute != Runtime.compute else dataclasses.replace(
        runtime, compute=began)


def units_in(method: Method, compute: Compute) -> Method:
    """Returns a method whose units learn and answer in a precision, in all of its phases.

    The bound, the votes, their sum and the public side stay as they are, and so does what a round
    costs: a message is bounded whatever its values are.

    Args:
        method: The method, built.
        compute: The precision.
    """
    algorithm = ALGORITHMS[compute]
    if algorithm is None:
        return method

    def within(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            with jax.default_matmul_precision(algorithm):
                return function(*arguments)

        return call

    return dataclasses.replace(
        method, learn=within(method.learn), answer=within(method.answer),
        phases=tuple(units_in(phase, compute) for phase in method.phases))
