"""The stamp of a release: who may state an epsilon, and where it is shown."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import runs
import small_gswgan

from dpgen_jax import methods
from dpgen_jax.core.config import Budget
from dpgen_jax.core.terms import ProtectedUnit
from dpgen_jax.core.types import UserError
from dpgen_jax.data import from_arrays
from dpgen_jax.data.base import Uncovered
from dpgen_jax.evaluation import membership
from dpgen_jax.evaluation import report as report_page
from dpgen_jax.evaluation.assessment import Assessment
from dpgen_jax.evaluation.report import Report, page
from dpgen_jax.release import documents, guarantee
from dpgen_jax.release.guarantee import Facts, Protected, statement
from dpgen_jax.run import calibrate_config, costs, lifecycle, planning

pytestmark = pytest.mark.usefixtures("compiled_once")
MAXIMUM = Uncovered("bounds of age are read from private data", "age: {max: 110}")
SOUND = {"guarantee": "(epsilon, delta) replace-one", "epsilon": 3.0, "delta": 1e-5,
         "relation": "replace-one", "unit": "record", "noise_source": "os-entropy",
         "budget_epsilon": 3.0}


def data(**fields):
    return dataclasses.replace(from_arrays(*runs.images(), 3), **fields)


@pytest.fixture(scope="module")
def stamped(tmp_path_factory, compiled_once):
    """Run folders by the stamp that they should have, and what each said on the terminal."""
    made = {}
    for name, options, fields in (
            ("valid", {}, {}), ("seeded", {"seed": 1}, {}),
            ("uncovered", {}, {"uncovered": (MAXIMUM,)})):
        root, said = tmp_path_factory.mktemp("stamp") / name, []
        request = dataclasses.replace(runs.request(root, **options), accept_uncovered=True)
        lifecycle.run(request, data(**fields), said.append)
        made[name] = root, said
    return made


def privacy(root):
    return json.loads((root / "release/privacy.json").read_text())


@pytest.mark.slow
def test_a_sound_run_states_its_epsilon(stamped):
    root, said = stamped["valid"]
    statement = privacy(root)
    assert statement["guarantee"] == "(epsilon, delta) replace-one" and statement["epsilon"] == 10.0
    assert statement["unit"] == "record" and statement["not_covered"] == []
    assert not any("guarantee: " in line for line in said)


@pytest.mark.slow
def test_a_seeded_run_states_no_epsilon(stamped):
    """Attack: a repeatable run with a finite epsilon, whose noise anybody can take away."""
    root, said = stamped["seeded"]
    stated = privacy(root)
    assert stated["epsilon"] == "inf" and stated["budget_epsilon"] == 10.0
    assert stated["guarantee"].startswith("none: ") and "seed" in stated["guarantee"]
    (promise,) = (line for line in said if line.startswith("promise: "))
    assert "nobody is protected" in promise, promise
    assert any(line.startswith("note: guarantee: none: ") for line in said)
    assert "none: the noise was made from a seed" in said[-1] and "epsilon inf" in said[-1]


@pytest.mark.slow
def test_what_was_read_from_records_is_named(stamped):
    root, said = stamped["uncovered"]
    stated = privacy(root)
    assert stated["guarantee"] == f"not covered: {MAXIMUM.what}" and stated["epsilon"] == 10.0
    assert stated["not_covered"] == [MAXIMUM.what]
    assert f"note: guarantee: not covered: {MAXIMUM.what}" in said
    (promise,) = (line for line in said if line.startswith("promise: "))
    assert "not covered" in promise, promise


def test_uncovered_entries_are_refused_unless_accepted(tmp_path):
    """Attack: a drafted schema whose bounds are those of the records trains without a question."""
    with pytest.raises(UserError, match="declare it: age") as caught:
        lifecycle.run(runs.request(tmp_path / "run"), data(uncovered=(MAXIMUM,)), lambda line: None)
    assert "--accept-uncovered" in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["valid", "seeded", "uncovered"])
def test_every_output_shows_the_same_word(stamped, name, capsys):
    root, said = stamped[name]
    stated = privacy(root)
    stamp = stated["guarantee"]
    assert stamp in said[-1]
    assert stamp in (root / "release/README.txt").read_text()
    assert stamp in costs.of_run(root).guarantee
    assert documents.checked_statement(stated) and guarantee.of(stated).text == stamp
    text = page(Report(None, stated, {}))
    kind = guarantee.of(stated).kind
    assert stamp in text
    assert ("No privacy guarantee." in text) == (kind == "none")
    assert ("Not covered by the guarantee." in text) == (kind == "not covered")
    assert ("What is left out?" in text) == (kind == "not covered")
    entry = report_page.Entry("run", Assessment(), documents.checked_statement(stated))
    assert bool(report_page.doubts(entry)) == (kind != "valid")
    bound = membership.guarantee(stated)
    assert isinstance(bound, membership.Guarantee) == (kind == "valid")


@pytest.mark.slow
def test_an_unfinished_run_is_stamped_by_its_configuration(stamped, tmp_path):
    root, _ = stamped["seeded"]
    for name in ("config.json", "ledger.jsonl"):
        (tmp_path / name).write_bytes((root / name).read_bytes())
    assert costs.of_run(tmp_path).guarantee.startswith("none: the noise was made from a seed")


@pytest.mark.parametrize(("change", "kind"), [
    ({}, "valid"),
    ({"noise_source": "seeded: no privacy claim"}, "none"),  # the stamp was edited
    ({"noise_source": "os-entropy; seeded: no privacy claim"}, "none"),
    ({"epsilon": "inf"}, "none"), ({"epsilon": "much"}, "none"), ({"epsilon": None}, "none"),
    ({"epsilon": -1.0}, "none"),
    ({"as_published": {"epsilon": 9.99}}, "none"),
    ({"guarantee": "sure"}, "none"), ({"guarantee": 1}, "none"),
    ({"guarantee": "(epsilon, delta) zero-out"}, "none"),
    ({"guarantee": "none: who knows"}, "none"),
    ({"guarantee": "not covered: x", "not_covered": ["x"]}, "not covered"),
    ({"guarantee": None}, "valid"),  # written before stamps were
    ({"guarantee": None, "data_notes": ["not covered by epsilon: bounds of x"]}, "not covered"),
    ({"guarantee": None, "noise_source": "seeded: no privacy claim"}, "none"),
    ({"guarantee": None, "relation": "edge-level"}, "none")])
def test_the_stamp_fails_closed(change, kind):
    parsed = guarantee.of(SOUND | change)
    assert parsed.kind == kind and parsed.text
    assert kind == "valid" or parsed.why
    assert parsed.text in guarantee.line(SOUND | change)


def test_a_statement_never_says_less_than_its_ledger_holds():
    """A damaged line may charge more than the budget; then that is what is stated."""
    class Overdrawn:
        target, header, processes = 3.0, {"delta": 1e-5}, 1

        def epsilon(self):
            return 3.221

        def spent(self):
            return ()

    stated = statement(Facts(method="m", preset=None, steps=1, noise_source="os-entropy"),
                       Overdrawn(), "replace-one", Protected(ProtectedUnit(), {"records": 5}))
    assert stated["epsilon"] == 3.221 and stated["budget_epsilon"] == 3.0


class TestSimulatedClients:
    """Clients who do not exist cannot be protected; their records can."""

    CONFIG = small_gswgan.gs(federated=True, critics=9, critics_per_step=2, client_records=20,
                             warm_steps=0, penalty=0.0, sigma=None, steps=3)

    def federated(self, x, y, clients=4, alpha=None, known=None):
        loaded = from_arrays(x, y, 3)
        if known is not None:
            loaded = dataclasses.replace(loaded, clients=known)
        return planning.federated(loaded, self.CONFIG, clients, alpha)

    def dealt(self, x, y, key=bytes(32)):
        loaded, config = self.federated(x, y)
        config = calibrate_config.complete("gswgan", config, loaded.spec, Budget(20.0, 1e-3))
        method = methods.get("gswgan").build(config, loaded.spec)
        who = planning.protected_by(method, loaded)
        return who, planning.dealt(method, config, loaded, key), loaded

    def test_records_are_dealt_by_the_secret_key(self):
        who, first, _ = self.dealt(*runs.images())
        _, other, _ = self.dealt(*runs.images(), key=bytes(31) + b"1")
        assert who.unit.kind == "record"
        assert who.counts == {"records": 60, "simulated_clients": 4}
        assert not np.array_equal(first.index, other.index)

    def test_one_records_label_and_image_change_one_client(self):
        x, y = runs.images()
        changed, labels = x.copy(), y.copy()
        changed[7], labels[7] = 255 - x[7], (y[7] + 1) % 3
        (_, a, one), (_, b, two) = self.dealt(x, y), self.dealt(changed, labels)
        differ = [not (np.array_equal(one.x_train[i], two.x_train[j])
                       and np.array_equal(one.y_train[i], two.y_train[j]))
                  for i, j in zip(a.index, b.index, strict=True)]
        assert sum(differ) == 1 and one.notes == two.notes

    def test_by_label_nothing_is_guaranteed(self):
        loaded, _ = self.federated(*runs.images(), alpha=0.5)
        assert guarantee.stamped("replace-one", guarantee.faults(
            5.0, "os-entropy", simulated=loaded.simulated)).kind == "none"
        assert "simulated clients" in loaded.simulated and "labels" in loaded.simulated

    def test_real_clients_stay_the_unit(self):
        loaded, config = self.federated(*runs.images(), clients=None, known=np.arange(60) % 5)
        assert config.critics == 5 and not loaded.simulated
        assert "simulated" not in " ".join(loaded.notes)


def test_the_order_of_a_list_may_depend_on_the_records():
    """The coupling of `private.records`: after a reordering, the dealings of all keys together
    are the same family, one unit aside. All 24 orders of four records in two units, by hand."""
    records = ["a", "b", "c", "d"]
    reordered = ["d", "b", "x", "a"]  # c became x, and the list was sorted by something private
    where = [reordered.index(r) if r != "c" else 2 for r in records]
    for order in itertools.permutations(range(4)):
        coupled = [where[i] for i in order]
        first = [[records[order[0]], records[order[2]]], [records[order[1]], records[order[3]]]]
        second = [[reordered[coupled[0]], reordered[coupled[2]]],
                  [reordered[coupled[1]], reordered[coupled[3]]]]
        assert sum(a != b for a, b in zip(first, second, strict=True)) == 1
    assert len({tuple(where[i] for i in order)
                for order in itertools.permutations(range(4))}) == 24


