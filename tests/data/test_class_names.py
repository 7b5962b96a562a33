"""The names of classes: part of what is released, and of nothing that is compared or hashed."""


import numpy as np
import pytest
import runs
import small_datalens

from dpgen_jax import data
from dpgen_jax.core.config import digest, from_json, to_json
from dpgen_jax.core.terms import ProtectedUnit
from dpgen_jax.core.types import EMPTY, ImageSpec, UserError
from dpgen_jax.data import Dataset, base
from dpgen_jax.evaluation import assess, report
from dpgen_jax.presets import numbers
from dpgen_jax.release import contents, files
from dpgen_jax.release.bundle import Release
from dpgen_jax.release.guarantee import Protected
from dpgen_jax.run import planning, resume

PLAIN = ImageSpec(8, 8, 1, 3)
NAMED = ImageSpec(8, 8, 1, 3, ("emu", "cat", "dog"))


SOUND = {"guarantee": "(epsilon, delta) replace-one", "epsilon": 3.0, "delta": 1e-5,
         "relation": "replace-one", "unit": "record", "noise_source": "os-entropy"}


def release(spec):
    return Release("datalens", small_datalens.CONFIG, spec, {"w": np.zeros(2, np.float32)}, SOUND)


def public(spec):
    """A run's config.json at its start."""
    x, y = runs.images()
    request = runs.request(None)
    return planning.public_config(request, request.config, Dataset("some", spec, x, y),
                                  Protected(ProtectedUnit(), {"records": 60}))


@pytest.mark.parametrize(("spec", "named", "expected"), [
    (NAMED, ["dog", "emu"], [2, 0]), (NAMED, ["1", "cat"], [1, 1]), (NAMED, [2], [2]),
    (PLAIN, ["2", 0], [2, 0]), (ImageSpec(8, 8, 1, 3, ("2", "0", "1")), ["2", 0, 1], [0, 1, 2]),
    (numbers(2), ["1"], [1])])
def test_classes_are_found_by_name_or_number(spec, named, expected):
    assert release(spec).classes(named) == expected


@pytest.mark.parametrize(("spec", "label"), [
    (NAMED, "bird"), (NAMED, "3"), (PLAIN, "cat"), (ImageSpec(8, 8, 1, 2, ("1", "2")), "0")])
def test_a_label_that_is_none_is_refused_by_name(spec, label):
    with pytest.raises(UserError, match=f"label '{label}' is not one of"):
        release(spec).classes([label])


def test_a_release_keeps_them_and_an_old_one_has_none(tmp_path):
    release(NAMED).save(tmp_path)
    saved = contents.described(tmp_path / "config.json")["spec"]
    assert contents.spec(saved).class_names == NAMED.class_names
    del saved["class_names"]
    assert contents.spec(saved).class_names == ()


def test_they_are_no_part_of_what_is_compared_or_of_old_digests():
    assert PLAIN == NAMED and hash(PLAIN) == hash(NAMED)
    assert to_json(PLAIN) == {"height": 8, "width": 8, "channels": 1, "classes": 3}
    assert digest(PLAIN) == digest({"height": 8, "width": 8, "channels": 1, "classes": 3})
    assert from_json(ImageSpec, to_json(NAMED)).class_names == NAMED.class_names
    assert public(NAMED)["spec"] == public(PLAIN)["spec"] == to_json(PLAIN)
    assert public(NAMED)["class_names"] == [*NAMED.class_names]


def test_they_are_folders_and_labels_of_what_is_sampled(tmp_path):
    x, y = runs.images(n=6)
    for names, folders in ((("emu", "cat", "big dog"), {"emu", "cat", "big dog"}),
                           (("a/b", "..", "c"), {"0", "1", "2"}),
                           (("A", "a", "b"), {"0", "1", "2"})):
        spec = ImageSpec(8, 8, 1, 3, names)
        out = tmp_path / names[0].replace("/", "")
        with files.opener(out, spec, 6)(_made(out), spec, 6) as take:
            take(x, np.arange(6) % 3)
        assert {path.name for path in (out / "train").iterdir()} == folders
    shown = report.page(report.Report(None, SOUND, {"class_names": ["emu", "cat", "dog"]},
                                   samples=(x, np.arange(6) % 3)))
    assert "data:image/png" in shown
    assert report.class_names({"spec": to_json(NAMED)}) == ["emu", "cat", "dog"]


def _made(path):
    path.mkdir()
    return path


def test_public_data_have_their_public_names():
    x = np.zeros((10, 8, 8, 1), np.uint8)
    fashion = data.from_arrays(x, np.arange(10), 10)
    assert base.official_classes(fashion, base.FASHION_CLASSES).spec.class_names[9] == "Ankle boot"
    for names in (tuple("0123456789"), ("a", "b"), ()):
        assert base.official_classes(fashion, names) is fashion


def test_a_run_of_an_older_version_can_be_resumed(tmp_path):
    old = public(PLAIN)
    del old["class_names"]
    resume.create(tmp_path / "old", old)
    resume.reopen(tmp_path / "old", public(NAMED))
    resume.create(tmp_path / "new", public(NAMED))
    resume.reopen(tmp_path / "new", public(NAMED))
    with pytest.raises(UserError, match="class_names was .*'emu', 'cat', 'dog'.*, now"):
        resume.reopen(tmp_path / "new", public(PLAIN))


def test_any_images_may_be_given_names(tmp_path):
    x, y = runs.images()
    place = f"npz:{runs.npz(tmp_path / 'a.npz', x, y)}"
    loaded = data.load(place, class_names="emu,cat,dog")
    assert loaded.spec.class_names == NAMED.class_names
    with pytest.raises(UserError, match="--class-names does not apply to breast_cancer"):
        data.load("breast_cancer", class_names="a,b")
    with pytest.raises(UserError, match="digits has 10 classes, --classes 2 was given"):
        data.load("digits", class_names="a,b")


def test_an_evaluation_sees_no_empty_slot(monkeypatch):
    """Measures of likeness and attacks on members get records alone."""
    seen = []
    monkeypatch.setattr(assess, "measured", lambda real, *_: seen.append(
        real.train[1]) or assess.Assessment())
    x, y = runs.images()
    x[3], y[3] = 0, EMPTY
    assess.assess(release(PLAIN), Dataset("some", NAMED, x, y, x[10:30], y[10:30]))
    assert len(seen[0]) == len(y) - 1 and (seen[0] >= 0).all()
