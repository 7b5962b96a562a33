"""The audit of runs that were stopped, gone on with, killed, or are going on: none of it is a
fault, and none of it is a pass."""

import functools
import json
import shutil
import signal

import pytest
import runs
from test_run_audit import audit, failed, in_json

from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import EpsilonDeltaEvent
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.audit.findings import Verdict
from dpgen_jax.audit.folder import leaks, reading
from dpgen_jax.core import hosts
from dpgen_jax.run import lifecycle, resume

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]
FINISHED = "the run is finished"


def unchecked(report):
    return {finding.check: finding.detail for finding in report.findings
            if finding.verdict == Verdict.UNCHECKED}


class Killed(BaseException):
    """The end that no code of a run expects, as of a process that is killed."""


def at_draw(monkeypatch, number, what):
    """Something happens at a draw of noise, the first being 0."""
    draw, drawn = OsBits.draw, []

    def counted(self, shape):
        drawn.append(shape)
        if len(drawn) == number + 1:
            what()
        return draw(self, shape)

    monkeypatch.setattr(OsBits, "draw", counted)


def kill():
    raise Killed


def train(out, **options):
    return runs.train(out, sigma=40.0, **options)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, compiled_once):
    """A run that Ctrl-C ended in its second of six rounds, and its journal."""
    root = tmp_path_factory.mktemp("lives") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPGEN_STATE", str(root.parent / "state"))
        at_draw(patch, 1, functools.partial(signal.raise_signal, signal.SIGINT))
        train(root)
    assert lifecycle.load(root).privacy["steps"] == 2
    return root


@pytest.fixture
def copy(stopped, tmp_path, monkeypatch):
    shutil.copytree(stopped, tmp_path / "run")
    shutil.copytree(stopped.parent / "state", tmp_path / "state")
    monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "state"))
    return tmp_path / "run"


def test_a_release_before_a_kill_is_what_it_was_and_no_pass(copy, monkeypatch):
    """The ledger has charged more since: the release is compared with what it was made of."""
    assert audit(copy).exit_code == 0
    with monkeypatch.context() as patch, pytest.raises(Killed):
        at_draw(patch, 2, kill)
        train(copy, resume=True)
    report = audit(copy)
    assert report.exit_code == 6 and failed(report) == {}, failed(report)
    assert list(unchecked(report)) == [FINISHED]
    assert "3 rounds were charged since" in unchecked(report)[FINISHED]
    in_json("release/privacy.json", steps=1)(copy)
    assert "privacy.json is the one that was written" in failed(audit(copy))
    runs.train(copy, resume=True, sigma=40.0)  # and the audit does not stand in the way
    assert audit(copy).exit_code == 0


def test_a_run_that_is_going_on_is_read_as_far_as_it_came(copy, monkeypatch):
    reports = []

    def look():
        reports.append(audit(copy))

    at_draw(monkeypatch, 1, look)
    train(copy, resume=True)
    (report,) = reports
    assert report.exit_code == 6 and failed(report) == {}, failed(report)
    assert {"the run has ended", FINISHED} == {*unchecked(report)}
    assert audit(copy).exit_code == 0


def test_the_processes_of_every_start_are_stated(copy, monkeypatch):
    """Two processes made a part of the run; the one that goes on with it must not forget them."""
    before = lifecycle.load(copy).privacy["not_accounted"]
    with books.Ledger.open(copy / "ledger.jsonl", processes=2) as ledger:
        assert ledger.processes == 2 and hosts.count() == 1
    after = train(copy, resume=True)[0].privacy["not_accounted"]
    assert len(after) == len(before) + 1 and "between the 2 processes" in after[-1]
    assert audit(copy).exit_code == 0
    in_json("release/privacy.json", not_accounted=before)(copy)
    assert {"privacy.json is what ledger.jsonl and config.json give",
            "privacy.json is the one that was written"} <= {*failed(audit(copy))}


def test_every_field_of_the_statement_is_compared(copy):
    """Each of them alone, with the digests of private/ and without."""
    path = copy / "release/privacy.json"
    stated, whole = json.loads(path.read_text()), path.read_bytes()
    assert len(stated) > 15
    for name, value in stated.items():
        other = (value + 1 if isinstance(value, int | float) else
                 [*value, "x"] if isinstance(value, list) else f"{value}x")
        path.write_text(json.dumps(stated | {name: other}))
        report = audit(copy)
        assert report.exit_code == 5 and any("privacy.json" in check for check in failed(report)), (
            name, failed(report))
    path.write_bytes(whole.replace(b"\n}", b"\n }"))
    assert list(failed(audit(copy))) == ["privacy.json is the one that was written"]


def test_rounds_without_digests_of_their_bits_are_no_pass(copy):
    path = copy / "private/noise_digests.txt"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    report = audit(copy)
    assert report.exit_code == 6 and "digests of 1 rounds" in "".join(unchecked(report).values())


def test_killed_before_its_ledger_a_run_has_spent_nothing(copy):
    """Nor does the audit, which leaves its own folder, stand in the way of going on."""
    for name in ("ledger.jsonl", "metrics.jsonl", "curves.png"):
        (copy / name).unlink(missing_ok=True)
    for name in ("release", "private/checkpoints"):
        shutil.rmtree(copy / name)
    for path in (copy / "private").glob("*"):
        if path.name != "identity.json":
            path.unlink()
    report = audit(copy)
    assert report.exit_code == 6 and "before it charged" in "".join(unchecked(report).values())
    (copy / "audit").mkdir()
    assert runs.files(copy).traces() == []
    (copy / "metrics.jsonl").write_text("")
    assert audit(copy).exit_code == 5  # which a run makes after its ledger


def test_killed_after_a_purchase_a_run_is_no_pass(tmp_path, journal):
    root, names = tmp_path / "run", EpsilonDeltaEvent(0.5, 1e-5, "discrete-laplace categories")
    files = resume.create(root, {"method": "dpmerf", "purchase": "names"})
    assert files.waiting and audit(root).exit_code == 6
    with books.Ledger.create(files.ledger, {
            "epsilon": 2.0, "delta": 1e-4, "relation": "replace-one", "unit": "record",
            "config_hash": "", "run": files.run_id()}) as ledger:
        ledger.charge(((names, 1),))
    report = audit(root)
    assert report.exit_code == 6 and failed(report) == {}
    assert "1 x discrete-laplace categories charged, and no answer" in "".join(
        finding.detail for finding in report.findings)
    row = {**names.statement(), "kind": "epsilon_delta", "count": 2}
    files.answer.write_text(json.dumps({"flags": [], "line": "", "bought": [
        json.loads((root / "ledger.jsonl").read_text().splitlines()[1])["events"][0] | {
            "count": 2}]}))
    assert row and "what was bought on the data is paid for" in failed(audit(root))


def test_chance_makes_no_path_and_no_name_of_numbers(tmp_path):
    """Words of a few bytes are looked for in texts; a header of a file of arrays is one."""
    found = lambda data, *words: list(leaks._found(data, [("w", word) for word in words]))  # noqa
    noise = bytes(range(256)) * 3
    assert found(noise + b"anna" + rb"q:\xab\z", b"anna") == []
    assert len(found(rb"by anna in q:\xab\z", b"anna")) == 2
    assert found(noise + b"/home/ada/x.csv") and found(noise + rb"C:\Users\ada\x")
    assert found(b"see file:///storage/ward7/a.csv") and not found(b"https://a.org/data/sets")
    header = b'{"made of": "/home/ada/patients"}'
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + noise)
    assert ("a.safetensors, header", header) in list(leaks.unpacked_parts(path))
    assert reading.attempt(lambda: None) == ""
