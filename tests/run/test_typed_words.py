"""The words of a command as a run keeps them: paths in full, all else as it was typed."""

import pytest

from dpgen_jax.core.types import UserError
from dpgen_jax.data import base
from dpgen_jax.run import flags, resume

MANY = ",".join(f"class-{i:03d}" for i in range(100))


@pytest.mark.parametrize("names", [MANY, "a,b", "a", "zero\0byte"])
def test_names_are_no_path_however_many_they_are(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["--class-names", names], [f"--class-names={names}"]):
        assert flags.kept_words("mixture", words) == ("mixture", f"--class-names={names}")


def test_a_file_of_names_is_kept_by_its_full_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.txt").write_text("a\nb\n")
    assert flags.kept_words("mixture",
                            ["--class-names", "names.txt", "--dataset", "folder:nowhere"]) == (
        "mixture", f"--class-names={tmp_path / 'names.txt'}", "--dataset=folder:nowhere")


def test_a_flag_that_is_given_several_times_stays_so():
    """As `evaluate RUN --by sex --by job` is, which takes its data set from the run."""
    before = ["--dataset=csv:a.csv", "--by", "ward", "--fast"]
    now = ["RUN", "--by", "sex", "--by", "job", "--seeds=2"]
    assert flags.merged_words(before, now) == [
        "RUN", "--dataset=csv:a.csv", "--fast", "--by", "sex", "--by", "job", "--seeds=2"]
    assert flags.merged_words(before, []) == before and flags.merged_words([], now) == now


def test_a_hundred_names_are_a_hundred_classes():
    assert base.declared_classes(MANY) == tuple(MANY.split(","))


@pytest.mark.parametrize(("now", "advice"), [
    ({"config": {"norm": None, "noise_share": 1}}, "--resume {} --noise-share 2 --norm 0.6;"),
    ({"config": {"norm": None, "noise_share": 2}, "seed": 1}, "--resume {};")])
def test_a_default_that_has_changed_is_typed_in_the_advice(now, advice, tmp_path):
    """As `norm` of `mixture` did: --resume alone would take the new one, and be refused again."""
    before = {"method": "mixture", "config": {"norm": 0.6, "noise_share": 2}, "typed": ["mixture"]}
    resume.create(tmp_path / "run", before)
    with pytest.raises(UserError, match="config.norm was 0.6, now None") as refusal:
        resume.reopen(tmp_path / "run", before | now)
    assert advice.format(tmp_path / "run") in str(refusal.value)


def test_what_was_not_covered_stays_so_on_a_resume(tmp_path):
    """Else a generator that private records chose would be stamped as if they had not."""
    before = {"method": "mixture", "not_covered": ["what --public-dataset tells"], "typed": ["x"]}
    resume.create(tmp_path / "run", before)
    resume.reopen(tmp_path / "run", before)
    with pytest.raises(UserError, match="not_covered was .*, now \\[\\]"):
        resume.reopen(tmp_path / "run", before | {"not_covered": []})
    resume.create(tmp_path / "older", {"method": "mixture"})
    resume.reopen(tmp_path / "older", {"method": "mixture", "not_covered": []})
    with pytest.raises(UserError, match="not_covered was"):
        resume.reopen(tmp_path / "older", before)
