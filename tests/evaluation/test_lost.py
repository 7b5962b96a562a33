"""A verdict names each damage that a script does to a table, and nothing where there is none.

The script is `tables/damage.py` among the data of DPGEN_DATA. It writes a half of a table with one
fault each, and the other half, by which the faults are found.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dpgen_jax as dg
from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import (
    assess,
    assessment,
    losses,
    marginals,
    prediction,
    two_tables,
)
from dpgen_jax.evaluation.assessment import Assessment
from dpgen_jax.evaluation.results import Real, Setting, Synthetic

pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[parquet]")
SHARED = Path(os.environ.get("DPGEN_DATA", Path(__file__).parents[3] / "shared" / "data"))
LABELS = {"visits": "readmitted", "adult": "income"}
ADULT = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status",
         "occupation", "relationship", "race", "sex", "capital-gain", "capital-loss",
         "hours-per-week", "native-country", "income"]
LEFT_OUT = ["fnlwgt", "race", "relationship", "capital-loss", "native-country"]
NAMED = {"correlation": ("correlation of ", "association of "),
         "tail": ("cut at ", "percentile of "),
         "categories": ("categories of ",), "nulls": (" is empty in ",),
         "classes": (" of the rows would need another value of ",),
         "rounding": (" different values in ",), "constant": ("categories of ",),
         "subgroup": ("Among the rows with ",), "copies": ("repeat another synthetic row",),
         "independent": ("related pairs of columns keep less than half",)}
"""Each damage, and the words of the sentence that names it."""


def visits(root):
    """Eight columns of 5,000 visits."""
    subprocess.run([sys.executable, SHARED / "tables" / "visits.py"], cwd=root, check=True,
                   capture_output=True)
    rows = pd.read_csv(root / "visits.csv")
    admitted = pd.to_datetime(rows.admission)
    return rows.assign(
        stay=(pd.to_datetime(rows.discharge) - admitted).dt.days, bmi=rows.bmi.fillna(
            rows.bmi.median()), age=((admitted - pd.to_datetime(rows.born)).dt.days / 365.25
                                     ).clip(0).astype(int))[
        ["stay", "cost", "bmi", "age", "sex", "pregnant", "insured", "readmitted"]]


def adult(root):
    """Ten columns of 4,000 rows of Adult."""
    rows = pd.read_csv(SHARED / "adult" / "adult.data.gz", names=ADULT, skipinitialspace=True)
    return rows.sample(4000, random_state=0).drop(columns=LEFT_OUT)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """From a table's name to the folder of its damages, and what was done to it."""
    if not (SHARED / "tables" / "damage.py").is_file() or not (SHARED / "adult").is_dir():
        pytest.skip("needs tables/damage.py, tables/visits.py and adult/ in DPGEN_DATA")
    return functools.cache(lambda name: written(name, tmp_path_factory.mktemp(name)))


def written(name, root):
    """Write the damages of a table into a folder."""
    rows = {"visits": visits, "adult": adult}[name](root)
    rows.to_csv(root / "all.csv", index=False)
    subprocess.run([sys.executable, SHARED / "tables" / "damage.py", root / "all.csv",
                    LABELS[name], root], check=True, capture_output=True)
    rows.sample(frac=1, random_state=5)[:len(rows) // 2].to_csv(root / "nothing.csv", index=False)
    return root, json.loads((root / "damages.json").read_text())


def found_in(name, root, damage):
    """The assessment of a damaged table by its losses and by one classifier."""
    compared = two_tables.read(root / f"{damage}.csv", root / "real.csv", LABELS[name])
    synthetic, setting = Synthetic(compared.draw), Setting(
        "fast", "", compared.n, 1, options=Evaluation(classifiers=("logistic_regression",)))
    return Assessment.of([measure(compared.real, synthetic, setting) for measure in (
        losses.losses, prediction.utility)], {})


@pytest.mark.parametrize("damage", NAMED)
@pytest.mark.parametrize("name", LABELS)
def test_the_first_sentences_name_each_damage_and_its_column(damaged, name, damage):
    root, done = damaged(name)
    columns = done[damage]["columns"]
    first = assessment.sentences(found_in(name, root, damage))[:3]
    named = columns[:1] if damage == "correlation" else columns if len(columns) < 3 else []
    assert any(all(column in text for column in named) and any(
        words in text for words in NAMED[damage]) for text in first), first


@pytest.mark.parametrize("name", LABELS)
def test_an_undamaged_half_alarms_nobody(damaged, name):
    found = found_in(name, damaged(name)[0], "nothing")
    assert found.fact("losses") == []
    assert assessment.sentences(found)[0].startswith("No loss was found")
    assert not any(finding.severity for finding in assessment.verdict(found))


@pytest.mark.slow
def test_two_tables_are_evaluated_from_python_and_by_the_command(damaged, tmp_path, capsys):
    root, _ = damaged("visits")
    quick = Evaluation(fast=True, seeds=1, samples=400, classifiers=("lr", "random_forest"))
    frames = [pd.read_csv(root / f"{name}.csv") for name in ("independent", "real")]
    found = dg.evaluate(*frames, label="readmitted", settings=quick, log=lambda line: None)
    assert found.fact("dataset") == "frame" and found.fact("release") is None
    assert not found.under("membership")  # nobody knows what was trained on
    assert found.at("baselines", "independent", "correlation_difference").value.mean == (
        pytest.approx(found.at("fidelity", "correlation_difference").value.mean, abs=0.02))
    assert found.fact("losses") and found.is_from_real("losses")
    from dpgen_jax import evaluate
    evaluate.command(["--synthetic", str(root / "independent.csv"), "--dataset",
                      str(root / "real.csv"), "--label", "readmitted", "--fast", "--seeds", "1",
                      "--samples", "400", "--classifiers", "lr", "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert "verdict: " in printed and "related pairs of columns keep less than half" in printed
    assert "types of columns are read from the real rows" in printed
    page = (tmp_path / "out" / "report.html").read_text()
    assert "no privacy guarantee is known" in page and "The ledger" not in page
    assert page.index("The correlation of") < page.index("Columns: synthetic and held-out")
    assert "losses" in json.loads((tmp_path / "out" / "metrics.json").read_text())
    from dpgen_jax import compare
    compare.command([str(tmp_path / "out")] * 2 + ["--out", str(tmp_path / "both.html")])
    assert "statement is not known" in (tmp_path / "both.html").read_text()


def test_what_cannot_be_compared_is_one_clear_line(tmp_path):
    one, other = pd.DataFrame({"a": range(50)}), pd.DataFrame({"b": range(50)})
    for synthetic, real, label, match in (
            (one, other, None, "no column in common"), (one, one, "b", "not a column of both"),
            (one[:10], one, None, "10 synthetic rows; a comparison needs 40"),
            ("nothing.csv", one, None, "CSV or Parquet file that exists")):
        with pytest.raises(UserError, match=match):
            dg.evaluate(synthetic, real, label=label)


def test_types_are_read_from_the_real_rows():
    n = 200
    real = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=n).strftime("%Y-%m-%d"),
                         "code": ["07", "12"] * (n // 2), "key": [f"k{i}" for i in range(n)],
                         "price": np.arange(n) / 4, "kind": ["a", "b"] * (n // 2),
                         "visit_id": np.arange(n) + 9000})
    made = real.assign(price=-5.0, kind="c", day="soon")
    compared = two_tables.read(made, real, "kind")
    spec = compared.real.spec
    kinds = {column.name: (column.kind, column.written) for column in spec.columns}
    assert kinds == {"day": ("integer", "date"), "code": ("categorical", "plain"),
                     "price": ("continuous", "plain")}
    assert spec.label.categories == ("a", "b", "c")
    assert compared.notes[-1].endswith("are left out: key, visit_id")
    assert spec.columns[2].low == -5 and spec.columns[2].high == real.price.max()
    x, y = compared.draw(10, 0)
    codes = transform.decode(spec, x)
    assert np.isnan(codes[:, 0]).all() and (codes[:, 2] == -5).all() and (y == 2).all()
    halves = [len(part[1]) for part in (compared.real.train, compared.real.test)]
    assert halves == [100, 100] and compared.is_halved
    assert not two_tables.read(made, real, "kind", real).is_halved


SPEC = TableSpec(tuple(Column(name, "integer", 0, 200) for name in ("start", "stay", "end")),
                 Column("ill", "categorical", categories=("no", "yes")), 3)


def ruled(n, seed, broken=False):
    """Rows in which end = start + stay, or, where it is broken, no longer."""
    rng = np.random.default_rng(seed)
    start, stay = rng.integers(0, 100, n), rng.integers(0, 30, n)
    end = rng.permutation(start + stay) if broken else start + stay
    return transform.encode(SPEC, np.stack([start, stay, end], 1).astype(float)), (
        stay > 15).astype(int)


def test_a_sum_and_an_order_that_are_broken_are_named_with_the_rule():
    real = Real(SPEC, ruled(400, 0), ruled(400, 1))
    setting = Setting("fast", "", 400, 1)

    def texts(broken):
        part = losses.losses(real, Synthetic(lambda n, seed: ruled(n, 2, broken)), setting)
        return [(one["kind"], one["text"], one["advice"]) for one in part.facts["losses"]]

    assert texts(False) == []
    (said, advice), *_ = [(text, advice) for kind, text, advice in texts(True) if kind == "rule"]
    assert said.startswith("end = start + stay holds in ") and "100 % of the real ones" in said
    assert advice == 'declare "end = start + stay" under constraints in the schema'
    assert any("start <= end" in text for _, text, _ in texts(True))


def test_the_release_is_measured_by_the_same_losses():
    found = assess.measured(Real(SPEC, ruled(200, 0), ruled(200, 1)), Synthetic(
        lambda n, seed: ruled(n, 2, True)), Evaluation(
            metrics=("fidelity",), samples=200, seeds=1))
    assert {entry["kind"] for entry in found.fact("losses")} >= {"rule", "correlation"}
    assert "losses" in found.fact("not_covered_by_epsilon")
    assert assessment.read(found.json()).fact("losses") == found.fact("losses")


def test_columns_that_give_rows_away_are_named():
    rows = ruled(400, 0)
    shifted = rows[0] * [1, 0.5, 1], rows[1]
    assert marginals.giveaways(shifted, rows, SPEC)["columns"][0] in ("stay", "end")
    mixed = marginals.giveaways(ruled(400, 1, True), rows, SPEC)
    assert {*mixed["columns"]} & {"end", "start", "stay"} and not mixed["each_by_itself"]
    found = assessment.read({"fidelity": {
        "detection_auroc": {"mean": 0.98, "floor": 0.5}, "detection": mixed}})
    assert f"by how {mixed['columns'][0]}" in assessment.sentence(found)


BOUNDED = TableSpec((Column("pay", "continuous", 0, 50, decimals=0),
                     Column("town", "categorical", categories=("a", "other"))),
                    Column("ill", "categorical", categories=("no", "yes")), 2)


def bounded(n, seed):
    """Pay beyond the bound of the schema, and towns that it does not have."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.normal(40, 15, n).clip(0, 50).round(), rng.random(n) < 0.6], 1)
    return transform.encode(BOUNDED, codes), (rng.random(n) < 0.02).astype(int)


def test_what_a_schema_cuts_off_and_a_rare_class_are_named():
    release = SimpleNamespace(privacy={"data_notes": [
        "bought under differential privacy from 900 records: categories of town"]})

    def found(release, often=0.02):
        def draw(n, seed):
            x, y = bounded(n, 5)
            return x, (np.random.default_rng(1).random(n) < often).astype(int)

        part = losses.losses(Real(BOUNDED, bounded(900, 0), bounded(900, 1)), Synthetic(
            draw, release), Setting("fast", "", 900, 1))
        return {(one["kind"], *one["columns"]): one["text"] for one in part.facts["losses"]}

    declared = SimpleNamespace(privacy={})
    assert found(None) == {} and {*found(declared)} == {("clipped", "pay")}
    assert "lie exactly on the bound 50 of the schema" in found(declared)["clipped", "pay"]
    assert "count as `other`" in found(release)["clipped", "town"]
    assert "ill = yes makes up 5.9 %" in found(None, 0.065)["classes", "ill"]


STAYS = TableSpec((Column("admitted", "integer", 18_000, 20_000, written="date", format="%Y-%m-%d"),
                   Column("left", "integer", 18_000, 20_100, written="date", format="%Y-%m-%d"),
                   Column("cost", "integer", 0, 10_000)),
                  Column("ill", "categorical", categories=("no", "yes")), 3)


def stays(n, seed, broken=False):
    """Stays whose cost follows from their length, or, where it is broken, from nothing."""
    rng = np.random.default_rng(seed)
    start, length = rng.integers(18_000, 20_000, n), rng.integers(0, 60, n)
    cost = 100 * (rng.permutation(length) if broken else length) + rng.integers(0, 500, n)
    return transform.encode(STAYS, np.stack([start, start + length, cost], 1).astype(float)), (
        rng.random(n) < 0.3).astype(int)


def test_the_span_of_two_dates_is_related_to_the_other_columns():
    part = losses.losses(Real(STAYS, stays(400, 0), stays(400, 1)), Synthetic(
        lambda n, seed: stays(n, 2, True)), Setting("fast", "", 400, 1))
    (lost,) = part.facts["losses"]
    assert lost["columns"] == ["cost", "left - admitted"] and lost["real"] > 0.9 > 0.2 > abs(
        lost["synthetic"])
