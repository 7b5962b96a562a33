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
from dpgen_jax.run.request import Request

POLL_SECONDS = 0.5
JOIN, ANSWER = "query.join", "train"
JOIN_SECONDS = 3600.0

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Waits for the clients, then runs with the options that the app holds.

    Args:
        grid: Flower's connection to the nodes.
        context: The app, with its options.
    """
    options = context.run_config
    terms = Terms.from_text(str(options["terms"]))
    seed = options.get("seed")
    request = Request(terms.method, str(options["preset"]), terms.config,
                      Budget(float(options["epsilon"]), float(options["delta"])),
                      out=Path(str(options["out"])), resume=bool(options["resume"]),
                      seed=None if seed is None else int(seed))
    exchange = Exchange(grid, terms, float(options["seconds"]))
    exchange.gather(float(options["wait"]))
    server.run(request, terms.spec, exchange)


class Exchange:
    """The clients behind a grid of Flower nodes; see `rounds.Exchange`.

    Attributes:
        sent: Bytes of the records of all messages so far, without the transport's own.
        received: Likewise.
    """

    def __init__(self, grid: Grid, terms: Terms, seconds: float):
        """Connects to nobody yet.

        Args:
            grid: Flower's connection to the nodes.
            terms: The terms of the federation.
            seconds: The time for which a round waits for its answers.
        """
        self._grid, self._terms, self._seconds = grid, terms, seconds
        self._nodes: dict[int, int] = {}  # client -> node
        self._met: set[int] = set()
        self._joining: set[str] = set()
        self.sent = self.received = 0

    def gather(self, seconds: float) -> None:
        """Lets nodes join as they appear, until all clients are there or the time is up.

        Args:
            seconds: The longest wait.
        """
        end, expected = time.monotonic() + seconds, self._terms.build().mechanism.n_units
        while len(self.members()) < expected and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        tell(f"{len(self._nodes)} of {expected} clients have joined")

    def members(self) -> set[int]:
        """Returns the numbers of the clients that are there.

        A new node is asked which client it is, and joins once it has answered. A number that two
        nodes give stays with the first, for as long as that one is there.
        """
        online = set(self._grid.get_node_ids())
        new = sorted(online - self._met)
        self._met |= set(new)
        self._joining |= self._push(new, JOIN, {"turn": 0, "terms": self._terms.digest}, {},
                                    JOIN_SECONDS)
        for node, answer in self._pull(self._joining):
            about = _about(answer)
            number = about.get("client")
            if about.get("terms") != self._terms.digest or not isinstance(number, int):
                why = "cannot join: no client's process, or other terms; see its own output"
            elif self._nodes.get(number, node) in online - {node}:
                why = f"says it is client {number}, who is there already"
            else:
                why, self._nodes[number] = f"joins as client {number}", node
            tell(f"node {node} {why}")
        return {number for number, node in self._nodes.items() if node in online}

    def ask(self, question: Question, clients: Sequence[int]) -> Iterator[Reply]:
        """Sends a question and yields the replies that come back in time.

        Args:
            question: The question.
            clients: The numbers of the clients that are queried.

        Yields:
            The replies, unchecked.
        """
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

        One that is not answered within `seconds` expires, and so does its reply.
        """
        body = content(about, arrays)
        messages = [Message(body, node, kind, ttl=seconds, group_id=str(about["turn"]))
                    for node in nodes]
        self.sent += len(messages) * _size(body)
        return set(filter(None, self._grid.push_messages(messages)))

    def _pull(self, waiting: set[str]) -> Iterator[tuple[int, RecordDict]]:
        """Yields (node, content) of the replies that came, and takes them out of `waiting`."""
        for message in self._grid.pull_messages(waiting) if waiting else ():
            waiting.discard(message.metadata.reply_to_message_id)
            if message.has_content():
                self.received += _size(message.content)
                yield message.metadata.src_node_id, message.content


def _size(body: RecordDict) -> int:
    """Returns the bytes of a message's records."""
    return sum(record.count_bytes() for record in body.values())


def _about(body: RecordDict) -> wire.About:
    """Returns the header of a node's message, empty if there is none."""
    return dict(body.get("about", {}))


def _reply(number: int, body: RecordDict) -> Reply:
    """Returns the reply in a node's message, whatever it is; a text where it cannot be read."""
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
