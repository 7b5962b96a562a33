"""Exported folders: NumPy alone draws what the library draws, of methods that are a few arrays."""

import dataclasses
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
import seeded
from people_table import SPEC
from seeded import CASES, SLOW
from untrained import release

from dpgen_jax import export
from dpgen_jax.core.config import to_json
from dpgen_jax.core.schema import NO_LABEL, Column, Identifier, ImageSpec, TableSpec
from dpgen_jax.core.types import UserError
from dpgen_jax.release import numpy_samplers, standalone

# No package but NumPy and what belongs to Python.
ALONE = """
import runpy, sys
for name in ("jax", "flax", "scipy", "PIL", "pandas", "tyro", "matplotlib", "yaml"):
    sys.modules[name] = None
sys.argv = ["sample.py", *sys.argv[1:]]
runpy.run_path("sample.py", run_name="__main__")
"""
GREY, COLOUR = ImageSpec(8, 6, 1, 3), ImageSpec(6, 8, 3, 2)
WIDE = dataclasses.replace(SPEC, columns=(
    Column("in", "integer", 0, 1000, written="date"),
    Column("out", "integer", -5, 900, nullable=True, written="date"),
    Column("low", "continuous", 0, 1), Column("high", "continuous", 0, 2, special=(9.0,)),
    *SPEC.columns), constraints=("in <= out", "low <= high"), derived=("sex",),
    gaps=(("in", "out"), ("low", "high")))


def marginals(spec, **fields):
    """A model of random numbers, whose columns each have two parents where it has room for them."""
    made = release("marginals", spec, records=24, sigma=1.0, cells=40, bins=4, groups=3, steps=4,
                   **fields)
    model, rng = made.model, np.random.default_rng(0)
    for name in {"table", "fine", "mix", "within", "share"} & model.keys():
        model[name] = np.abs(model[name])
    groups = round(model["table"].shape[2] ** (0.5 if "second" in model else 1))
    order = rng.permutation(len(model["group_of"])).astype(np.int32)
    parent, second = (np.full_like(order, -1) for _ in range(2))
    parent[order[1:]], second[order[2:]] = order[:-1], order[:-2]
    drawn = {"order": order, "parent": parent, "second": second,
             "group_of": rng.integers(0, groups, model["group_of"].shape, np.int32),
             "bin_of": rng.integers(0, model["group_of"].shape[1], model["bin_of"].shape, np.int32),
             "start": rng.uniform(0, 0.8, model["start"].shape).astype(np.float32),
             "width": rng.uniform(0, 0.2, model["width"].shape).astype(np.float32)}
    model.update({name: array for name, array in drawn.items() if name in model})
    return made


def mixture(spec, **fields):
    """A mixture of random cells, one of which has no weight."""
    made = release("mixture", spec, records=24, sigma=1.0, cells=3, frequencies=4, dimensions=5,
                   **fields)
    model, rng = made.model, np.random.default_rng(0)
    model["weight"] = np.abs(model["weight"]) * np.array([0, 1, 1], np.float32)
    model["share"] = np.abs(model["share"])
    model["raw"] = np.sort(model["raw"])
    model["shade"] = np.sort(rng.uniform(size=model["raw"].shape)).astype(np.float32)
    return made


def prototypes(spec, warp):
    return release("prototypes", spec, teachers=4, sigma=1.0, steps=3, images=5,
                   images_per_teacher=4, warp=warp)


MADE = {
    "tree": lambda: marginals(WIDE), "graphical": lambda: marginals(WIDE, model="graphical"),
    "network": lambda: marginals(WIDE, model="network"), "grey": lambda: mixture(GREY),
    "colour": lambda: mixture(COLOUR, warp=0.0),
    "classifier": lambda: mixture(GREY, grey=0.3, classifier=2, steps=10),
    "moved": lambda: prototypes(COLOUR, 0.3), "still": lambda: prototypes(GREY, 0.0)}


@pytest.mark.parametrize("name", MADE)
def test_numpy_draws_the_records_of_the_library(name):
    made = MADE[name]()
    ours, y = next(iter(made.stream(500, seed=3).encoded()))
    theirs, labels = next(iter(standalone.generator(made).sampler(500, seed=3).encoded()))
    np.testing.assert_array_equal(labels, y)
    assert theirs.dtype == ours.dtype == np.float32
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4)
    assert len({row.tobytes() for row in theirs}) > 14  # of 3 classes of 5 prototypes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["marginals table", "mixture images", "prototypes images"])
def test_numpy_draws_the_records_of_trained_generators(name, tmp_path):
    made = seeded.train(SLOW[name], tmp_path / "run")
    ours, y = next(iter(made.stream(7, seed=3)))
    theirs, labels = next(iter(standalone.generator(made).sampler(7, seed=3)))
    np.testing.assert_array_equal(labels, y)
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4 + (ours.dtype == np.uint8))


def test_random_numbers_are_those_of_jax():
    key = jax.random.key(7)
    ours = numpy_samplers.fold_in(numpy_samplers.key_of(7), 2**32 - 1)
    theirs = jax.random.fold_in(key, 2**32 - 1)
    np.testing.assert_array_equal(ours, jax.random.key_data(theirs))
    np.testing.assert_array_equal(numpy_samplers.split(ours, 3),
                                  jax.random.key_data(jax.random.split(theirs, 3)))
    np.testing.assert_array_equal(numpy_samplers.uniform(ours, (3, 50), -0.7, 0.7),
                                  jax.random.uniform(theirs, (3, 50), np.float32, -0.7, 0.7))
    np.testing.assert_array_equal(numpy_samplers.whole(ours, 500, 10),
                                  jax.random.randint(theirs, (500,), 0, 10))
    np.testing.assert_allclose(numpy_samplers.normal(ours, (9000,)),
                               jax.random.normal(theirs, (9000,)), rtol=1e-5, atol=1e-6)


def test_methods_that_need_jax_are_refused_with_the_mend(call, tmp_path):
    release("gpate", SPEC, (30, 10), **CASES["gpate table"].fields).save(tmp_path / "release")
    code, said, err = call(export, tmp_path / "release", "--out", tmp_path / "out")
    assert (code, said) == (2, "") and "records of gpate are drawn with JAX" in err
    assert "marginals, mixture, prototypes can; share release/ itself with someone who" in err
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


def test_a_sampler_that_draws_something_else_is_not_written(monkeypatch, tmp_path):
    monkeypatch.setattr(numpy_samplers, "uniform", lambda key, shape, *ends: np.zeros(shape))
    with pytest.raises(UserError, match="of 500 records that NumPy drew differ from those of the "):
        standalone.write(marginals(SPEC), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_folder_needs_numpy_alone(call, tmp_path):
    made = marginals(SPEC)
    made.save(tmp_path / "release")
    folder = tmp_path / "given"
    code, said, err = call(export, tmp_path / "release", "--out", folder)
    assert (code, err) == (0, "") and said.startswith("guarantee: (epsilon, delta) replace-one")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def alone(*words):
        return subprocess.run([sys.executable, "-P", "-c", "import sys; sys.path.insert(0, '.')\n"
                               + ALONE, *words], cwd=folder, env=environment, capture_output=True,
                              text=True, timeout=600, check=False)

    done = alone("--n", "1200", "--seed", "4", "--where", "ill=yes", "--out", "x.csv")
    assert (done.returncode, done.stderr) == (0, "")
    ours = made.frame(1200, seed=4, where="ill=yes")
    theirs = np.genfromtxt(folder / "x.csv", delimiter=",", names=True, dtype=None, encoding="utf8")
    np.testing.assert_array_equal(theirs["age"], ours["age"])
    np.testing.assert_array_equal(theirs["ill"], ours["ill"].astype(str))
    np.testing.assert_allclose(theirs["pay"], ours["pay"], rtol=1e-4)
    assert "ill=yes: exact, by the model" in done.stdout
    done = alone("--n", "20", "--where", "sex=f", "--out", "z.npz")
    assert done.returncode == 0 and "sex=f: by rejection, " in done.stdout
    refused = alone("--n", "9", "--max-tries", "3", "--where", "pay=1", "--out", "y.csv")
    assert "widen the conditions, or raise --max-tries" in refused.stderr
    refused = alone("--where", "sex=x", "--out", "y.csv")
    assert refused.returncode == 2 and refused.stderr.startswith("error: sex=x: 'x' is not a value")


@pytest.mark.parametrize("spec", [
    ImageSpec(4, 4, 1, 2, ("a", "b")),
    dataclasses.replace(SPEC, identifiers=(Identifier("id", "P-##", 0),), constraints=("a <= b",)),
    TableSpec((Column("pay", "integer", 1, 9, nullable=True, special=(0.0, 99.0), scale="log"),),
              NO_LABEL, 1), WIDE], ids=["images", "identifiers", "no label", "gaps"])
def test_a_schema_comes_back(spec):
    back = standalone.schema(json.loads(json.dumps(to_json(spec))))
    assert back == spec and back.class_names == spec.class_names


def test_labels_of_a_folder_are_named_or_numbered():
    assert standalone.numbers(SPEC, ["yes", "no"]).tolist() == [1, 0]
    with pytest.raises(UserError, match="label 'yess' is not one of no, yes, did you mean 'yes'"):
        standalone.numbers(SPEC, ["yess"])
