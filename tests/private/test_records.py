import dataclasses

import numpy as np
import pytest
import small_datalens

from dpgen_jax.core.types import UserError, unseal
from dpgen_jax.private import records, teachers


def test_seal_shows_shapes_and_never_values():
    x, y = small_datalens.images(9)
    x[:] = 173
    text = repr(records.seal(x, y, small_datalens.SPEC))
    assert "uint8[9, 8, 8, 1]" in text and "173" not in text


@pytest.mark.parametrize(("change", "match"), [
    (lambda x, y: (x / 255.0, y), "float64, expected uint8"),
    (lambda x, y: (x[:, :7], y), "the schema declares"),
    (lambda x, y: (x, y[:-1]), "one label per record"),
    (lambda x, y: (x, y.astype(float)), "expected integers"),
    (lambda x, y: (x, np.where(np.arange(len(y)) == 4, 3, y)), "label 3 in row 4"),
    (lambda x, y: (x, np.where(np.arange(len(y)) == 2, -1, y)), "label -1 in row 2"),
])
def test_what_does_not_fit_the_schema_is_refused_by_name(change, match):
    with pytest.raises(UserError, match=match):
        records.seal(*change(*small_datalens.images(9)), small_datalens.SPEC)


def test_fingerprint_sees_every_change_and_needs_the_key():
    x, y = small_datalens.images(9)
    base = records.fingerprint(records.seal(x, y, small_datalens.SPEC), b"k")
    x2, y2 = x.copy(), y.copy()
    x2[3, 2, 1, 0] ^= 1
    y2[5] = (y2[5] + 1) % 3
    others = [
        records.fingerprint(records.seal(*arrays, small_datalens.SPEC), key)
        for arrays, key in [((x2, y), b"k"), ((x, y2), b"k"), ((x, y), b"other")]
    ]
    assert len({base, *others}) == 4
    assert base == records.fingerprint(records.seal(x.copy(), y, small_datalens.SPEC), b"k")


def test_deal_gives_each_unit_its_own_records():
    x, y = small_datalens.images(10)
    dealt = small_datalens.sealing.assign(10, 3, small_datalens.KEY)
    units = unseal(records.deal(records.seal(x, y, small_datalens.SPEC), dealt))
    for unit, ids in enumerate(dealt.index):
        assert np.array_equal(units.x[unit], x[ids]) and np.array_equal(units.y[unit], y[ids])


def test_places_behind_the_last_unit_get_zeros():
    x, y = small_datalens.images(10)
    sealed = records.seal(x, y, small_datalens.SPEC)
    dealt = small_datalens.sealing.assign(10, 3, small_datalens.KEY)
    units = unseal(records.deal(sealed, dealt, (2, 6)))
    assert np.array_equal(units.x[0], x[dealt.index[2]]) and units.x.dtype == np.uint8
    assert units.x.shape == (4, *x[dealt.index[2]].shape) and units.y.shape == (4, 4)
    assert not units.x[1:].any() and not units.y[1:].any()


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_cpu_takes_dealt_records_without_a_copy(chunk, devices, sampled):
    where = dataclasses.replace(small_datalens.layout(chunk, devices), sampled=sampled)
    x, y = small_datalens.images(8 * where.n_units)
    dealt = small_datalens.sealing.assign(len(x), where.n_units, small_datalens.KEY)
    sealed = records.deal(records.seal(x, y, small_datalens.SPEC), dealt,
                          where.dealt_units)
    host, placed = unseal(sealed), unseal(teachers.place(sealed, where))
    for array, on_devices in ((host.x, placed.x), (host.y, placed.y)):
        parts = [array] * devices if sampled else np.split(array, devices)
        assert [part.ctypes.data for part in parts] == [
            shard.data.unsafe_buffer_pointer() for shard in on_devices.addressable_shards]


def test_records_of_another_number_of_units_are_not_placed():
    where = small_datalens.layout(chunk=4)
    x, y = small_datalens.images(30)
    dealt = small_datalens.sealing.assign(30, where.n_units, small_datalens.KEY)
    with pytest.raises(ValueError, match="places"):
        teachers.place(records.deal(records.seal(x, y, small_datalens.SPEC), dealt,
                                    (0, where.padded + 1)), where)
