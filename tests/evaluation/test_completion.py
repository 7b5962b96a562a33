"""Frames: completed rows keep the cells that are there, and held-out rows are a test."""

import numpy as np
import pandas as pd
import pytest

import dpgen_jax as dg
from dpgen_jax.core.config import Evaluation
from dpgen_jax.evaluation import assess, marginals

N = 4000
RNG = np.random.default_rng(7)
SCHEMA = {"label": "ill", "columns": {
    "sex": {"kind": "categorical", "categories": ["F", "M"]},
    "came": {"kind": "date", "min": "2020-01-01", "max": "2020-12-31"},
    "height": {"kind": "continuous", "min": 120, "max": 220},
    "left": {"kind": "date", "min": "2020-01-01", "max": "2021-01-31"},
    "pay": {"kind": "integer", "min": 0, "max": 40, "nullable": True},
    "ill": {"kind": "categorical", "categories": ["no", "yes"]}},
    "constraints": ["came <= left"]}


def people():
    """Women are smaller, and more often ill; who is ill has pay."""
    sex = RNG.choice(["F", "M"], N)
    came = pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 340, N), "D")
    ill = np.where(RNG.random(N) < np.where(sex == "F", 0.8, 0.3), "yes", "no")
    return pd.DataFrame({
        "sex": sex, "came": came, "height": np.where(sex == "F", 160, 180) + RNG.normal(0, 4, N),
        "left": came + pd.to_timedelta(RNG.integers(0, 25, N), "D"),
        "pay": pd.array(np.where(ill == "yes", 30, 10), "Int64"), "ill": ill})


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return dg.fit(people(), schema=SCHEMA, epsilon=50.0, delta=1e-5, seed=3, verbose=False,
                  out=tmp_path_factory.mktemp("runs") / "run")


def test_missing_cells_follow_those_that_are_there(release):
    made = dg.complete(release, pd.DataFrame({"sex": ["F", "M"] * 2000}), seed=1)
    assert list(made) == list(SCHEMA["columns"]) and list(made["sex"][:2]) == ["F", "M"]
    for sex in "FM":
        rows, like = made[made["sex"] == sex], release.sample(4000, seed=2, where=f"sex={sex}")
        assert rows["height"].mean() == pytest.approx(like["height"].mean(), abs=1)
        ill, expected = ((part["ill"] == "yes").mean() for part in (rows, like))
        assert ill == pytest.approx(expected, abs=0.05)
    assert made["pay"].notna().all()  # a missing cell is drawn as a value
    label = dg.complete(release, pd.DataFrame({"ill": ["yes"] * 1000}), seed=1)
    assert (label["pay"] > 20).mean() > 0.9 and (label["sex"] == "F").mean() > 0.6
    both = dg.complete(release, pd.DataFrame({"ill": ["yes"] * 500, "height": [181.0] * 500}),
                       seed=1)
    assert (both["sex"] == "M").mean() > 0.8


def test_cells_that_are_there_stay_as_they_are_and_the_seed_repeats(release, tmp_path, capsys):
    partial = people().head(40).copy()
    partial.index = range(100, 140)
    partial["height"] = 171.123456789
    for i, name in enumerate(("ill", "sex", "pay", "height", "left")):
        partial.loc[100 + i::7, name] = None
    made = dg.complete(release, partial, seed=5, out=tmp_path / "completed")
    assert made.isna().sum().sum() == 0 and list(made.index) == list(partial.index)
    for name in partial:
        there = partial[name].notna()
        assert (made[name][there].astype(object) == partial[name][there].astype(object)).all(), name
    assert made.equals(dg.complete(release, partial, seed=5))
    assert not made.equals(dg.complete(release, partial, seed=6))
    assert made.attrs["guarantee"].startswith("not covered")
    readme = (tmp_path / "completed" / "README.txt").read_text()
    assert readme.startswith("Guarantee: not covered: these rows hold real cells")
    assert len(pd.read_csv(tmp_path / "completed" / "completed.csv")) == 40
    assert (tmp_path / "completed").stat().st_mode & 0o077 == 0
    said = capsys.readouterr()
    assert "171.1" not in said.out + said.err


def test_completed_rows_keep_the_constraints(release, capsys):
    late = pd.DataFrame({"came": pd.to_datetime(["2020-12-20"] * 50)})
    made = dg.complete(release, late, seed=1)
    assert (made["came"] == late["came"]).all() and (made["left"] >= made["came"]).all()
    never = pd.DataFrame({"came": pd.to_datetime(["2020-12-20"]),
                          "left": pd.to_datetime(["2020-01-05"])})
    made = dg.complete(release, never, seed=1)
    assert made["height"].isna().all() and made["left"][0] == never["left"][0]
    assert "private: 1 of 1 rows: nothing that was drawn keeps" in capsys.readouterr().err


def test_a_value_that_the_model_never_makes_is_left_out_of_the_condition(release):
    odd = pd.DataFrame({"height": [120.0] * 3, "sex": ["F"] * 3, "pay": [40] * 3})
    made = dg.complete(release, odd, seed=1)
    assert made["ill"].notna().all() and (made["height"] == 120).all()


@pytest.mark.parametrize(("frame", "match"), [
    ({"sexx": ["F"]}, "column 'sexx' is not a column of the release, did you mean 'sex'"),
    ({"sex": ["F", "X"]}, "frame, row 1, column sex: 'X' is not a declared category"),
    ({"pay": [1.5]}, "row 0, column pay: .* is not a whole number")])
def test_what_does_not_fit_the_schema_is_one_line(release, frame, match):
    with pytest.raises(dg.UserError, match=match):
        dg.complete(release, pd.DataFrame(frame))


def test_it_is_refused_within_a_release_and_for_models_that_are_not_conditioned(release, tmp_path):
    root = release.save(tmp_path / "release")
    with pytest.raises(dg.UserError, match="is in a release, which is shared, and completed row"):
        dg.complete(release, pd.DataFrame({"sex": ["F"]}), out=root / "completed")
    with pytest.raises(dg.UserError, match="exists; name another folder"):
        dg.complete(release, pd.DataFrame({"sex": ["F"]}), out=tmp_path)
    images = dg.fit("glyphs", method="prototypes", seed=1, out=tmp_path / "run", verbose=False,
                    steps=1, final_rate=0.5, teachers=2, pooled_steps=1)
    with pytest.raises(dg.UserError, match="complete needs a model that can be conditioned, and"):
        dg.complete(images, pd.DataFrame({"sex": ["F"]}))


def test_a_release_is_evaluated_on_a_frame_of_held_out_rows(release, capsys):
    test = people().head(600)
    settings = Evaluation(("gen2real", "membership"), ("lr",), fast=True, samples=500, seeds=1)
    found = dg.evaluate(release, test, settings=settings)
    assert found.facts["dataset"] == "frame" and found.facts["n_test"] == 600
    assert "membership attacks need the training rows" in capsys.readouterr().out
    assert found.findings and not any("membership" in one.key for one in found.findings)
    with pytest.raises(dg.UserError, match="column 'ill' is missing"):
        dg.evaluate(release, test.drop(columns="ill"))
    odd = test.assign(ill=["maybe"] + list(test["ill"][1:]))
    assert dg.evaluate(release, odd, settings=settings).facts["n_test"] == 599
    assert "private: frame: 1 cells that do not fit their column" in capsys.readouterr().err


def test_rows_of_one_release_are_not_detected_among_each_other(release):
    """They were, by the digits of a double that the other part had lost as floats."""
    test = assess._held_out(release.spec, release.sample(1500, seed=9))
    drawn = assess.delivered(release, 1500, 1)
    assert drawn[0].dtype == test.x_test.dtype == np.float32
    found = marginals.detect(drawn, (test.x_test, test.y_test), 2)
    assert abs(found["detection_auroc"] - 0.5) < 0.06
