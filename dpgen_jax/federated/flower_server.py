"""The ServerApp: `server.run` over Flower's grid. TLS, nodes and queues are Flower's."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from dpgen_jax.core.config import Budget
from dpgen_jax.core.console import tell
from dpgen_jax.federated import server, wire
from dpgen_jax.federated.flower_client import content, record_arrays
from dpgen_jax.federated.messages import Question, Reply, Terms
from dpgen_jax.run.planning import Resolved

POLL_SECONDS = 0.5
JOIN, ANSWER = "query.join", "train"
AGAIN_SECONDS = 5.0
"""Seconds after which a node without a client's process is queried again; for a silent node it is
`JOIN_SECONDS`.
"""
JOIN_SECONDS = 300.0
NEWS_SECONDS = 10.0
"""Seconds between two lines on the missing clients."""
MOST_NAMED = 10
"""The most missing clients that such a line names."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Waits for the clients, then runs with the options of the app."""
    options = context.run_config
    terms = Terms.from_text(str(options["terms"]))
    seed = options.get("seed")
    request = Resolved(terms.method, str(options["preset"]), terms.config,
                      Budget(float(options["epsilon"]), float(options["delta"])),
                      out=Path(str(options["out"])), resume=bool(options["resume"]),
                      seed=None if seed is None else int(seed))
    exchange = Exchange(grid, terms, float(options["seconds"]))
    exchange.gather(float(options["wait"]))
    server.run(request, terms.spec, exchange)


class Exchange:
    """The clients behind a grid of Flower nodes; see `server.Exchange`.

    Attributes:
        sent: Bytes of the records of all messages so far, without the transport's overhead.
        received: Likewise.
    """

    def __init__(self, grid: Grid, terms: Terms, seconds: float):
        """Connects to no client yet; a round will wait `seconds` for its answers."""
        self._grid, self._terms, self._seconds = grid, terms, seconds
        self._nodes: dict[int, int] = {}  # client -> node
        self._next: dict[int, float] = {}  # node -> when its client is requested again
        self._refused: dict[int, str] = {}  # node -> why it has not joined
        self._joining: set[str] = set()
        self.sent = self.received = 0

    def gather(self, seconds: float) -> None:
        """Lets nodes join as they appear, until all clients are present or the time is up.

        A line names the missing clients every ten seconds.
        """
        started, expected = time.monotonic(), self._terms.build().mechanism.n_units
        said = started
        while len(there := self.members()) < expected and time.monotonic() < started + seconds:
            if time.monotonic() >= said + NEWS_SECONDS:
                said = time.monotonic()
                tell(missing(there, expected, len(self._refused), started + seconds - said))
            time.sleep(POLL_SECONDS)
        tell(f"{len(there)} of {expected} clients have joined")

    def members(self) -> set[int]:
        """Returns the numbers of the clients that are present.

        A node is queried for its client until it joins, since the client's process may be started
        later, or again. If two nodes give the same number, the first keeps it while it is present.
        """
        online, now = set(self._grid.get_node_ids()), time.monotonic()
        joined = set(self._nodes.values())
        invited = sorted(node for node in online - joined if self._next.get(node, now) <= now)
        self._next |= dict.fromkeys(invited, now + JOIN_SECONDS)
        self._joining |= self._push(invited, JOIN, {"turn": 0, "terms": self._terms.digest}, {},
                                    JOIN_SECONDS)
        for node, answer in self._pull(self._joining):
            self._admit(node, _about(answer), online)
        return {number for number, node in self._nodes.items() if node in online}

    def _admit(self, node: int, about: wire.About, online: set[int]) -> None:
        """Lets a node join that names its client; else logs the reason once and tries again."""
        number = about.get("client")
        if about.get("terms") != self._terms.digest or not isinstance(number, int):
            why = ("cannot join yet: no client's process, or other terms; see its own output. "
                   "The server tries again")
        elif self._nodes.get(number, node) in online - {node}:
            why = f"names client {number}, which has joined already"
        else:
            self._nodes[number] = node
            self._refused.pop(node, None)
            tell(f"node {node} joins as client {number}")
            return
        self._next[node] = time.monotonic() + AGAIN_SECONDS
        if self._refused.get(node) != why:
            self._refused[node] = why
            tell(f"node {node} {why}")

    def ask(self, question: Question, clients: Sequence[int]) -> Iterator[Reply]:
        """Sends a question to clients and yields the replies that arrive in time, unchecked."""
        about = {"turn": question.round, "step": question.step, "terms": question.terms}
        numbers = {self._nodes[number]: number for number in clients}
        waiting = self._push(numbers, ANSWER, about, dict(question.arrays), self._seconds)
        end, over = time.monotonic() + self._seconds, False
        while waiting and not over:
            over = time.monotonic() >= end  # before the pull: what came until the end counts
            for node, answer in self._pull(waiting):
                yield _reply(numbers[node], answer)
            if waiting and not over:
                time.sleep(POLL_SECONDS)

    def _push(self, nodes: Iterable[int], kind: str, about: wire.About, arrays: wire.Arrays,
              seconds: float) -> set[str]:
        """Sends a message to nodes, and returns the ids of the messages.

        A message that is not answered within `seconds` expires, and so does its reply.
        """
        body = content(about, arrays)
        messages = [Message(body, node, kind, ttl=seconds, group_id=str(about["turn"]))
                    for node in nodes]
        self.sent += len(messages) * _size(body)
        return set(filter(None, self._grid.push_messages(messages)))

    def _pull(self, waiting: set[str]) -> Iterator[tuple[int, RecordDict]]:
        """Yields (node, content) of the replies that arrived, and removes them from `waiting`."""
        for message in self._grid.pull_messages(waiting) if waiting else ():
            waiting.discard(message.metadata.reply_to_message_id)
            if message.has_content():
                self.received += _size(message.content)
                yield message.metadata.src_node_id, message.content
            else:  # the app failed there: if it was to join, it may try again
                self._next[message.metadata.src_node_id] = time.monotonic() + AGAIN_SECONDS


def missing(there: set[int], expected: int, refused: int, left: float) -> str:
    """Returns the line on the missing clients.

    `refused` nodes are connected and have not joined; the wait may take `left` more seconds.
    """
    absent = [number for number in range(expected) if number not in there]
    named = ", ".join(map(str, absent[:MOST_NAMED])) + ", ..." * (len(absent) > MOST_NAMED)
    word = "client" if len(absent) == 1 else "clients"
    nodes = f"; {refused} connected without a client's process" * bool(refused)
    return (f"waiting for {word} {named} of {expected}{nodes}; the run starts without them in "
            f"{left:.0f} s")


def _size(body: RecordDict) -> int:
    return sum(record.count_bytes() for record in body.values())


def _about(body: RecordDict) -> wire.About:
    """Returns the header of a node's message, empty if there is none."""
    return dict(body.get("about", {}))


def _reply(number: int, body: RecordDict) -> Reply:
    """Returns the reply in a node's message; a text if it cannot be read."""
    try:
        about = _about(body)
        number_of_round = operator.index(about["turn"])
        if "refused" in about:
            missing = f"is missing: {str(about['refused'])[:20]!r}"
            return Reply(number, number_of_round, missing, "")
        if about["client"] != number:
            raise ValueError("another client's")
        values = record_arrays(body, "arrays")["values"]
        return Reply(number, number_of_round, values, about["noise"])
    except Exception as error:  # bytes from outside: no kind of damage may stop the others
        return Reply(number, -1, f"cannot be read ({type(error).__name__})", "")
