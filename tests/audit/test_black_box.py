"""The attack on samples only: a generator that copies is caught, one that does not is not."""

import dataclasses

import numpy as np
import people_table
import pytest
import small_datalens

from dpgen_jax import presets
from dpgen_jax.accountant import composition
from dpgen_jax.audit import __main__ as command_line
from dpgen_jax.audit import training
from dpgen_jax.audit.findings import Findings, Verdict, quiet
from dpgen_jax.audit.mechanism import Target
from dpgen_jax.core.types import UserError
from dpgen_jax.data import from_arrays
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import membership
from dpgen_jax.nets.resnet import CriticNet, ResNetNet
from dpgen_jax.release.bundle import Release

N, CANARIES = 240, 120
MU = 0.25
CURVE = [(composition.exact_epsilon(MU, 0.0, delta), delta) for delta in (1e-5, *training.DELTAS)]


def images(seed=0):
    return from_arrays(*small_datalens.images(N, seed), 3)


def planted(dataset=None, clients=False, canaries=CANARIES, seed=1):
    return training.planted(dataset or images(), canaries, clients, np.random.default_rng(seed))


def verdicts(made, samples, steps=1):
    found = Findings()
    training.judge(found, made, samples, CURVE, steps, "toy")
    return {finding.check.rpartition(", ")[2]: finding for finding in found.made}


def test_a_canary_is_one_of_its_values_by_its_coin():
    made, before = planted(), images()
    x = made.dataset.x_train
    for value, other, coin in zip(*made.values, made.coins, strict=True):
        here, there = ((np.asarray(x) == v).all((1, 2, 3)).sum() for v in (value, other))
        assert (here, there) == ((0, 1) if coin else (1, 0))
    assert (np.asarray(before.x_train) != np.asarray(x)).any((1, 2, 3)).sum() == CANARIES


def test_all_records_of_a_client_are_its_canary():
    dataset = dataclasses.replace(images(), clients=np.arange(N) % 30)
    made = planted(dataset, clients=True, canaries=10)
    changed = (np.asarray(made.dataset.x_train) != dataset.x_train).any((1, 2, 3))
    assert changed.sum() == 10 * N // 30
    assert len(set(dataset.clients[changed])) == 10
    np.testing.assert_array_equal(made.others, ~changed)  # whom the attacker may know


def test_records_that_name_no_client_are_dealt_evenly_and_each_to_one():
    config = presets.get("gswgan", "federated")[1].config.with_clients(30)
    dealt = training.dealt(images(), config, np.random.default_rng(0))
    again = training.dealt(images(), config, np.random.default_rng(1))
    for one in (dealt, again):
        assert np.bincount(one.clients).tolist() == [N // 30] * 30
    assert (dealt.clients != again.clients).any()
    assert training.dealt(dealt, config, None) is dealt  # clients that are named stay


@pytest.mark.long
@pytest.mark.parametrize(("name", "preset", "fields"), [
    ("fedavg_gan", None, {}),
    ("gswgan", "federated", {"generator": ResNetNet(2, 2), "critic": CriticNet(2)})])
def test_records_that_name_no_client_are_dealt_to_clients(name, preset, fields):
    """By the auditor: of records that a run deals by its key none would be known for a canary's."""
    stated = presets.get(name, preset)[1]
    config = dataclasses.replace(stated.config.with_clients(30), steps=1, **fields)
    report = training.of_samples(Target(name, stated, config, 1.0, 1e-4), images(), 10, quiet)
    assert report.exit_code == 0
    assert "10 guesses" in report.findings[0].detail


def test_rows_of_a_table_stay_rows():
    (x, y), spec = people_table.table(50), people_table.SPEC
    dataset = dataclasses.replace(images(), spec=spec, x_train=x, y_train=y)
    made = training.mixed(dataset, 20, np.random.default_rng(0))
    again = transform.encode(spec, transform.decode(spec, made)).astype(np.float32)
    np.testing.assert_array_equal(again, made)
    assert len(np.unique(made, axis=0)) == 20


def test_the_best_of_all_attacks_has_the_confidence_of_all_together():
    made = planted()
    caught = verdicts(made, (made.dataset.x_train, made.dataset.y_train))
    single = [finding.certified for name, finding in caught.items() if "the best" not in name]
    best, = (finding for name, finding in caught.items() if "the best" in name)
    assert len(single) == len(membership.ATTACKS)
    assert 0 < best.certified < max(single) and best.verdict == Verdict.FAILS


@pytest.mark.parametrize("steps", [1, 2])
def test_a_generator_that_copies_is_caught(steps):
    made = planted()
    caught = verdicts(made, (made.dataset.x_train, made.dataset.y_train), steps)
    assert caught["closest_record"].verdict == Verdict.FAILS
    assert caught["closest_record"].certified > CURVE[0][0]


def test_a_generator_that_does_not_is_not():
    """Twelve of them: alarms have a chance of one in a million."""
    for seed in range(12):
        made = planted(seed=seed)
        other = images(seed + 100)
        sound = verdicts(made, (other.x_train, other.y_train))
        assert {finding.verdict for finding in sound.values()} == {Verdict.HOLDS}


@pytest.mark.parametrize(("words", "said"), [
    (["dpmerf", "--black-box"], "name --dataset and --canaries"),
    (["dpmerf", "--black-box", "--dataset", "breast_cancer", "--canaries", "9999"],
     "--canaries is 9999; here it is 1 to")])
def test_what_cannot_be_attacked_is_said(words, said, monkeypatch):
    monkeypatch.setattr(command_line.terminal, "use_all_cores", lambda: None)
    with pytest.raises(UserError, match=said):
        command_line.command(words)


@pytest.mark.slow
def test_a_whole_run_is_attacked(monkeypatch):
    """And a fault that no released sum shows: the release repeats a part of its records."""
    made = planted()
    monkeypatch.setattr(training, "planted", lambda *args: made)
    name, preset = presets.get("dpmerf")
    config = type(preset.config)(features=20, generator_steps=3)

    def report(attack):
        return attack(Target("dpmerf", preset, config, 1.0, 1e-4), images(), CANARIES, quiet)

    both = report(training.of_both)
    assert both.exit_code == 0
    measured = [finding for finding in both.findings if finding.measure.startswith("epsilon")]
    assert [finding.claimed <= 1.0 for finding in measured] == [True] * (2
                                                                         + len(membership.ATTACKS))
    assert (f"epsilon at delta 0.0001: claimed 1, certified {measured[0].certified:.3g} from every "
            f"released value and {measured[-1].certified:.3g} from samples only"
            ) in both.last_line
    monkeypatch.setattr(Release, "encoded", lambda self, n, seed: (
        made.dataset.x_train[:200], made.dataset.y_train[:200]))
    assert report(training.of_samples).exit_code == 5
