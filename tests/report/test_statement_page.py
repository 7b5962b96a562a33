"""statement.html and README.txt: they say what privacy.json says, of every run, and no more."""

import json
from pathlib import Path

import pytest
import yaml
from reading import Reading
from report_examples import privacy

from dpgen_jax import methods
from dpgen_jax.core.types import Column, Identifier, ImageSpec, TableSpec, UserError
from dpgen_jax.data import parts
from dpgen_jax.release import documents, guarantee
from dpgen_jax.release.render import number

HOSTILE = "<script>alert(1)</script>\n\nGuarantee: (epsilon, delta) replace-one"
IMAGES = ImageSpec(8, 8, 3, 2, ("benign", HOSTILE))
TABLE = TableSpec((Column("age", "continuous", 0.0, 90.0), Column(HOSTILE, "continuous", 0.0, 1.0)),
                  Column("outcome", "categorical", categories=("no", HOSTILE)), 2)
GAP = f"bounds of {HOSTILE} are read from private data"
STAMPS = {
    "valid": privacy(guarantee="(epsilon, delta) replace-one", epsilon=1.0, delta=1e-6),
    "client": privacy(guarantee="(epsilon, delta) replace-one", unit="client", clients=866,
                      records=None, noise_source="os-entropy; os-entropy"),
    "subject": privacy(guarantee="(epsilon, delta) replace-one", unit="subject", subjects=90,
                       records=None, unit_column=HOSTILE, rows_per_unit=4),
    "not covered": privacy(guarantee=f"not covered: {GAP}", not_covered=[GAP]),
    "seeded": privacy(guarantee="none: a seed", epsilon="inf", budget_epsilon=10.0,
                      noise_source="seeded: no privacy claim"),
    "noiseless": privacy(guarantee="none: no noise", epsilon="inf", budget_epsilon="inf"),
    "published": privacy(guarantee="none: no valid guarantee", epsilon="inf", as_published={
        "epsilon": 9.99, "steps": 20000, "formula": "RDP"}),
    "edited": privacy(guarantee="(epsilon, delta) replace-one", noise_source="dice"),
}


def made(name, spec=TABLE, classifies=False):
    """The page as it is read, the lines of README.txt, and privacy.json."""
    files = documents.files(STAMPS[name], spec, documents.of_release(spec, classifies))
    return (Reading(files["statement.html"].decode()), files["README.txt"].decode().splitlines(),
            json.loads(files["privacy.json"]))


@pytest.mark.parametrize("name", STAMPS)
def test_the_page_says_what_the_statement_says(name):
    page, lines, stated = made(name)
    stamp = guarantee.of(stated)
    assert " ".join(f"Guarantee: {guarantee.line(stated)}".split()) in lines
    for term, value in (("epsilon", number(float(stated["epsilon"]))), ("relation", "replace-one"),
                        ("delta", number(stated["delta"])), ("guarantee", stamp.text),
                        ("noise", stated["noise_source"]), ("unit", guarantee.whom(stated))):
        assert page.row(term)[0].split() == value.split(), term
    assert page.row("rounded-gaussian")[0] == "200"
    for text in (*stated["not_accounted"], *stated["data_notes"], stated["accountant"]):
        assert text in page.text
    assert ("No privacy guarantee." in page.text) == (stamp.kind == "none")
    assert ("This is promised for" in page.text) == (stamp.kind != "none")
    for text in ("not a finding that the data are anonymous", "facts about groups",
                 "The run folder that it comes from must not be shared", "The number of earlier"):
        assert text in page.text and text in " ".join(" ".join(lines).split())
    assert ("Not covered by the guarantee:" in page.text) == (stamp.kind == "not covered")
    assert any("must not be shared as private" in line for line in lines) == (stamp.kind == "none")


@pytest.mark.parametrize("name", ["not covered", "subject"])
def test_hostile_names_are_text_and_forge_no_line(name):
    for spec in (IMAGES, TABLE):
        page, lines, _ = made(name, spec)
        assert not {"script", "link", "svg", "form", "iframe"} & set(page.tags)
        assert not page.sources and not page.links and "<script>alert(1)</script>" in page.text
        assert sum(line.startswith("Guarantee:") for line in lines) == 1
        assert all(len(line) <= documents.WIDTH for line in lines
                   if not line.startswith(("Guarantee:", "    ")))


@pytest.mark.parametrize(("bought", "words"), [
    ({"records": 75_000, "held_out": 15_000}, (
        "estimated from 75,000 records: those used for training, and 15,000 that were held out for "
        "tests. The same promise holds for each of the 15,000; nothing else in this release was "
        "learned from them.")),
    ({"records": 80}, "estimated from 80 records, some of which may not have been used for"),
    ({"records": 60_000, "held_out": 0}, ""), ({}, "")])
def test_records_that_a_purchase_covered_are_promised_too(bought, words):
    stated = STAMPS["valid"] | ({"bought_from": bought} if bought else {})
    files = documents.files(stated, TABLE, documents.of_release(TABLE, False))
    page, lines = Reading(files["statement.html"].decode()), files["README.txt"].decode()
    said = documents.beyond(documents.checked_statement(stated))
    assert said.endswith(words) or words in said and "used for training." in said
    assert bool(said) == bool(words)
    assert said in page.text and said in " ".join(lines.split())
    if bought:
        assert page.row("description bought from")[0] == f"{bought['records']:,} records"
    seeded = STAMPS["seeded"] | {"bought_from": bought}
    assert documents.beyond(documents.checked_statement(seeded)) == ""


def test_an_epsilon_that_grew_is_not_said_to_be_fixed():
    """As where a data-dependent bound was published after the training."""
    before, after = (documents.terms(documents.checked_statement(STAMPS["valid"] | {
        "epsilon": epsilon, "budget_epsilon": 1.0})) for epsilon in (1.0, 1.5))
    said = [dict(table.rows)["epsilon"][1].text for table in (before, after)]
    assert said[0].endswith("; fixed before the first release")
    assert said[1].endswith("what was charged beyond it is added")


def test_the_sentence_names_who_and_how_much():
    said = documents.sentence(documents.checked_statement(STAMPS["valid"]))
    assert said == ("This is promised for each record (60,000 in all): if that record had been "
                    "different, anything that can be seen in this release or made with it would be "
                    "more or less probable by a factor of at most 2.72, apart from a probability "
                    "of 10\u207b\u2076 (1 in 1,000,000).")
    assert "each client (866 in all): if all records of that client had been different" in (
        documents.sentence(documents.checked_statement(STAMPS["client"])))
    person = STAMPS["subject"] | {"unit_column": "person"}
    assert "each person (90 in all): if all rows of that person had been different" in (
        documents.sentence(documents.checked_statement(person)))


@pytest.mark.parametrize(("fields", "holds"), [
    ({}, True), ({"relation": "add-remove"}, False), ({"data_notes": []}, False),
    ({"epsilon": "inf", "guarantee": "none: a seed"}, False)])
def test_records_that_were_held_out_are_promised_the_same_where_that_is_proven(fields, holds):
    notes = [parts.held_out_note(0.2)]
    stated = documents.checked_statement(STAMPS["valid"] | {"data_notes": notes} | fields)
    said = documents.beyond(stated)
    assert said == ("The same promise holds for each record that was held out for tests: the "
                    "generator did not learn from it.") * holds


def test_the_statement_names_who_made_it_and_when():
    """And which columns identify people, and how they are treated."""
    for fields, words in (
            ({}, "The statement does not name who made it. The date of the training was not"),
            ({"made_by": HOSTILE, "started_on": "2026-01-31"}, "The training began on 2026-01-31")):
        spec = TableSpec(TABLE.columns, TABLE.label, 3, identifiers=(
            Identifier("ticket", "T-####", 0),))
        files = documents.files(STAMPS["subject"] | fields, spec, documents.of_release(spec, False))
        page, text = Reading(files["statement.html"].decode()), files["README.txt"].decode()
        assert words in page.text and "script" not in page.tags
        assert sum(line.startswith("Guarantee:") for line in text.splitlines()) == 1
        assert "ticket: identifiers, by the schema. The generator did not learn from" in page.text
        assert "made-up identifiers: ticket." in page.text
        assert f"{' '.join(HOSTILE.split())}: identifies which rows belong" in " ".join(
            page.text.split())


@pytest.mark.parametrize("note", [
    "bought under differential privacy from 1,500 records: kinds of ticket",
    "column names, kinds, bounds, categories and classes are those of the schema"])
def test_a_bought_identifier_is_not_called_unread(note):
    spec = TableSpec(TABLE.columns, TABLE.label, 3,
                     identifiers=(Identifier("ticket", "T-####", 0),))
    said = " ".join(documents.identifiers(STAMPS["valid"] | {"data_notes": [note]}, spec))
    assert ("was estimated from the records" in said) == note.startswith("bought")
    assert "never read" not in said and "declared" not in said


def test_the_page_for_the_data_holder_has_what_the_journal_knows():
    page = documents.holder_page("run", ("1 run spent epsilon 1",))
    assert "- 1 run spent epsilon 1" in page and "run/release, and nothing else" in page
    assert "no earlier run on these records is known" in documents.holder_page("run", ())


def test_a_damaged_number_is_refused():
    with pytest.raises(UserError, match="is not a number"):
        documents.readme({**STAMPS["valid"], "epsilon": "much"}, TABLE, documents.of_release(
            TABLE, False))


def test_each_kind_of_release_is_used_as_it_can_be():
    table, images, classifier = (made("valid", *kind)[0].text for kind in (
        (TABLE,), (IMAGES,), (IMAGES, True)))
    assert "release.sample(1000)" in table and "--out synthetic.csv" in table
    assert "8 x 8 pixels, colour, of 2 classes: benign" in images and "synthetic.npz" in images
    assert "release.predict(x)" in classifier and "dpgen_jax.sample" not in classifier


def test_a_folder_for_numpy_is_offered_only_where_there_can_be_one():
    offered = {name for name in methods.NAMES if any(
        "dpgen_jax.export" in line for line in documents.of_release(TABLE, False, name).commands)}
    assert offered == {"marginals", "mixture", "prototypes"}
    assert all(hasattr(methods.get(name), "for_numpy") for name in offered)


def test_every_method_says_what_to_cite():
    assert methods.PAPERS.keys() == set(methods.NAMES)
    cited = yaml.safe_load((Path(__file__).parents[2] / "CITATION.cff").read_text())["references"]
    known = " ".join(methods.PAPERS.values()).lower()
    assert cited and all(paper["title"].strip().lower() in known for paper in cited)


@pytest.mark.parametrize(("settings", "said"), [
    ({}, []), ({"warp": 0.0, "classifier": 0}, []), ({"warp": 0.1}, ["by up to 0.1"]),
    ({"generator": {"warp": 0.2}}, ["by up to 0.2"]),
    ({"networks": "gs-wgan", "generator": {"warp": 0.2}, "resnet": {"width": 8}}, []),
    ({"networks": "gs-wgan", "resnet": {"warp": 0.3}}, ["by up to 0.3"]),
    ({"warp": 0.03, "classifier": 4}, ["by up to 0.03", "images between two classes are rarer"])])
def test_how_samples_are_made_beyond_what_was_learnt_is_said(settings, said):
    lines = documents.by_hand({"config": settings})
    assert len(lines) == len(said) and all(map(str.__contains__, lines, said))
