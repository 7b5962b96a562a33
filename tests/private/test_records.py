import numpy as np
import pytest
import small_datalens

from dpgen_jax.core.types import UserError, unseal
from dpgen_jax.private import records


def test_seal_shows_shapes_and_never_values():
    x, y = small_datalens.images(9)
    x[:] = 173
    text = repr(records.seal(x, y, small_datalens.SPEC))
    assert "uint8[9, 8, 8, 1]" in text and "173" not in text


@pytest.mark.parametrize(("change", "match"), [
    (lambda x, y: (x / 255.0, y), "float64, expected uint8"),
    (lambda x, y: (x[:, :7], y), "the schema declares"),
    (lambda x, y: (x, y[:-1]), "one label a record"),
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
    dealt = small_datalens.partition.assign(10, 3, small_datalens.KEY)
    units = unseal(records.deal(records.seal(x, y, small_datalens.SPEC), dealt))
    for unit, ids in enumerate(dealt.index):
        assert np.array_equal(units.x[unit], x[ids]) and np.array_equal(units.y[unit], y[ids])
