"""The ClientApp: a relay between Flower and the client's own process. It keeps nothing.

A Flower node runs, for every message, a new process of the app that the server sent it. So what
runs there is the server's code, and this file trusts it no more than the server: records, critic,
ledger and noise are behind the socket of `python -m dpgen_jax.join`, which hands out answers that
are private as they stand, and keeps within its own budget.
"""

from __future__ import annotations

from logging import ERROR
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log

from dpgen_jax.core.errors import UserError
from dpgen_jax.federated import wire

app = ClientApp()


@app.query("join")  # which client this is, and on what terms
@app.train()  # the client's answer to a question, or its refusal
def relay(message: Message, context: Context) -> Message:
    """Carries a message to the socket that the node is configured with, and brings the reply back.

    The reply is a refusal where no client answers.
    """
    about = dict(message.content["about"])
    arrays = record_arrays(message.content, "arrays")
    try:
        path = context.node_config.get("socket")
        if path is None:
            raise UserError("the node's configuration lacks socket: use the socket that the "
                            "client's process printed")
        about, arrays = wire.request(Path(str(path)), about, arrays)
    except UserError as error:
        log(ERROR, "%s", error)
        about, arrays = {"turn": about.get("turn", -1), "refused": "no client"}, {}
    return Message(content(about, arrays), reply_to=message)


def content(about: wire.About, arrays: wire.Arrays) -> RecordDict:
    """Returns the content of a message."""
    return RecordDict({"about": ConfigRecord(about), "arrays": ArrayRecord(
        {name: Array(array) for name, array in arrays.items()})})


def record_arrays(content: RecordDict, name: str) -> wire.Arrays:
    """Returns the arrays of a record of a message by name; none where it has no such record.

    Raises:
        TypeError: The record is not one of arrays.
    """
    record = content.get(name, ArrayRecord())
    if not isinstance(record, ArrayRecord):
        raise TypeError(f"{name} is not a record of arrays")
    return {key: array.numpy() for key, array in record.items()}
