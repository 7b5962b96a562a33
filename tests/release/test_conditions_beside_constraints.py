"""Conditions on columns that stand in no constraint are exact by the model, and rows mended."""

import numpy as np
import pytest

import dpgen_jax as dg
from dpgen_jax.data.table import constraints, schema

pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[pandas]")
SCHEMA = {
    "label": "y", "columns": {
        "low": {"kind": "integer", "min": 0, "max": 50}, "high": {"kind": "integer", "min": 0,
                                                                  "max": 50},
        "group": {"kind": "categorical", "categories": ["a", "b", "c"]},
        "other": {"kind": "integer", "min": 0, "max": 9},
        "y": {"kind": "categorical", "categories": ["no", "yes"]}},
    "constraints": ["low <= high", "y = yes -> high >= 5"]}


def test_columns_of_constraints_are_those_that_stand_in_one():
    assert constraints.constrained_columns(schema.of(SCHEMA).spec) == {"low", "high", "y"}
    sums = {"columns": {name: {"kind": "integer", "min": 0, "max": 9} for name in "abcd"},
            "constraints": ["c = a + b"]}
    assert constraints.constrained_columns(schema.of(sums).spec) == {"a", "b", "c"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    rng = np.random.default_rng(0)
    group = rng.choice(3, 4000, p=[0.1, 0.3, 0.6])
    low = np.clip(rng.normal(12 * group, 6, 4000), 0, 50).astype(int)
    frame = pd.DataFrame({"low": low, "high": np.clip(low + rng.integers(0, 20, 4000), 0, 50),
                          "group": np.array(list("abc"))[group],
                          "other": np.clip(3 * group + rng.integers(0, 4, 4000), 0, 9),
                          "y": np.where(rng.random(4000) < 0.2 + 0.3 * group, "yes", "no")})
    frame.loc[(frame["y"] == "yes") & (frame["high"] < 5), "high"] = 5
    return dg.fit("marginals", frame, schema=SCHEMA, epsilon=50.0,
                  out=tmp_path_factory.mktemp("run") / "run", verbose=False)


@pytest.mark.slow
@pytest.mark.parametrize("where", [{"group": "a"}, {"other": "<=2", "group": ["a", "b"]}], ids=str)
def test_the_law_is_that_of_filtered_rows(made, where):
    sampler = made.stream(12_000, seed=1, where=where)
    list(sampler)
    lines = "\n".join(sampler.report())
    assert "exact, by the model" in lines and "by rejection" not in lines
    exact, every = made.frame(12_000, seed=1, where=where), made.frame(60_000, seed=2)
    met = every[every["group"].isin(list(where["group"]))
                & ((every["other"] <= 2) | ("other" not in where))]
    assert (every["low"] <= every["high"]).all() and (exact["low"] <= exact["high"]).all()
    assert not ((exact["y"] == "yes") & (exact["high"] < 5)).any()
    assert set(exact["group"]) == set(where["group"])
    for name in ("low", "high", "other"):
        spread = (met[name].var() * (1 / len(met) + 1 / len(exact)))**0.5
        assert abs(exact[name].mean() - met[name].mean()) < 6 * spread + 1e-9, name
    assert (exact["y"] == "yes").mean() == pytest.approx((met["y"] == "yes").mean(), abs=0.04)


@pytest.mark.slow
def test_columns_of_constraints_are_met_by_rejection(made):
    sampler = made.stream(200, seed=1, where={"group": "a", "high": ">=10"})
    rows = list(sampler)
    assert sum(len(y) for _, y in rows) == 200
    lines = "\n".join(sampler.report())
    assert "group=a: exact, by the model" in lines and "high>=10: by rejection" in lines
