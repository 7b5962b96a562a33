"""Nothing that is computed moves unseen: seeded runs of every method are compared with a record.

`digests.json` holds, for each case of `seeded`, what a seeded run of two or three steps left:

  release   SHA-256 of the released arrays and of 16 records that were sampled with a fixed seed (of
            a classifier: its predictions). Names and order of arrays do not matter, bits do. It is
            compared on the kind of machine that it was recorded on, and skipped elsewhere.
  arrays    the names, types and shapes in generator.safetensors
  state     the names in the last checkpoint, by its parts
  ledger    the lines of ledger.jsonl
  privacy   privacy.json
  config    the configuration in the release, as it is written and read

All but `release` are compared everywhere: without ids and versions, and numbers to 12 digits. The
folders in `old`, by version, were written by earlier code; they must load, and a run must go on.

A digest that changes is a change for users, and needs a line in CHANGELOG that says why. Record
anew, look at the difference, and commit it with that line (most cases are marked slow, some long):

    DPGEN_RECORD=1 python -m pytest -n 0 -m "" tests/test_digests.py

Folders in `old` are never made again. `python tests/test_digests.py` adds those of this version.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import platform
import shutil
from importlib.metadata import version
from pathlib import Path

import conftest  # noqa: F401  its flags, where this file is run as a program
import jax
import numpy as np
import people_table
import pytest
import safetensors.numpy
import seeded
import small_datalens
from seeded import ALL, ANSWERED, CASES, LONG, SEED, SLOW, train

import dpgen_jax
from dpgen_jax import methods
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.config import from_json, to_json
from dpgen_jax.core.types import UserError
from dpgen_jax.run import lifecycle, stages

pytestmark = pytest.mark.usefixtures("compiled_once")
RECORD = Path(__file__).with_name("digests.json")
OLD = Path(__file__).with_name("old")
VERSIONS = pytest.mark.parametrize("folder", sorted(OLD.glob("*")), ids=lambda path: path.name)


def digest(release: lifecycle.Release) -> str:
    """SHA-256 of a release's arrays, in an order that does not depend on their names, and of what
    it makes of a fixed seed or of fixed records."""
    if release.classifies:
        made = [release.predict(np.random.default_rng(SEED).random((16, *release.spec.shape)))]
    else:
        made = [*release.arrays(16, seed=SEED)]
    parts = [*sorted(map(fingerprint, jax.tree.leaves(release.model))), *map(fingerprint, made)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def fingerprint(array) -> str:
    """Type, shape and bits of one array."""
    array = np.asarray(array)
    return f"{array.dtype}{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"


def rounded(value):
    """Plain JSON with numbers of 12 digits: the last ones depend on the machine's libraries."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def without(values: dict, *names: str) -> dict:
    return {name: rounded(value) for name, value in values.items() if name not in names}


def left(root: Path, release: lifecycle.Release) -> dict:
    """The results of a run in its folder, as they are recorded."""
    config, privacy = (json.loads((root / "release" / f"{name}.json").read_text())
                       for name in ("config", "privacy"))
    arrays = safetensors.numpy.load_file(root / "release/generator.safetensors")
    lines = map(json.loads, (root / "ledger.jsonl").read_text().splitlines())
    parts = sorted(root.glob("private/checkpoints/*/*.safetensors"))
    return {"release": digest(release),
            "state": {part.stem: state_names(part) for part in parts},
            "arrays": {name: f"{a.dtype}{[*a.shape]}" for name, a in sorted(arrays.items())},
            "ledger": [without(line, "prev", "hash", "run", "config_hash") for line in lines],
            "privacy": without(privacy, "package_version", "started_on", "texts"),
            "config": without(config, "generator_sha256", "package_version")}


def state_names(part: Path) -> list[str]:
    """The arrays in a part of a checkpoint: a path a name."""
    with safetensors.safe_open(part, "np") as file:
        return sorted(file.keys())


def kind() -> dict[str, str]:
    """The facts of machine and libraries on which the last bit of a sum may depend."""
    cpu = Path("/proc/cpuinfo")
    flags = set(cpu.read_text().split()) if cpu.exists() else {platform.processor()}
    # A command that another test called in this process has added how long devices wait.
    xla = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "timeout" not in flag]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"machine": f"{platform.system()} {platform.machine()}",
            "vectors": " ".join(sorted(f for f in flags if f.startswith(("avx", "fma", "amx")))),
            "threads": "several" if max(cores, jax.device_count()) > 1 else "one",
            "backend": jax.default_backend(), "flags": " ".join(xla),
            **{name: version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy",
                                                "scipy")}}


def require_kind(recorded: dict) -> None:
    """Skips where other bits may be right as well."""
    other = [f"{name} was {recorded[name]!r}, is {now!r}"
             for name, now in kind().items() if recorded[name] != now]
    if other:
        pytest.skip(f"digests of releases were recorded elsewhere: {'; '.join(other)}")


# --- the runs

@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The results of the run of a case; each is trained once, without the pictures of a release."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stages, "write_pictures", lambda *_: None)

        @functools.cache
        def one(name: str) -> dict:
            root = tmp_path_factory.mktemp("digests") / "run"
            return left(root, train(ALL[name], root))

        yield one


@pytest.fixture(scope="module")
def recorded(run, tmp_path_factory):
    """The record, which is made anew where the environment asks for it."""
    if os.environ.get("DPGEN_RECORD"):
        old = {folder.name: of_old(folder, tmp_path_factory.mktemp("old"))
               for folder in sorted(OLD.glob("*"))}
        record = {"kind": kind(), "old": old, "runs": {name: run(name) for name in ALL}}
        RECORD.write_text(text(record, 4) + "\n")
    return json.loads(RECORD.read_text())


def text(value, depth: int) -> str:
    """JSON with one line for each value down to a depth, so that a difference can be read."""
    if not depth or not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    named = isinstance(value, dict)
    parts = [f"{json.dumps(name)}: {text(part, depth - 1)}" for name, part in value.items()
             ] if named else [text(part, depth - 1) for part in value]
    inner = ",\n".join(parts).replace("\n", "\n ")
    return f"{'{' if named else '['}\n {inner}\n{'}' if named else ']'}"


EACH = pytest.mark.parametrize(
    "name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW),
             *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])


@EACH
def test_what_a_run_says_and_charges_stays(run, recorded, name):
    now, then = run(name), recorded["runs"][name]
    charged = ("ledger", "privacy") * (name != ANSWERED or kind() == recorded["kind"])
    for part in (*charged, "config", "arrays", "state"):
        assert now[part] == then[part], part


@EACH
def test_what_a_run_computes_stays_bit_for_bit(run, recorded, name):
    then = recorded["runs"][name]  # which may have been recorded apart from the others
    require_kind(then.get("kind", recorded["kind"]))
    assert run(name)["release"] == then["release"]


@EACH
def test_a_recorded_configuration_is_read_and_written_as_it_was(recorded, name):
    then = recorded["runs"][name]["config"]
    config = from_json(methods.get(then["method"]).Config, then["config"])
    assert rounded(to_json(config)) == then["config"]


@pytest.mark.parametrize("name", methods.NAMES)
def test_every_method_is_recorded_on_all_that_it_supports(name):
    missing = [kind for kind in ("images", "table") if f"{name} {kind}" not in ALL]
    for kind in missing:
        spec = people_table.SPEC if kind == "table" else small_datalens.SPEC
        with pytest.raises(UserError, match="for images" if kind == "table" else "for tables"):
            methods.get(name).build(methods.get(name).Config(), spec)


# --- faults that must be noticed

CHEAP = "topagg_sgd table"


def test_other_noise_is_another_digest(run, tmp_path, monkeypatch):
    """And nothing else: what a run says of itself does not depend on its noise."""
    draw = SeededBits.draw
    monkeypatch.setattr(SeededBits, "draw", lambda self, shape: ~draw(self, shape))
    other = left(tmp_path / "run", train(CASES[CHEAP], tmp_path / "run"))
    assert {part for part in other if other[part] != run(CHEAP)[part]} == {"release"}


def test_one_step_more_is_another_digest_and_another_charge(run, tmp_path):
    other = left(tmp_path / "run", train(CASES[CHEAP], tmp_path / "run", steps=4))
    assert {part for part in other if other[part] != run(CHEAP)[part]} == {
        "release", "ledger", "privacy", "config"}


@VERSIONS
def test_the_last_bit_of_any_array_is_another_digest(folder):
    release = dpgen_jax.load(folder / "table-release")
    leaves, tree = jax.tree.flatten(release.model)
    digests = {digest(release)}
    for i, leaf in enumerate(leaves):
        changed = np.array(leaf)
        changed.view(np.uint8).flat[0] ^= 1
        model = jax.tree.unflatten(tree, [*leaves[:i], changed, *leaves[i + 1:]])
        digests.add(digest(dataclasses.replace(release, model=model)))
    assert len(digests) == len(leaves) + 1


# --- folders of earlier code

def go_on(folder: Path, root: Path) -> lifecycle.Release:
    """A run that was interrupted after two of its four steps goes on in a copy, on a machine that
    knows nothing of it."""
    shutil.copytree(folder / "image-run", root)
    return train(seeded.OLD_IMAGES, root, resume=True)


def of_old(folder: Path, scratch: Path) -> dict[str, str]:
    return {"image release": digest(dpgen_jax.load(folder / "image-run")),
            "table release": digest(dpgen_jax.load(folder / "table-release")),
            "image run, finished": digest(go_on(folder, scratch / "run"))}


@pytest.mark.slow
@VERSIONS
def test_an_old_run_goes_on(folder, tmp_path):
    before = dpgen_jax.load(folder / "image-run").privacy
    privacy = go_on(folder, tmp_path / "run").privacy
    lines = [json.loads(line) for line in (tmp_path / "run/ledger.jsonl").read_text().splitlines()]
    assert (before["steps"], privacy["steps"]) == (2, 4)
    assert [line["kind"] for line in lines] == [
        "header", *["reserve", "settle"] * 2, "open", *["reserve", "settle"] * 2]
    (event,), (earlier,) = privacy["events"], before["events"]
    assert event == earlier | {"count": 4} and earlier["count"] == 2


@VERSIONS
@pytest.mark.parametrize(("name", "shape"), [("image-run", (16, 8, 8, 1)),
                                             ("table-release", (16, 4))])
def test_an_old_release_loads(folder, name, shape):
    x, y = dpgen_jax.load(folder / name).arrays(16, seed=SEED)
    assert (x.shape, y.shape) == (shape, (16,))


@pytest.mark.slow
@VERSIONS
def test_old_folders_make_the_same_records(folder, recorded, tmp_path):
    require_kind(recorded["kind"])
    assert of_old(folder, tmp_path) == recorded["old"][folder.name]


def add_old() -> None:
    """The folders of this version, in `old`."""
    folder, scratch = OLD / dpgen_jax.__version__, Path(os.environ["DPGEN_STATE"])
    folder.mkdir(parents=True)  # fails where they are there
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stages, "write_pictures", lambda *_: None)
        seeded.interrupted(scratch / "image-run")  # a checkpoint names the place it was made at
    shutil.copytree(scratch / "image-run", folder / "image-run")
    train(seeded.OLD_TABLE, scratch / "table-run").save(folder / "table-release")


if __name__ == "__main__":
    add_old()
