"""G-PATE through the real loop: what a whole run keeps of its votes."""

import dataclasses
import functools
import math
import stat
import types

import jax
import loops
import numpy as np
import pytest
import small_datalens
from planted import toy as adversary
from small_gpate import CONFIG, KEY, QUERIES, TABLE, rows

from dpgen_jax.accountant import ledger
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.types import Private, UserError, unseal
from dpgen_jax.data import Dataset
from dpgen_jax.methods import gpate
from dpgen_jax.private import kept_votes as log
from dpgen_jax.private.teachers import Units
from dpgen_jax.run import costs, lifecycle, loop, stages

pytestmark = pytest.mark.slow

METHOD, DATA = gpate.build(CONFIG, TABLE), rows()
WHERE = small_datalens.layout(chunk=1, units=5)
block = functools.cache(loop.compile_block)  # what is compared are runs of one program


@functools.cache
def fresh():
    """A state before the first step, on the host: random weights, and the rest zeros."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: (METHOD.init(KEY), METHOD.init_unit(KEY)))
    public, _ = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes)
    params = jax.tree.map(lambda a: rng.normal(0, 0.1, a.shape).astype(np.float32), public.params)
    public = dataclasses.replace(public, params=params, average=params)
    weights, adam = jax.tree.map(lambda a: np.zeros((5, *a.shape), a.dtype), shapes[1])
    weights = jax.tree.map(lambda a: rng.normal(0, 0.1, a.shape).astype(np.float32), weights)
    keys = np.asarray(jax.random.key_data(jax.random.split(KEY, 5)))
    return public, Units((weights, adam), keys, np.arange(5, dtype=np.int32), np.zeros(5, np.uint8))


def start():
    public, units = fresh()
    return loop.State(jax.device_put(public, WHERE.replicated), adversary.lay(units, WHERE), KEY)


def train(path, steps):
    """The real loop and ledger: (the kept sums of every step, what was spent)."""
    votes = path / "votes"
    with Ledger.create(path / "ledger", {"epsilon": math.inf, "delta": 1e-5}) as ledger, \
            pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "compile_block", block)
        loops.train(
            METHOD,
            small_datalens.placed(*DATA, WHERE, TABLE),
            start(),
            WHERE,
            ledger,
            SeededBits(0),
            steps=steps,
            steps_per_call=2,
            keep_votes=functools.partial(log.append, votes),
        )
        return read(votes), ledger.spent()


def read(path):
    return unseal(log.read(path, QUERIES, CONFIG.bins))


def decided(counts, bits):
    """The answered queries, bool [steps * queries], from sums and the bits of all steps."""
    mechanism = METHOD.mechanism
    decide = jax.jit(lambda votes, bits: mechanism.decide(votes, bits).answered)
    steps = zip(counts.reshape(-1, *mechanism.shape), bits, strict=True)
    return np.concatenate([np.ravel(decide(votes, b)) for votes, b in steps]) == 1


def alone(unit):
    """The votes of one unit in the first step: the others get ids beyond the last, as padding."""
    state = start()
    ids = np.asarray(unseal(state.units).id)
    ids = jax.device_put(np.where(ids == unit, ids, 5).astype(np.int32), WHERE.by_unit)
    units = Private(dataclasses.replace(unseal(state.units), id=ids))
    bits = np.zeros((2, *METHOD.mechanism.bits_shape), np.uint32)
    records = small_datalens.placed(*DATA, WHERE, TABLE)
    state = dataclasses.replace(state, units=units)
    votes = adversary.call(block(METHOD, WHERE), state, records, WHERE, bits, 1)[4]
    return np.asarray(unseal(votes))[0].reshape(QUERIES, -1)


def test_what_is_kept_are_the_sums_and_what_is_settled_the_answers(tmp_path):
    votes, spent = train(tmp_path, steps=5)
    assert votes.steps == 5 and set(votes.counts.sum(1)) == {5}
    each = [alone(unit) for unit in range(5)]
    assert all((one.sum(1) == 1).all() for one in each)
    np.testing.assert_array_equal(votes.counts[:QUERIES], sum(each))
    bits = SeededBits(0).draw((5, *METHOD.mechanism.bits_shape))
    np.testing.assert_array_equal(votes.answered, decided(votes.counts, bits))
    test, answer = (event for event, _ in METHOD.mechanism.events(1))
    assert spent == ((test, 5 * QUERIES), (answer, int(votes.answered.sum())))
    assert 0 < votes.answered.sum() < 5 * QUERIES


# A whole run keeps its votes.

class Cut(BaseException):
    """An exception that ends a run at a draw, as nothing in the library catches it."""


BUDGET = Budget(40.0, 1e-3)


def run(root, monkeypatch, resume=False):
    """On the block that is compiled already."""
    monkeypatch.setattr(gpate, "build", lambda config, spec, runtime=None: METHOD)
    monkeypatch.setattr(loop, "compile_block", lambda method, where: block(METHOD, where))
    monkeypatch.setattr(stages, "write_pictures", lambda *_: None)
    runtime = Runtime(devices=1, chunk=1, steps_per_call=2, checkpoint_minutes=0)
    request = lifecycle.Resolved(
        "gpate", "mnist-eps1", CONFIG, BUDGET, runtime, root, resume, seed=3)
    return lifecycle.run(request, Dataset("rows", TABLE, *DATA), lambda line: None)


def test_a_run_keeps_its_votes_and_goes_on_with_them_after_a_crash(tmp_path, monkeypatch):
    root, files, shape = tmp_path / "run", RunFolder(tmp_path / "run"), METHOD.mechanism
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

    votes, account = read(files.votes), ledger.account(ledger.read(files.ledger))
    assert files.votes.read_bytes().startswith(first) and votes.steps == 6
    bits = [SeededBits(3, incarnation).draw((steps, *shape.bits_shape))
            for incarnation, steps in ((0, 2), (1, 4))]
    np.testing.assert_array_equal(votes.answered, decided(votes.counts, np.concatenate(bits)))
    test, answer = (event for event, _ in shape.events(1))
    lost = 2 * QUERIES  # charged at their worst
    assert account.spent() == ((test, 6 * QUERIES + lost),
                               (answer, int(votes.answered.sum()) + lost))
    assert release.privacy["budget_epsilon"] == 40 and release.privacy["steps"] == 6
    seen = costs.data_dependent_reading(root).record()
    assert seen["votes"]["steps charged without votes"] == 2
    with pytest.raises(UserError, match="promises nothing"):  # its noise is seeded
        costs.publish(root)
    valid = types.SimpleNamespace(holds=True)  # as of a run whose noise is not
    monkeypatch.setattr(costs.guarantee, "of", lambda statement: valid)
    with pytest.raises(UserError, match="8 steps are charged and the votes of 6"):
        costs.publish(root)
    assert not [p for p in files.release.iterdir() if p.suffix == ".i4"]
