"""Empty slots: records that were left out keep their places, and no unit ever sees one."""

import dataclasses
import importlib
import pkgutil

import jax
import numpy as np
import pytest
import small_datalens
from planted import toy as adversary

from dpgen_jax import aggregation
from dpgen_jax.aggregation import bound, clip, compression, moments, teacher_votes, topagg
from dpgen_jax.aggregation.mechanism import Bound, CompactBound, LocalMechanism
from dpgen_jax.aggregation.noise import RoundedGaussian, SeededBits
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.single_releases import class_counts
from dpgen_jax.core.types import EMPTY, Records, UserError, unseal
from dpgen_jax.data import Dataset, without_empty_slots
from dpgen_jax.data.clients import split
from dpgen_jax.federated import answer
from dpgen_jax.private import records, teachers

N, UNITS = 23, 5
DEALT = records.assign(N, UNITS, adversary.KEY)


def emptied(*slots, n=N):
    """Images with these slots empty."""
    x, y = small_datalens.images(n)
    x[list(slots)], y[list(slots)] = 0, EMPTY
    return x, y


def units(x, y, dealt=DEALT):
    return unseal(records.deal(records.seal(x, y, small_datalens.SPEC), dealt))


def test_an_empty_slot_counts_and_is_refilled_from_its_own_unit_alone():
    slots = DEALT.index[2][:3]
    sealed = records.seal(*emptied(*slots), small_datalens.SPEC)
    assert records.count(sealed) == N
    dealt, whole = unseal(records.deal(sealed, DEALT)), units(*emptied())
    for unit in set(range(UNITS)) - {2}:
        np.testing.assert_array_equal(dealt.x[unit], whole.x[unit])
    rows = {bytes(row) for row in whole.x[2]} - {bytes(whole.x[2][i]) for i in range(3)}
    assert {bytes(row) for row in dealt.x[2]} == rows and (dealt.y >= 0).all()
    np.testing.assert_array_equal(dealt.x[2][3:], whole.x[2][3:])  # the others stay where they were


def test_the_other_records_take_their_turns():
    one = records.Partition(np.arange(6)[None], np.array([6]))
    x, y = emptied(0, 2, 3, 5, n=6)
    whole, dealt_units = small_datalens.images(6)[1], units(x, y, one)
    assert dealt_units.y[0].tolist() == [whole[k] for k in (1, 1, 4, 1, 4, 4)]


def test_a_unit_of_empty_slots_keeps_them():
    unit_states = units(*emptied(*DEALT.index[3]))
    assert (unit_states.y[3] == EMPTY).all() and not unit_states.x[3].any()
    assert (np.delete(unit_states.y, 3, 0) >= 0).all()


def test_clients_are_refilled_likewise():
    owner = np.repeat([0, 1, 2], [4, 3, 5])
    dealt = records.by_client(owner, 3, 6)
    dealt_units = units(*emptied(1, 4, 5, 6, n=12), dealt)
    assert (dealt_units.y[[0, 2]] >= 0).all() and (dealt_units.y[1] == EMPTY).all()
    own = answer.client_row(records.seal(*emptied(0, 3, n=4), small_datalens.SPEC), 6)
    assert (unseal(own).y >= 0).all()


def test_only_a_slot_without_content_is_empty():
    """A label of -1 of the user's own is an error, as ever."""
    x, y = emptied(4)
    x[4, 2, 1] = 7
    with pytest.raises(UserError, match="label -1 in row 4 is outside the declared 0..2"):
        records.seal(x, y, small_datalens.SPEC)
    y = y.copy()
    x[4], y[4] = 0, EMPTY - 1
    with pytest.raises(UserError, match="label -2 in row 4"):
        records.seal(x, y, small_datalens.SPEC)


def test_class_counts_leave_empty_slots_out():
    def counts(y):
        return class_counts(
            records.labels(records.seal(x, y, small_datalens.SPEC)), 3, 1.0, SeededBits(0)
        )

    x, y = emptied(1, 2, 3)
    others = counts(small_datalens.images(N)[1])
    lost = np.bincount(small_datalens.images(N)[1][1:4], minlength=3)
    np.testing.assert_array_equal(others - counts(y), lost)


def test_simulated_clients_by_class_get_empty_slots_too():
    data = Dataset("some", small_datalens.SPEC, *emptied(0, 1, 2))
    dealt = split(data, 4, 0.5, 0).clients
    assert dealt.min() >= 0 and dealt.max() == 3 and len(dealt) == N


def test_who_looks_at_records_sees_no_empty_slot():
    x, y = emptied(2, 7)
    data = Dataset("some", small_datalens.SPEC, x, y, clients=np.arange(N, dtype=np.int32))
    seen = without_empty_slots(data)
    assert len(seen.x_train) == len(seen.y_train) == len(seen.clients) == N - 2
    assert (seen.y_train >= 0).all() and 7 not in seen.clients
    assert without_empty_slots(seen) is seen


# What a unit of empty slots says: nothing, at every bound.

BOUNDS = [topagg.TopKSign(3, 4), topagg.TopKSign(3, 4, clip=0.5), clip.RowL2(1.0, 8, 4, 20),
          clip.GradientL2(1.0, 8, 50), teacher_votes.OneHot(4, 8, 4, 1.0),
          teacher_votes.LabelVotes(4),
          compression.KLevels(4, 8, 4), bound.Unbounded(4, 8),
          compression.SketchedSigns(topagg.TopKSign(3, 4), compression.CountSketch(2, 6, 8)),
          moments.CellVotes(4, 8, 200),
          bound.FewRows(topagg.TopKSign(3, 2), 4),
          bound.FewRows(teacher_votes.OneHot(4, 8, 2, 1.0), 4),
          moments.Moments(blocks=3, square_blocks=3, length=5, shades=2, levels=9, count=1,
                          first=2**12, square=5 * 2**12, tint=4, columns=65, limit=10**6)]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: type(bound).__name__)
def test_every_bound_drops_nan(bound):
    columns = 1 if isinstance(bound, teacher_votes.LabelVotes) else 8
    message = np.full((bound.rows, columns), np.nan, np.float32)
    assert not np.asarray(jax.jit(bound.project)(jax.random.key(0), message)).any()
    message = np.tile(np.arange(1, 1 + columns, dtype=np.float32), (bound.rows, 1))
    assert np.asarray(jax.jit(bound.project)(jax.random.key(0), message)).any()


def test_every_bound_is_among_these():
    modules = [importlib.import_module(f"dpgen_jax.aggregation.{module.name}")
               for module in pkgutil.iter_modules(aggregation.__path__)]
    known = {found for module in modules for found in vars(module).values()
             if isinstance(found, type) and hasattr(found, "squared_sensitivity")}
    assert known - {Bound} - {CompactBound} == {type(bound) for bound in BOUNDS}


def test_a_client_of_empty_slots_sends_its_noise_alone():
    """Its answer is as noisy as any other: nobody can tell that it holds nothing."""
    noise = RoundedGaussian(30.0)
    local = LocalMechanism(
        bound=topagg.TopKSign(adversary.TOP_K, adversary.ROWS),
        noise=noise,
        n_units=3,
        schedule=FullParticipation(),
        shape=adversary.SHAPE,
        decode=lambda total, n: total,
    )
    method = dataclasses.replace(adversary.build(), mechanism=local)
    bits = SeededBits(0).draw(local.client_bits_shape)
    query = adversary.Query(np.ones(adversary.SHAPE, np.float32))

    @jax.jit
    def said(x, y):
        unit = teachers.one_unit(method, jax.random.key(0), 1)
        return teachers.query_unit(method, unit, Records(x, y), query, 0, bits)[1]

    x, y = adversary.neighbours()[1]
    alone = np.asarray(noise.sample(bits))
    np.testing.assert_array_equal(said(0 * x, np.full(len(y), EMPTY)), alone)
    some = np.where(np.arange(len(y)) > 0, y, EMPTY)
    assert (np.asarray(said(x, some)) != alone).any()


def test_a_sum_is_that_of_the_other_units(tmp_path):
    """Through the real loop, where every unit that answers votes + on the same four places."""
    x, y = map(np.copy, adversary.neighbours()[1])
    x[adversary.dealt().index[1]], y[adversary.dealt().index[1]] = 0, EMPTY
    agreed = adversary.build(answer=lambda key, unit, own, query: 1 + 0 * query.images)

    class NoBits:
        label = "none"

        def draw(self, shape):
            return np.zeros(shape, np.uint32)

    state, _ = adversary.train(tmp_path / "a", agreed, (x, y), adversary.layout(), bits=NoBits())
    wanted = np.zeros((adversary.STEPS, *adversary.SHAPE), np.float32)
    wanted[..., :adversary.TOP_K] = adversary.UNITS - 1
    np.testing.assert_array_equal(state.public.seen, wanted)
