"""The example of docs/how-to/federation.md, typed word for word into its terminals."""

import json
import re
import socket
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("flwr", reason="needs the extra `federated` (flwr)")
processes = pytest.importorskip("processes")

PAGE = Path(__file__).parents[2] / "docs/how-to/federation.md"
PORTS = (8000, 9094, 9095)  # as the page has them


def terminals():
    """The blocks of the example, in the order of the page."""
    text = PAGE.read_text().partition("## A real federation")[2].partition("## What can go")[0]
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5, "the page has other terminals: say here how they are typed"
    return blocks


def in_use():
    return [port for port in PORTS if _connects(port)]


def _connects(port):
    with socket.socket() as link:
        return link.connect_ex((processes.LOCALHOST, port)) == 0


class Typed(processes.Federation):
    """Lines that are typed into terminals, in a home of their own."""

    def __init__(self, root):
        super().__init__(root)
        self.environment |= {"HOME": str(root), "FLWR_HOME": str(root / ".flwr")}

    def type(self, name, text):
        self.start(name, "/bin/bash", "-ec", text)

    def typed(self, name, text):
        self.type(name, text)
        assert self.running[name].wait(processes.SECONDS) == 0, self.log(name)
        del self.running[name]


def of_client(text, number):
    """Returns the lines of client 0 as another client types them."""
    return (text.replace("0.npz", f"{number}.npz").replace("--client 0", f"--client {number}")
            .replace("client-0", f"client-{number}").replace("9094", str(9094 + number)))


@pytest.mark.skipif(bool(in_use()), reason=f"the ports of the page are in use: {in_use()}")
@pytest.mark.long
def test_the_example_of_a_federation_works_as_it_is_written(tmp_path):
    prepare, terms, server, client, start = terminals()
    install, _, records = prepare.partition("\n")
    assert install.startswith('pip install ".[federated]" && ')
    with Typed(tmp_path) as federation:
        federation.typed("records", install.partition(" && ")[2] + "\n" + records)
        federation.typed("terms", terms)
        certificate, superlink = server.strip().split("\n")
        federation.typed("certificate", certificate)
        federation.type("superlink", superlink)
        federation.wait_for(lambda: _connects(8000), "a SuperLink that listens")
        join, node = client.strip().split("\n")
        for i in range(2):  # the nodes first: nobody listens when they are asked
            federation.type(f"node-{i}", of_client(node, i))
        federation.type("run", start)
        federation.wait_for(lambda: "cannot join yet" in federation.log("run"), "a refusal")
        for i in range(2):
            federation.type(f"client-{i}", of_client(join, i))
        assert federation.running["run"].wait(processes.SECONDS) == 0, federation.log("run")
        said = federation.log("run")
    assert "waiting for clients 0, 1 of 2" in said and "2 of 2 clients have joined" in said
    privacy = json.loads((tmp_path / "runs/federation/release/privacy.json").read_text())
    assert (privacy["unit"], privacy["epsilon"], privacy["steps"]) == ("client", 8.0, 2)
    with np.load(tmp_path / "0.npz") as held:
        assert held["x_train"].shape[1:3] == (12, 12)
