"""The ServerApp: `server.run` over Flower's grid. TLS, nodes and queues are Flower's."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from dpgen_jax.api import Run
from dpgen_jax.config import Budget
from dpgen_jax.federated import server, wire
from dpgen_jax.federated.flower_client import content
from dpgen_jax.federated.messages import Question, Reply, Terms
from dpgen_jax.run.progress import tell

POLL_SECONDS = 0.5
JOIN, ANSWER = "query.join", "train"
JOIN_SECONDS = 3600.0

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Waits for the clients, then runs with the options that the app holds."""
    options = context.run_config
    terms = Terms.from_text(options["terms"])
    asked = Run(terms.method, options["preset"], terms.config,
                Budget(float(options["epsilon"]), float(options["delta"])),
                out=Path(options["out"]), resume=options["resume"], seed=options.get("seed"))
    exchange = Exchange(grid, terms, options["seconds"])
    exchange.gather(options["wait"])
    server.run(asked, terms.spec, exchange)


class Exchange:
    """The clients behind a grid of Flower nodes; see `server.Exchange`.

    seconds: for which a turn waits for its answers. sent, received: bytes of the records of all
    messages, without the transport's own.
    """

    def __init__(self, grid: Grid, terms: Terms, seconds: float):
        self._grid, self._terms, self._seconds = grid, terms, seconds
        self._nodes: dict[int, int] = {}  # client -> node
        self._met: set[int] = set()
        self._joining: set[str] = set()
        self.sent = self.received = 0

    def gather(self, seconds: float) -> None:
        """Lets nodes join as they appear, until all clients are there or the time is up."""
        end, wanted = time.monotonic() + seconds, self._terms.build().mechanism.n_units
        while len(self.members()) < wanted and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        tell(f"{len(self._nodes)} of {wanted} clients have joined")

    def members(self) -> set[int]:
        """Those that are there; nodes that are new are asked who they are, and join by the time
        that they have said so. A number that two nodes give stays with the first, for as long as
        that one is there."""
        online = set(self._grid.get_node_ids())
        new = sorted(online - self._met)
        self._met |= set(new)
        self._joining |= self._push(new, JOIN, {"turn": 0, "terms": self._terms.digest}, {},
                                    JOIN_SECONDS)
        for node, said in self._pull(self._joining):
            about = _about(said)
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
        about = {"turn": question.turn, "step": question.step, "terms": question.terms}
        numbers = {self._nodes[number]: number for number in clients}
        waiting = self._push(numbers, ANSWER, about, dict(question.arrays), self._seconds)
        end, over = time.monotonic() + self._seconds, False
        while waiting and not over:
            over = time.monotonic() >= end  # read first: what has come by the end counts
            for node, said in self._pull(waiting):
                yield _reply(numbers[node], said)
            if waiting and not over:
                time.sleep(POLL_SECONDS)

    def _push(self, nodes: Iterable[int], kind: str, about: wire.About, arrays: wire.Arrays,
              seconds: float) -> set[str]:
        """The ids of the messages. One that is not answered within `seconds` expires, and so does
        its reply."""
        held = content(about, arrays)
        messages = [Message(held, node, kind, ttl=seconds, group_id=str(about["turn"]))
                    for node in nodes]
        self.sent += len(messages) * _size(held)
        return set(filter(None, self._grid.push_messages(messages)))

    def _pull(self, waiting: set[str]) -> Iterator[tuple[int, RecordDict]]:
        """(node, content) of the replies that have come; these are no longer waited for."""
        for message in self._grid.pull_messages(waiting) if waiting else ():
            waiting.discard(message.metadata.reply_to_message_id)
            if message.has_content():
                self.received += _size(message.content)
                yield message.metadata.src_node_id, message.content


def _size(held: RecordDict) -> int:
    return sum(record.count_bytes() for record in held.values())


def _about(said: RecordDict) -> wire.About:
    """What a node says of its message, or nothing."""
    return dict(said.get("about", {}))


def _reply(number: int, said: RecordDict) -> Reply:
    """A reply, whatever the node sent: what cannot be read is a text that says so."""
    try:
        about = _about(said)
        turn = operator.index(about["turn"])
        if "refused" in about:
            return Reply(number, turn, f"is missing: {str(about['refused'])[:20]!r}", "")
        if about["client"] != number:
            raise ValueError("another client's")
        return Reply(number, turn, said["arrays"]["values"].numpy(), about["noise"])
    except Exception as error:  # bytes from outside: no kind of damage may stop the others
        return Reply(number, -1, f"cannot be read ({type(error).__name__})", "")
