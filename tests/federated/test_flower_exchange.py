"""The server with nodes and messages, on a grid without network: no word of a node may stop it."""

import subprocess
import sys

import federation as fed
import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra `federated` (flwr)")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from dpgen_jax.federated import flower_client, flower_server, wire

TERMS = fed.TERMS
NODES = {10: 0, 11: 1, 12: 2}


class Grid:
    """Nodes that answer `says(node, about, arrays)`: a content, an Error, or None for silence."""

    def __init__(self, says):
        self.says, self.online, self.replies, self.counter = says, set(NODES), {}, 0

    def get_node_ids(self):
        return sorted(self.online)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            self.counter += 1
            ids.append(f"m{self.counter}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            message.metadata.__dict__["_run_id"] = 1
            node = message.metadata.dst_node_id
            arrays = {n: a.numpy() for n, a in message.content["arrays"].items()}
            said = self.says(node, dict(message.content["about"]), arrays)
            if said is not None:
                self.replies[ids[-1]] = Message(said, reply_to=message)
        return ids

    def pull_messages(self, ids):
        return [self.replies.pop(i) for i in sorted(ids) if i in self.replies]


def honest(node, about, arrays):
    said = {"turn": about["turn"], "client": NODES[node], "terms": TERMS.digest,
            "noise": "os-entropy"}
    values = {} if "step" not in about else {"values": np.full((4, 8), NODES[node], np.int32)}
    return flower_client.content(said, values)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(flower_server, "POLL_SECONDS", 0.01)
    for name in ("_run_id", "_node_id", "_task_id"):  # as in a process that Flower started
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(type(TERMS), "build", lambda terms: fed.method())


def exchange(says=honest, seconds=1800):
    grid = Grid(says)
    return grid, flower_server.Exchange(grid, TERMS, seconds)


def test_clients_join_and_answer():
    grid, server = exchange()
    server.gather(1800)
    assert server.members() == {0, 1, 2}
    sent = server.sent
    replies = {r.client: r for r in server.ask(fed.question(3), [0, 2])}
    assert {c: r.round for c, r in replies.items()} == {0: 3, 2: 3}
    assert replies[2].values.dtype == np.int32 and np.all(replies[2].values == 2)
    question = sum(a.nbytes for a in fed.question(3).arrays.values())
    assert server.sent - sent > 2 * question and server.received > 2 * 4 * 32


def test_a_number_belongs_to_the_first_node_while_it_is_there(capsys):
    def twin(node, about, arrays):
        return honest(10 if node == 11 else node, about, arrays)

    grid, server = exchange(twin)
    server.gather(0.1)
    assert server.members() == {0, 2}
    assert "client 0, which has joined already" in capsys.readouterr().out
    grid.online.discard(10)  # it comes back as another node
    NODES[13] = 0
    try:
        grid.online.add(13)
        assert server.members() == {0, 2}
        assert [r.client for r in server.ask(fed.question(0), [0])] == [0]
    finally:
        del NODES[13]


def test_who_does_not_join(capsys):
    def odd(node, about, arrays):
        return {10: honest(10, about, arrays), 11: RecordDict(),
                12: RecordDict({"about": ConfigRecord({"terms": "0" * 64, "client": 2})})}[node]

    _, server = exchange(odd)
    server.gather(0.1)
    assert server.members() == {0}
    assert "node 12 cannot join yet: " in capsys.readouterr().out


@pytest.mark.parametrize("first", ["no client", "an error"])
def test_a_node_without_a_client_is_asked_until_it_has_one(first, monkeypatch, capsys):
    """Its process may be started after the node; until then the server says for whom it waits."""
    nodes = []

    def late(node, about, arrays):
        nodes.append(node)
        if node == 11 and nodes.count(11) < 3:
            return Error(code=1, reason="") if first == "an error" else flower_client.content(
                {"turn": 0, "refused": "no client"}, {})
        return honest(node, about, arrays)

    monkeypatch.setattr(flower_server, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(flower_server, "NEWS_SECONDS", 0.02)
    _, server = exchange(late)
    server.gather(1800)
    said = capsys.readouterr().out
    assert server.members() == {0, 1, 2} and sorted(nodes) == [10, 11, 11, 11, 12]
    assert "waiting for client 1 of 3" in said and "3 of 3 clients have joined" in said
    assert said.count("node 11 cannot join yet") == (first == "no client")


def test_of_many_that_are_missing_a_few_are_named():
    line = flower_server.missing(set(range(5)), 40, 2, 30.0)
    assert line == ("waiting for clients 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, ... of 40; 2 connected "
                    "without a client's process; the run starts without them in 30 s")


ODD = {
    "nothing": lambda about: RecordDict(),
    "no arrays": lambda about: RecordDict({"about": ConfigRecord({"turn": 0, "client": 1})}),
    "a refusal": lambda about: RecordDict({"about": ConfigRecord(
        {"turn": 0, "refused": "no budget"})}),
    "a refusal of nothing": lambda about: RecordDict({"about": ConfigRecord({"refused": "x"})}),
    "another's answer": lambda about: honest(12, about, {}),
    "a text for a turn": lambda about: flower_client.content(
        {"turn": "0", "client": 1, "noise": "os-entropy"}, {"values": np.zeros((4, 8), np.int32)}),
    "an error": lambda about: Error(code=1, reason="the app raised an exception"),
    "silence": lambda about: None,
}


@pytest.mark.parametrize("case", ODD)
def test_no_word_of_a_node_stops_the_others(case):
    def says(node, about, arrays):
        return ODD[case](about) if node == 11 and "step" in about else honest(node, about, arrays)

    _, server = exchange(says, 1 if case == "silence" else 1800)
    server.gather(1800)
    said = []
    question = fed.question(0)
    replies = fed.server.sound_replies(server.ask(question, [0, 1, 2]), question, [0, 1, 2],
                                       fed.method().mechanism, said.append)
    assert sorted(replies) == [0, 2] and len(said) == (case not in ("an error", "silence"))


def test_the_relay_loads_neither_jax_nor_the_code_that_holds_records():
    subprocess.run([sys.executable, "-c", "import dpgen_jax.federated.flower_client, sys; assert "
                    "not {'jax', 'dpgen_jax.private'} & set(sys.modules)"], check=True)


def test_the_relay_holds_nothing_and_passes_everything(tmp_path, monkeypatch):
    """A question through relay and socket is the question; without a client the turn is lost."""
    content = flower_client.content({"turn": 4, "step": 2, "terms": "t"},
                                    dict(fed.question(0).arrays))
    message = Message(content, 10, "train")
    message.metadata.__dict__.update(_message_id="m", _run_id=1)
    counted = []

    def request(path, about, arrays):
        counted.append((str(path), about, arrays))
        return about | {"client": 0}, {"values": np.ones((4, 8), np.int32)}

    def context(**config):
        return Context(1, 10, config, RecordDict(), {})

    with monkeypatch.context() as patch:
        patch.setattr(wire, "request", request)
        reply = flower_client.relay(message, context(socket="s"))
    ((path, about, arrays),) = counted
    assert path == "s" and about == {"turn": 4, "step": 2, "terms": "t"}
    assert fed.same(arrays, dict(fed.question(0).arrays))
    assert np.all(reply.content["arrays"]["values"].numpy() == 1)
    for config in ({}, {"socket": str(tmp_path / "nobody")}):
        reply = flower_client.relay(message, context(**config))
        assert dict(reply.content["about"]) == {"turn": 4, "refused": "no client"}
