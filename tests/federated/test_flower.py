"""Real processes over loopback and TLS: a SuperLink, three SuperNodes and three clients, with a
fault of each kind; then the generator is that of a federation in one process with the same faults.

It is long: what a server, a client, the wire and Flower's messages do is tested each by itself, and
`test_federated_equal` compares the generators.
"""

import contextlib

import federation as fed
import numpy as np
import pytest
import runs

from dpgen_jax import federate
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import to_json
from dpgen_jax.federated import server
from dpgen_jax.federated.client import Seat, open_client
from dpgen_jax.join import terms_of
from dpgen_jax.run import lifecycle

pytestmark = pytest.mark.long

pytest.importorskip("flwr", reason="needs the extra `federated` (flwr)")
processes = pytest.importorskip("processes")

SECONDS = 1800  # for which a turn waits, where nothing else ends it: however slow the machine
STEPS = 3
FLAGS = [f"--{name}={value}" for name, value in {
    "critics": fed.CLIENTS, "critics-per-step": 0, "epsilon": fed.BUDGET.epsilon,
    "delta": fed.BUDGET.delta, "height": 8, "width": 8, "channels": 1, "classes": 3, "batch": 4,
    "steps": STEPS, "critic-steps": 2, "critic-steps-first": 2, "records-per-step": 4, "pool": 4,
    "client-records": 16, "warm-steps": 0, "penalty": 0, "generator.latent": 2,
    "generator.width": 2, "critic.width": 2, "seconds": SECONDS, "seed": fed.SEED}.items()]

# The apps that run in the test. In turn 1 client 0 asks its client twice, client 1 sends NaN of
# another shape, and client 2 is late: it answers when the turn is over. It is over when the other
# two were heard, and the next one begins when the node of client 1 has left. No turn begins before
# all nodes are there that should be: on a busy machine one may seem to be away for a while.
CLIENT = """
import pathlib
import time
import numpy as np
from flwr.app import Message
from flwr.clientapp import ClientApp
from dpgen_jax.federated.flower_client import content, relay

app = ClientApp()
app.query("join")(relay)
rows = pathlib.Path("ROOT/run/metrics.jsonl")

def over():
    return rows.exists() and rows.read_text().count("\\n") >= 2

@app.train()
def answer(message, context):
    turn, number = message.content["about"]["turn"], context.node_config["number"]
    while (turn, number) == (1, 2) and not over():
        time.sleep(0.1)
    reply = relay(message, context)
    if (turn, number) == (1, 0):
        again = relay(message, context)
        assert again.content["arrays"]["values"].data == reply.content["arrays"]["values"].data
    if (turn, number) == (1, 1):
        values = np.full((4, 63), np.nan, np.float32)
        return Message(content(dict(reply.content["about"]), dict(values=values)), reply_to=message)
    return reply
"""
SERVER = """
import pathlib
import time
from dpgen_jax.federated import flower_server

class Exchange(flower_server.Exchange):
    expected = {0, 1, 2}

    def members(self):
        while not self.expected <= (there := super().members()):
            time.sleep(0.1)
        return there

    def ask(self, question, clients):
        heard = set()
        for reply in super().ask(question, clients):
            yield reply
            heard.add(reply.client)
            if question.round == 1 and heard == {0, 1}:
                self.expected = {0, 2}
                pathlib.Path("ROOT/heard").touch()
                while 1 in self.members():
                    time.sleep(0.1)
                return

flower_server.Exchange = Exchange
app = flower_server.app
"""


def in_process(root, rows):
    """The run's twin: the same answers are lost, and everything else is one process."""
    terms = terms_of(root / "app")
    counted = {row["turn"]: row["clients"] for row in rows}

    def spoil(client, turn, values):
        return values if client in counted[turn] else None

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(open_client(
            root / f"twin-{i}", terms, fed.records(i), fed.BUDGET, seat=Seat(i, fed.SEED),
            method=terms.build())) for i in range(fed.CLIENTS)]
        request = lifecycle.Resolved(
            "gswgan", "federated", terms.config, fed.BUDGET, out=root / "twin", seed=fed.SEED
        )
        return server.run(request, fed.SPEC, fed.Together(clients, spoil), lambda line: None)


def listens(federation, number):
    return "and listens at" in federation.log(f"client-{number}")


def run(root):
    """From the first process to the last; client 1's node drops out after turn 1. What was said."""
    with processes.Federation(root) as federation:
        federation.superlink()
        for i in range(fed.CLIENTS):
            federation.start(f"client-{i}", "python", "-m", "dpgen_jax.join", "app", "--data",
                             f"npz:{i}.npz", "--client", i, "--epsilon", fed.BUDGET.epsilon,
                             "--seed", fed.SEED)
            federation.supernode(f"node-{i}", f'socket="client-{i}.socket" number={i}')
            if i == 0:  # it compiles for all of them
                federation.wait_for(lambda: listens(federation, 0), "first client")
        federation.wait_for(lambda: all(listens(federation, i) for i in range(fed.CLIENTS)),
                            "three clients")
        federation.start("run", "flwr", "run", "app", "here", "--stream")
        federation.wait_for((root / "heard").exists, "round 1")
        federation.stop("node-1")
        assert federation.running["run"].wait(processes.SECONDS) == 0, federation.log("run")
    assert federation.running == {}
    return federation.log("run")


def test_a_federation_of_processes_survives_its_clients(tmp_path):
    for i in range(fed.CLIENTS):
        data = fed.records(i)
        runs.npz(tmp_path / f"{i}.npz", data.x_train, data.y_train)
    federate.command([*FLAGS, "--out", str(tmp_path / "app"), "--run", "run"])
    app = tmp_path / "app/pyproject.toml"
    app.write_text(app.read_text().replace("dpgen_jax.federated.flower_", "faulty_"))
    for name, text in (("client", CLIENT), ("server", SERVER)):
        (tmp_path / f"app/faulty_{name}.py").write_text(text.replace("ROOT", str(tmp_path)))
    said = run(tmp_path)
    rows = run_folder.read(tmp_path / "run/metrics.jsonl")
    twin = in_process(tmp_path, rows)

    assert [row["clients"] for row in rows] == [[0, 1, 2], [0], [0, 2]], said
    assert [row["asked"] for row in rows] == [3, 3, 2]
    assert "round 1: the answer of client 1 holds float32, expected int32; dropped" in said
    assert "release: run/release (3 steps; none: the noise was made from a seed" in said
    assert all("epsilon" not in row and row[run_folder.BUDGET_EPSILON] > 0 for row in rows)
    release = lifecycle.load(tmp_path / "run")
    assert fed.same(release.model, twin.model)
    assert release.privacy == to_json(twin.privacy) | {"noise_source": "seeded: no privacy claim"}

    # Each client charged what left it, in time or not, asked once or twice; the server all turns.
    visits = [fed.books(tmp_path / f"client-{i}/ledger.jsonl").steps for i in range(fed.CLIENTS)]
    assert visits == [3, 2, 3]
    ledger = fed.books(tmp_path / "run/ledger.jsonl")
    assert ledger.steps == 3 and ledger.spent()[0][1] == 3
    question, answer = 4000, 4 * np.prod((4, 64))
    assert rows[0]["bytes_sent"] > 3 * question and rows[0]["bytes_received"] > 3 * answer
    assert rows[1]["bytes_received"] < rows[0]["bytes_received"]
