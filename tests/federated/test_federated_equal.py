"""A federation and the run in one process are one algorithm: equal keys, equal generator."""

import contextlib
import dataclasses

import federation as fed
import jax
import numpy as np
import pytest
from planted import toy as adversary

from dpgen_jax.accountant.events import merge
from dpgen_jax.core.types import Pretraining, UserError
from dpgen_jax.federated import server
from dpgen_jax.federated.client import Seat, open_client
from dpgen_jax.private import records as sealing
from dpgen_jax.private import streaming, teachers
from dpgen_jax.private.pretraining import pretrain
from dpgen_jax.run import lifecycle, loop

pytestmark = pytest.mark.slow

FIELDS = {"critics": 4, "critics_per_step": 2}
SIZES = (12, 5, 1, 20)  # one repeats its only record, one holds more than it may contribute


def clients():
    return [fed.records(i, n=n) for i, n in enumerate(SIZES)]


def together():
    """All records in one data set, which says whose each is."""
    parts = clients()
    return dataclasses.replace(
        parts[0], x_train=np.concatenate([p.x_train for p in parts]),
        y_train=np.concatenate([p.y_train for p in parts]),
        clients=np.repeat(np.arange(len(SIZES)), SIZES).astype(np.int32))


def test_both_ways_give_the_same_generator(tmp_path):
    central = lifecycle.run(
        fed.request(tmp_path / "central", **FIELDS), together(), lambda line: None
    )
    request, said = fed.request(tmp_path / "federated", **FIELDS), []
    terms = server.Terms("gswgan", request.config, fed.SPEC)
    method = terms.build()
    with contextlib.ExitStack() as stack:
        joined = [stack.enter_context(open_client(
            tmp_path / f"client-{i}", terms, data, fed.BUDGET, seat=Seat(i, fed.SEED),
            method=method)) for i, data in enumerate(clients())]
        federated = server.run(request, fed.SPEC, fed.Together(joined), said.append)
        finished = dataclasses.replace(request, resume=True)  # nothing is asked any more
        assert fed.same(server.run(finished, fed.SPEC, fed.Together(joined), said.append).model,
                        federated.model)
        assert [c.ledger.steps_charged for c in joined] == [2] * 4
    assert fed.same(federated.model, central.model)
    for name in ("epsilon", "delta", "relation", "unit", "events", "steps", "noise_source",
                 "clients"):
        assert federated.privacy[name] == central.privacy[name], name
    assert federated.privacy["unit"] == "client"
    assert "no privacy claim" in federated.privacy["noise_source"]
    assert "records" not in federated.privacy
    totals = [fed.books(tmp_path / name / "ledger.jsonl") for name in ("central", "federated")]
    assert totals[0].spent() == totals[1].spent() == merge(method.mechanism.events(fed.STEPS))
    assert lifecycle.load(tmp_path / "federated").arrays(3)[0].shape == (3, *fed.SPEC.shape)
    assert said[-1].startswith("release: ") and "unit client" in said[-1]

    with pytest.raises(UserError, match="already contains a run"):
        server.run(request, fed.SPEC, fed.Together(joined))
    other = dataclasses.replace(finished, budget=fed.OPEN)
    with pytest.raises(UserError, match="budget.epsilon was 8.0, now inf"):
        server.run(other, fed.SPEC, fed.Together(joined))


def test_a_warm_start_is_the_same_too(tmp_path):
    """A client's critic before the first question is that of its unit in one process."""
    def step(key, state, own):
        return adversary.learn(
            key, state, own, adversary.Query(jax.random.normal(key, adversary.SHAPE))
        )

    warm = Pretraining(3, adversary.init_unit, step, lambda state: state)
    method = dataclasses.replace(fed.method(), pretraining=warm)
    data = [fed.records(i, adversary.SPEC, n) for i, n in enumerate(SIZES[:3])]
    owners = np.repeat(np.arange(3), SIZES[:3])
    x, y = (np.concatenate([getattr(d, name) for d in data]) for name in ("x_train", "y_train"))
    layout = adversary.layout(chunk=1, units=3)
    dealt = sealing.by_client(owners, 3, fed.config().client_records)
    placed = teachers.place(sealing.deal(sealing.seal(x, y, adversary.SPEC), dealt,
                                         layout.local_units), layout)
    cold = loop.initial_state(method, jax.random.key(fed.SEED), layout).units
    *_, (units, _) = pretrain(method, cold, placed, layout)
    (stacked,) = streaming.blocks(units, layout, 3)
    for i in range(3):
        with fed.join(tmp_path, i, built=method, data=data[i]) as client:
            own = jax.tree.map(lambda a, i=i: a[i], stacked)
            assert fed.same(client._memory.unit, own)
            assert client.ledger.steps_charged == 0


def test_a_federation_of_one_is_refused(tmp_path):
    with pytest.raises(UserError, match="at least 2 are needed"):
        server.run(fed.request(tmp_path / "run", critics=1), fed.SPEC, fed.Together([]))
    with pytest.raises(UserError, match="0 clients have joined; at least 2 of 3 must"):
        server.run(fed.request(tmp_path / "run"), fed.SPEC, fed.Together([]))
    assert not (tmp_path / "run").exists()


def test_terms_that_leave_the_clients_bare_are_refused(tmp_path):
    with pytest.raises(UserError, match="a federation needs --federated"):
        server.run(fed.request(tmp_path / "run", federated=False), fed.SPEC, fed.Together([]))
