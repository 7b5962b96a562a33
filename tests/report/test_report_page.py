"""report.html: all that was measured is on it, nothing is promised that is not, text stays text."""

import math
import re

import numpy as np
import pytest
import report_examples as examples
from hypothesis import given
from hypothesis import strategies as st
from reading import Reading

from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import assessment
from dpgen_jax.evaluation import report as report_page
from dpgen_jax.evaluation.report import Report, mismatches, page
from dpgen_jax.release import documents
from dpgen_jax.release.render import leaves, number, score

LIMIT = 5_000_000
NO_GUARANTEE = "No privacy guarantee."


@pytest.fixture(scope="module")
def read():
    return {name: Reading(page(make())) for name, make in examples.ALL.items()}


@pytest.mark.parametrize("name", examples.ALL)
def test_the_shape_of_a_page(read, name):
    result = read[name]
    levels = [level for level, _ in result.headings]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    sections = [text for level, text in result.headings if level == 2]
    assert [text.split("\u2002")[0] for text in sections[:10]] == [str(i) for i in range(1, 11)]
    assert {link[1:] for link in result.links} <= set(result.ids)
    assert len(set(result.ids)) == len(result.ids)


@pytest.mark.parametrize("name", examples.ALL)
def test_a_page_runs_and_loads_nothing(read, name):
    assert not {"script", "link", "iframe", "object", "form", "svg"} & set(read[name].tags)
    assert all(source.startswith("data:image/") for source in read[name].sources)
    assert all(link.startswith("#") for link in read[name].links)


@pytest.mark.parametrize("name", ["images", "table", "seeded", "federated"])
def test_every_number_of_the_metrics_is_on_the_page(read, name):
    found = examples.ALL[name]().found
    for path, value in leaves(found.facts):
        assert read[name].row(path)[0].rstrip("\u2020") == number(value)
    for one in found.findings:
        text, each, *_ = read[name].row(one.path)
        assert text.rstrip("\u2020") == score(one.value.mean, one.value.std)
        assert each.rstrip("\u2020").split("; ") == (
            [number(v) for v in one.value.values] or ["\u2013"])


@pytest.mark.parametrize("name", examples.ALL)
def test_all_that_the_statement_says_is_on_the_page(read, name):
    privacy = examples.ALL[name]().privacy
    for line in (*privacy["not_accounted"], *privacy["data_notes"], privacy["accountant"],
                 privacy["unit"], privacy["relation"], privacy["noise_source"]):
        assert line in read[name].text
    for event in privacy["events"]:
        assert number(event["count"]) in read[name].row(event["mechanism"])


def test_all_of_the_configuration_is_on_the_page(read):
    result = read["images"]
    for text in ("d_optimiser.learning_rate", "0.0001", "rotation", "jax", "0.10.2",
                 examples.config()["git"]):
        assert any(text in row for row in result.rows), text


@pytest.mark.parametrize("name, why", [
    ("seeded", "made from a seed"), ("published", "no valid guarantee"),
    ("published", "epsilon is inf"), ("published", "gives epsilon 9.99 for 20,000 steps")])
def test_what_promises_nothing_is_said_loudly(read, name, why):
    assert NO_GUARANTEE in read[name].text and why in read[name].text
    assert "What does epsilon bound?" not in read[name].text


@pytest.mark.parametrize("name", ["images", "table", "bare", "federated"])
def test_a_valid_guarantee_has_no_alarm(read, name):
    assert NO_GUARANTEE not in read[name].text
    assert "What does epsilon bound?" in read[name].text


def test_words_follow_the_statement(read):
    assert "at most 2.72 times" in read["bare"].text and "73.2 %" in read["bare"].text
    assert "at most 22,027 times" in read["images"].text and "weak" in read["images"].text
    assert "bound by itself is weak" not in read["bare"].text
    assert "in the data of one client with all its records" in read["federated"].text
    assert "which is not below 1 divided by the number of clients (866)" in read["federated"].text
    assert "several records" not in read["federated"].text


@pytest.mark.parametrize("relation, text", [
    ("replace-one", "which of two versions"), ("add-remove", "one of them has the data of"),
    ("zero-out", "are left empty"), ("{0.x}", "({0.x}): a relation that this page does not know")])
def test_each_relation_is_explained(relation, text):
    statement = documents.checked_statement(examples.privacy(relation=relation))
    assert text in " ".join(answer for _, answer in documents.promise(statement))


def test_data_dependent_epsilon_and_unknown_noise():
    statement = documents.checked_statement(examples.privacy(
        data_dependent_epsilon={"epsilon": 0.7, "kind": "late"}))
    assert any("0.7" in text and "late" in text for text in documents.assumptions(statement))
    assert documents.alarms(documents.checked_statement(examples.privacy(noise_source="dice")))
    mixed = examples.privacy(noise_source="os-entropy; seeded: no privacy claim")
    assert documents.alarms(documents.checked_statement(mixed))


@given(st.floats(0, 20), st.floats(0, 0.1))
def test_the_best_guess_is_that_of_the_best_test(epsilon, delta):
    """By brute force over the trade-off that (epsilon, delta) allows."""
    wrong = np.linspace(0, 1, 20001)
    right = np.minimum(1, np.minimum(math.exp(epsilon) * wrong + delta,
                                     1 - math.exp(-epsilon) * (1 - delta - wrong)))
    assert documents.best_guess(epsilon, delta) == pytest.approx(
        ((right + 1 - wrong) / 2).max(), abs=1e-3 if epsilon < 8 else 2e-2)


@given(st.floats(0, 14))
def test_the_factor_is_never_rounded_down(epsilon):
    assert float(documents.factor(epsilon).replace(",", "")) >= math.exp(epsilon) * (1 - 1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 10.0, 50.0, 800.0, 1e6])
def test_no_epsilon_is_too_large_for_words(value):
    statement = documents.checked_statement(examples.privacy(epsilon=value))
    text = " ".join(answer for _, answer in documents.promise(statement))
    assert "inf" not in text and "nan" not in text


def test_numbers_of_another_release_are_noticed(read):
    assert "The evaluation was made of" not in read["images"].text
    other = examples.image_metrics(release={"epsilon": "inf", "method": "gswgan"})
    other = assessment.read(other)
    result = mismatches(documents.checked_statement(examples.privacy()), other)
    assert len(result) == 1 and "epsilon inf" in result[0] and "says 10." in result[0]
    assert mismatches(documents.checked_statement(examples.privacy(epsilon="inf")), other) == ()


def test_an_attack_beyond_the_guarantee_is_said_first(read):
    beyond = examples.membership(exceeds_guarantee=True, sentence="the attack reached 0.9")
    result = Reading(
        page(Report(assessment.read(examples.image_metrics(membership=beyond)),
                    examples.privacy(), {}))
    )
    assert "An attack reached more than the guarantee allows. the attack" in result.text
    assert result.text.index("the attack reached 0.9") < result.text.index("What is promised")
    assert "reached more than the guarantee" not in read["images"].text


def test_colours_have_contrast():
    """At least 4.5 to 1 on white, as WCAG 2.2 asks of text."""
    style = page(examples.bare_report())
    for name in ("ink", "soft", "blue", "red"):
        hexes = re.search(rf"--{name}: #(\w{{6}})", style)[1]
        parts = [int(hexes[i:i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        assert 1.05 / (np.dot(linear, (0.2126, 0.7152, 0.0722)) + 0.05) > 4.5, name


def test_numbers_from_real_records_are_marked(read):
    assert read["images"].row("gen2real.cnn.accuracy")[0].endswith("\u2020")
    assert not read["images"].row("gen2real.cnn.validation_accuracy")[0].endswith("\u2020")
    assert read["images"].row("fidelity.judge.test_accuracy")[0].endswith("\u2020")
    metrics = examples.image_metrics() | {"n_test": 123_456, "notes": ["no test image has class 3"]}
    metrics["not_covered_by_epsilon"] = [*metrics["not_covered_by_epsilon"], "n_test", "notes"]
    text = Reading(page(Report(assessment.read(metrics), examples.privacy(), {}))).text
    assert "123,456 held-out real records\u2020" in text  # also what is no score
    assert "no test image has class 3\u2020" in text
    unsaid = {k: v for k, v in examples.image_metrics().items() if k != "not_covered_by_epsilon"}
    result = Reading(page(Report(assessment.read(unsaid), examples.privacy(), {})))
    assert result.row("gen2real.cnn.validation_accuracy")[0].endswith("\u2020")


def test_missing_parts_are_said(read):
    for text in ("No samples", "No metrics of the training", "No classifiers", "No distances",
                 "No attack was tried"):
        assert text in read["bare"].text, text
    assert "All numbers" not in read["bare"].text
    for parts in ({"gen2real", "setting", "notes"}, {"real2real", "fidelity"},
                  {"average", "membership", "real2gen"}):
        rest = {k: v for k, v in examples.image_metrics().items() if k not in parts}
        Reading(page(Report(assessment.read(rest), examples.privacy(), examples.config())))
    Reading(page(Report(None, {k: examples.privacy()[k] for k in documents.NEEDED}, {})))


@pytest.mark.parametrize("broken", [{"epsilon": "many"}, {"delta": None}])
def test_a_damaged_statement_is_refused(broken):
    with pytest.raises(UserError, match="not a number"):
        page(Report(None, examples.privacy(**broken), {}))
    with pytest.raises(UserError, match="no 'unit'"):
        page(Report(None, {"epsilon": 1, "delta": 0, "relation": "x"}, {}))


def hostile(value):
    """The same, with every text and every key hostile."""
    if isinstance(value, dict):
        return {k if k in KEYS else f"{examples.HOSTILE}\"'{k}": hostile(v)
                for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(v) for v in value]
    return f"{examples.HOSTILE}\"' onload=x {value}" if isinstance(value, str) else value


KEYS = {"mean", "std", "values", "floor", *documents.NEEDED, "events", "count", "data_notes",
        "notes",
        "not_accounted", "gen2real", "real2real", "accuracy", "membership", "attacks", "sentence",
        "fidelity", "columns", "one_way_tvd", "label_shares", "class", "synthetic", "real", "wrong",
        "subgroups", "by", "group", "n_test", "real_share", "synthetic_share", "metric", "targets",
        "n_rarest", "setting", "name", "text", "spec", "label", "config", "losses", "kind", "noise",
        "size", "of_kind", "advice"}


def test_text_stays_text():
    table = examples.table_report()
    rows = [[examples.HOSTILE] * 3] * 2
    result = Reading(page(Report(
        assessment.read(hostile(table.found.json())), hostile(table.privacy),
        hostile(table.config), [
            {"step": i, "epsilon": 1.0, examples.HOSTILE: 1.0} for i in range(3)],
        (rows[0], rows), table.figures)))
    assert "script" not in result.tags and result.text.count(examples.HOSTILE) > 100
    private = report_page.private_page(examples.HOSTILE, rows, rows, np.zeros(2),
                                       {examples.HOSTILE: 1.0}, rows[0])
    assert "script" not in Reading(private).tags


@pytest.mark.slow
def test_large_reports_stay_small():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (365 * 3, 64, 64, 3), dtype=np.uint8)  # noise: incompressible
    rows = [{"step": i, "epsilon": i / 1e5, "seconds": 1.0, "loss": rng.random()}
            for i in range(20_000)]
    text = page(Report(assessment.read(examples.image_metrics()), examples.privacy(),
                       examples.config(), rows, (images, np.repeat(np.arange(365), 3))))
    assert len(text.encode()) < LIMIT and "40 of 365 classes" in text
    wide = page(examples.table_report(100, hostile=True))
    assert len(wide.encode()) < LIMIT and "100 of 101 columns" in wide
    assert "30 of 101 columns are drawn" in wide
    long = examples.config(spec={"columns": [
        {"name": "x" * 10_000, "kind": "categorical", "categories": ["y" * 100] * 1000}] * 300})
    assert len(page(Report(None, examples.privacy(), long)).encode()) < LIMIT


def test_the_same_report_is_the_same_page():
    assert page(examples.federated_report()) == page(examples.federated_report())


@pytest.mark.parametrize("value, text", [
    (None, "\u2013"), (True, "yes"), (60000, "60,000"), (0.0, "0"), (10.0, "10"),
    (0.99998, "0.99998"), (0.12345, "0.1235"), (1e-5, "10\u207b\u2075"), (1e9, "10\u2079"),
    (2.5e-7, "2.5 \u00d7 10\u207b\u2077"), (math.inf, "infinite"), (math.nan, "not a number"),
    (5429.76, "5430"), ("abc", "abc")])
def test_numbers_for_people(value, text):
    assert number(value) == text


def test_the_private_page_says_so_and_holds_the_pairs():
    pixels, _ = examples.images(4, 3)
    images = Reading(report_page.private_page("mnist", pixels[:5], pixels[5:10],
                                              np.array([3.0, 1, 2, 5, 4]), {"median": 2.5}))
    assert report_page.BANNER in images.text and images.row("median") == ["2.5"]
    assert len(images.sources) == 10
    assert images.text.index("distance 1") < images.text.index("distance 5")
    ours, theirs = [["1", "a"], ["2", "b"]], [["1", "c"], ["2", "b"]]
    rows = Reading(report_page.private_page("t", ours, theirs, np.zeros(2), {}, ["n", "k"]))
    assert [row[1:] for row in rows.rows if row[0] == "real"] == [["1", "c \u2260"], ["2", "b"]]
    with pytest.raises(UserError, match="as many"):
        report_page.private_page("t", ours, theirs, np.zeros(3), {}, ["n", "k"])


def test_the_verdict_stands_first_and_what_misleads_is_left_out(read):
    text, other = read["table"].text, read["images"].text
    worst = text.index("Tails: blood pressure 0 is off.")
    assert worst < text.index("Correlation: blood pressure 0 and age 0 is off; likewise ") < (
        text.index("The best model of synthetic records"))
    assert worst < text.index("The data") < text.index("The privacy statement")
    assert "The best model of synthetic records (CNN) reaches 0.82 accuracy" in other
    for number_ in ("0.841 \u00b1 0.012 (0.931)", "in brackets: trained on real records; 0.5 is",
                    "0.381 \u00b1 0.012", "real records among themselves: 0.03; 1 is the worst",
                    "0.521 \u00b1 0.012", "the guarantee allows at most 0.99998"):
        assert number_ in text, number_
    heads = [row for row in read["table"].rows if row[:1] in (["classifier"], ["model"])]
    assert len(heads) == 4  # AUROC, AUPRC, balanced accuracy; and a target
    assert "Accuracy stands under" in text and "Accuracy stands under" not in other


def test_what_only_tables_have_is_on_the_page(read):
    result = read["table"]
    assert "blood pressure 0: 31 % of the rows would have to move." in result.text
    assert result.row("back")[:2] == ["50 %", "20 %\u2020"]
    assert result.row("ridge regression") == [
        "-1.299 \u00b1 0.012\u2020", "0.611 \u00b1 0.012\u2020"]
    assert result.row("surgery")[:4] == ["412\u2020", "57\u2020", "41 %\u2020", "40 %"]
    assert "too few held-out rows" in result.row("other")[-1]
