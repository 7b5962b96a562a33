"""A ledger that was edited or damaged is refused; a torn last line is charged."""

import os

import pytest
from ledgers import COUNTS, HEADER, OTHER, STEP, block, half_then_full, refuses_to_resume

from dpgen_jax.accountant import composition, ledger
from dpgen_jax.accountant.events import GaussianEvent
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core.errors import BudgetExceeded, UserError


def test_missing_and_empty(path):
    refuses_to_resume(path, "No such file")
    path.touch()
    refuses_to_resume(path, "header, is missing")


def test_every_flipped_bit_is_noticed(crashed):
    data = crashed.read_bytes()
    ends = [i for i, byte in enumerate(data) if byte == ord("\n")]
    for position in sorted({*range(0, len(data), 7), *ends[:-1]}):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        crashed.write_bytes(damaged)
        number = 1 + sum(end < position for end in ends)
        refuses_to_resume(crashed, f"line {number} is broken")
    crashed.write_bytes(data[:-1] + b"\x0b")  # the last newline: no longer whole, so charged anew
    with Ledger.open(crashed) as book:
        assert book.steps_charged == 17


@pytest.mark.parametrize("edit", [
    lambda lines: lines[1:],
    lambda lines: lines[:1] + lines[2:],
    lambda lines: [lines[0], lines[2], lines[1], lines[3]],
    lambda lines: lines[:2] + lines[1:],
    lambda lines: [lines[0].replace(b"1.0", b"9.0"), *lines[1:]],
    lambda lines: [*lines[:3], lines[3].replace(b'"count":5', b'"count":1')],
    lambda lines: [*lines, b"\n"],
    lambda lines: [*lines, b"[]\n"],
    lambda lines: [*lines, b"[" * 100_000 + b"\n"]])
def test_edits_are_noticed(crashed, edit):
    crashed.write_bytes(b"".join(edit(crashed.read_bytes().splitlines(keepends=True))))
    refuses_to_resume(crashed, "line . is broken")


def rewrite(path, change):
    """The records changed, in a chain that is sound."""
    records, previous, data = ledger.read(path), ledger.CHAIN_START, b""
    change(records)
    for record in records:
        line, previous = ledger.chained_line(previous, record)
        data += line
    path.write_bytes(data)


@pytest.mark.parametrize("change", [
    lambda records: records[1].update(id=3),
    lambda records: records[2].update(steps=11),
    lambda records: records[2].update(id=1),
    lambda records: records[2].update(kind="refund"),
    lambda records: records[2].pop("kind"),
    lambda records: records[1]["events"][0].update(count=-10),
    lambda records: records[1]["events"][0].update(sigma=0.0),
    lambda records: records[1]["events"][0].update(kind="none"),
    lambda records: records[1]["events"][0].update(more=1),
    lambda records: records.insert(1, records[0]),
    lambda records: records.insert(1, {"kind": "open", "incarnation": 2}),
    lambda records: records[0].update(delta=0),
    lambda records: records[0].update(epsilon="nan")])
def test_a_sound_chain_of_nonsense_is_refused(crashed, change):
    rewrite(crashed, change)
    refuses_to_resume(crashed, "line . is broken")


def test_every_flipped_bit_of_the_other_kinds_is_noticed(extended):
    data = extended.read_bytes()
    for position in range(0, len(data) - 1, 5):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        extended.write_bytes(damaged)
        refuses_to_resume(extended, "line . is broken")


@pytest.mark.parametrize("edit", [
    lambda lines: lines[:1] + lines[2:],
    lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    lambda lines: lines[:4] + lines[5:],
    lambda lines: [*lines[:4], lines[4].replace(b"3.0", b"9.0"), lines[5]],
    lambda lines: [lines[0], lines[1].replace(b"0.01", b"0.00"), *lines[2:]]])
def test_edits_of_the_other_kinds_are_noticed(extended, edit):
    extended.write_bytes(b"".join(edit(extended.read_bytes().splitlines(keepends=True))))
    refuses_to_resume(extended, "line . is broken")


@pytest.mark.parametrize("change", [
    lambda records: records[4].update(epsilon=1.0),
    lambda records: records[4].update(epsilon="inf"),
    lambda records: records[4].update(epsilon="nan"),
    lambda records: records[4].pop("epsilon"),
    lambda records: records.insert(5, records[4]),
    lambda records: records.insert(0, records[4]),
    lambda records: records[1].update(events=[]),
    lambda records: records[1]["events"][0].update(count=-1),
    lambda records: records[1]["events"][0].update(epsilon=-0.5),
    lambda records: records[1]["events"][0].update(delta=1.5),
    lambda records: records[1]["events"][0].update(kind="renyi")])
def test_a_sound_chain_of_nonsense_of_the_other_kinds_is_refused(extended, change):
    rewrite(extended, change)
    refuses_to_resume(extended, "line . is broken")


@pytest.mark.parametrize("last", [2, 5], ids=["charge", "extend"])
def test_the_other_kinds_cut_at_any_byte(extended, last):
    """A torn charge costs what it names if that can be read, a torn extension extends nothing."""
    lines = extended.read_bytes().splitlines(keepends=True)[:last]
    whole, start = b"".join(lines), len(b"".join(lines[:-1]))
    for cut in [*range(start + 1, len(whole) - 1, 7), len(whole) - 2]:
        extended.write_bytes(whole[:cut])
        with Ledger.open(extended) as book:
            assert book.target == 1.0
            readable = whole[start:cut].startswith(b'{"events":') and b"]" in whole[start:cut]
            if last == 2:
                assert dict(book.spent()) == ({COUNTS: 2} if readable else {})
                assert book.steps_charged == 1
            else:
                assert dict(book.spent()) == {COUNTS: 2, STEP: 7 + 10}
                assert book.steps_charged == 17
    extended.write_bytes(whole[:-1])  # only the newline is missing: whole, as the hash proves
    with Ledger.open(extended) as book:
        assert book.target == (1.0 if last == 2 else 3.0) and dict(book.spent())[COUNTS] == 2


def test_a_torn_step_of_many_queries_is_one_block(path):
    """Identical events of one step, thousands of them, are no steps."""
    query, test = GaussianEvent(1e5, 2), GaussianEvent(3e5, 1)
    with Ledger.create(path, HEADER) as book:
        for events, steps in ((((query, 600), (test, 300)), 2), (((query, 300), (test, 900)), 1)):
            book.settle(book.reserve(events, steps), events, steps)
    with open(path, "ab") as file:
        file.write(b'{"events":[{"')
    with Ledger.open(path) as book:
        assert book.steps_charged == 3 + 2
        assert dict(book.spent()) == {query: 900 + 600, test: 1200 + 900}


def test_a_cut_header_is_no_ledger(path):
    Ledger.create(path, HEADER).close()
    path.write_bytes(path.read_bytes()[:-20])
    refuses_to_resume(path, "line 1 is broken")


# torn last line

def test_a_cut_at_any_byte_is_charged(crashed):
    """The last line reserves 5 more on 7; the largest block before it was 10."""
    data = crashed.read_bytes()
    start = data.rstrip(b"\n").rindex(b"\n") + 1
    for cut in [*range(start + 1, len(data), 5), len(data) - 2, len(data) - 1]:
        crashed.write_bytes(data[:cut])
        listed = ledger.read(crashed)
        with Ledger.open(crashed) as book:
            # only the newline is missing: the line is whole; otherwise the largest is charged
            expected = 12 if cut == len(data) - 1 else 17
            assert book.steps_charged == expected and book.spent() == block(expected)
        kinds = [record["kind"] for record in ledger.read(crashed)]
        assert kinds[3:] == (["reserve", "open"] if expected == 12 else ["torn", "open"])
        assert [record["kind"] for record in listed] == kinds[:-1]
        assert crashed.read_bytes().endswith(b"\n")


def test_the_torn_bytes_are_kept(crashed):
    whole = crashed.read_bytes()
    crashed.write_bytes(whole + b"\0\xff garbage")
    with Ledger.open(crashed) as book:
        assert book.steps_charged == 12
    torn = ledger.read(crashed)[-2]
    assert torn["kind"] == "torn" and torn["raw"] == "AP8gZ2FyYmFnZQ=="
    assert crashed.read_bytes().startswith(whole)


def test_a_readable_torn_reservation_is_charged_if_larger(path):
    with Ledger.create(path, HEADER) as book:
        book.settle(book.reserve(block(2), 2), block(2), 2)
        book.reserve(block(9, OTHER), 9)
    path.write_bytes(path.read_bytes()[:-30])
    with Ledger.open(path) as book:
        # of each event what any reservation had; the steps of the torn one can no longer be read
        assert dict(book.spent()) == {STEP: 4, OTHER: 9} and book.steps_charged == 4


def test_a_torn_line_may_use_up_the_budget_and_more(path):
    """The run may then state only what is charged, and not the target."""
    with Ledger.create(path, HEADER) as book:
        book.settle(book.reserve(block(100), 100), block(100), 100)
        assert book.claim() == 1.0
    with open(path, "ab") as file:
        file.write(b"{")
    with Ledger.open(path) as book:
        assert book.steps_charged == 200 and book.claim() == book.epsilon() > 1
        with pytest.raises(BudgetExceeded):
            book.reserve(block(1), 1)
    account = ledger.account(ledger.read(path))
    assert account.claim() == composition.epsilon_of(block(200), HEADER["delta"])


@pytest.mark.parametrize("lives", [1, 4])
def test_a_torn_settlement_costs_nothing_more_than_its_reservation(path, lives):
    """Killed in every settlement, again and again: what was drawn is charged once, and the ledger
    never goes beyond the target."""
    most = 149  # steps that HEADER's epsilon allows
    Ledger.create(path, HEADER).close()
    for life in range(lives):
        with Ledger.open(path) as book:
            size = most // lives if life else most - (lives - 1) * (most // lives)
            ticket = book.reserve(block(size), size)
            before = path.stat().st_size
            book.settle(ticket, block(size), size)
        whole = path.read_bytes()
        path.write_bytes(whole[:before + (1 + life) * (len(whole) - before) // (2 + lives)])
    with Ledger.open(path) as book:
        assert book.spent() == block(most) and book.steps_charged == most
        assert book.claim() == book.target and book.epsilon() <= 1


def test_a_line_torn_while_recovering_is_charged_once(crashed):
    """The write of a torn line's record, and of the `open` after it, torn in their turn."""
    lines = crashed.read_bytes().splitlines(keepends=True)
    crashed.write_bytes(b"".join(lines[:-1]) + lines[-1][:40])  # nothing is open: it is charged
    start = len(b"".join(lines[:-1]))
    Ledger.open(crashed).close()
    recovered = crashed.read_bytes()
    end = recovered.index(b"\n", start) + 1
    for cut in (end - 20, end - 1, end, end + 30, len(recovered) - 1):
        crashed.write_bytes(recovered[:cut])
        for _ in range(2):
            with Ledger.open(crashed) as book:
                assert book.steps_charged == 17 and book.spent() == block(17)


def test_a_torn_line_with_nothing_before_counts_a_step(path):
    Ledger.create(path, HEADER).close()
    with open(path, "ab") as file:
        file.write(b'{"ev')
    with Ledger.open(path) as book:
        assert book.steps_charged == 1 and book.spent() == ()


def test_a_line_torn_before_the_declaration_is_no_round(path):
    """It counted a step, after which nothing could be declared: a bought run never went on."""
    with Ledger.create(path, HEADER | {"config_hash": ""}) as book:
        book.charge(((COUNTS, 1),))
    for tail in (b'{"config_hash":"a', b'{"hash":', b'{"ev', b"\0"):
        with path.open("ab") as file:
            file.write(tail)
        with Ledger.open(path) as book:
            assert book.steps_charged == 0 and book.spent() == ((COUNTS, 1),)
    with Ledger.open(path) as book:
        book.declare("abc")
    with path.open("ab") as file:
        file.write(b'{"ev')
    with Ledger.open(path) as book:
        assert book.steps_charged == 1


def test_a_crash_while_recovering_loses_nothing(crashed, monkeypatch):
    crashed.write_bytes(crashed.read_bytes()[:-30])
    torn = crashed.read_bytes()
    real = os.pwrite
    for kept in (0, 1, 40, 200, 400):
        crashed.write_bytes(torn)
        monkeypatch.setattr(os, "pwrite", half_then_full(kept, real))
        with pytest.raises(UserError, match="cannot be written"):
            Ledger.open(crashed)
        monkeypatch.setattr(os, "pwrite", real)
        with Ledger.open(crashed) as book:
            assert book.steps_charged == 17
