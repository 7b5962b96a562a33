"""Run folders from which something is missing: what an audit cannot tell is no pass."""

import hashlib
import json
import shutil

import pytest
import runs

from dpgen_jax.audit.findings import Verdict
from dpgen_jax.audit.folder import of_folder
from dpgen_jax.core.files import parse_json
from dpgen_jax.release import documents
from dpgen_jax.release.bundle import load

pytestmark = pytest.mark.slow


def audit(root):
    return of_folder(root)


def by(report, verdict):
    return {finding.check: finding.detail for finding in report.findings
            if finding.verdict == verdict}


@pytest.fixture
def trained(tmp_path, compiled_once):
    runs.train(tmp_path / "run", steps=3)
    return tmp_path / "run"


def test_what_is_missing_is_no_pass(trained, tmp_path):
    """Each of these folders passed as "all checks hold"."""
    assert audit(trained).exit_code == 0, by(audit(trained), Verdict.FAILS)
    for name, what in (("private/released.json", "is unknown"),
                       ("metrics.jsonl", "of 3 of the rounds")):
        root = tmp_path / name / "run"
        shutil.copytree(trained, root)
        (root / name).unlink()
        report = audit(root)
        assert report.exit_code == 6 and any(
            what in why for why in by(report, Verdict.UNCHECKED).values()), by(
                report, Verdict.UNCHECKED)
    rows = (trained / "metrics.jsonl").read_text().splitlines(keepends=True)
    (trained / "metrics.jsonl").write_text("".join(rows[:-1]))
    assert "1 of the rounds" in str(by(audit(trained), Verdict.UNCHECKED))


def test_texts_in_the_words_of_another_version_are_not_compared(trained):
    """As of releases before statement.html named who made it; those of this version are."""
    page = trained / "release/statement.html"
    before = page.read_bytes()
    page.write_bytes(before + b" ")
    assert any("statement.html" in check for check in by(audit(trained), Verdict.FAILS))
    stated = trained / "release/privacy.json"
    privacy = parse_json(stated.read_bytes())
    assert privacy.pop("texts") == documents.TEXTS and privacy["started_on"] > "2026"
    stated.write_text(json.dumps(privacy))
    noted = trained / "private/released.json"
    digest = hashlib.sha256(stated.read_bytes()).hexdigest()
    noted.write_text(json.dumps(parse_json(noted.read_bytes()) | {"privacy_sha256": [digest]}))
    report = audit(trained)
    assert report.exit_code == 6 and not by(report, Verdict.FAILS)
    assert any("in the words of another version" in why
               for why in by(report, Verdict.UNCHECKED).values())


def restated(root, **fields):
    """Another statement, with all that is made of it, and its digest where it is noted."""
    release = load(root / "release")
    made = documents.files(release.privacy | fields, release.spec, documents.of_release(
        release.spec, release.classifies))
    for name, data in made.items():
        (root / "release" / name).write_bytes(data)
    noted = root / "private/released.json"
    known = parse_json(noted.read_bytes())
    digest = hashlib.sha256(made["privacy.json"]).hexdigest()
    noted.write_text(json.dumps(known | {"privacy_sha256": [digest]}))


def test_a_seed_that_was_taken_out_of_a_folder_is_remembered(tmp_path, compiled_once):
    """The chain of the ledger has no seed in it; the journal knows that nothing was promised."""
    root = tmp_path / "run"
    runs.train(root, steps=3, seed=1)
    config = parse_json((root / "config.json").read_bytes())
    (root / "config.json").write_text(json.dumps(config | {"seed": None}))
    restated(root, guarantee="(epsilon, delta) replace-one", noise_source="os-entropy",
             epsilon=config["budget"]["epsilon"])
    assert "a run without a guarantee, and its release states one" in str(
        by(audit(root), Verdict.FAILS))
