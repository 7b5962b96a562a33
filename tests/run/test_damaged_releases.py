"""Release and run folders that were edited, cut or made to harm: one clear line, never a traceback.

Every field of every JSON file takes every wrong type; what is accepted all the same must serve all
that reads it.
"""

import hashlib
import itertools
import json
import math
import os
import sys
from pathlib import Path

import json_mutations
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import small_datalens
from flax import traverse_util

from dpgen_jax import account, compare, evaluate, sample
from dpgen_jax.core import config
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.evaluation import assessment, membership, report
from dpgen_jax.methods import gpate
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.release import bundle

sys.path.append(str(Path(__file__).parents[1] / "report"))
import report_examples as examples

TABLE = TableSpec((Column("age", "integer", 0, 99, nullable=True),
                   Column("job", "categorical", categories=("cook", "nurse")),
                   Column("pay", "continuous", 0.0, 1.5)),
                  Column("grade", "ordinal", categories=("low", "high", "top")), 1)
GPATE = gpate.Config(teachers=8, batch=4, steps=2, sigma=10.0, projection=2, bins=4,
                     generator=GeneratorNet(3, 8, 4), discriminator=DiscriminatorNet(4, 4, 4))
KINDS = {
    "image": ("datalens", small_datalens.CONFIG, small_datalens.SPEC),
    "table": ("gpate", GPATE, TABLE),
}
WEIGHTS = "generator.safetensors"


def release(root: Path, kind: str) -> Path:
    """A release of zeros, which costs no training."""
    flat = {name: np.zeros(part.shape, part.dtype)
            for name, part in bundle.arrays_of_model(*KINDS[kind]).items()}
    return bundle.Release(*KINDS[kind], traverse_util.unflatten_dict(flat, sep="/"),
                          examples.privacy(method=KINDS[kind][0])).save(root)


def used(root: Path) -> None:
    """All that reads a release's statement and description."""
    release = bundle.load(root)
    membership.guarantee(release.privacy)
    report.page(report.Report(None, release.privacy, {
        "method": release.method, "config": config.to_json(release.config),
        "spec": config.to_json(release.spec)}))


def refused_or_used(case: str, act) -> bool:
    """Whether the act was refused, in one line; any other error fails the test by its case."""
    try:
        act()
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000, case
        return True
    except BaseException as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    return False


def some(document: dict, every: int):
    """The texts that are no JSON of ours, and one in `every` of the changes of fields, so that
    each field and each value has its turn."""
    cases = list(json_mutations.documents(document))
    whole = [case for case in cases if ": " not in case[0]]
    fields = [case for case in cases if ": " in case[0]]
    return [*whole, *itertools.islice(fields, 0, None, every)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "every"), [("config.json", 13), ("privacy.json", 5)])
def test_every_field_of_a_release_may_be_wrong(tmp_path, kind, name, every):
    root = release(tmp_path / "r", kind)
    path, text = root / name, (root / name).read_text()
    used(root)
    refused = 0
    for case, changed in some(json.loads(text), every):
        path.write_text(changed)
        refused += refused_or_used(case, lambda: used(root))
    assert refused > 20


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_an_evaluation_may_be_wrong(tmp_path, kind):
    whole = examples.image_metrics() if kind == "image" else examples.table_metrics(
        examples.spec(4))
    few = {task: dict(list(whole[task].items())[:2]) for task in ("gen2real", "real2real")}
    found = whole | few | {"release": examples.privacy(), "average": {
        "gen2real": {"accuracy": examples.leaf(0.7), "classifiers": ["cnn"]}}}
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.json").write_text(json.dumps(found))
    words = [str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "p")]
    compare.command(words)
    refused = 0
    for case, changed in some(found, 41):
        (tmp_path / "a" / "metrics.json").write_text(changed)
        refused += refused_or_used(case, lambda: compare.command(words))
    assert refused > 10


@pytest.mark.parametrize("name", ["config.json", "privacy.json"])
@pytest.mark.parametrize("text", [json_mutations.DEEP, '{"epsilon": NaN}', "[]", "\x80", ""])
def test_commands_end_with_code_2_and_one_line(call, tmp_path, name, text):
    (tmp_path / "run").mkdir()
    root = release(tmp_path / "run" / "release", "image")
    (root / name).write_text(text, "latin-1")
    for command, words in ((sample, ["--out", tmp_path / "x.npz"]),
                           (evaluate, ["--dataset", "glyphs", "--fast"])):
        code, _, err = call(command, tmp_path / "run", *words)
        assert code == 2 and err.startswith("error: ") and err.count("\n") == 1 and name in err


@pytest.mark.parametrize(
    "text", [json_mutations.DEEP, "{}", '{"method": [], "config": 3, "spec": {}}']
)
@pytest.mark.parametrize("flag", ["--data-dependent", "--sanitise"])
def test_accounting_of_a_damaged_run_is_one_line(call, tmp_path, text, flag):
    (tmp_path / "config.json").write_text(text)
    code, _, err = call(account, tmp_path, flag)
    note, error = err.rstrip("\n").rpartition("\n")[::2]
    assert code == 2 and error.startswith("error: ") and "config.json" in error
    assert ("dpgen_jax.publish" in note) == (flag == "--sanitise")  # its new name


@pytest.mark.parametrize("name", ["config.json", "privacy.json", WEIGHTS])
def test_a_pipe_is_no_release(tmp_path, name):
    root = release(tmp_path / "r", "image")
    (root / name).unlink()
    os.mkfifo(root / name)
    with pytest.raises(UserError, match="not a regular file|neither a run nor a release"):
        bundle.load(root)


def rename(arrays):
    arrays["other"] = arrays.pop(min(arrays))


def change(act):
    def inner(arrays):
        name = min(arrays)
        arrays[name] = act(arrays[name])
    return inner


@pytest.mark.parametrize(("act", "match"), [
    (rename, "is float32 of shape .*, by config.json it is absent|is absent, by"),
    (lambda arrays: arrays.pop(min(arrays)), "is absent, by config.json it is float32"),
    (lambda arrays: arrays.update({"a/b": np.zeros(2)}), "'a/b' is float64 of shape .* absent"),
    (lambda arrays: arrays.update({"params": np.zeros(2)}), "'params' is float64"),
    (change(lambda a: a.astype(np.float64)), "is float64 of shape"),
    (change(lambda a: a.astype(np.int32)), "is int32 of shape"),
    (change(lambda a: a.astype(ml_dtypes.bfloat16)), "is bfloat16|not a file of arrays"),
    (change(lambda a: a[..., None]), "is float32 of shape"),
    (change(lambda a: a[:0]), "is float32 of shape .0")])
def test_arrays_must_be_those_of_the_method(tmp_path, act, match):
    """Also where their checksum is right."""
    root = release(tmp_path / "r", "image")
    arrays = safetensors.numpy.load((root / WEIGHTS).read_bytes())
    act(arrays)
    put(root, safetensors.numpy.save(arrays))
    with pytest.raises(UserError, match=match) as caught:
        bundle.load(root)
    assert "\n" not in str(caught.value) and WEIGHTS in str(caught.value)


@pytest.mark.parametrize("act", [
    lambda data: b"", lambda data: data[:4], lambda data: data[:100], lambda data: data + b"x",
    lambda data: b"\xff" * 8 + data[8:], lambda data: data[:8] + b"[" * 1000 + data[1008:],
    lambda data: data.replace(b"F32", b"BF8"), lambda data: data.replace(b"F32", b"F64"),
    lambda data: data.replace(b'"shape":[', b'"shape":[-')])
def test_a_file_that_holds_no_arrays(tmp_path, act):
    root = release(tmp_path / "r", "image")
    put(root, act((root / WEIGHTS).read_bytes()))
    with pytest.raises(UserError, match=f"{WEIGHTS} is damaged") as caught:
        bundle.load(root)
    assert "\n" not in str(caught.value)


def put(root: Path, data: bytes) -> None:
    """The weights, with the checksum that they have."""
    (root / WEIGHTS).write_bytes(data)
    content = json.loads((root / "config.json").read_text())
    content["generator_sha256"] = hashlib.sha256(data).hexdigest()
    (root / "config.json").write_text(json.dumps(content))


def test_a_spec_that_no_data_has(tmp_path):
    """Sizes of which the arrays would fill any memory are refused by their number, unbuilt."""
    root = release(tmp_path / "r", "image")
    text = (root / "config.json").read_text()
    for field, value in (("height", 10**9), ("width", 0), ("channels", 2), ("classes", 10**9)):
        content = json.loads(text)
        content["spec"][field] = value
        (root / "config.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match="no records have such a spec"):
            bundle.load(root)


def test_what_gives_no_privacy_can_be_read(tmp_path):
    """Its epsilon is the text "inf", here and in the metrics of its evaluation."""
    root = release(tmp_path / "r", "image")
    (root / "privacy.json").write_text(json.dumps(examples.privacy(epsilon="inf")))
    used(root)
    found = examples.image_metrics(release=examples.privacy(epsilon="inf"))
    (root / "metrics.json").write_text(json.dumps(found))
    assert assessment.load(root / "metrics.json").fact("release", "epsilon") == math.inf


def test_json_is_read_as_it_is_written(tmp_path):
    content = {"a": [1, 2.5, None, True, "caf\u00e9"], "b": {"c": 2**63}}
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert read_json(tmp_path / "a.json") == content
