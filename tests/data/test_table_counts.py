"""Class counts and bounds that a run on a table buys: paid for once, and released."""

import contextlib
import csv
import dataclasses
import io
import math
import shutil

import numpy as np
import pytest
import test_table_runs
from test_table_runs import (
    COUNTS,
    DELTA,
    GRADES,
    OFTEN,
    SCHEMA,
    STEPS,
    TEACHERS,
    Cut,
    N,
    events,
    gaussian_epsilon,
    go,
    read_json,
    spent,
)

from dpgen_jax import data
from dpgen_jax import schema as schema_command
from dpgen_jax.aggregation import single_releases
from dpgen_jax.core.config import Budget
from dpgen_jax.core.run_folder import MetricsWriter
from dpgen_jax.core.types import UserError
from dpgen_jax.methods import gpate
from dpgen_jax.run import lifecycle, purchase, side_releases

place = test_table_runs.place
trained = test_table_runs.trained
run = test_table_runs.run
release = test_table_runs.release
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]


# --- class counts

def test_counts_are_bought_once_and_released(trained, release):
    root, said = trained
    purchase = read_json(root / "class_counts.json")
    assert purchase["epsilon"] == 0.01 and len(purchase["counts"]) == 3
    assert release.class_counts == tuple(purchase["counts"])
    warned = [f"class {name!r}: its noisy count is {count}, and noise of +-200 was added"
              for name, count in zip(GRADES, purchase["counts"], strict=True) if count < 600]
    assert said.count("noise of +-200 was added") == len(warned)
    assert all(line in said for line in warned)


@pytest.mark.parametrize(("classes", "scale", "draws"), [(2, 100, 1), (3, 200, 3)])
def test_the_noise_of_the_counts(place, tmp_path, monkeypatch, classes, scale, draws):
    """One count of two classes is sampled, and the other is what is left."""
    questions = []

    def noise(scale, n, bits):
        assert bits.label == "os-entropy"
        questions.append((scale, n))
        return [7 * scale] * n

    monkeypatch.setattr(single_releases, "sample_discrete_laplace", noise)
    monkeypatch.setattr(lifecycle, "train", lambda *_: (_ for _ in ()).throw(Cut))
    loaded = data.load(f"csv:{place / 'people.csv'}", schema=str(place / "people.yaml"))
    y = np.minimum(loaded.y_train, classes - 1)
    label = dataclasses.replace(loaded.spec.label, categories=tuple(GRADES[:classes]))
    loaded = dataclasses.replace(loaded, y_train=y,
                                 spec=dataclasses.replace(loaded.spec, label=label))
    config = gpate.Config(aggregate="sum", projection=0, teachers=TEACHERS, steps=1)
    said = []
    with pytest.raises(Cut):
        lifecycle.run(lifecycle.Resolved("gpate", "table", config, Budget(1.0, DELTA, 0.01),
                                    out=tmp_path / "run"), loaded, said.append)
    assert questions == [(scale, draws)]
    true = np.bincount(y, minlength=classes)
    noisy = [N - true[1] - 700, true[1] + 700] if classes == 2 else (true + 1400).tolist()
    assert read_json(tmp_path / "run/class_counts.json")["counts"] == noisy
    assert events(tmp_path / "run").keys() == {COUNTS["mechanism"]}
    warned = [line for line in said if f"noise of +-{scale} was added" in line]
    assert len(warned) == (classes == 2)  # only the first of two lost so many


@pytest.mark.parametrize(("counts", "shares"), [
    ((100, 250, 650), (0.1, 0.25, 0.65)), ((-50, 0, 98), (0.01, 0.01, 0.98)),
    (None, (1 / 3, 1 / 3, 1 / 3))], ids=["many", "drowned", "none"])
def test_labels_follow_the_released_counts(release, counts, shares):
    n = 4000
    _, y = dataclasses.replace(release, class_counts=counts).arrays(n, seed=3)
    found = np.bincount(y, minlength=3)
    deviation = np.sqrt(n * np.array(shares) * (1 - np.array(shares)))
    assert (np.abs(found - n * np.array(shares)) < 4 * deviation + 1).all()


def test_without_counts_nothing_is_bought(place, tmp_path):
    root = tmp_path / "run"
    said = go(place, root, "--class-epsilon", 0, "--epsilon", 0.99)
    assert not (root / "class_counts.json").exists() and "noisy count" not in said
    assert events(root).keys() == {"rounded-gaussian"}
    assert 0.989 < spent(root).epsilon() <= 0.99
    assert lifecycle.load(root).class_counts is None
    with (root / "release/samples.csv").open(newline="") as file:
        grades = [row["grade"] for row in csv.DictReader(file)]
    assert [grades.count(grade) for grade in GRADES] == [334, 333, 333]


# --- runs that are cut short

def after_step(monkeypatch, step):
    """Ends the run when it writes the metrics of a later step; `step` has its checkpoint."""
    real = MetricsWriter.write

    def write(self, row):
        if row["step"] > step:
            raise Cut
        real(self, row)

    monkeypatch.setattr(MetricsWriter, "write", write)


def cut_short(place, root, *flags, **options):
    with pytest.raises(Cut):
        go(place, root, *flags, **options)


def test_a_resume_keeps_the_counts(place, tmp_path, monkeypatch):
    root = tmp_path / "run"
    with monkeypatch.context() as patch:
        after_step(patch, 1)
        cut_short(place, root, *OFTEN)
    counts = (root / "class_counts.json").read_bytes()
    assert events(root)[COUNTS["mechanism"]][1] == 1 and not (root / "release").exists()
    go(place, root, "--resume")
    assert (root / "class_counts.json").read_bytes() == counts
    assert {name: count for name, (_, count) in events(root).items()} == {
        COUNTS["mechanism"]: 1, "rounded-gaussian": STEPS}
    privacy = read_json(root / "release/privacy.json")
    assert privacy["steps"] == STEPS  # the one that was cut short had its checkpoint
    assert spent(root).epsilon() <= privacy["epsilon"] == 1.0


def test_counts_that_were_charged_and_lost_are_paid_for_again(place, tmp_path, monkeypatch):
    root = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(side_releases, "write_json", lambda *_: (_ for _ in ()).throw(Cut))
        cut_short(place, root)
    assert {name: count for name, (_, count) in events(root).items()} == {COUNTS["mechanism"]: 1}
    assert not (root / "class_counts.json").exists()
    said = go(place, root, "--resume")
    privacy = read_json(root / "release/privacy.json")
    assert privacy["events"][0] == {**COUNTS, "count": 2}
    assert spent(root).epsilon() <= privacy["epsilon"] == 1.0
    # What they cost twice is missing for the last step.
    assert privacy["steps"] == STEPS - 1 and "the budget allows no further step" in said


@pytest.mark.parametrize("content", ["{}", '{"counts": [1, 2]}', '{"counts": [1, 2,'])
def test_damaged_counts_are_named(place, run, tmp_path, content):
    root = shutil.copytree(run, tmp_path / "run")
    (root / "class_counts.json").write_text(content)
    with pytest.raises(UserError, match="class_counts.json is damaged"):
        go(place, root, "--resume")
    assert events(root)[COUNTS["mechanism"]][1] == 1


# --- a schema that was bought

@pytest.fixture(scope="module")
def bought(place):
    """A schema whose two pairs of bounds were bought, at epsilon 4 each, and came out as declared,
    so that its runs share what is compiled."""
    draft = SCHEMA.replace("min: 18, max: 90", "min: private, max: private").replace(
        "min: 0, max: 500", "min: private, max: private")
    (place / "draft.yaml").write_text(draft)
    with contextlib.redirect_stdout(io.StringIO()), pytest.MonkeyPatch.context() as patched:
        made = iter([(18.0, 90.0), (0.0, 500.0)])
        patched.setattr(purchase.single_releases, "bounds", lambda *_: next(made))
        schema_command.command([str(place / "people.csv"), "--schema",
                             str(place / "draft.yaml"), "--schema-epsilon", "8", "--out",
                             str(place / "bought.yaml")])
    return "bought.yaml"


def test_a_bought_schema_is_charged_once(place, bought, tmp_path, monkeypatch):
    root, flags = tmp_path / "run", ["--epsilon", 9]
    with monkeypatch.context() as patch:
        after_step(patch, 1)
        cut_short(place, root, *flags, *OFTEN, declared=bought)
    (name,) = (name for name in events(root) if name.startswith("discrete-laplace bounds (bought"))
    paid = {"mechanism": name, "epsilon": 4.0, "delta": 0.0, "count": 2}
    event, count = events(root)[name]
    assert {**event.statement(), "count": count} == paid
    go(place, root, *flags, "--resume", declared=bought)
    privacy = read_json(root / "release/privacy.json")
    assert privacy["events"][:2] == [paid, {**COUNTS, "count": 1}]
    records = privacy["bought_from"]["records"]
    assert (f"bought under differential privacy from {records:,} records: bounds of age, pay"
            in privacy["data_notes"])
    gaussian = privacy["events"][2]
    mu = math.sqrt(gaussian["count"]) * gaussian["sensitivity"] / gaussian["sigma"]
    assert spent(root).epsilon() == pytest.approx(8.01 + gaussian_epsilon(mu, DELTA), abs=1e-6)
    assert 8.999 < spent(root).epsilon() <= privacy["epsilon"] == 9
