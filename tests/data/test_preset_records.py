"""The statements of presets on their data, against the very files, where these are at hand."""

import pytest
from known_data import KNOWN

from benchmarks.papers.rows import SOURCES
from dpgen_jax import data, methods, presets
from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import locate

FILES = {"mnist": (SOURCES["mnist"].spec, {}), "fashion": (SOURCES["fashion"].spec, {}),
         "adult": ("adult:adult", {}),
         "credit-sample": (SOURCES["credit-sample"].spec, {
             "schema": "creditcard", "test_csv": "creditcard_20pct/test.csv.gz"})}
"""How the data of presets are read that lie in DPGEN_DATA, where it is set."""


@pytest.fixture(scope="module", params=FILES)
def counted(request):
    """The name of a data set, and its shape, classes and training records as its loader has it."""
    spec, options = FILES[request.param]
    try:
        locate(spec.partition(":")[2])
    except UserError:
        pytest.skip(f"no {spec.partition(':')[2]} here; set DPGEN_DATA to where the data sets lie")
    read = data.load(spec, **options)
    assert set(read.y_train) == set(read.y_test) == set(range(read.spec.classes))
    return request.param, (read.spec.shape, read.spec.classes, len(read.y_train))


def test_the_files_have_the_shape_and_records_that_tests_know(counted):
    name, found = counted
    assert found == KNOWN[name]


def test_presets_state_what_the_files_have(counted):
    name, found = counted
    longer = tuple(other for other in KNOWN if other.startswith(name) and other != name)
    stated = {f"{method} {key}": (preset.spec.shape, preset.spec.classes, preset.records)
              for method in methods.NAMES for key, preset in presets.all_of(method).items()
              if key.startswith(name) and not (longer and key.startswith(longer))}
    assert stated and set(stated.values()) == {found}, stated
