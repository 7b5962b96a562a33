"""The server: which answers count, what is charged, and that it goes on."""

import contextlib
import dataclasses

import federation as fed
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import toy as adversary

from dpgen_jax.accountant.events import merge
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.types import UserError
from dpgen_jax.federated import server
from dpgen_jax.federated.messages import Reply, Terms
from dpgen_jax.run import checkpoint

LARGEST = fed.method().mechanism.largest
VISIT = fed.method().mechanism.events(1)


@pytest.fixture
def joined(tmp_path):
    """joined(n) -> clients 0..n-1, closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda n=fed.CLIENTS, **options: [
            stack.enter_context(fed.join(tmp_path, i, **options)) for i in range(n)]


def good(values=1):
    return np.full(adversary.SHAPE, values, np.int32)


def late(client, turn, values):
    return None


BAD = {
    "nan": (lambda c, t, v: np.full(adversary.SHAPE, np.nan, np.float32), "holds float32"),
    "shape": (lambda c, t, v: v[:, :-1], "has shape"),
    "one more axis": (lambda c, t, v: v[None], "has shape"),
    "wide integers": (lambda c, t, v: v.astype(np.int64), "holds int64"),
    "too large": (lambda c, t, v: good(LARGEST + 1), "which no client draws"),
    "the smallest integer": (lambda c, t, v: good(-2**31), "which no client draws"),
    "text": (lambda c, t, v: "is missing: refused", "is missing: refused"),
    "an object": (lambda c, t, v: {"values": 1}, "holds dict"),
    "the turn before": (lambda c, t, v: Reply(c, t - 1, v, "os-entropy"), "is for round"),
    "another's name": (lambda c, t, v: Reply(9, t, v, "os-entropy"), "was not expected"),
    "no word of its noise": (lambda c, t, v: Reply(c, t, v, "trust me"), "where its noise"),
}


@pytest.mark.parametrize("fault", BAD)
def test_an_unsound_answer_is_dropped(fault):
    spoil, message = BAD[fault]
    said, replies = [], [Reply(0, 2, good(), "os-entropy")]
    spoilt = spoil(1, 2, good())
    replies.append(spoilt if isinstance(spoilt, Reply) else Reply(1, 2, spoilt, "os-entropy"))
    counted = server.sound_replies(replies, fed.question(2), [0, 1], fed.method().mechanism,
                                   said.append)
    assert [*counted] == [0] and len(said) == 1
    assert said[0].startswith("round 2: the answer of client ") and message in said[0]


def test_the_run_goes_on_without_an_unsound_answer(tmp_path, joined):
    said, clients = [], joined()
    exchange = fed.Together(clients, lambda c, t, v: (
        BAD["nan"][0](c, t, v) if (c, t) == (1, 2) else v))
    state, rows, ledger = fed.train(tmp_path / "ledger", exchange, said=said)
    assert [row["clients"] for row in rows] == [[0, 1, 2], [0, 1, 2], [0, 2], [0, 1, 2]]
    assert state.step == fed.STEPS and len(said) == 1
    # the answer had left its client: it is charged there and here
    assert merge(ledger.spent()) == ((VISIT[0][0], 4),)
    assert [client.ledger.spent() for client in clients] == [((VISIT[0][0], 4),)] * 3


@settings(max_examples=200)
@given(st.sampled_from(["<i4", "<i8", "<u4", "<f4", "?"]),
       st.sampled_from([adversary.SHAPE, adversary.SHAPE[::-1], (4,), (), (0, 8)]),
       st.integers(-LARGEST - 9, LARGEST + 9) | st.integers(-2**31, 2**31 - 1))
def test_only_what_a_client_can_draw_is_sound(kind, shape, entry):
    values = np.full(shape, entry).astype(kind)
    reply = Reply(0, 0, values, "os-entropy")
    sound = values.dtype == np.int32 and values.shape == adversary.SHAPE and abs(entry) <= LARGEST
    assert (server.fault_of_reply(reply, fed.question(0), fed.method().mechanism) is None) == sound


def test_every_answer_of_a_client_is_sound(joined):
    (client,) = joined(1, seed=None, budget=fed.OPEN)
    for turn in range(5):
        question = fed.question(turn)
        reply = Reply(0, turn, client.answer(question), client.noise)
        assert server.fault_of_reply(reply, question, fed.method().mechanism) is None


def test_a_client_counts_once(joined):
    reply = Reply(1, 0, good(), "os-entropy")
    said = []
    accepted = server.sound_replies([reply, Reply(1, 0, good(2), "os-entropy")], fed.question(0),
                                    [0, 1],
                                    fed.method().mechanism, said.append)
    assert accepted == {1: reply}
    assert said == ["round 0: the answer of client 1 is its second; dropped"]


def test_the_mean_is_over_those_who_answered():
    conversation = server.Conversation(fed.TERMS, fed.method())
    state = server.initial_state(fed.method(), fed.SEED)
    query, question = conversation.ask(state, 0)
    replies = {c: Reply(c, 0, good(c + 1), "os-entropy") for c in (0, 2)}
    state, _ = conversation.absorb(state, query, replies)
    assert np.all(state.public.seen[0] == (1 + 3) / 2) and state.step == 1


def test_a_late_or_lost_client_is_charged_and_comes_back(tmp_path, joined):
    """Its critic has learnt from the lost question, and its own ledger knows it. Bytes are counted
    round by round."""
    clients = joined()
    exchange = fed.Together(clients, lambda c, t, v: None if c == 2 and t in (1, 2) else v)
    _, rows, ledger = fed.train(tmp_path / "ledger", exchange)
    assert [row["clients"] for row in rows] == [[0, 1, 2], [0, 1], [0, 1], [0, 1, 2]]
    assert clients[2].ledger.steps_charged == 4 and ledger.steps_charged == 4
    query_bytes = sum(array.nbytes for array in fed.question(0).arrays.values())
    assert [row["bytes_sent"] for row in rows] == [3 * query_bytes] * 4
    assert [row["bytes_received"] for row in rows] == [4 * 32 * n for n in (3, 2, 2, 3)]


def test_silence_is_charged_and_ends_the_run(tmp_path, joined):
    exchange, rows = fed.Together(joined(), late), []
    with pytest.raises(UserError, match="no client gave a valid answer in 3 rounds"):
        fed.train(tmp_path / "ledger", exchange)
    ledger = fed.books(tmp_path / "ledger")
    assert ledger.steps == 3 and ledger.spent() == ((VISIT[0][0], 3),) and not rows


def test_a_client_whose_budget_is_used_up_drops_out(tmp_path, joined):
    clients = joined()[:2] + [fed.join(tmp_path / "poor", 2, budget=Budget(1.5, 1e-5))]
    said = []
    with clients[2]:
        _, rows, _ = fed.train(tmp_path / "ledger", fed.Together(clients), said=said)
        spent = clients[2].ledger.steps_charged
    assert 0 < spent < fed.STEPS
    assert [2 in row["clients"] for row in rows] == [t < spent for t in range(fed.STEPS)]
    assert "the budget, epsilon 1.5 at delta 1e-05, allows no 1 more steps" in said[0]


def test_the_servers_ledger_stops_the_run(tmp_path, joined):
    """The claim of the release is fixed before: no turn beyond it is asked."""
    exchange = fed.Together(joined(budget=fed.OPEN))
    state, rows, ledger = fed.train(tmp_path / "ledger", exchange, steps=6,
                                    budget=Budget(1.5, 1e-5))
    assert 0 < state.step == len(exchange.questions) < 6
    assert ledger.epsilon() <= 1.5 and rows[-1]["asked"] == 3


def test_a_rotation_asks_one_group_a_turn(tmp_path, joined):
    """4 clients in 2 groups: turn t asks those with u mod 2 = t mod 2, and charges every second."""
    rotating = fed.method(clients=4, n_cohorts=2)
    clients = joined(4, built=rotating)
    exchange = fed.Together(clients, lambda c, t, v: None if t == 1 else v)
    state, rows, ledger = fed.train(tmp_path / "ledger", exchange, built=rotating)
    assert exchange.questions == [(0, [0, 2]), (1, [1, 3]), (2, [0, 2]), (3, [1, 3]), (4, [0, 2])]
    assert [row["asked"] for row in rows] == [2] * 5 and state.step == 4
    assert [c.ledger.steps_charged for c in clients] == [3, 2, 3, 2]
    assert ledger.spent() == ((VISIT[0][0], 3),)  # of the most visited client


def test_the_cohort_when_a_client_is_away():
    mechanism = fed.method(clients=5, n_cohorts=2).mechanism
    assert server.queried_clients(mechanism, 0, {0, 1, 2, 4}) == [0, 2, 4]
    assert server.queried_clients(mechanism, 3, {0, 1, 2, 4}) == [1]
    assert server.queried_clients(mechanism, 0, {1, 7, -2}) == []


def test_a_precision_in_which_no_client_computes_is_refused(tmp_path):
    request = dataclasses.replace(fed.request(tmp_path / "run"),
                                  runtime=Runtime(compute="bfloat16"))
    with pytest.raises(UserError, match="compute is bfloat16, and the clients"):
        server.run(request, fed.SPEC, None)
    assert not (tmp_path / "run").exists()


def test_a_method_whose_release_cannot_be_stored_is_refused_before_a_question(
        tmp_path, joined, monkeypatch):
    """The toy releases a bare array, and no client is charged for that."""
    monkeypatch.setattr(Terms, "build", lambda terms, runtime: fed.method())
    exchange = fed.Together(joined())
    with pytest.raises(TypeError, match="`Method.finalize` returns .* cannot be released"):
        server.run(fed.request(tmp_path / "run"), adversary.SPEC, exchange)
    assert not exchange.questions and not (tmp_path / "run").exists()


def test_an_error_after_the_last_answer_leaves_a_checkpoint(tmp_path, joined, monkeypatch):
    method = dataclasses.replace(
        fed.method(), finalize=lambda key, public: {"seen": public.seen},
        sample=lambda model, key, labels: jnp.zeros((len(labels), *adversary.SPEC.shape)))
    monkeypatch.setattr(Terms, "build", lambda terms, runtime: method)
    monkeypatch.setattr(server.stages, "publish", lambda *_: 1 / 0)
    keep, calls = server.keep_state, []

    def failing(*args):
        calls.append(args)
        return keep(*args) if len(calls) > fed.STEPS else None

    monkeypatch.setattr(server, "keep_state", failing)
    with pytest.raises(ZeroDivisionError):
        server.run(fed.request(tmp_path / "run"), adversary.SPEC, fed.Together(joined()))
    assert checkpoint.steps(RunFolder(tmp_path / "run").checkpoints) == [fed.STEPS]


def test_a_server_that_was_stopped_goes_on(tmp_path, joined):
    """As if it had never stopped, but for the turn that was lost: clients are not fooled by it."""
    whole = fed.train(tmp_path / "whole", fed.Together(joined()), steps=3)[0]
    files = RunFolder(tmp_path)
    files.private.mkdir()
    (tmp_path / "again").mkdir()
    clients = [fed.join(tmp_path / "again", i) for i in range(3)]
    exchange = fed.Together(clients)
    with fed.new_ledger(tmp_path / "ledger") as ledger:
        state = server.initial_state(fed.method(), fed.SEED)
        conversation = server.Conversation(fed.TERMS, fed.method())
        server.train_rounds(conversation, state, ledger, exchange, 2, server.RoundHooks(
            on_round=lambda state, row: server.save_state(files, state, ledger)))
        ledger.reserve(VISIT, 1)  # a third question left, and the server died
        lost = fed.question(2)
        for client in clients[:2]:
            client.answer(dataclasses.replace(lost, step=2))
    with fed.Ledger.open(tmp_path / "ledger") as ledger:
        state = server.latest_state(files, server.initial_state(fed.method(), 99), ledger)
        assert state.step == 2 and state.noise == {"seeded: no privacy claim"}
        assert fed.same(state.public.seen[:2], whole.public.seen[:2])
        state = server.train_rounds(conversation, state, ledger, exchange, 3,
                                    server.RoundHooks(on_round=lambda state, row: None))
        assert state.step == 3 and exchange.questions[-1][0] == 3 and ledger.steps_charged == 4
    assert [client.ledger.steps_charged for client in clients] == [4, 4, 3]
    for client in clients:
        client.close()


def test_an_older_ledger_is_refused(tmp_path, joined):
    files = RunFolder(tmp_path)
    files.private.mkdir()
    state = server.initial_state(fed.method(), fed.SEED)
    with fed.new_ledger(tmp_path / "long") as ledger:
        ledger.reserve(VISIT, 1)
        server.save_state(files, state, ledger)
    with fed.new_ledger(tmp_path / "short") as ledger, \
            pytest.raises(UserError, match="restore the file"):
        server.latest_state(files, state, ledger)
