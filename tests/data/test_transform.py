"""Encoding: what `decode` gives is valid whatever it gets, and `encode` loses nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data.table.transform import bounds, decode, encode

LABEL = Column("y", "categorical", categories=("no", "yes"))
CATEGORIES = st.integers(1, 6).map(lambda k: tuple("abcdef"[:k]))
INTEGERS = st.tuples(st.integers(-10**6, 10**6), st.integers(0, 2**23))
NUMBERS = st.floats(-1e9, 1e9, allow_subnormal=False)


@st.composite
def columns(draw) -> Column:
    kind = draw(st.sampled_from(["continuous", "integer", "categorical", "ordinal"]))
    nullable = draw(st.booleans())
    if kind in ("categorical", "ordinal"):
        return Column("c", kind, categories=draw(CATEGORIES), nullable=nullable)
    if kind == "integer":
        low, width = draw(INTEGERS)
        return Column("c", kind, float(low), float(low + width), nullable=nullable)
    low, high = sorted((draw(NUMBERS), draw(NUMBERS)))
    return Column("c", kind, low, high, nullable=nullable)


SPECS = st.lists(columns(), min_size=1, max_size=4).map(lambda c: TableSpec(tuple(c), LABEL, 0))


@st.composite
def valid(draw) -> tuple[TableSpec, np.ndarray]:
    spec, n = draw(SPECS), 5
    rows = []
    for column in spec.columns:
        low, high = bounds(column)
        cell = st.floats(low, high) if column.kind == "continuous" else st.integers(
            int(low), int(high)).map(float)
        cell = st.none() | cell if column.nullable else cell
        rows.append(draw(st.lists(cell, min_size=n, max_size=n)))
    return spec, np.array(rows, np.float64).T


@st.composite
def anything(draw) -> tuple[TableSpec, np.ndarray]:
    spec = draw(SPECS)
    return spec, draw(hnp.arrays(np.float64, (4, *spec.shape)))


@given(anything())
def test_decode_keeps_the_schema_whatever_it_gets(case):
    spec, encoded = case
    for column, values in zip(spec.columns, decode(spec, encoded).T, strict=True):
        low, high = bounds(column)
        assert column.nullable or not np.isnan(values).any()
        values = values[~np.isnan(values)]
        assert ((low <= values) & (values <= high)).all()
        assert column.kind == "continuous" or (values == np.rint(values)).all()


@given(valid())
def test_encode_loses_nothing(case):
    spec, codes = case
    encoded = encode(spec, codes)
    assert encoded.shape == (len(codes), *spec.shape)
    assert encoded.min() >= 0 and encoded.max() <= 1
    for through, part in ((np.float64, 2e-15), (np.float32, 1e-6)):
        back = decode(spec, encoded.astype(through))
        assert (np.isnan(back) == np.isnan(codes)).all()
        for column, old, new in zip(spec.columns, codes.T, back.T, strict=True):
            if column.kind == "continuous":
                slack = part * (column.high - column.low) + 2e-15 * abs(old)
                assert (~(abs(new - old) > slack)).all()
            else:
                np.testing.assert_array_equal(new, old)


@given(valid())
def test_each_block_is_a_one_hot_or_one_value(case):
    spec, codes = case
    encoded = encode(spec, codes)
    widths = [stop - start for start, stop in spec.blocks]
    assert sum(widths) == spec.shape[0]
    for start, stop in spec.blocks:
        if stop - start > 1:
            assert (encoded[:, start:stop].sum(1) == 1).all()


def test_the_layout_by_hand():
    spec = TableSpec((
        Column("age", "integer", 0.0, 10.0, nullable=True),
        Column("job", "categorical", categories=("a", "b"), nullable=True),
        Column("size", "ordinal", categories=("S", "M", "L")),
        Column("same", "continuous", 7.0, 7.0)), LABEL, 4)
    codes = np.array([[5, 1, 2, 7], [np.nan, np.nan, 1, 7]])
    encoded = encode(spec, codes)
    assert encoded.tolist() == [[0.5, 0, 0, 1, 0, 1, 0], [0.5, 1, 0, 0, 1, 0.5, 0]]
    np.testing.assert_array_equal(decode(spec, encoded), codes)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, -1e308])
def test_decode_takes_any_number(value):
    spec = TableSpec((
        Column("pay", "continuous", -1e9, 1e9), Column("age", "integer", 3.0, 90.0),
        Column("job", "categorical", categories=("a", "b")),
        Column("size", "ordinal", categories=("S", "M", "L"))), LABEL, 4)
    with np.errstate(all="raise"):
        (codes,) = decode(spec, np.full((1, *spec.shape), value))
    above = value > 0
    assert codes.tolist() == [1e9 if above else -1e9, 90 if above else 3, 0, 2 if above else 0]


def test_numbers_outside_are_clipped():
    spec = TableSpec((Column("v", "continuous", -1.0, 1.0),), LABEL, 0)
    codes = np.array([[-5.0], [0.5], [np.inf]])
    assert decode(spec, encode(spec, codes))[:, 0].tolist() == [-1.0, 0.5, 1.0]


def test_codes_of_another_width_are_refused():
    spec = TableSpec((Column("v", "continuous", -1.0, 1.0),), LABEL, 0)
    with pytest.raises(ValueError, match="zip"):
        encode(spec, np.zeros((3, 2)))
