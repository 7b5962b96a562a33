"""The folders of coloured images that the benchmark of all systems makes."""

import numpy as np
import pytest
from PIL import Image

from benchmarks import scenes, systems
from dpgen_jax import data
from dpgen_jax.core.errors import UserError

pytestmark = pytest.mark.long


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.png")}


def test_a_seed_makes_the_same_files_and_what_is_there_stays(tmp_path):
    (tmp_path / "first.unfinished" / "train" / "007").mkdir(parents=True)  # a call that was stopped
    (tmp_path / "first.unfinished" / "train" / "007" / "0.png").write_bytes(b"")
    first = scenes.write(tmp_path / "first", 3, 20)
    assert files(first) == files(scenes.write(tmp_path / "again", 3, 20))
    assert files(first) != files(scenes.write(tmp_path / "other", 3, 20, seed=1))
    before = files(first)
    with pytest.raises(UserError, match="first is there; name another folder"):
        scenes.write(first, 3, 20, seed=1)
    assert files(first) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "first", "other"]


def test_a_user_can_train_on_them(tmp_path, capsys):
    scenes.main([str(tmp_path / "scenes"), "--classes", "4", "--images", "20"])
    assert capsys.readouterr().out == f"{tmp_path / 'scenes'}\n"
    images = data.load(f"folder:{tmp_path / 'scenes'}", classes=4)
    assert (images.count, images.spec.shape, images.spec.classes) == (20, (64, 64, 3), 4)
    assert np.bincount(images.y_train).tolist() == [5] * 4 and len(images.y_test) == 4


@pytest.mark.parametrize("words", [("--classes", "0"), ("--classes", "10", "--images", "20")])
def test_a_class_that_would_have_no_test_image_is_refused(tmp_path, words):
    with pytest.raises(UserError, match="each class needs one there"):
        scenes.main([str(tmp_path / "scenes"), *words])
    assert not list(tmp_path.iterdir())


def test_the_order_of_file_names_tells_no_class(tmp_path):
    folder = scenes.write(tmp_path / "scenes", 2, 40) / "train"
    labels = [path.parent.name for path in sorted(folder.rglob("*.png"), key=lambda p: p.name)]
    assert labels.count("000") == 20 and labels != sorted(labels)
    assert labels[::2] != ["000"] * 20 and labels[1::2] != ["000"] * 20


@pytest.mark.parametrize("name", scenes.SETS)
def test_what_is_known_of_them_is_so(tmp_path, monkeypatch, name):
    """Loading 10,000 files takes long: the facts are compared with what would be written."""
    written = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scenes, "write", lambda *words: written.append(words))
    monkeypatch.setattr(systems, "repeated", None)  # which comes after the images
    with pytest.raises(TypeError):
        systems.main(["--out", str(tmp_path), "--dataset", name, "--methods", "mixture"])
    (folder, classes, images), = written
    facts, words = systems.FACTS[name], systems.COLOUR[name]
    assert words[0] == f"folder:{folder}"
    assert words[1].split("=")[1].split(",") == scenes.names(classes)
    assert (facts.spec.classes, facts.records) == (classes, images)
    shown = scenes.scene(classes - 1, np.random.default_rng(0))
    assert isinstance(shown, Image.Image) and np.asarray(shown).shape == facts.spec.shape
