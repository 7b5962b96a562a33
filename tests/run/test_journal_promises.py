"""Sums over runs in the journal: whose promise counts, and purchases that no run made."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from prepared import read
from simulated_runs import BUDGET, MECHANISM, RECORDS
from test_newcomer import QUICK

from dpgen_jax import schema, train
from dpgen_jax.accountant.journal import Journal, Run
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.audit.findings import Verdict
from dpgen_jax.audit.folder import of_folder
from dpgen_jax.core.config import Budget
from dpgen_jax.core.run_folder import RunFolder, read_json
from dpgen_jax.core.types import BudgetExceeded, UserError
from dpgen_jax.private import records
from dpgen_jax.run import side_releases, spending, undeclared

ONE, OTHER = np.arange(12) % 3, np.arange(12) // 4
"""Two ways in which twelve records belong to three clients"""


def looked_up(said, *, clients=None, unit="record", guarantee=True, total=None):
    """The lines that a run says which would start now."""
    identity = spending.Identity(RECORDS, grouping=lambda key: records.grouping(clients, key))
    start = spending.Start(BUDGET, guarantee, total)
    with spending.before(identity, spending.Promise("replace-one", unit, ""), start, said.append):
        pass
    return said


def go_on(root, guarantee, clients=None):
    """The run goes on; its records are those of these clients."""
    files = RunFolder(root)
    identity = spending.Identity(RECORDS, grouping=lambda key: records.grouping(clients, key))
    start = spending.Start(BUDGET, guarantee, None, files)
    with spending.before(identity, MECHANISM, start, lambda line: None) as witness:
        Ledger.open(files.ledger, witness(files)).close()


def test_a_run_without_a_guarantee_is_added_to_nothing(world, root):
    """Its own line said what it and earlier runs came to, as if its seed promised anything."""
    world.live(root, resume_it=False, blocks=1)
    (line,) = looked_up([], guarantee=False)
    assert "this run has no guarantee" in line and "the sum is epsilon" not in line
    assert "the sum is epsilon 20 at" in looked_up([])[0]


def test_a_run_that_goes_on_with_a_seed_counts_no_more(world, root, journal):
    """It began with a promise, as where its schema was bought, and its release has none."""
    world.live(root, resume_it=False, blocks=1)
    go_on(root, False)
    assert "without a guarantee that could be added" in looked_up([])[0]
    go_on(root, True)
    (run,) = Journal(journal).on(records.fingerprint(RECORDS, Journal(journal).key))
    assert run.guarantee is False
    with pytest.raises(BudgetExceeded, match="cannot be promised: 1 run"):
        looked_up([], total=100.0)


@pytest.mark.parametrize("before", [None, OTHER], ids=["simulated", "other clients"])
def test_only_the_same_clients_are_protected_together(world, root, monkeypatch, before):
    """Simulated clients are nobody, and other clients hold other records together."""
    monkeypatch.setattr(MECHANISM, "unit", "client")
    monkeypatch.setattr(spending.Identity, "grouping", staticmethod(
        lambda key: records.grouping(before, key)), raising=False)
    world.live(root, resume_it=False, blocks=1)
    with pytest.raises(BudgetExceeded, match="cannot be promised: 1 run"):
        looked_up([], clients=ONE, unit="client", total=100.0)
    assert "1 run spent epsilon" in looked_up([])[0]  # of its records


def test_the_same_clients_by_other_names_are_the_same(world, root, monkeypatch):
    monkeypatch.setattr(MECHANISM, "unit", "client")
    world.live(root, resume_it=False)
    monkeypatch.undo()
    assert records.grouping(ONE, b"key") == records.grouping(2 - ONE, b"key")
    assert records.grouping(ONE, b"key") != records.grouping(OTHER, b"key")


@pytest.fixture
def loans(tmp_path, monkeypatch):
    """A table of 600 rows whose columns nobody declared."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "state"))
    rng = np.random.default_rng(0)
    rows = [f"{age},{'RO'[age % 2]},{'yes' if age > 60 else 'no'}"
            for age in rng.integers(20, 80, 600)]
    (tmp_path / "loans.csv").write_text("\n".join(["age,home,late", *rows]) + "\n")
    return tmp_path


WORDS = ["dpmerf", "--dataset=loans.csv", "--label=late", "--epsilon=5", *QUICK]


def bought(out):
    """A run that ended between its purchase and its training."""
    read([*WORDS, f"--out={out}"])
    return Ledger.open(f"{out}/ledger.jsonl")


def test_a_schema_that_another_run_bought_is_charged_beside_what_was_bought(loans):
    """A run that waited took its own purchase for payment of the other's, which cost the same."""
    with bought("one") as one, bought("two") as two:
        events = {*one.spent(), *two.spent()}
    assert len(events) == 6
    train.command(["--resume", "one", "--schema", "two/schema.yaml"])
    with Ledger.open("one/ledger.jsonl") as ledger:
        assert events < {*ledger.spent()}
        spent = ledger.spent()
    train.command(["--resume", "one", "--schema", "two/schema.yaml"])
    with Ledger.open("one/ledger.jsonl") as ledger:
        assert ledger.spent() == spent  # and once
    report = of_folder(Path("one"))
    verdicts = {finding.check: finding.verdict for finding in report.findings}
    assert Verdict.FAILS not in verdicts.values()
    assert verdicts["what was bought on the data is paid for"] == Verdict.HOLDS


def test_a_purchase_that_was_lost_is_no_fault_of_a_run_with_a_declared_schema(loans, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(*args):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(undeclared, "_kept", kill)
        read([*WORDS, "--out=run"])
    schema.command(["loans.csv", "--label", "late", "--out", "draft.yaml"])
    text = (loans / "draft.yaml").read_text()
    (loans / "declared.yaml").write_text(text[:text.index("read_from_data:")])
    train.command(["--resume", "run", "--schema", "declared.yaml"])
    with Ledger.open("run/ledger.jsonl") as ledger:
        assert ledger.epsilon() <= 5 and len(side_releases.buyers(ledger.spent())) == 1
    report = of_folder(Path("run"))
    assert not report.count(Verdict.FAILS)


@pytest.mark.slow
def test_a_line_torn_after_a_purchase_ends_no_run(loans):
    bought("run").close()
    with Path("run/ledger.jsonl").open("ab") as file:
        file.write(b'{"config_hash":"0')
    train.command(["--resume", "run"])
    assert read_json(Path("run/release/privacy.json"))["epsilon"] == 5


def test_data_that_changed_since_their_schema_was_bought_are_refused(loans, capsys):
    """The journal knew the new file by no content, and a later run on it had a whole budget."""
    bought("run").close()
    with (loans / "loans.csv").open("a") as file:
        file.write("33,O,no\n")
    with pytest.raises(UserError, match="the data changed after .*run bought their undeclared"):
        train.command(["--resume", "run"])


def entries_bought(loans, epsilon="0.5"):
    """Bounds of a draft, bought by the command; its words on stderr."""
    schema.command(["loans.csv", "--label", "late", "--out", "draft.yaml"])
    draft = (loans / "draft.yaml").read_text().splitlines()
    draft = ["    min: private" if line.startswith("    min:") else
             "    max: private" if line.startswith("    max:") else line for line in draft]
    (loans / "draft.yaml").write_text("\n".join(draft) + "\n")
    schema.command(["loans.csv", "--schema", "draft.yaml", "--schema-epsilon", epsilon,
                    "--out", "paid.yaml"])
    text = (loans / "paid.yaml").read_text()
    (loans / "paid.yaml").write_text(  # the rest is declared
        text[:text.index("read_from_data:")] + text[text.index("bought:"):])


def test_entries_that_the_schema_command_buys_are_remembered(loans, capsys):
    """A purchase whose schema was thrown away was spent, and nothing counted it."""
    entries_bought(loans)
    capsys.readouterr()
    (loans / "paid.yaml").rename(loans / "kept.yaml")
    bought("run").close()
    said = capsys.readouterr().err
    assert "1 run spent epsilon 0.5 of budgets of 0.5; with this run's 5 the sum is" in said
    assert "the sum is epsilon 5.5" in said
    with pytest.raises(BudgetExceeded, match="would be epsilon 10.5 at"):
        train.command([*WORDS, "--total-epsilon=10"])


def test_and_are_part_of_the_budget_of_a_run_that_charges_them(loans, capsys):
    entries_bought(loans)
    capsys.readouterr()
    words = [word for word in WORDS if not word.startswith("--label")]
    train.command([*words, "--schema=paid.yaml", "--out=run", "--total-epsilon=5"])
    assert "on these records" not in capsys.readouterr().err
    with pytest.raises(BudgetExceeded, match="would be epsilon 10 at"):
        train.command([*words, "--schema=paid.yaml", "--out=again", "--total-epsilon=9"])


def test_a_part_of_a_purchase_is_not_the_purchase(loans, capsys):
    """Who took a row off `bought` was charged for the others, and no sum had that row."""
    entries_bought(loans)
    document = yaml.safe_load((loans / "paid.yaml").read_text())
    document["bought"][0]["epsilon"] /= 2
    (loans / "paid.yaml").write_text(yaml.safe_dump(document))
    words = [word for word in WORDS if not word.startswith("--label")]
    with pytest.raises(BudgetExceeded, match="would be epsilon 5.5 at"):
        train.command([*words, "--schema=paid.yaml", "--out=run", "--total-epsilon=5"])


def test_so_they_are_where_the_run_buys_the_rest(loans, capsys):
    entries_bought(loans)
    document = yaml.safe_load((loans / "paid.yaml").read_text())
    del document["columns"]["home"]
    (loans / "paid.yaml").write_text(yaml.safe_dump(document))
    capsys.readouterr()
    words = [word for word in WORDS if not word.startswith("--label")]
    train.command([*words, "--schema=paid.yaml", "--out=run", "--total-epsilon=5"])
    assert "on these records" not in capsys.readouterr().err
    names = [event["mechanism"] for event in read_json(Path("run/release/privacy.json"))["events"]]
    assert sum("(bought by " in name for name in names) == 4
    assert len({name.partition("(bought by ")[2] for name in names} - {""}) == 2


def test_where_the_journal_cannot_be_written_nothing_is_bought(loans, monkeypatch):
    monkeypatch.setattr("dpgen_jax.accountant.ledger.write_at", lambda *args: (_ for _ in ()).throw(
        OSError(28, "No space left on device")))
    with pytest.raises(UserError, match="nothing may be drawn"):
        entries_bought(loans)
    assert not (loans / "paid.yaml").exists()


def test_numbers_are_added_as_they_are_written():
    """Three runs of 0.1 fit a total of 0.3, though their floats add up to more; not one of 0.30001
    beside two of them."""
    earlier = [Run("", "", True, "record", "replace-one", 1e-5, "", 1, 0.1, 0.1, "", False)] * 2
    promise = spending.Promise("replace-one", "record", "")
    spending.require_sums(earlier, promise, Budget(0.1, 1e-5), 0.3, "")
    with pytest.raises(BudgetExceeded, match="would be epsilon 0.30001 at delta 3e-05, more than"):
        spending.require_sums(earlier, promise, Budget(0.10001, 1e-5), 0.3, "")
