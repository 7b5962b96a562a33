"""A client: what it charges, refuses, repeats and survives."""

import dataclasses
import os
import shutil
import stat

import federation as fed
import jax
import numpy as np
import pytest
from planted import toy as adversary

from dpgen_jax.accountant import composition
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.journal import Journal
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation import noise
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import NoNoise
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import BudgetExceeded, ImageSpec, Private, UserError
from dpgen_jax.federated import client as federated_client
from dpgen_jax.federated.client import Seat, open_client
from dpgen_jax.private.records import keyed


def charged(root, number=0):
    """Visits in the ledger's file."""
    return fed.books(root / f"client-{number}/ledger.jsonl").steps


def remembered(client):
    return [np.asarray(a) for a in jax.tree.leaves(client._memory.unit)]


def test_an_answer_is_charged_noised_and_kept(tmp_path):
    with fed.join(tmp_path, seed=None) as client:
        answer = client.answer(fed.question(0))
        assert answer.dtype == np.int32 and answer.shape == adversary.SHAPE
        assert np.abs(answer).max() > 1  # one unit votes -1, 0 or 1: the rest is noise
        visit = fed.method().mechanism.events(1)
        assert client.ledger.spent() == visit
        assert client.ledger.epsilon() == composition.epsilon_of(visit, fed.BUDGET.delta)
        assert client.noise == "os-entropy" and client.last_round == 0
    header = books.read(tmp_path / "client-0/ledger.jsonl")[0]
    assert (header["unit"], header["relation"]) == ("client", "replace-one")
    root = tmp_path / "client-0"  # which is for its owner
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    for path in (root / "ledger.jsonl", *(root / "private").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert {p.name for p in (root / "private").iterdir()} == {
        "identity.json", "memory.safetensors", "noise_digests.txt"}


def test_noise_is_the_clients_own(tmp_path, monkeypatch):
    """The same client with seeded bits: take the noise away, and a bounded message is left."""
    with fed.join(tmp_path) as client:
        answer = client.answer(fed.question(3))
    mechanism = fed.method().mechanism
    secret = noise.SeededBits(fed.SEED).draw_for(np.array([[0]]), 3, mechanism.client_bits_shape)
    message = answer - np.asarray(mechanism.noise.sample(secret[0, 0]))
    assert np.abs(message).max() == 1 and (np.abs(message).sum(1) == adversary.TOP_K).all()


def test_a_query_sent_again_is_answered_from_memory(tmp_path):
    with fed.join(tmp_path, seed=None) as client:
        first = client.answer(fed.question(0)).copy()
        state, lines = remembered(client), client.ledger.n_lines
        assert fed.same(client.answer(fed.question(0)), first)
        assert fed.same(remembered(client), state) and client.ledger.n_lines == lines
    with fed.join(tmp_path, seed=None) as client:  # and after a restart
        assert fed.same(client.answer(fed.question(0)), first)
        assert fed.same(remembered(client), state) and client.ledger.steps_charged == 1
        later = client.answer(fed.question(5))
        assert not fed.same(later, first) and client.ledger.steps_charged == 2
        with pytest.raises(UserError, match="round 0 is over: round 5 was answered"):
            client.answer(fed.question(0))
        assert client.ledger.steps_charged == 2


def test_another_question_under_an_answered_turn_is_refused(tmp_path):
    with fed.join(tmp_path) as client:
        client.answer(fed.question(0))
        other = fed.question(0).arrays["images"] + 1
        with pytest.raises(UserError, match="round 0 was answered for another query"):
            client.answer(fed.question(0, images=other))
        assert client.ledger.steps_charged == 1


def test_a_bad_question_costs_nothing(tmp_path):
    good = fed.question(0).arrays["images"]
    cases = [
        ({"images": np.where(good == good.max(), np.nan, good)}, "images of the query is not f"),
        ({"images": good + np.inf}, "images of the query is not finite"),
        ({"images": good[:-1]}, r"images of the query is float32\[3, 8\], expected"),
        ({"images": good.astype(np.float64)}, "images of the query is float64"),
        ({"more": np.zeros(2)}, "has an array 'more', which no query")]
    malformed = [
        ({"round": -1}, "round -1 of the query"), ({"round": 2**31}, "not the number of a round"),
        ({"round": True}, "round True"), ({"step": 0.5}, "step 0.5"), ({"step": -1}, "step -1"),
        ({"arrays": {}}, "the query has no array 'images'"),
        ({"terms": "0" * 64}, "has other terms")]
    questions = [(fed.question(0, **arrays), message) for arrays, message in cases] + [
        (dataclasses.replace(fed.question(0), **fields), message) for fields, message in malformed]
    with fed.join(tmp_path) as client:
        state = remembered(client)
        for question, message in questions:
            with pytest.raises(UserError, match=message):
                client.answer(question)
            assert client.ledger.steps_charged == 0 and fed.same(remembered(client), state)
            assert client.last_round == federated_client.NEVER


def test_the_clients_own_budget_decides(tmp_path):
    """Whatever the server asks: the ledger stops at the epsilon that the client chose."""
    with fed.join(tmp_path, budget=Budget(2.0, 1e-5)) as client:
        for turn in range(100):
            try:
                client.answer(fed.question(turn))
            except BudgetExceeded:
                break
        spent, visit = client.ledger.spent(), fed.method().mechanism.events(1)
        assert turn == spent[0][1] > 0
        assert composition.epsilon_of(spent, 1e-5) <= 2 < composition.epsilon_of((*spent, *visit),
                                                                                 1e-5)
        state = remembered(client)
        with pytest.raises(BudgetExceeded, match="allows no 1 more steps"):
            client.answer(fed.question(turn + 1))
        assert fed.same(client.answer(fed.question(turn - 1)), client.answer(
            fed.question(turn - 1)))  # the last answer is still there, at no cost
        assert fed.same(remembered(client), state) and client.ledger.spent() == spent


def test_terms_without_noise_are_never_answered(tmp_path):
    quiet = dataclasses.replace(fed.method().mechanism, noise=NoNoise())
    built = dataclasses.replace(fed.method(), mechanism=quiet)
    with fed.join(tmp_path, built=built) as client, pytest.raises(BudgetExceeded, match="inf"):
        client.answer(fed.question(0))


def test_noise_at_the_server_is_refused(tmp_path):
    mechanism = adversary.build()
    assert isinstance(mechanism.mechanism, SumMechanism)
    with pytest.raises(UserError, match="add noise at the server"):
        fed.join(tmp_path, built=mechanism)
    assert not (tmp_path / "client-0").exists()


def test_no_single_question_locks_the_client_out(tmp_path):
    """A round that the terms cannot come to is refused, uncharged; the next ones are answered."""
    with fed.join(tmp_path) as client:
        client.answer(fed.question(2))
        for turn in (2**31 - 1, 1_000_000, 2 * fed.STEPS + 3):
            with pytest.raises(UserError, match=f"round {turn} is further ahead than 4 steps "):
                client.answer(fed.question(turn))
            assert client.ledger.steps_charged == 1 and client.last_round == 2
        client.answer(fed.question(3))
        client.answer(fed.question(3 + 2 * fed.STEPS))  # it was away for long
        assert client.ledger.steps_charged == 3


class Crash(BaseException):
    """The process ends here."""


MOMENTS = [("reserve", Ledger, 0, False), ("draw_for", noise.OsBits, 1, False),
           ("write_memory", federated_client, 1, False), ("replace", os, 1, False),
           ("sync", federated_client, 1, True),
           ("settle", Ledger, 1, True)]


@pytest.mark.parametrize(("name", "owner", "cost", "kept"), MOMENTS, ids=[m[0] for m in MOMENTS])
def test_a_crash_can_only_over_count(tmp_path, monkeypatch, name, owner, cost, kept):
    """cost: what is charged for the lost answer; kept: whether a restart still gives it."""
    with fed.join(tmp_path, seed=None) as client:
        client.answer(fed.question(0))
        before, answers = remembered(client), []
        with monkeypatch.context() as patch:
            def crash(*_, **__):
                raise Crash

            patch.setattr(owner, name, crash)
            with pytest.raises(Crash):
                answers.append(client.answer(fed.question(1)))
        assert not answers  # nothing left the client
    assert charged(tmp_path) == 1 + cost
    with fed.join(tmp_path, seed=None) as client:
        assert (client.last_round == 1) == kept
        assert kept != fed.same(remembered(client), before)
        learnt = remembered(client)
        first = client.answer(fed.question(1)).copy()
        assert charged(tmp_path) == 1 + cost + (not kept)
        assert not kept or fed.same(remembered(client), learnt)
        assert fed.same(client.answer(fed.question(1)), first)


def test_a_crash_before_the_answer_gives_the_same_seeded_answer(tmp_path, monkeypatch):
    with fed.join(tmp_path / "whole") as client:
        wanted = client.answer(fed.question(0)).copy()
    with fed.join(tmp_path) as client, monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "disk full")))
        with pytest.raises(UserError, match=r"memory.safetensors cannot be written \(disk full\)"):
            client.answer(fed.question(0))
    with fed.join(tmp_path) as client:
        assert fed.same(client.answer(fed.question(0)), wanted)
        assert client.ledger.steps_charged == 2


def test_a_folder_goes_on_as_it_was_started(tmp_path):
    with fed.join(tmp_path) as client:
        client.answer(fed.question(0))
    before = charged(tmp_path)
    for options, message in (
            ({"data": fed.records(1, adversary.SPEC)}, "the records are not those"),
            ({"budget": Budget(9.0, 1e-5)}, "budget.epsilon was 8.0, now 9.0"),
            ({"terms": dataclasses.replace(fed.TERMS, config=fed.config(batch=8))},
             "config.batch was 4, now 8"),
            ({"seed": 8}, "seed was 7, now 8")):
        with pytest.raises(UserError, match=message):
            fed.join(tmp_path, **options)
        assert charged(tmp_path) == before


def test_a_folder_belongs_to_one_client_and_one_process(tmp_path):
    with fed.join(tmp_path), pytest.raises(UserError, match="another process is using"):
        fed.join(tmp_path)
    with pytest.raises(UserError, match="is the folder of client 0, not of client 1"):
        open_client(tmp_path / "client-0", fed.TERMS, fed.records(0, adversary.SPEC), fed.BUDGET,
                    seat=Seat(1, fed.SEED), method=fed.method())


@pytest.mark.parametrize(("number", "options", "message"), [
    (0, {"data": fed.records(0, adversary.SPEC, n=0)}, "has no records"),
    (0, {"data": fed.records(0, ImageSpec(4, 4, 1, 2))}, "the federation's are"),
    (3, {}, "client 3 of a federation of 3"),
    (-1, {"data": fed.records(0, adversary.SPEC)}, "client -1 of a federation of 3"),
    (0, {"budget": Budget(0.0, 1e-5)}, "epsilon must be above 0"),
    (0, {"budget": Budget(1.0, 2.0)}, "delta must lie strictly between 0 and 1")])
def test_who_cannot_join(tmp_path, number, options, message):
    with pytest.raises(UserError, match=message):
        fed.join(tmp_path, number, **options)
    assert not (tmp_path / f"client-{number}").exists()


def test_spent_budget_is_not_forgotten(tmp_path):
    """Neither with a ledger that is gone, nor with an older copy of it."""
    ledger = tmp_path / "client-0/ledger.jsonl"
    with fed.join(tmp_path) as client:
        client.answer(fed.question(0))
    early = ledger.read_bytes()
    with fed.join(tmp_path) as client:
        client.answer(fed.question(1))
    late = ledger.read_bytes()
    ledger.write_bytes(early)
    with pytest.raises(UserError, match="spent budget would be forgotten"):
        fed.join(tmp_path)
    ledger.unlink()
    with pytest.raises(UserError, match="its spending is not known"):
        fed.join(tmp_path)
    ledger.write_bytes(late)
    copy = shutil.copytree(tmp_path / "client-0", tmp_path / "copy/client-0").parent
    with fed.join(copy) as client:
        client.answer(fed.question(2))
    with pytest.raises(UserError, match="an older state or a copy"):
        fed.join(tmp_path)
    tmp_path = copy
    memory = tmp_path / "client-0/private/memory.safetensors"
    memory.write_bytes(memory.read_bytes()[:-5])
    with pytest.raises(UserError, match="memory.safetensors is damaged"):
        fed.join(tmp_path)


def test_a_refusal_says_nothing_of_the_records(tmp_path, monkeypatch, caplog):
    with fed.join(tmp_path, budget=Budget(0.01, 1e-5)) as client:
        question = fed.question(0)
        about = {"turn": 0, "step": 0, "terms": question.terms}
        said, arrays = client.reply(about, question.arrays)
        assert said["refused"] == "no budget" and not arrays

        def leak(*_):
            raise RuntimeError("record 17 is of class 2")

        monkeypatch.setattr(client, "_checked", leak)
        said, arrays = client.reply(about, question.arrays)
        assert said.pop("terms") == fed.TERMS.digest  # any digits
        assert said["refused"] == "refused" and not arrays and "17" not in str(said)
        assert "record 17" in caplog.text  # the data holder's own output
        said, arrays = client.reply({"turn": 0, "terms": "x"}, {})
        assert said["terms"] == fed.TERMS.digest and not arrays
        assert client.ledger.steps_charged == 0


def test_a_clients_data_are_known_by_their_file(tmp_path, journal):
    """`train` holds a part of the same file out, so that its records have another fingerprint."""
    data = dataclasses.replace(fed.records(0, adversary.SPEC), content="of the file")
    fed.join(tmp_path, data=data, seed=None).ledger.close()
    book = Journal(journal)
    (run,) = book.on("", keyed(Private("of the file"), book.key))
    assert (run.unit, run.target) == ("client", fed.BUDGET.epsilon)
