"""Any frame of pandas comes back as its schema says, or is refused before anything is spent."""

import datetime
import itertools
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import pandas as st_pandas

import dpgen_jax as dg
from dpgen_jax.accountant import composition
from dpgen_jax.core.types import UserError
from dpgen_jax.data.table import columns, transform
from dpgen_jax.release.frames import to_frame
from dpgen_jax.run import fitting

MOMENTS = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
TEXTS = st.text(max_size=5)
WHOLE = st.integers(-2**40, 2**40)
FLOATS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([np.nan, np.inf, -0.0, 1e-300, 2.0**60])
MIXED = st.one_of(TEXTS, WHOLE, FLOATS, st.booleans(), st.dates(), st.times(), MOMENTS,
                  st.timedeltas(), st.decimals(), st.binary(max_size=3), st.none(),
                  st.lists(WHOLE, max_size=2), st.complex_numbers())
ELEMENTS = {  # of each type of pandas
    "object": MIXED, "str": TEXTS, "string": TEXTS, "category": TEXTS | WHOLE,
    "string[pyarrow]": TEXTS, "int64": WHOLE, "int8": st.integers(-128, 127),
    "uint64": st.integers(0, 2**64 - 1), "Int64": WHOLE, "float64": FLOATS,
    "float32": FLOATS, "Float64": FLOATS, "bool": st.booleans(),
    "boolean": st.booleans(), "complex128": st.complex_numbers(), "datetime64[ns]": MOMENTS,
    "datetime64[s]": MOMENTS.map(lambda moment: moment.replace(microsecond=0)),
    "datetime64[ns, Europe/Berlin]": MOMENTS, "datetime64[us, UTC]": MOMENTS,
    "timedelta64[ns]": st.timedeltas(datetime.timedelta(-99), datetime.timedelta(99)),
    "period[M]": MOMENTS, "period[Q]": MOMENTS, "int64[pyarrow]": WHOLE,
    "double[pyarrow]": FLOATS, "bool[pyarrow]": st.booleans(),
    "timestamp[us, tz=Europe/Berlin][pyarrow]": MOMENTS, "timestamp[ns][pyarrow]": MOMENTS,
    "decimal": st.decimals(-10**6, 10**6, places=2), "date": st.dates(), "time": st.times()}
OF_OBJECTS = ("decimal", "date", "time")
WITHOUT_NULLS = ("int64", "int8", "uint64", "bool")
NAMES = st.one_of(TEXTS, st.integers(-9, 9), st.floats(), st.none(), st.dates(),
                  st.tuples(TEXTS, TEXTS))


@st.composite
def series(draw, index):
    """A column of some type, on this index."""
    name = draw(st.sampled_from(sorted(ELEMENTS)))
    cells = ELEMENTS[name] if name in WITHOUT_NULLS else ELEMENTS[name] | st.none()
    values = draw(st.lists(cells, min_size=len(index), max_size=len(index)))
    dtype = "object" if name in OF_OBJECTS else name
    if name.startswith("period"):
        return pd.Series(pd.PeriodIndex([None if value is None else pd.Period(
            value, name[-2]) for value in values], dtype=name), index=index)
    if name == "category":
        return pd.Series(pd.Categorical(values, ordered=False), index=index)
    return pd.Series(values, index=index, dtype=dtype)


@st.composite
def frames(draw):
    """A frame of one to four columns, and the name of its label or None."""
    rows = draw(st.integers(2, 8))  # which are there sixty times, or once
    index = draw(st.just(pd.RangeIndex(rows)) | st_pandas.indexes(
        dtype=float, min_size=rows, max_size=rows, unique=False))
    names = draw(st.lists(NAMES.filter(lambda name: str(name).strip()), min_size=2, max_size=4,
                          unique_by=lambda name: str(name).strip()))
    parts = []
    for _ in names:
        try:
            parts.append(draw(series(index)))
        except (pd.errors.OutOfBoundsDatetime, OverflowError, TypeError, ValueError):
            parts.append(pd.Series("x", index=index))  # which pandas does not take
    made = pd.concat(parts, axis=1, ignore_index=True)
    made = pd.concat([made] * draw(st.sampled_from([60] * 9 + [1])))
    made.columns = pd.Index(names, tupleize_cols=False, dtype=object)
    return made, draw(st.none() | st.sampled_from(names))


def expected_name(name):
    return name if isinstance(name, int) else str(name).strip()


def require_sound(out, spec, made):
    """The columns of a release are the caller's, of the types that its schema declares."""
    assert list(out.columns) == [expected_name(name) for name in made.columns]
    for column in spec.all_columns:
        cells = out[int(column.name) if column.name in spec.numbered else column.name]
        assert column.nullable or not cells.isna().any(), column
        wanted = column.dtype or columns.default_type(column)
        if wanted.startswith("datetime64") and column.zone:
            assert cells.dt.tz is not None
        elif wanted not in ("date", "time"):
            assert str(cells.dtype) == wanted, column


@pytest.fixture(scope="module")
def fitted():
    """Fits a frame, in a folder of its own, and returns what is released and its schema."""
    composition.exact_epsilon(1.0, 0.0, 1e-5)
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        def inner(made, label, typed, trained=False):
            out = Path(folder) / str(next(numbers))
            try:
                release = dg.fit(made, label=label, epsilon=200.0, delta=1e-3, method="marginals",
                                 out=out, verbose=False, types_declared=typed)
            except UserError as error:
                assert "\n" not in str(error) and len(str(error)) < 2000
                assert not out.exists(), error  # and so nothing was spent
                return None
            if trained:
                return release.sample(9), release.spec
            _, data = release
            codes = transform.decode(data.spec, data.x_train)
            return to_frame(data.spec, codes, np.maximum(data.y_train, 0)), data.spec
        yield inner


QUICK = {"suppress_health_check": list(HealthCheck), "database": None, "derandomize": True}


@settings(max_examples=60, **QUICK)
@given(frames(), st.booleans())
def test_any_frame_is_read_and_comes_back_as_its_schema_says(fitted, made, typed):
    """Without the training: what is read of a frame is written as a release is."""
    frame, label = made
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fitting.lifecycle, "run", lambda request, dataset, *_: (request, dataset))
        found = fitted(frame, label, typed)
    if found:
        require_sound(*found, frame)


@pytest.mark.slow
@settings(max_examples=4, **QUICK)
@given(frames(), st.booleans())
def test_a_trained_release_comes_back_as_its_schema_says(fitted, made, typed):
    frame, label = made
    if found := fitted(frame, label, typed, trained=True):
        require_sound(*found, frame)
