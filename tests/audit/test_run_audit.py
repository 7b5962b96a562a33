"""The audit of run folders: a sound run passes, and whatever is edited in one is named."""

import functools
import gzip
import hashlib
import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import runs
import test_data_dependent
from PIL import Image, PngImagePlugin

import dpgen_jax as dg
from dpgen_jax.accountant import journal as journals
from dpgen_jax.accountant import ledger
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder import leaks, of_folder, promise, spending
from dpgen_jax.audit.folder.reading import opened
from dpgen_jax.core.config import Budget
from dpgen_jax.private import kept_votes
from dpgen_jax.run import costs

SEEDED = Path(__file__).parents[1] / "old" / "0.1.0/image-run"


def whole(test):
    """A slow test of the trained run, on the machine whose journal knows of it."""
    return pytest.mark.slow(pytest.mark.usefixtures("of_its_machine")(test))


def audit(root, place=None):
    return dg.audit(root, dataset=place, verbose=False)


def failed(report):
    return {finding.check: finding.detail for finding in report.findings
            if finding.verdict == Verdict.FAILS}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, compiled_once):
    root = tmp_path_factory.mktemp("audit") / "run"
    runs.train(root, budget=Budget(10.0, 1e-3, class_epsilon=1.0), steps=3)
    (root.parent / "state").write_text(str(journals.place()))
    return root


@pytest.fixture
def of_its_machine(journal, trained, monkeypatch):
    """The journal that knows of the run."""
    monkeypatch.setenv("DPGEN_STATE", (trained.parent / "state").read_text())


@pytest.fixture
def copy(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def in_json(name, **fields):
    """Fields of a file become others; a name with dots is a field of a field."""
    def edit(root):
        path = root / name
        held = json.loads(path.read_text())
        for key, value in fields.items():
            *outer, last = key.split("__")
            functools.reduce(dict.__getitem__, outer, held)[last] = value
        path.write_text(json.dumps(held, indent=1) + "\n")
    return edit


def in_line(name, number, **fields):
    def edit(root):
        lines = (root / name).read_text().splitlines()
        lines[number] = json.dumps(json.loads(lines[number]) | fields)
        (root / name).write_text("\n".join(lines) + "\n")
    return edit


def forged(root):
    """A ledger whose counts are lower, chained anew."""
    previous, lines = ledger.CHAIN_START, b""
    for record in opened(root).book.records:
        for event in record.get("events", []):
            event["count"] = max(1, event["count"] // 2)
            event["sigma"] = 2 * event.get("sigma", 1) if "sigma" in event else None
        record["events"] = [{k: v for k, v in event.items() if v is not None}
                            for event in record.get("events", [])]
        if "events" in record and not record["events"]:
            del record["events"]
        line, previous = ledger.chained_line(previous, record)
        lines += line
    (root / "ledger.jsonl").write_bytes(lines)


def cut(root):
    lines = (root / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (root / "ledger.jsonl").write_bytes(b"".join(lines[:-2]))


def hidden(root):
    """The path of a file in a compressed text chunk of the picture."""
    picture, text = Image.open(root / "release/samples.png"), PngImagePlugin.PngInfo()
    text.add_text("Comment", "made of /home/ada/patients.csv", zip=True)
    picture.save(root / "release/samples.png", pnginfo=text)


def keyed(root):
    """The partition key in an array beside the generator."""
    key = bytes.fromhex(json.loads((root / "private/identity.json").read_text())["partition_key"])
    np.savez_compressed(root / "release/samples.npz", x=np.frombuffer(key, np.uint8))


def flipped(root):
    path = root / "release/generator.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def repeated(root):
    """Two rounds of the same bits."""
    path = root / "private/noise_digests.txt"
    first, second, *rest = path.read_text().splitlines()
    second = f"{second.split()[0]} {first.split()[1]}"
    path.write_text("\n".join([first, second, *rest]) + "\n")


def moved(root):
    (root / "private/checkpoints/3").rename(root / "private/checkpoints/30")


def swapped(root):
    """Two lines of the ledger in the other order."""
    lines = (root / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (root / "ledger.jsonl").write_bytes(b"".join([*lines[:2], lines[3], lines[2], *lines[4:]]))


def of_another_run(root):
    """The whole generator of another run of the same settings, with its digest."""
    flipped(root)
    digest = hashlib.sha256((root / "release/generator.safetensors").read_bytes()).hexdigest()
    in_json("release/config.json", generator_sha256=digest)(root)


def named(root):
    """The name of a file of records in the text of the release."""
    path = root / "release/README.txt"
    path.write_text(path.read_text() + "patient-00017\n")


EDITS = {
    "delta": (in_json("release/privacy.json", delta=1e-9), "privacy.json is what"),
    "lines": (swapped, "chain"),
    "other run": (of_another_run, "is that of the run"),
    "record": (named, "say what privacy.json says"),
    "ledger": (in_line("ledger.jsonl", 3, steps=9), "chain"),
    "ledger, chained anew": (forged, "mechanism of config.json costs"),
    "ledger, cut": (cut, "journal last saw"),
    "config": (in_json("config.json", config__sigma=99.0), "mechanism of config.json costs"),
    "budget": (in_json("config.json", budget__epsilon=1.0), "is of this configuration"),
    "epsilon": (in_json("release/privacy.json", epsilon=5.0), "privacy.json is what"),
    "steps": (in_json("release/privacy.json", steps=2), "steps in privacy.json were charged"),
    "events": (in_json("release/privacy.json", events=[]), "privacy.json is what"),
    "stamp": (in_json("release/privacy.json", relation="zero-out"), "privacy.json is what"),
    "metrics": (in_line("metrics.jsonl", 1, epsilon=1.0), "metrics.jsonl contains"),
    "charged": (in_line("metrics.jsonl", 2, charged=40), "metrics.jsonl contains"),
    "checkpoint": (moved, "checkpoint names its line"),
    "note": (in_json("private/checkpoints/3/note.json", ledger_lines=3),
             "checkpoint names its line"),
    "bits": (repeated, "were used twice"),
    "identity": (in_json("private/identity.json", run="0" * 32), "is of this configuration"),
    "counts": (in_json("class_counts.json", epsilon=0.1), "class_counts.json is paid for"),
    "shares": (in_json("release/config.json", class_counts=[1, 2, 3]), "is that of the run"),
    "page": (lambda root: (root / "release/statement.html").write_text("0.1"), "statement.html"),
    "weights": (flipped, "generator is the one"),
    "open": (lambda root: (root / "private").chmod(0o755), "only their owner"),
    "picture": (hidden, "no key, path"),
    "key": (keyed, "no key, path"),
    "stray": (lambda root: (root / "release/x.txt").write_text("x"), "files of a release"),
}


@whole
def test_a_sound_run_passes_and_every_edit_is_named(trained, tmp_path):
    report = audit(trained)
    assert report.exit_code == 0 and len(report.findings) > 15, failed(report)
    for name, (edit, check) in EDITS.items():
        root = tmp_path / name / "run"
        shutil.copytree(trained, root)
        edit(root)
        report = audit(root)
        assert any(check in line for line in failed(report)), (name, failed(report))
        assert report.exit_code == 5


@whole
def test_one_record_is_replaced_and_other_records_are_recognised(trained, tmp_path):
    x, y = runs.images()
    place = f"npz:{runs.npz(tmp_path / 'a.npz', x, y)}"
    report = audit(trained, place)
    assert report.exit_code == 0, failed(report)
    assert any("moves only its own unit" in f.check for f in report.findings)
    other = f"npz:{runs.npz(tmp_path / 'b.npz', x[::-1], y)}"
    assert [*failed(audit(trained, other))] == ["the records are those of the start of the run"]
    with (tmp_path / "c.npz").open("wb") as file:  # a record within the release
        np.savez(file, x_train=x, y_train=y, classes=3)
    shutil.copytree(trained, tmp_path / "run")
    shutil.copy(tmp_path / "c.npz", tmp_path / "run/release/samples.csv")
    wrong = failed(audit(tmp_path / "run", place))
    assert any("contains a record" in why for why in wrong.values())


@whole
def test_what_promises_nothing_or_is_not_whole_does_not_pass(trained, copy, tmp_path):
    report = audit(SEEDED)
    assert any("made from a seed" in f.detail for f in report.findings)
    assert [*failed(report)] == ["only their owner can read private/ and the ledger"]
    alone = audit(trained / "release")
    assert alone.exit_code == 6 and not failed(alone)
    in_json("config.json", versions={"dpgen_jax": "0.0.9"})(copy)
    assert audit(copy).exit_code == 6
    shutil.copytree(trained, tmp_path / "unfinished")
    shutil.rmtree(tmp_path / "unfinished/release")
    report = audit(tmp_path / "unfinished")
    assert report.exit_code == 6 and any("no release" in f.detail for f in report.findings)


@whole
def test_the_texts_of_an_earlier_version_are_no_pass(copy):
    """A finished run whose release has README.md: who wrote it is said, and what to do."""
    (copy / "release/README.txt").rename(copy / "release/README.md")
    (copy / "release/statement.html").unlink()
    report = audit(copy)
    (finding,) = [f for f in report.findings if f.verdict == Verdict.UNCHECKED]
    assert report.exit_code == 6 and "wrote README.md" in finding.detail
    assert "resume" in finding.advice
    assert f"version {opened(copy).version}" in finding.detail


@whole
def test_the_mechanism_of_a_run_is_attacked_and_its_curves_are_kept(trained):
    report = of_folder(trained, seconds=0.5)
    assert report.exit_code == 0, failed(report)
    assert [name.rpartition(": ")[2] for name in report.curves] == [
        "promised", "promised", "certified (95 %)"]
    assert report.facts["generator_sha256"]
    for curve in report.curves.values():
        assert len(curve["false_positives"]) == len(curve["false_negatives"]) > 1


@pytest.mark.slow
def test_answers_that_were_settled_away_are_found(tmp_path):
    """Votes of a run by hand: its ledger charges each query that they say was answered."""
    files = test_data_dependent.finished(tmp_path / "run")
    answered = kept_votes.answered(files.votes, test_data_dependent.QUERIES, 4)
    assert answered.shape == (test_data_dependent.STEPS, test_data_dependent.QUERIES)
    checks = Findings()
    spending.against_releases(opened(files.root), checks)
    assert [f.verdict for f in checks.made] == [Verdict.UNCHECKED, Verdict.HOLDS]  # no metrics
    costs.publish(files.root)
    # The number that was published is in no ledger, and cannot be made anew.
    for edit, verdict in ((lambda root: None, Verdict.HOLDS), (in_json(
            "release/privacy.json", data_dependent_epsilon__epsilon=1e-3), Verdict.FAILS)):
        edit(files.root)
        checks = Findings()
        assert promise.as_written(opened(files.root), checks)
        assert [f.verdict for f in checks.made] == [verdict]
    raw = bytearray(files.votes.read_bytes())
    raw[-24:] = (1).to_bytes(4, "little") * 6  # the last round: all answered
    files.votes.write_bytes(raw)
    checks = Findings()
    spending.against_releases(opened(files.root), checks)
    assert [f.verdict for f in checks.made] == [Verdict.UNCHECKED, Verdict.FAILS]


def test_whatever_is_packed_in_a_file_is_unpacked(tmp_path):
    word = b"a word in it" * 3
    packed = {"a.gz": gzip.compress(word), "b.npz": None, "c.png": None, "d.png": None}
    np.savez_compressed(tmp_path / "b.npz", x=np.frombuffer(word, np.uint8))
    text = PngImagePlugin.PngInfo()
    text.add_itxt("key", word.decode(), zip=True)
    Image.new("L", (2, 2)).save(tmp_path / "c.png", pnginfo=text)
    Image.new("L", (2, 2)).save(tmp_path / "d.png")
    (tmp_path / "d.png").write_bytes((tmp_path / "d.png").read_bytes() + gzip.compress(word))
    for name, data in packed.items():
        if data:
            (tmp_path / name).write_bytes(data)
        assert any(word in part for _, part in leaks.unpacked_parts(tmp_path / name)), name
    assert zlib.compress(word) and not any(
        word in part for _, part in leaks.unpacked_parts(tmp_path / "a.gz")
        if part.startswith(b"\x1f"))
