"""One person, many rows, through whole runs: what is said, what is charged, what is refused."""

import contextlib
import csv
import io
import json

import numpy as np
import pytest

from dpgen_jax import account, evaluate, methods, presets, schema, train
from dpgen_jax.accountant import journal as journals
from dpgen_jax.core.types import BudgetExceeded, UserError
from dpgen_jax.release import guarantee
from dpgen_jax.run import lifecycle

pytestmark = pytest.mark.usefixtures("compiled_once")
SCHEMA = """\
label: grade
columns:
  age: {kind: integer, min: 18, max: 90}
  job: {kind: categorical, categories: [cook, nurse]}
  grade: {kind: categorical, categories: [low, high]}
"""
PEOPLE = 60
WHOM = "who with all rows (at most 3 are used)"
SMALL = {"dpmerf": ["--generator-steps", 3, "--features", 20, "--class-epsilon", 0.1],
         "gpate": ["--teachers", 8, "--batch", 4, "--steps", 2, "--generator.hidden", 4,
                   "--discriminator.hidden", 4],
         "marginals": ["--preset", "table"],
         "dpgan": ["--batch", 20, "--steps", 2, "--fakes", 8, "--g-batch", 8, "--hidden", 4,
                   "--generator.hidden", 4, "--class-epsilon", 0,
                   "--preset", next(iter(presets.all_of("dpgan")))]}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("subjects")
    rng = np.random.default_rng(0)
    rows = [[f"p{person}", rng.integers(18, 91), rng.choice(["cook", "nurse"]),
             rng.choice(["low", "high"])]
            for person in range(PEOPLE) for _ in range(1 + person % 6)]
    (folder / "people.yaml").write_text(SCHEMA)
    with (folder / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["who", "age", "job", "grade"], *rows])
    return folder


def go(place, method, out, *flags, unit=("--unit", "who", "--rows-per-unit", 3)):
    """Trains in this process; returns what was said, in private too."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        train.command(list(map(str, [
            method, "--dataset", f"csv:{place / 'people.csv'}", "--schema", place / "people.yaml",
            "--out", out, *unit, "--delta", 1e-3, "--test-fraction", 0.2, "--devices", 1,
            *SMALL.get(method, []), *flags])))
    return said.getvalue()


def read_json(path):
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def trained(place):
    return place / "run", go(place, "dpmerf", place / "run", "--epsilon", 2)


@pytest.mark.slow
def test_all_that_states_the_guarantee_says_whom(trained, capsys):
    run, said = trained
    privacy = read_json(run / "release/privacy.json")
    assert {"unit": "subject", "unit_column": "who", "rows_per_unit": 3,
            "subjects": 48}.items() <= privacy.items() and "records" not in privacy
    assert said.count(WHOM) == 2  # the promise, and the release
    assert f"for each {WHOM}: whatever the release shows" in said.splitlines()[2]
    account.command([str(run)])
    assert WHOM in capsys.readouterr().out
    assert guarantee.line(privacy).endswith(f"unit {WHOM}")
    assert WHOM in (run / "release/README.txt").read_text()
    header = json.loads((run / "ledger.jsonl").read_text().splitlines()[0])
    assert (header["unit"], header["unit_column"], header["rows_per_unit"]) == ("subject", "who", 3)
    assert read_json(run / "config.json")["records"] is None


@pytest.mark.slow
def test_an_evaluation_reads_the_table_as_the_run_did_and_judges_people(place, trained):
    run, _ = trained
    with contextlib.redirect_stdout(io.StringIO()) as said:
        evaluate.command([str(run), "--dataset", f"csv:{place / 'people.csv'}", "--schema",
                          str(place / "people.yaml"), "--fast", "--samples", "100", "--seeds", "1"])
    found = read_json(run / "evaluation/metrics.json")
    assert found["membership"]["n_members"] == 6  # of 12 people who are held out, half are judged
    assert found["membership"]["allowed"] and WHOM in said.getvalue()
    assert "at most 3 rows of one who were used" in (run / "evaluation/report.html").read_text()


@pytest.mark.slow
def test_a_resumed_run_has_the_same_people_and_the_same_limit(place, trained):
    run, _ = trained
    for unit, change in ((("--unit", "who", "--rows-per-unit", 4), "unit.rows_per_unit was 3, now"),
                         (("--unit", "job", "--rows-per-unit", 3), "contains a run; resume")):
        with pytest.raises(UserError, match=change):
            go(place, "dpmerf", run, "--epsilon", 2, "--resume", unit=unit)
    go(place, "dpmerf", run, "--epsilon", 2, "--resume")


@pytest.mark.slow
def test_the_journal_adds_up_what_holds_for_the_same_people(place):
    """A promise to people holds for their rows; one to rows, or to other people, not for them."""
    go(place, "dpmerf", place / "first", "--epsilon", 2)
    (path,) = (journals.place() / "runs").iterdir()
    entry = journals.read_run(path)
    assert (entry.unit, entry.rows_per_unit) == ("subject", 3) and len(entry.subjects) == 64
    with pytest.raises(BudgetExceeded, match="more than --total-epsilon 3: 1 run before"):
        go(place, "dpmerf", place / "more", "--epsilon", 2, "--total-epsilon", 3)


@pytest.mark.parametrize("method", [
    pytest.param("gpate", marks=pytest.mark.long), pytest.param("dpgan", marks=pytest.mark.slow),
    pytest.param("marginals", marks=pytest.mark.slow)])
def test_teachers_and_sampled_records_are_people_too(place, method):
    go(place, method, place / method, "--epsilon", 5)
    privacy = lifecycle.load(place / method).privacy
    assert guarantee.of(privacy).kind == "valid" and privacy["subjects"] == 48
    if method == "dpgan":  # the chance is that of a person
        (event,) = privacy["events"]
        assert event["rate"] == pytest.approx(20 / 48, rel=1e-6)


def test_methods_that_are_not_proven_are_refused_by_name(place):
    for method in ("fedavg_gan", "dcgan"):
        with pytest.raises(UserError, match=f"--unit who: {method} is not proven"):
            go(place, method, place / "never", "--preset", next(iter(presets.all_of(method))))
    assert not (place / "never").exists()
    proven = {name for name in methods.NAMES if methods.get(name).Config.protects_subjects}
    assert not {"fedavg_gan", "dcgan", "gswgan", "dpac"} & proven
    assert {"dpmerf", "gpate", "pategan", "datalens", "dpgan", "dpsinkhorn",
            "marginals"} <= proven


def test_what_was_bought_for_single_rows_is_refused(place):
    bought = SCHEMA + ("bought:\n  - {entry: age.bounds, kind: epsilon-delta, mechanism: bounds, "
                       "epsilon: 0.1, delta: 0.0, count: 1}\n")
    (place / "bought.yaml").write_text(bought)
    with pytest.raises(UserError, match="were bought for single rows"):
        go(place, "dpmerf", place / "never", "--schema", place / "bought.yaml")


def test_a_draft_leaves_the_column_out(place, tmp_path):
    command = [str(place / "people.csv"), "--unit", "who", "--out", str(tmp_path / "draft.yaml")]
    with contextlib.redirect_stdout(io.StringIO()):
        schema.command([*command, "--label", "grade"])
    assert "who" not in (tmp_path / "draft.yaml").read_text()
    with pytest.raises(UserError, match="--unit is for drafts"):
        schema.command([*command[:-1], str(tmp_path / "b.yaml"), "--schema",
                        str(tmp_path / "draft.yaml"), "--schema-epsilon", "1"])


def test_a_promise_to_people_is_none_for_rows_and_the_other_way_round():
    """A row whose person is another one changes two people, or their number."""
    from dpgen_jax.accountant.journal import Run
    from dpgen_jax.run.spending import Promise, _counts

    def run(unit, subjects=""):
        return Run("", "", True, unit, "replace-one", 0, "", 0, 1, 1, "", False, subjects)

    rows, people = Promise("replace-one", "record", ""), Promise("replace-one", "subject", "ab")
    assert not _counts(run("subject", "ab"), rows) and _counts(run("subject", "ab"), people)
    assert not _counts(run("record"), people) and not _counts(run("subject", "cd"), people)
    assert not _counts(run("client"), people) and _counts(run("client"), rows)
