"""The messages between server and clients: terms, questions and answers; all are public.

A question is the query from `Method.ask`, sent as plain arrays by their path in it. Both sides
build the same method from the same terms, so both have its form.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dpgen_jax import methods
from dpgen_jax.aggregation.mechanism import LocalMechanism
from dpgen_jax.core import config as configs
from dpgen_jax.core.config import Runtime, from_json, to_json
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import parse_json
from dpgen_jax.core.types import Method, PyTree, Spec, UserError
from dpgen_jax.release import contents

MAX_ROUNDS = 2**31


@dataclasses.dataclass(frozen=True)
class Terms:
    """The computation that both sides agree on.

    None of it can harm a client: the client's code derives from it what an answer costs the
    client's budget.

    Attributes:
        method: The name of the method.
        config: Its configuration, complete; of the class `Config` of the method's module.
        spec: The public schema of the clients' records.
    """

    method: str
    config: Any
    spec: Spec

    @property
    def digest(self) -> str:
        """The SHA-256 of the terms, in hex."""
        return configs.digest(self)

    def to_text(self) -> str:
        """Returns the terms as JSON."""
        return json.dumps(to_json(self), indent=1)

    @classmethod
    def from_text(cls, text: str) -> Terms:
        """Reads the terms that `to_text` writes.

        Raises:
            UserError: The text is not that of terms.
        """
        try:
            terms = parse_json(text.encode())
            method = from_json(str, terms["method"], "method")
            config = from_json(methods.get(method).Config, terms["config"], "config")
            return cls(method, config, contents.spec(terms["spec"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"the terms of the federation are damaged ({error}); write the app "
                            "again with python -m dpgen_jax.federate") from None

    def build(self, runtime: Runtime = Runtime()) -> Method:
        """Builds the method, whose mechanism is a `LocalMechanism`.

        Raises:
            UserError: Noise would not be added at the clients.
        """
        method: Method = methods.get(self.method).build(self.config, self.spec, runtime)
        local_mechanism(method)
        return method


def local_mechanism(method: Method) -> LocalMechanism:
    """Returns the mechanism of a method, whose answers are private before they leave a client.

    Raises:
        UserError: The method adds its noise at the server.
    """
    if not isinstance(method.mechanism, LocalMechanism):
        raise UserError("these terms add noise at the server, so answers would leave the clients "
                        f"without noise; a federation needs {option('federated')}")
    return method.mechanism


@dataclasses.dataclass(frozen=True)
class Question:
    """One query of the server, as a client receives it.

    Attributes:
        terms: The digest of the terms.
        round: Counts all questions, including lost ones, from 0.
        step: Counts questions that the generator learnt from, from 0.
        arrays: The leaves of the query, by path: any shapes [...].
    """

    terms: str
    round: int
    step: int
    arrays: Mapping[str, np.ndarray]

    @classmethod
    def received(cls, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Question:
        """Returns the question of a message, unchecked."""
        return cls(about.get("terms", ""), about.get("turn", -1), about["step"], arrays)

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole question, by which a repetition is recognised."""
        digest = hashlib.sha256(f"{self.terms} {self.round} {self.step}".encode())
        for name in sorted(self.arrays):
            array = np.asarray(self.arrays[name], order="C")
            digest.update(repr((name, array.dtype.str, array.shape)).encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Reply:
    """A client's reply to a question, unchecked: `server.fault_of_reply` checks it.

    Attributes:
        client: The number of the client.
        round: The round of the question.
        values: int32 [B, D] if it is valid; a text if there is no answer.
        noise: The source of the bits of the client's noise.
    """

    client: int
    round: int
    values: np.ndarray | str
    noise: str


def form(method: Method) -> PyTree:
    """Returns the shapes and dtypes of a query, as a pytree of `jax.ShapeDtypeStruct`."""
    key = jax.random.key(0)
    return jax.eval_shape(lambda: method.ask(key, method.init(key)))


def pack(query: PyTree) -> dict[str, np.ndarray]:
    """Returns the arrays of a pytree by their path in it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(query)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def unpack(expected: PyTree, arrays: Mapping[str, np.ndarray]) -> PyTree:
    """Inverts `pack`, for a query whose form is known.

    Raises:
        UserError: An array is missing, unexpected, of another shape or type, or not finite. A
            client refuses such a question before it costs anything.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(expected)
    names = [_name(path) for path, _ in leaves]
    if odd := sorted(set(names) ^ set(arrays)):
        raise UserError(f"the query has no array {odd[0]!r}" if odd[0] in names else
                        f"the query has an array {odd[0]!r}, which no query of this method has")
    for name, (_, leaf) in zip(names, leaves, strict=True):
        array = arrays[name]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise UserError(f"{name} of the query is {array.dtype}{list(array.shape)}, expected "
                            f"{leaf.dtype}{list(leaf.shape)}")
        if not np.all(np.isfinite(array)):
            raise UserError(f"{name} of the query is not finite")
    return jax.tree.unflatten(structure, [arrays[name] for name in names])


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/") or "query"
