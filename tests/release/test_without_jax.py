"""Exported folders: NumPy alone draws what the library draws, of every method."""

import dataclasses
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seeded
from people_table import SPEC
from seeded import ALL, CASES, SLOW, dataset
from untrained import release

from dpgen_jax import export, methods
from dpgen_jax.core.config import to_json
from dpgen_jax.core.schema import NO_LABEL, Column, Identifier, ImageSpec, TableSpec
from dpgen_jax.core.types import UserError
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.release import tracing, without_jax
from dpgen_jax.release.standalone import program, records

# No package but NumPy and what belongs to Python.
ALONE = """
import runpy, sys
for name in ("jax", "flax", "scipy", "PIL", "pandas", "tyro", "matplotlib", "yaml"):
    sys.modules[name] = None
sys.argv = ["sample.py", *sys.argv[1:]]
runpy.run_path("sample.py", run_name="__main__")
"""


def of_case(case):
    """A release of random weights of a case of `seeded`."""
    known = {field.name for field in dataclasses.fields(methods.get(case.method).Config)}
    fields = {"records": 24, "sigma": 1.0} if case.method != "dcgan" else {"records": 24}
    fields = {name: value for name, value in fields.items() if name in known} | case.fields
    spec = dataset(case.data).spec
    return release(case.method, spec, (7, 1, 2) if case.data == "table" else None, **fields)


def compared(made):
    """The records of a release and of its program, with one seed."""
    ours, y = made.sample(7, seed=3)
    generator = without_jax.generator(made)
    generator = dataclasses.replace(generator, program=json.loads(json.dumps(generator.program)))
    theirs, labels = next(iter(generator.sampler(7, seed=3)))
    np.testing.assert_array_equal(labels, y)
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4 + (ours.dtype == np.uint8))


def test_numpy_draws_the_records_of_the_library():
    compared(of_case(CASES["gpate table"]))


@pytest.mark.parametrize("name", [
    *(pytest.param(name, marks=pytest.mark.slow) for name in (
        "datalens images", "gswgan images", "dpmerf_ae table", "dpcgan table")),
    *(pytest.param(name, marks=pytest.mark.long) for name in (
        "dpmerf images", "dpmerf_ae images", "dpgan images linear", "fedavg_gan table"))])
def test_numpy_draws_the_records_of_other_methods(name):
    compared(of_case(ALL[name]))


@pytest.mark.slow
def test_numpy_draws_the_records_of_a_tree(tmp_path):
    compared(seeded.train(SLOW["marginals table"], tmp_path / "run"))


@pytest.mark.slow
def test_numpy_draws_moved_images_and_normal_latents():
    fields = CASES["datalens images"].fields
    spec = dataset("images").spec
    for net in (GeneratorNet(6, 8, 4, warp=0.1),
                GeneratorNet(4, 8, 4, latent_distribution="gaussian")):
        compared(release("datalens", spec, **fields | {"generator": net}))


def test_operations_are_those_of_jax():
    x = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
    at = np.array([[2, 1], [9, 0], [3, -1]], np.int32)

    def function(x, at, key):
        key = jax.random.wrap_key_data(key)
        state, each = jax.lax.scan(lambda c, row: (c * 0.5 + row.sum(), row.max() + c + at[0, 0]),
                                   0.0, x)
        picked = [jax.lax.GatherScatterMode.FILL_OR_DROP, jax.lax.GatherScatterMode.CLIP]
        rows = [x.at[at[:, 0], at[:, 1]].get(mode=mode, fill_value=0) for mode in picked]
        added = [x.at[at[:, 0], at[:, 1]].add(2.0, mode=mode) for mode in picked[:1]]
        counted = jax.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2),
                                     (jnp.int32(0), x[0]))
        return (state, each, *rows, *added, *counted, jnp.cumsum(x, 1), jnp.sort(x, 0),
                jnp.argmax(x, 2), jnp.einsum("abc,dbc->bad", x, x), jax.random.normal(key, (9,)),
                jnp.round(x * 2), jnp.take_along_axis(x, at[:, :1, None] % 4, 0),
                jax.lax.cond(x[0, 0, 0] > 0, lambda: x[0], lambda: x[1]), jnp.pad(x, 1)[::2],
                jnp.interp(x[0, :, 0], jnp.sort(x[1, :, 0]), x[2, :, 0]), at // 2, at % 3,
                jax.lax.dynamic_slice(x, (at[1, 0], 0, 0), (2, 5, 1)), jax.nn.softmax(x))

    key = np.array([3, 4], np.uint32)
    made, constants = tracing.traced(function, x, at, key)
    theirs = program.run(json.loads(json.dumps(made)), [x, at, key, *constants])
    for ours, other in zip(jax.jit(function)(x, at, key), theirs, strict=True):
        assert np.asarray(ours).dtype == other.dtype
        np.testing.assert_allclose(other, ours, rtol=2e-5, atol=1e-5)


def test_an_operation_that_a_folder_does_not_have_is_named():
    with pytest.raises(UserError, match="the operation 'cholesky', which an exported folder"):
        tracing.traced(jnp.linalg.cholesky, np.eye(2, dtype=np.float32))


def test_a_program_that_draws_something_else_is_not_written(monkeypatch, tmp_path):
    monkeypatch.setattr(program, "words", lambda key, shape: np.zeros(shape, np.uint32))
    with pytest.raises(UserError, match="of 500 records that NumPy drew are not those of the lib"):
        without_jax.write(of_case(CASES["gpate table"]), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_folder_needs_numpy_alone(call, tmp_path):
    made = release("gpate", SPEC, (30, 10), **CASES["gpate table"].fields)
    made.save(tmp_path / "release")
    folder = tmp_path / "given"
    code, said, err = call(export, tmp_path / "release", "--out", folder)
    assert (code, err) == (0, "") and said.startswith("guarantee: (epsilon, delta) replace-one")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def alone(*words):
        return subprocess.run([sys.executable, "-P", "-c", "import sys; sys.path.insert(0, '.')\n"
                               + ALONE, *words], cwd=folder, env=environment, capture_output=True,
                              text=True, timeout=600, check=False)

    done = alone("--n", "1200", "--seed", "4", "--where", "sex=f", "--out", "x.csv")
    assert (done.returncode, done.stderr) == (0, "")
    ours = made.frame(1200, seed=4, where="sex=f")
    theirs = np.genfromtxt(folder / "x.csv", delimiter=",", names=True, dtype=None, encoding="utf8")
    np.testing.assert_array_equal(theirs["age"], ours["age"])
    np.testing.assert_array_equal(theirs["ill"], ours["ill"].astype(str))
    np.testing.assert_allclose(theirs["pay"], ours["pay"], rtol=1e-4)
    assert "sex=f: by rejection, " in done.stdout
    refused = alone("--where", "sex=x", "--out", "y.csv")
    assert refused.returncode == 2 and refused.stderr.startswith("error: sex=x: 'x' is no value")


@pytest.mark.parametrize("spec", [
    ImageSpec(4, 4, 1, 2, ("a", "b")),
    dataclasses.replace(SPEC, identifiers=(Identifier("id", "P-##", 0),), constraints=("a <= b",)),
    TableSpec((Column("pay", "integer", 1, 9, nullable=True, special=(0.0, 99.0), scale="log"),),
              NO_LABEL, 1)], ids=["images", "identifiers", "no label"])
def test_a_schema_comes_back(spec):
    back = records.schema(json.loads(json.dumps(to_json(spec))))
    assert back == spec and back.class_names == spec.class_names


def test_labels_of_a_folder_are_named_or_numbered():
    assert records.numbers(SPEC, ["yes", "no"]).tolist() == [1, 0]
    with pytest.raises(UserError, match="label 'yess' is not one of no, yes, did you mean 'yes'"):
        records.numbers(SPEC, ["yess"])
