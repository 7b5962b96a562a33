"""Fed-Avg GAN as a federation: what crosses Flower is what the run in one process computes."""

import contextlib
import dataclasses
import json

import federation as fed
import jax
import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra `federated` (flwr)")

from dpgen_jax import federate, join
from dpgen_jax.core.types import UserError
from dpgen_jax.federated import flower_client, messages, server
from dpgen_jax.federated.client import Seat, open_client
from dpgen_jax.federated.messages import Question, Terms
from dpgen_jax.methods import fedavg_gan
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.nets.pair import ConvNet
from dpgen_jax.run import lifecycle

pytestmark = pytest.mark.slow

CONFIG = fedavg_gan.Config(
    clients=4, clients_per_round=2, federated=True, client_records=8, client_steps=2,
    client_batch=4, pool=2, steps=4, sigma=4.0, g_steps=1, g_batch=4, penalty=0.0,
    generator=GeneratorNet(4, 8, 4), discriminator=ConvNet(2, 2))
SIZES = (12, 5, 1, 20)
TERMS = Terms("fedavg_gan", CONFIG, fed.SPEC)


def request(out):
    return dataclasses.replace(fed.request(out), method="fedavg_gan", config=CONFIG)


def carried(about, arrays):
    """A message's arrays as they come out of Flower's records."""
    content = flower_client.content(about, dict(arrays))
    return {name: array.numpy() for name, array in content["arrays"].items()}


class ThroughFlower(fed.Together):
    """Clients of this process, behind Flower's records."""

    def ask(self, question, clients):
        arrays = carried({"turn": question.round, "step": question.step}, question.arrays)
        return super().ask(Question(question.terms, question.round, question.step, arrays), clients)


@pytest.mark.long
def test_both_ways_release_the_same(tmp_path):
    parts = [fed.records(i, n=n) for i, n in enumerate(SIZES)]
    together = dataclasses.replace(
        parts[0], x_train=np.concatenate([p.x_train for p in parts]),
        y_train=np.concatenate([p.y_train for p in parts]),
        clients=np.repeat(np.arange(len(SIZES)), SIZES).astype(np.int32))
    central = lifecycle.run(request(tmp_path / "central"), together, lambda line: None)
    method = TERMS.build()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(open_client(
            tmp_path / f"client-{i}", TERMS, data, fed.BUDGET, seat=Seat(i, fed.SEED),
            method=method)) for i, data in enumerate(parts)]
        exchange = ThroughFlower(clients, spoil=lambda client, turn, values: carried(
            {"turn": turn}, {"values": values})["values"])
        federated = server.run(request(tmp_path / "federated"), fed.SPEC, exchange,
                               lambda line: None)
        assert exchange.questions == [(0, [0, 2]), (1, [1, 3]), (2, [0, 2]), (3, [1, 3])]
        assert [c.ledger.steps_charged for c in clients] == [2] * 4
    # Generators of two programs round differently, which their first steps of Adam amplify: what is
    # equal is what was released, noise of equal bits included.
    released = [{row["step"]: row["released_norm"] for row in map(json.loads, (
        tmp_path / name / "metrics.jsonl").read_text().splitlines())}
        for name in ("central", "federated")]
    assert released[1].keys() == {1, 2, 3, 4} and released[0].keys() <= released[1].keys()
    assert released[0] == pytest.approx({step: released[1][step] for step in released[0]},
                                        rel=1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.02), federated.model,
                 central.model)
    for name in ("epsilon", "relation", "unit", "events", "clients"):
        assert federated.privacy[name] == central.privacy[name], name
    assert federated.privacy["unit"] == "client"


def test_a_question_holds_the_discriminator_and_a_pool_and_no_generator():
    form = messages.form(TERMS.build())
    assert {name.split("/")[0] for name in messages.pack(jax.tree.map(
        lambda a: np.zeros(a.shape, a.dtype), form))} == {"d", "pool", "key"}


def test_terms_that_trust_an_aggregator_are_refused():
    bare = dataclasses.replace(CONFIG, federated=False)
    with pytest.raises(UserError, match="add noise at the server"):
        Terms("fedavg_gan", bare, fed.SPEC).build()


def test_the_app(tmp_path, capsys):
    flags = ["--clients", "40", "--clients-per-round", "20", "--steps", "4", "--height", "8",
             "--width", "8", "--classes", "3", "--epsilon", "8"]
    federate.command(["fedavg_gan", *flags, "--out", str(tmp_path / "app")])
    terms = join.terms_of(tmp_path / "app")
    assert terms.method == "fedavg_gan" and terms.config.federated and terms.config.sigma > 0
    assert terms.build().mechanism.unit == "client"
    assert "40 clients, 4 steps, 2 participations of a client" in capsys.readouterr().out
