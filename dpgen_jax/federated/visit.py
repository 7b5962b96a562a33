"""One client, sealed: its row of records, its critic, and the one way out of it.

The only file of the federation that opens private values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.federated.messages import require_local
from dpgen_jax.private import partition, teachers
from dpgen_jax.private import records as sealing
from dpgen_jax.private.teachers import Units
from dpgen_jax.private.warm_up import warm_one
from dpgen_jax.types import Array, Method, Private, Records, unseal


class Visit(NamedTuple):
    """unit: after the visit; answer int32 [B, D]: bounded and noised, private as it stands."""

    unit: Private[Units]
    answer: Array


def own_row(records: Private[Records], most: int) -> Private[Records]:
    """The client's records as the stacked run lays its row out: x [most, ...], y int32 [most].
    Errors: UserError for a client without records."""
    dealt = partition.by_client(np.zeros(sealing.count(records), int), 1, most)
    return jax.tree.map(lambda a: a[0], sealing.deal(records, dealt))


def newcomer(method: Method, key: Array, number: int, own: Private[Records]) -> Private[Units]:
    """Client `number` before the first question, after its warm start if the method has one."""
    return _compile_start(method)(key, jnp.int32(number), own)


@functools.lru_cache(maxsize=4)
def _compile_start(method: Method) -> Callable[..., Private[Units]]:
    def start(key: Array, number: Array, own: Private[Records]) -> Private[Units]:
        unit = teachers.one_unit(method, key, number)
        warm = method.warm is not None and method.warm.steps
        return Private(warm_one(method, unit, unseal(own)) if warm else unit)

    return jax.jit(start)


@functools.lru_cache(maxsize=4)
def compile_visit(method: Method) -> Callable[..., Visit]:
    """(unit, own, query, step, secret bits uint32) -> Visit.

    Guarantee: that of the method's `LocalMechanism`: the answer is one Gaussian release by this
    client; unit: all its records; replace-one. The bits must be fresh, secret and used once.
    """
    require_local(method)

    def visit(unit: Private[Units], own: Private[Records], query: Any, step: Array, secret: Array
              ) -> Visit:
        unit, answer = teachers.visit_one(method, unseal(unit), unseal(own), query, step, secret)
        return Visit(Private(unit), answer)

    return jax.jit(visit)
