"""One sealed client: its row of records, its critic, and how its answers are computed.

Only this file of the federation opens private values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, Method, Private, PyTree, Records, unseal
from dpgen_jax.federated.messages import local_mechanism
from dpgen_jax.private import records as sealing
from dpgen_jax.private import teachers
from dpgen_jax.private.pretraining import pretrain_one
from dpgen_jax.private.teachers import Units


class Answered(NamedTuple):
    """The outcome of one question.

    Attributes:
        unit: The client's unit after the question, sealed.
        answer: int32 [B, D], bounded and noised, so already private.
    """

    unit: Private[Units]
    answer: Array


AnswerFn = Callable[[Private[Units], Private[Records], PyTree, int, np.ndarray], Answered]
"""(unit, records, query, step, private input uint32) -> the next unit and the answer."""


def client_row(records: Private[Records], width: int) -> Private[Records]:
    """Arranges a client's records as its row in a run in one process.

    `width` is the public number of records that a client contributes. Returns sealed x [width, ...]
    and y int32 [width].

    Raises:
        UserError: For a client without records.
    """
    dealt = sealing.by_client(np.zeros(sealing.count(records), int), 1, width)
    return jax.tree.map(lambda a: a[0], sealing.deal(records, dealt))


def initial_unit(method: Method, key: Array, number: int, records: Private[Records]
                 ) -> Private[Units]:
    """Makes the sealed unit of a client before the first question.

    The unit is pretrained if the method pretrains. The key is that of all units; the number is the
    client's.
    """
    return _compile_initial_unit(method)(key, jnp.int32(number), records)


@functools.lru_cache(maxsize=4)
def _compile_initial_unit(method: Method) -> Callable[..., Private[Units]]:
    def start(key: Array, number: Array, records: Private[Records]) -> Private[Units]:
        unit = teachers.one_unit(method, key, number)
        pretrains = method.pretraining is not None and method.pretraining.steps
        return Private(pretrain_one(method, unit, unseal(records)) if pretrains else unit)

    return jax.jit(start)


@functools.lru_cache(maxsize=4)
def compile_answer(method: Method) -> AnswerFn:
    """Compiles a client's answer to a question.

    Guarantee:
        That of the method's `LocalMechanism`: the answer is one Gaussian release by this client.
        Unit: a client with all its records. Relation: replace-one. The private input must be fresh,
        secret and used once.

    Raises:
        UserError: The method adds its noise at the server.
    """
    local_mechanism(method)

    def answer(unit: Private[Units], records: Private[Records], query: PyTree, step: Array,
               private_input: Array) -> Answered:
        after, values = teachers.query_unit(
            method, unseal(unit), unseal(records), query, step, private_input)
        return Answered(Private(after), values)

    return jax.jit(answer)
