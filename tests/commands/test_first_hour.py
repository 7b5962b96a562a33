"""A newcomer types on: half-finished drafts, misspelt paths and arguments, odd folders."""

import numpy as np
import pytest
import yaml
from PIL import Image
from prepared import prepared

import dpgen_jax as dg
from dpgen_jax import schema, train
from dpgen_jax.core.config import Budget
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.core.types import UserError
from dpgen_jax.data import load
from dpgen_jax.run import planning, side_releases


@pytest.fixture
def loans(tmp_path, monkeypatch):
    """A table of 600 rows whose columns nobody declared, and its draft."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f"{age},{'RO'[age % 2]},{'yes' if age > 60 else 'no'}"
            for age in rng.integers(20, 80, 600)]
    (tmp_path / "loans.csv").write_text("\n".join(["age,home,late", *rows]) + "\n")
    schema.command(["loans.csv", "--label", "late", "--out", "draft.yaml"])
    return tmp_path


def chosen(*flags):
    """A training of the table as far as its choice."""
    return prepared(["--dataset=loans.csv", "--epsilon=5", *flags])


def part_of(draft, column, **entries):
    """A draft without one column, and with other entries."""
    document = yaml.safe_load(draft.read_text()) | entries
    del document["columns"][column]
    document["read_from_data"] = [entry for entry in document["read_from_data"]
                                  if not entry.startswith(f"{column}.")]
    path = draft.with_name("part.yaml")
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_draft_is_never_called_declared_and_each_mend_is_said_once(loans):
    made = chosen("--schema=draft.yaml", "--accept-uncovered")
    assert made.remarks[0] == (
        "the entries that read_from_data lists in draft.yaml were READ FROM THE RECORDS, and "
        "epsilon does not cover them")
    with pytest.raises(UserError, match="kinds of age, home.*bounds of age") as refused:
        planning.refuse_uncovered(made.dataset, Budget(5.0, 1e-5), None)
    text = str(refused.value)
    assert len(text) < 1000 and text.count("--schema-epsilon") == 1
    assert all(part.what in text and part.declare in text for part in made.dataset.uncovered)


def test_nothing_is_bought_beside_entries_that_a_run_will_refuse(loans):
    part_of(loans / "draft.yaml", "home")
    for flags in ([], ["--dry-run"]):
        with pytest.raises(UserError, match="epsilon does not cover the entries.*nothing was spe"):
            chosen("--schema=part.yaml", "--out=run", *flags)
    assert not (loans / "run").exists()


def test_what_is_read_beside_a_schema_leaves_its_purchases_and_what_it_read(loans):
    """Its other entries too: a schema that was half bought is charged, also where rows are read."""
    bought = chosen("--label=late", "--out=bought").dataset.bought
    assert bought
    paid = yaml.safe_load((loans / "bought/schema.yaml").read_text())
    part_of(loans / "draft.yaml", "home", name="credits", bought=paid["bought"],
            constraints=["late = yes -> home = O"])
    made = chosen("--schema=part.yaml", "--accept-uncovered", "--out=run").dataset
    assert side_releases.purchases(made.bought) == side_releases.purchases(bought)
    said = " ".join(part.what for part in made.uncovered)
    assert "bounds of age read" in said and "kinds of age, home read" in said
    assert made.spec.constraints == ("late = yes -> home = O",) and made.name == "credits"


def test_few_rows_are_told_how_a_schema_is_drafted(loans):
    with pytest.raises(UserError, match=r"dpgen_jax.schema CSV --label COLUMN --out FILE drafts"):
        chosen("--epsilon=0.01")


def test_what_lies_beside_the_images_of_a_folder_is_told_to_its_holder(tmp_path, capsys):
    for name in ("train/a", "train/b", "train/a/deep"):
        (tmp_path / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / name / "x.png")
    for name in ("train/notes.txt", "train/a/b.gif", "train/a/.hidden"):
        (tmp_path / name).write_text("")
    (line,) = load(f"folder:{tmp_path}", channels=1, class_names="a,b").private_notes
    assert line.endswith("and no deeper: a/b.gif, a/deep, notes.txt")
    assert len(load(f"folder:{tmp_path}", channels=1, class_names="a,b").y_train) == 2


@pytest.mark.parametrize(("call", "message"), [
    (lambda: dg.load_dataset("glyphs", image_sise=8), "load_dataset has no argument 'image_sise', "
     "did you mean 'image_size'\\?; it takes spec, classes, image_size"),
    (lambda: dg.load_dataset(), "load_dataset: missing a required argument: 'spec'; it takes spec"),
    (lambda: dg.assess(1, 2, 3, 4, 5, 6, 7, 8), "assess: too many positional arguments; it takes"),
    (lambda: dg.draft_schema(None, lable="x"), "has no argument 'lable', did you mean 'label'"),
    (lambda: dg.fit(), "fit needs data: a DataFrame")])
def test_a_call_that_fits_no_function_is_one_clear_line(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_a_path_that_is_not_there_or_no_method_is_said_to_be_so(loans):
    for place, said in (("loan.csv", "no file or folder 'loan.csv' here, did you mean 'loans.csv'"),
                        ("scans/", "no file or folder 'scans/' here;"),
                        ("glyps", "unknown data set 'glyps'; did you mean glyphs")):
        with pytest.raises(UserError, match=said):
            load(place)
    with pytest.raises(UserError, match="'loans.csv' is a path and not a method: write --data"):
        train.command(["loans.csv", "--epsilon", "1"])


def test_arrays_of_other_names_are_listed(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 8, 8), np.uint8), labels=np.zeros(2, np.int32))
    with pytest.raises(UserError, match="a.npz holds images, labels; x_train and y_train are need"):
        load(f"npz:{tmp_path / 'a.npz'}", classes=2)


@pytest.mark.slow
def test_a_run_that_is_done_says_that_nothing_is_charged_again(loans, capsys):
    train.command(["dpmerf", "--dataset=glyphs", "--out=run", "--generator-steps=5",
                   "--features=20", "--windows=0", "--bandwidths=0.1", "--batch=20"])
    assert "were done before" not in capsys.readouterr().out
    before = read_json(loans / "run/release/privacy.json")
    train.command(["--resume", "run"])
    assert "steps were done before: nothing more is trained or charged" in capsys.readouterr().out
    assert read_json(loans / "run/release/privacy.json") == before


def test_a_schema_states_what_its_declared_part_had_cost_too(loans):
    row = {"entry": "age.bounds", "kind": "epsilon-delta", "mechanism": "bounds", "epsilon": "2.4",
           "delta": "0", "count": "1"}
    chosen("--label=late", "--out=run")
    part = part_of(loans / "draft.yaml", "home", read_from_data=[], bought=[row])
    chosen(f"--schema={part}", "--label=late", "--out=both")
    texts = [(loans / run / "schema.yaml").read_text() for run in ("run", "both")]
    alone, both = (float(text.split("for epsilon ")[1].split()[0]) for text in texts)
    assert alone < 2.4 < both
