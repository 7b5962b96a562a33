"""The ClientApp: a relay between Flower and the client's own process. It holds nothing.

A Flower node runs, for every message, a new process of the app that the server sent it. So what
runs there is the server's word, and this file expects no more of it than of the server: records,
critic, ledger and noise are behind the socket of `python -m dpgen_jax.join`, which hands out
answers that are private as they stand, and answers for its own budget only.
"""

from __future__ import annotations

from logging import ERROR
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log

from dpgen_jax.errors import UserError
from dpgen_jax.federated import wire

app = ClientApp()


@app.query("join")
def join(message: Message, context: Context) -> Message:
    """Which client this is, and on what terms."""
    return relay(message, context)


@app.train()
def answer(message: Message, context: Context) -> Message:
    """The client's answer to a question, or its refusal."""
    return relay(message, context)


def relay(message: Message, context: Context) -> Message:
    """Carries a message to the socket that --node-config names, and brings the reply back."""
    about = dict(message.content["about"])
    arrays = {name: array.numpy() for name, array in
              message.content.get("arrays", ArrayRecord()).items()}
    try:
        path = context.node_config.get("socket")
        if path is None:
            raise UserError("--node-config lacks socket: the one that the client's own process "
                            "named")
        about, arrays = wire.request(Path(path), about, arrays)
    except UserError as error:
        log(ERROR, "%s", error)
        about, arrays = {"turn": about.get("turn", -1), "refused": "no client"}, {}
    return Message(content(about, arrays), reply_to=message)


def content(about: wire.About, arrays: wire.Arrays) -> RecordDict:
    """A message's content: `about` and `arrays`."""
    return RecordDict({"about": ConfigRecord(about), "arrays": ArrayRecord(
        {name: Array(array) for name, array in arrays.items()})})
