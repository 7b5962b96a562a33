"""The ClientApp: a relay between Flower and the client's own process, without any state.

For every message, a Flower node starts a new process of the app that the server sent. So the
server's code runs there, and is trusted no more than the server: records, critic, ledger and noise
are behind the socket of `python -m dpgen_jax.join`, which gives out answers that are already
private, within its own budget.
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
    """Sends a message to the socket in the node's configuration, and returns the reply.

    The reply is a refusal if no client answers.
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
    """Returns the arrays of a record of a message by name; none if it has no such record.

    Raises:
        TypeError: The record does not consist of arrays.
    """
    record = content.get(name, ArrayRecord())
    if not isinstance(record, ArrayRecord):
        raise TypeError(f"{name} is not a record of arrays")
    return {key: array.numpy() for key, array in record.items()}
