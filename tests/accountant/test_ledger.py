"""The ledger: the steps that it counts, the charges, the promises, and the files that it writes."""

import hashlib
import json
import math
import os

import pytest
from ledgers import COUNTS, DELTA, HEADER, OTHER, STEP, block, half_then_full

from dpgen_jax.accountant import composition, ledger
from dpgen_jax.accountant.composition import max_steps
from dpgen_jax.accountant.events import EpsilonDeltaEvent, NonPrivateEvent, RenyiEvent
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core.errors import BudgetExceeded, UserError


def test_reserve_and_settle(path):
    with Ledger.create(path, HEADER) as book:
        assert book.spent() == () and book.epsilon() == 0 and book.steps_charged == 0
        first, second = book.reserve(block(10), 10), book.reserve(block(4, OTHER), 4)
        assert dict(book.spent()) == {STEP: 10, OTHER: 4} and book.steps_charged == 14
        book.settle(first, block(7), 7)
        assert dict(book.spent()) == {STEP: 7, OTHER: 4} and book.steps_charged == 11
        book.settle(second, (), 0)
        assert book.spent() == block(7) and book.steps_charged == 7
        assert book.epsilon() == composition.epsilon_of(block(7), DELTA)
        assert book.header == HEADER and book.incarnation == 0 and book.n_lines == 5
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_several_events_in_one_step(path):
    with Ledger.create(path, HEADER) as book:
        both = ((STEP, 6), (OTHER, 2), (STEP, 1))
        book.settle(book.reserve(both, 6), ((OTHER, 1), (STEP, 7)), 6)
        assert dict(book.spent()) == {STEP: 7, OTHER: 1}


@pytest.mark.parametrize("events, steps", [
    (block(11), 10), (block(10), 11), (block(1, OTHER), 1), (block(10) + block(1), 10)])
def test_settling_for_more_is_refused(path, events, steps):
    with Ledger.create(path, HEADER) as book:
        reservation = book.reserve(block(10), 10)
        with pytest.raises(ValueError, match="more than was reserved"):
            book.settle(reservation, events, steps)
        assert book.spent() == block(10) and book.n_lines == 2
        book.settle(reservation, block(10), 10)
        with pytest.raises(ValueError, match="not open"):
            book.settle(reservation, block(1), 1)


@pytest.mark.parametrize("events, steps", [
    ((), 0), ((), True), (block(1), 0), (block(-1), 1), (block(1), True), (block(1.5), 1)])
def test_reserving_no_step_is_refused(path, events, steps):
    with Ledger.create(path, HEADER) as book:
        with pytest.raises((ValueError, TypeError)):
            book.reserve(events, steps)
        assert book.n_lines == 1 and book.reserve(block(1), 1) == 0


@pytest.mark.parametrize("events", [(), block(0)])
def test_steps_that_were_paid_for_before_are_counted_and_cost_nothing(path, events):
    with Ledger.create(path, HEADER) as book:
        book.settle(book.reserve(block(1), 1), block(1), 1)
        book.settle(book.reserve(events, 2), events, 2)
        assert book.reserve(events, 3) == 2
    with Ledger.open(path) as book:  # the last three were lost
        assert book.steps_charged == 6 and book.spent() == block(1)
        with pytest.raises(ValueError, match="not open"):
            book.settle(2, (), 0)
        late = book.reserve(events, 1)
        with pytest.raises(ValueError, match="more than was reserved"):
            book.settle(late, block(1), 1)


def test_the_budget_is_enforced_to_the_step(path):
    most = max_steps(STEP, 1.0, DELTA)
    with Ledger.create(path, HEADER) as book:
        for _ in range(most // 10):
            reservation = book.reserve(block(10), 10)
            book.settle(reservation, block(10), 10)
        book.reserve(block(most % 10), most % 10)
        assert most == 149 and book.steps_charged == 149 and book.epsilon() <= 1
        before = path.read_bytes()
        with pytest.raises(BudgetExceeded, match="1.00114"):
            book.reserve(block(1), 1)
        assert path.read_bytes() == before


def test_no_noise_needs_an_infinite_budget(path, tmp_path):
    release = ((NonPrivateEvent(), 1),)
    with Ledger.create(path, HEADER) as book, pytest.raises(BudgetExceeded):
        book.reserve(release, 1)
    free = tmp_path / "free.jsonl"
    with Ledger.create(free, {**HEADER, "epsilon": math.inf}) as book:
        book.reserve(release, 1)
        assert book.epsilon() == math.inf and book.header["epsilon"] == math.inf
    assert json.loads(free.read_text().splitlines()[0])["epsilon"] == "inf"
    with Ledger.open(free) as book:
        assert book.epsilon() == math.inf


def test_a_wrong_count_would_show(path):
    """The charge of a known run, against numbers that a forgetful ledger would give."""
    with Ledger.create(path, {**HEADER, "epsilon": 10}) as book:
        for _ in range(3):
            book.reserve(((STEP, 40), (OTHER, 5)), 40)
        right = composition.epsilon_of(((STEP, 120), (OTHER, 15)), DELTA)
        assert book.epsilon() == right
        for slip in (((STEP, 40), (OTHER, 5)), block(120), ((STEP, 119), (OTHER, 15))):
            assert composition.epsilon_of(slip, DELTA) < right


# releases that are no steps, and a larger target

def test_a_charge_is_no_step_and_is_for_good(path):
    with Ledger.create(path, HEADER) as book:
        book.charge(((COUNTS, 1), (EpsilonDeltaEvent(0.1, 1e-6), 1)))
        assert book.steps_charged == 0 and book.epsilon() == pytest.approx(0.11)
        assert book.reserve(block(3), 3) == 0
        with pytest.raises(ValueError, match="at least one event"):
            book.charge(((COUNTS, 0),))
    with Ledger.open(path) as book:
        assert dict(book.spent())[COUNTS] == 1 and book.steps_charged == 3
    assert [record["kind"] for record in ledger.read(path)] == [
        "header", "charge", "reserve", "open"]


def test_a_charge_is_on_disk_and_within_the_budget(path, monkeypatch):
    with Ledger.create(path, HEADER) as book:
        before = path.read_bytes()
        with pytest.raises(BudgetExceeded, match="no release of epsilon-delta.*epsilon 1.1"):
            book.charge(((EpsilonDeltaEvent(1.1), 1),))
        assert path.read_bytes() == before
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", half_then_full(50, os.pwrite))
            with pytest.raises(UserError, match="nothing may be drawn"):
                book.charge(((COUNTS, 1),))
        assert book.spent() == () and path.read_bytes() == before
        book.charge(((COUNTS, 1),))
        assert ledger.account(ledger.read(path)).spent() == ((COUNTS, 1),)
        assert max_steps(STEP, 1.0, DELTA, spent=book.spent()) == 146
        book.reserve(block(146), 146)
        with pytest.raises(BudgetExceeded):
            book.reserve(block(1), 1)


def test_an_extension_raises_the_target_from_then_on(path):
    with Ledger.create(path, HEADER) as book:
        book.reserve(block(149), 149)
        with pytest.raises(BudgetExceeded, match="epsilon 1 at"):
            book.reserve(block(1), 1)
        for epsilon in (0.5, 1.0, math.nan, math.inf):
            with pytest.raises(UserError, match="already has epsilon 1;"):
                book.extend(epsilon)
        book.extend(1.25)
        assert book.target == 1.25 and book.header == HEADER
        book.reserve(block(1), 1)
    with Ledger.open(path) as book:
        assert book.target == 1.25 and book.header["epsilon"] == 1.0
        most = max_steps(STEP, 1.25, DELTA, spent=book.spent())
        book.reserve(block(most), most)
        with pytest.raises(BudgetExceeded, match="epsilon 1.25 at"):
            book.reserve(block(1), 1)
        book.extend(2)
        book.reserve(block(1), 1)
    account = ledger.account(ledger.read(path))
    assert account.target == 2.0 and account.header["epsilon"] == 1.0


def test_without_a_budget_there_is_nothing_to_extend(path):
    with Ledger.create(path, {**HEADER, "epsilon": math.inf}) as book, pytest.raises(UserError):
        book.extend(2)


def test_all_kinds_of_events_are_kept(path):
    every = ((STEP, 2), (COUNTS, 3), (RenyiEvent(8, 0.01, "test"), 1))
    with Ledger.create(path, {**HEADER, "epsilon": 2}) as book:
        book.settle(book.reserve(every, 2), every[1:], 1)
        assert book.spent() == every[1:]
    with Ledger.open(path) as book:
        assert book.spent() == every[1:] and book.epsilon() == composition.epsilon_of(every[1:],
                                                                                      DELTA)


# files

def test_an_existing_file_is_never_replaced(path):
    Ledger.create(path, HEADER).close()
    with pytest.raises(UserError, match="exists"):
        Ledger.create(path, HEADER)
    with pytest.raises(UserError, match="cannot be created"):
        Ledger.create(path.parent / "no" / "ledger.jsonl", HEADER)


@pytest.mark.parametrize("header", [
    {**HEADER, "epsilon": 0}, {**HEADER, "epsilon": math.nan}, {**HEADER, "delta": 1},
    {**HEADER, "prev": ""}, {**HEADER, "note": math.inf}, {**HEADER, "epsilon": -1}])
def test_a_bad_header_leaves_no_file(path, header):
    with pytest.raises(ValueError):
        Ledger.create(path, header)
    assert not path.exists()


def test_lines_are_strict_json_in_a_chain(crashed):
    previous = "0" * 64
    for text in crashed.read_text().splitlines():
        row = json.loads(text, parse_constant=pytest.fail)
        assert row.pop("prev") == previous
        claimed = row.pop("hash")
        body = json.dumps(row, sort_keys=True, separators=(",", ":"))
        assert claimed == hashlib.sha256((previous + body).encode()).hexdigest()
        previous = claimed
    assert [record["kind"] for record in ledger.read(crashed)] == [
        "header", "reserve", "settle", "reserve"]


def test_resume_starts_a_new_incarnation_on_disk(crashed):
    for incarnation in (1, 2):
        with Ledger.open(crashed) as book:
            assert book.incarnation == incarnation
            last = json.loads(crashed.read_text().splitlines()[-1])
            assert (last["kind"], last["incarnation"]) == ("open", incarnation)
            assert last["hash"] == book.head
            assert book.spent() == block(12) and book.steps_charged == 12
            with pytest.raises(ValueError, match="not open"):
                book.settle(1, block(1), 1)  # lost steps stay charged
    with Ledger.open(crashed) as book:
        book.settle(book.reserve(block(3), 3), block(3), 3)
        assert book.steps_charged == 15


def test_read_gives_the_same_totals(crashed):
    account = ledger.account(ledger.read(crashed))
    assert account.spent() == block(12) and account.steps == 12
    assert account.epsilon() == composition.epsilon_of(block(12), DELTA)
    assert account.header["config_hash"] == "abc"


def test_a_checkpoint_head_is_a_prefix(path):
    with Ledger.create(path, HEADER) as book:
        book.reserve(block(1), 1)
        head, n_lines = book.head, book.n_lines
        book.reserve(block(1), 1)
        assert book.contains(head, n_lines) and book.contains(book.head, book.n_lines)
        assert not book.contains(head, n_lines + 1) and not book.contains(head, n_lines + 2)
        assert not book.contains(book.head, 0) and not book.contains("0" * 64, 1)
    with Ledger.open(path) as book:
        assert book.contains(head, n_lines)


def test_the_bound_of_a_run_that_judges_is_not_that_of_the_run_it_judges(tmp_path):
    """A run that published its own is finished; one that has paid for another's goes on."""
    bound = RenyiEvent(20.0, 0.1)
    for name, kinds in (("own", "reserve charge"), ("judge", "charge reserve"), ("no", "reserve")):
        with Ledger.create(tmp_path / name, HEADER) as book:
            for kind in kinds.split():
                if kind == "charge":
                    book.charge(((bound, 1),))
                else:
                    book.settle(book.reserve(block(1), 1), block(1), 1)
        assert ledger.published(ledger.read(tmp_path / name)) == (bound if name == "own" else None)
    whole = (tmp_path / "own").read_bytes()
    (tmp_path / "own").write_bytes(whole[:-20])  # a torn line may have been acted on
    assert ledger.published(ledger.read(tmp_path / "own")) == bound


def test_the_processes_of_every_start_are_kept(path):
    Ledger.create(path, HEADER).close()
    for now, most in ((1, 1), (3, 3), (2, 3)):
        with Ledger.open(path, processes=now) as book:
            assert book.processes == most
    assert ledger.account(ledger.read(path)).processes == 3
