"""What server and clients say to each other: the terms, a question, an answer. All of it public.

A question is what `Method.ask` returns, sent as plain arrays by their path in it; both sides build
the same method from the same terms, so both know its form.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dpgen_jax import config as configs
from dpgen_jax import methods
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.config import Runtime, from_json, to_json
from dpgen_jax.run import contents
from dpgen_jax.run.folder import parse_json
from dpgen_jax.types import Method, Spec, UserError

MOST_TURNS = 2**31


@dataclasses.dataclass(frozen=True)
class Terms:
    """What is computed, on which both sides must agree: method, config, spec. None of it can harm a
    client, whose own code derives from them what an answer costs its own budget."""

    method: str
    config: Any
    spec: Spec

    @property
    def digest(self) -> str:
        return configs.digest(self)

    def to_text(self) -> str:
        return json.dumps(to_json(self), indent=1)

    @classmethod
    def from_text(cls, text: str) -> Terms:
        """Errors: UserError for a text that is not that of terms."""
        try:
            held = parse_json(text.encode())
            method = from_json(str, held["method"], "method")
            config = from_json(methods.get(method).Config, held["config"], "config")
            return cls(method, config, contents.spec(held["spec"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"the terms of the federation are damaged ({error}); write the app "
                            "anew with python -m dpgen_jax.federate") from None

    def build(self, runtime: Runtime = Runtime()) -> Method:
        """Errors: UserError where noise would not be added at the clients."""
        method = methods.get(self.method).build(self.config, self.spec, runtime)
        return require_local(method)


def require_local(method: Method) -> Method:
    """The method. Errors: UserError unless its answers are private before they leave a client."""
    if not isinstance(method.mechanism, LocalMechanism):
        raise UserError("these terms add noise at the server, so that answers would leave the "
                        "clients bare; a federation needs --federated")
    return method


@dataclasses.dataclass(frozen=True)
class Question:
    """turn: counts all questions, lost ones too; step: those that the generator learnt from;
    arrays: the leaves of the query, by path."""

    terms: str
    turn: int
    step: int
    arrays: Mapping[str, np.ndarray]

    @property
    def digest(self) -> str:
        """SHA-256 of all of it: a question asked twice is known by it."""
        held = hashlib.sha256(f"{self.terms} {self.turn} {self.step}".encode())
        for name in sorted(self.arrays):
            array = np.asarray(self.arrays[name], order="C")
            held.update(repr((name, array.dtype.str, array.shape)).encode())
            held.update(array.tobytes())
        return held.hexdigest()


@dataclasses.dataclass(frozen=True)
class Reply:
    """client: its number; values: int32 [B, D] if it is sound; noise: where its bits came from."""

    client: int
    turn: int
    values: Any
    noise: str


def form(method: Method) -> Any:
    """Shapes and dtypes of a query."""
    key = jax.random.key(0)
    return jax.eval_shape(lambda: method.ask(key, method.init(key)))


def pack(query: Any) -> dict[str, np.ndarray]:
    """The leaves of a query by their path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(query)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def unpack(wanted: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The inverse of `pack` for a query of the form `wanted`.

    Errors: UserError naming the array that is missing, too many, of another shape or type, or not
    finite: a client refuses such a question before it costs anything.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(wanted)
    names = [_name(path) for path, _ in leaves]
    if odd := sorted(set(names) ^ set(arrays)):
        raise UserError(f"the question has no array {odd[0]!r}" if odd[0] in names
                        else f"the question has an array {odd[0]!r} that nobody asked for")
    for name, (_, leaf) in zip(names, leaves, strict=True):
        array = arrays[name]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise UserError(f"{name} of the question is {array.dtype}{list(array.shape)}, expected "
                            f"{leaf.dtype}{list(leaf.shape)}")
        if not np.all(np.isfinite(array)):
            raise UserError(f"{name} of the question is not finite")
    return jax.tree.unflatten(structure, [arrays[name] for name in names])


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/") or "query"
