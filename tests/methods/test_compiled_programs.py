"""Compiled programs hold no secret and no record.

JAX keeps compiled programs on a disk where the environment names a folder, which other runs and
other people may share. So keys and records are arguments of programs and never constants in them:
a second run with other keys, on other records, finds all of its programs there.
"""

import dataclasses

import jax
import numpy as np
import pytest
import seeded
from jax.experimental.compilation_cache import compilation_cache

from dpgen_jax import methods
from dpgen_jax.run import lifecycle

CASES = [("datalens images", {}), *(pytest.param(*case, marks=pytest.mark.long) for case in [
    ("datalens images", {"state": "host"}), ("gswgan images warm", {}), ("dpgan table", {}),
    ("marginals table", {}), ("mixture images", {})])]


@pytest.fixture
def programs(tmp_path):
    """The names of the programs that JAX has kept, in a folder of this test."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, (str(tmp_path / "programs"), 0.0), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    jax.clear_caches()  # what earlier tests of this process compiled would not be kept again
    yield lambda: {path.name for path in (tmp_path / "programs").glob("*-cache")}
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def run(name, root, turn, **runtime):
    """A run with keys that the operating system draws, on records that are rolled by `turn`."""
    case = seeded.ALL[name]
    data = seeded.dataset(case.data)
    data = dataclasses.replace(data, x_train=np.roll(data.x_train, turn, 0),
                               y_train=np.roll(data.y_train, turn, 0))
    config = methods.get(case.method).Config(**case.fields)
    lifecycle.run(lifecycle.Resolved(case.method, "tiny", config, case.budget, dataclasses.replace(
        seeded.RUNTIME, **runtime), root), data, log=lambda line: None)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "runtime"), CASES)
def test_a_run_with_other_keys_and_records_compiles_nothing_new(name, runtime, tmp_path, programs):
    run(name, tmp_path / "first", 0, **runtime)
    first = programs()
    assert len(first) > 5, "hardly a program was kept: the test sees nothing"
    jax.clear_caches()  # so that the second run looks for its programs on the disk
    run(name, tmp_path / "second", 3, **runtime)
    assert programs() == first


def test_a_key_that_is_a_constant_is_seen(programs):
    for seed in range(2):
        key = jax.random.key(seed)
        jax.jit(lambda i, key=key: jax.random.fold_in(key, i))(np.int32(1))
    assert sum("lambda" in name for name in programs()) == 2
