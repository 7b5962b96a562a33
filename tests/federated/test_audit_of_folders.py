"""The audit of the folders of a federation: each says what it can tell, and what another must."""

import contextlib
import dataclasses
import json
import math
import shutil

import federation as fed
import pytest

from dpgen_jax.audit.findings import Verdict
from dpgen_jax.audit.folder import of_folder, spending
from dpgen_jax.core import run_folder as core_run_folder
from dpgen_jax.federated import server
from dpgen_jax.federated.client import Seat, open_client
from dpgen_jax.federated.messages import Terms
from dpgen_jax.run import costs

STEPS = 2
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folders of a server and of three clients who draw their own noise."""
    root = tmp_path_factory.mktemp("federation")
    request = dataclasses.replace(fed.request(root / "server", steps=STEPS), seed=None)
    terms = Terms("gswgan", request.config, fed.SPEC)
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setenv("DPGEN_STATE", str(root / "state"))
        clients = [stack.enter_context(open_client(
            root / f"client-{i}", terms, fed.records(i), fed.BUDGET, seat=Seat(i)))
            for i in range(fed.CLIENTS)]
        server.run(request, fed.SPEC, fed.Together(clients), lambda line: None)
    return root


def test_a_server_without_a_release_promises_what_its_clients_noise_allows(folders, tmp_path):
    """It promised an epsilon whatever the clients' noise was, and none where a server had a seed,
    from which no noise is made."""
    root = tmp_path / "server"
    shutil.copytree(folders / "server", root)
    shutil.rmtree(root / "release")
    config = json.loads((root / "config.json").read_text()) | {"seed": 1}
    (root / "config.json").write_text(json.dumps(config))
    assert costs.of_run(root).claimed.epsilon == fed.BUDGET.epsilon
    note, = (root / "private/checkpoints").glob(f"{STEPS}/note.json")
    note.write_text(note.read_text().replace("os-entropy", "seeded: no privacy claim"))
    account = costs.of_run(root)
    assert account.claimed.epsilon == math.inf
    assert account.guarantee.startswith("none: the noise was made from a seed")
    shutil.rmtree(root / "private/checkpoints")
    assert costs.of_run(root).claimed.epsilon == math.inf  # nobody knows


def audit(root):
    report = of_folder(root)
    return report, {f.check: f for f in report.findings if f.verdict != Verdict.HOLDS}


def test_a_client_is_checked_by_its_terms_its_charges_and_its_bits(folders, tmp_path, journal):
    report, open_ones = audit(folders / "client-0")
    assert report.exit_code == 0, open_ones
    bits, = (f for f in report.findings if f.check == spending.ONCE)
    assert f"digests of {STEPS} rounds, all different" in bits.detail
    other = tmp_path / "client-0"
    shutil.copytree(folders / "client-0", other)
    config = json.loads((other / "config.json").read_text())
    config["config"]["records_per_step"] += 1  # which costs the same, and was not agreed on
    (other / "config.json").write_text(json.dumps(config))
    report, wrong = audit(other)
    assert report.exit_code == 5 and "ledger.jsonl is of this configuration" in wrong


def test_a_server_names_what_the_folders_of_clients_tell(folders, journal):
    report, open_ones = audit(folders / "server")
    assert not any(f.verdict == Verdict.FAILS for f in open_ones.values()), open_ones
    assert any("each client's own folder" in limit for limit in report.limits)
    rows = core_run_folder.read(folders / "server/metrics.jsonl")
    assert [set(row) & {core_run_folder.EPSILON, core_run_folder.BUDGET_EPSILON}
            for row in rows] == [
        {core_run_folder.EPSILON}] * STEPS
