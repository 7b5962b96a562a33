"""Answers of teachers in the low frequencies of images, for the PATE systems.

Noise lies on every number of a message alike, and a few low frequencies have most of what
distinguishes images. Where a teacher answers in these only, its message is bounded as before, and
less noise reaches the images. The choice of frequencies is public; their values are a private
gradient like any other.
"""

from __future__ import annotations

import dataclasses

from dpgen_jax.core.types import Array, ImageSpec, PyTree, Spec, TableSpec, UserError
from dpgen_jax.methods.shared.teachers import Messages, features
from dpgen_jax.nets.frequencies import frequencies, n_frequencies, restored


def images_only(spec: Spec) -> ImageSpec:
    """Returns the schema of images. Raises: UserError: for a table."""
    if isinstance(spec, TableSpec):
        raise UserError("prototypes and frequencies are for images; for a table use another "
                        "method, or set frequencies to 0")
    return spec


def length(spec: Spec, count: int) -> int:
    """Returns how many numbers a teacher's answer for one fake has, before it is a message.

    Args:
        count: Low frequencies a side, at most; 0: as many as a record has features.

    Raises:
        UserError: Frequencies of a table.
    """
    return n_frequencies(images_only(spec), count) if count else features(spec)


def in_frequencies(messages: Messages, spec: Spec, count: int) -> Messages:
    """Returns messages that are made of low frequencies of gradients and not of the gradients.

    Args:
        messages: Of `length` numbers for each fake; unanswered rows are NaN, and stay so.
        count: Low frequencies a side, at most; 0: the messages as they are.

    Raises:
        UserError: Frequencies of a table.
    """
    if not count:
        return messages
    images = images_only(spec)

    def message(question: PyTree, gradients: Array) -> Array:
        shaped = gradients.reshape(len(gradients), *images.shape)
        return messages.message(question, frequencies(shaped, count))

    def direction(question: PyTree, released: Array) -> Array:
        moves = restored(messages.direction(question, released), images, count)
        return moves.reshape(len(moves), -1)

    return dataclasses.replace(messages, message=message, direction=direction)
