"""A request as a run folder keeps it: paths in full, all else as it was."""

import json
import math

import pytest

from dpgen_jax.core.request import Request
from dpgen_jax.core.types import UserError
from dpgen_jax.data import base
from dpgen_jax.run import resume

MANY = ",".join(f"class-{i:03d}" for i in range(100))


@pytest.mark.parametrize("names", [MANY, "a,b", "a", "zero\0byte"])
def test_names_are_no_path_however_many_they_are(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Request(data={"class_names": names}).to_json()["data"] == {"class_names": names}


def test_files_are_kept_by_their_full_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.txt").write_text("a\nb\n")
    (tmp_path / "glyphs").mkdir()
    kept = Request(source="folder:nowhere", data={"class_names": "names.txt"}).to_json()
    assert kept == {"version": 1, "source": "folder:nowhere",
                    "data": {"class_names": str(tmp_path / "names.txt")}}
    assert Request(source="glyphs").to_json()["source"] == "glyphs"


def test_a_request_that_a_folder_keeps_comes_back():
    stated = Request("dpmerf", epsilon=math.inf, settings={"steps": None, "windows": [0]},
                     data={"schema": {"columns": {}}}, accept_uncovered=False, alpha=0.5)
    assert Request.from_json(json.loads(json.dumps(stated.to_json())), "") == stated
    with pytest.raises(UserError, match="x.epsilon is 'much', expected"):
        Request.from_json({"version": 1, "epsilon": "much"}, "x")


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
