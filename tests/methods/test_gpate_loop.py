"""G-PATE through the real loop, on images and on a table: what one record changes, and what a whole
run keeps of its votes."""

import dataclasses
import functools
import math
import stat
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import toy
from gpates import CONFIG, KEY, QUERIES, TABLE, rows

from dpgen_jax import api, data_dependent, loop
from dpgen_jax.accountant import ledger
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.config import Budget, Runtime
from dpgen_jax.data import Dataset
from dpgen_jax.methods import gpate
from dpgen_jax.private import partition
from dpgen_jax.private import votes as log
from dpgen_jax.private.teachers import Units
from dpgen_jax.run import pictures
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.types import Array, Private, UserError, unseal

# A public state with `told` 0 hears zeros, whatever was released.

@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Told:
    inner: Any
    told: Array


def tell(method):
    def absorb(key, public, query, released):
        inner, metrics = method.absorb(key, public.inner, query, public.told * released)
        return Told(inner, public.told), metrics

    return dataclasses.replace(
        method, absorb=absorb, init=lambda key: Told(method.init(key), jnp.float32(1)),
        ask=lambda key, public: method.ask(key, public.inner),
        refine=lambda key, public: method.refine(key, public.inner))


SPECS = {"table": TABLE, "image": toy.SPEC}
DATA = {"table": rows(), "image": toy.images(23)}
LOOPED = {kind: tell(gpate.build(CONFIG, spec)) for kind, spec in SPECS.items()}
WHERE = toy.layout(chunk=1, units=5)
RECORD = 11
OWNER = int(np.argwhere(partition.assign(23, 5, toy.KEY).index == RECORD)[0][0])
block = functools.cache(loop.compile_block)  # what is compared are runs of one program


@functools.cache
def fresh(kind):
    """A state before the first step, on the host: random weights, and the rest zeros."""
    method, rng = LOOPED[kind], np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: (method.init(KEY), method.init_unit(KEY)))
    public, _ = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes)
    params = jax.tree.map(lambda a: rng.normal(0, 0.1, a.shape).astype(np.float32),
                          public.inner.params)
    public = Told(dataclasses.replace(public.inner, params=params, average=params), np.float32(1))
    weights, adam = jax.tree.map(lambda a: np.zeros((5, *a.shape), a.dtype), shapes[1])
    weights = jax.tree.map(lambda a: rng.normal(0, 0.1, a.shape).astype(np.float32), weights)
    keys = np.asarray(jax.random.key_data(jax.random.split(KEY, 5)))
    return public, Units((weights, adam), keys, np.arange(5, dtype=np.int32),
                         np.zeros(5, np.uint8)), KEY


def start(kind, told=1.0):
    public, units, key = fresh(kind)
    public = dataclasses.replace(public, told=np.float32(told))
    return loop.State(jax.device_put(public, WHERE.replicated), tiny.lay(units, WHERE), key)


def train(path, kind, data, told=1.0, steps=4):
    """The real loop and ledger: (public, units, the kept sums of every step, what was spent)."""
    votes = path / "votes"
    with Ledger.create(path / "ledger", {"epsilon": math.inf, "delta": 1e-5}) as held, \
            pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "compile_block", block)
        state = loop.train(
            LOOPED[kind], toy.placed(*data, WHERE, SPECS[kind]), start(kind, told), WHERE, held,
            SeededBits(0), steps=steps, steps_per_call=2, on_block=lambda state, metrics: None,
            keep=functools.partial(log.append, votes))
        return *toy.held(state, WHERE), read(votes), held.spent()


def read(path):
    return unseal(log.read(path, QUERIES, CONFIG.bins))


def neighbour(kind):
    """The content and the label of one record replaced."""
    x, y = (a.copy() for a in DATA[kind])
    x[RECORD] = 255 - x[RECORD] if kind == "image" else rows(1, seed=9)[0][0]
    y[RECORD] = (y[RECORD] + 1) % 3
    return x, y


@pytest.mark.parametrize("kind", SPECS)
def test_one_record_changes_one_unit_one_vote_and_no_public_state(tmp_path, kind):
    runs = []
    for name, data in (("a", DATA[kind]), ("b", neighbour(kind))):
        (tmp_path / name).mkdir()
        runs.append(train(tmp_path / name, kind, data, told=0.0))
    (public, units, votes, _), (public2, units2, votes2, _) = runs
    assert toy.equal(public, public2) and int(public.inner.step) == 4
    assert toy.differing_units(units, units2) == {OWNER}
    moved = votes2.counts - votes.counts
    assert moved.any() and not moved.sum(1).any()
    assert np.abs(moved).sum(1).max() == 2  # in no histogram more than one vote
    assert set(votes.counts.sum(1)) == {5}  # of the five teachers


@pytest.mark.parametrize("kind", SPECS)
def test_the_generator_hears_the_votes(tmp_path, kind):
    ends = []
    for told in (0.0, 1.0):
        (tmp_path / str(told)).mkdir()
        ends.append(train(tmp_path / str(told), kind, DATA[kind], told)[0].inner)
    assert not toy.equal(*ends)


def decided(counts, bits):
    """What was answered, bool [steps * queries], from sums and the bits of every step."""
    mechanism = LOOPED["table"].mechanism
    decide = jax.jit(lambda votes, bits: mechanism.decide(votes, bits).answered)
    steps = zip(counts.reshape(-1, *mechanism.shape), bits, strict=True)
    return np.concatenate([np.ravel(decide(votes, b)) for votes, b in steps]) == 1


def alone(unit):
    """The votes of one unit in the first step: the others get ids beyond the last, as padding."""
    state = start("table")
    ids = np.asarray(unseal(state.units).id)
    ids = jax.device_put(np.where(ids == unit, ids, 5).astype(np.int32), WHERE.by_unit)
    units = Private(dataclasses.replace(unseal(state.units), id=ids))
    bits = np.zeros((2, *LOOPED["table"].mechanism.bits_shape), np.uint32)
    records = toy.placed(*DATA["table"], WHERE, TABLE)
    votes = tiny.call(block(LOOPED["table"], WHERE), state, records, WHERE, bits, 0, 1, units)[4]
    return np.asarray(unseal(votes))[0].reshape(QUERIES, -1)


def test_what_is_kept_are_the_sums_and_what_is_settled_the_answers(tmp_path):
    _, _, votes, spent = train(tmp_path, "table", DATA["table"], steps=5)
    assert votes.steps == 5 and set(votes.counts.sum(1)) == {5}
    each = [alone(unit) for unit in range(5)]
    assert all((one.sum(1) == 1).all() for one in each)
    np.testing.assert_array_equal(votes.counts[:QUERIES], sum(each))
    bits = SeededBits(0).draw((5, *LOOPED["table"].mechanism.bits_shape))
    np.testing.assert_array_equal(votes.answered, decided(votes.counts, bits))
    test, answer = (event for event, _ in LOOPED["table"].mechanism.events(1))
    assert spent == ((test, 5 * QUERIES), (answer, int(votes.answered.sum())))
    assert 0 < votes.answered.sum() < 5 * QUERIES


# A whole run keeps its votes.

class Cut(BaseException):
    """What ends a run at a draw, as nothing in the library catches it."""


BUDGET = Budget(40.0, 1e-3)


def run(root, monkeypatch, resume=False):
    """On the block that is compiled already; what is made of the generator is not looked at."""
    method = dataclasses.replace(LOOPED["table"], refine=lambda key, public: public.inner.average)
    monkeypatch.setattr(gpate, "build", lambda config, spec, runtime: method)
    monkeypatch.setattr(loop, "compile_block", lambda method, where: block(LOOPED["table"], where))
    monkeypatch.setattr(pictures, "write", lambda *_: None)
    runtime = Runtime(devices=1, chunk=1, steps_per_call=2, checkpoint_minutes=0)
    asked = api.Run("gpate", "mnist-eps1", CONFIG, BUDGET, runtime, root, resume, seed=3)
    return api.run(asked, Dataset("rows", TABLE, *DATA["table"]), lambda line: None)


def test_a_run_keeps_its_votes_and_goes_on_with_them_after_a_crash(tmp_path, monkeypatch):
    root, files, shape = tmp_path / "run", RunFolder(tmp_path / "run"), LOOPED["table"].mechanism
    draw = SeededBits.draw

    def cut(self, shape):
        if self.step == 2:
            raise Cut
        return draw(self, shape)

    with monkeypatch.context() as patched:
        patched.setattr(SeededBits, "draw", cut)
        with pytest.raises(Cut):
            run(root, monkeypatch)
    first = files.votes.read_bytes()
    assert stat.S_IMODE(files.votes.stat().st_mode) == 0o600 and read(files.votes).steps == 2
    release = run(root, monkeypatch, resume=True)

    votes, held = read(files.votes), ledger.account(ledger.read(files.ledger))
    assert files.votes.read_bytes().startswith(first) and votes.steps == 6
    bits = [SeededBits(3, incarnation).draw((steps, *shape.bits_shape))
            for incarnation, steps in ((0, 2), (1, 4))]
    np.testing.assert_array_equal(votes.answered, decided(votes.counts, np.concatenate(bits)))
    test, answer = (event for event, _ in shape.events(1))
    lost = 2 * QUERIES  # charged at their worst
    assert held.spent() == ((test, 6 * QUERIES + lost),
                            (answer, int(votes.answered.sum()) + lost))
    assert release.privacy["budget_epsilon"] == 40 and release.privacy["steps"] == 6
    seen = data_dependent.reading(root)
    assert seen["votes"]["steps charged without votes"] == 2
    with pytest.raises(UserError, match="8 steps are charged and the votes of 6"):
        data_dependent.publish(root)
    assert not [p for p in files.release.iterdir() if p.suffix == ".i4"]
