"""The audit of a training in one run, from all released values and from samples only.

The training has canaries among its records: each canary is a record, or all records of a client,
with one of two values, chosen by a fair coin. Both views use the method's own mechanism, compiled
loop and ledger, and random bits of the operating system. `canaries` bounds what the guesses of the
coins certify, whatever the guesses depend on.

All released values (`of_releases`): the release of each round adds to the likelihood of each coin,
and the coins are guessed at the end.

Samples only (`of_samples`): the run is complete, as a user starts it, with pretraining, ledger and
release. Then the attacks of `evaluation.membership` score both values of each canary against
samples of the release, by distance and by density, and the value with the higher score is guessed.
This certifies far less than the other view, since a generator that learns from noisy sums hardly
ever repeats a record. But it covers what the other view cannot: records that reach the release in
another way, such as through pretraining or a copy.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from dpgen_jax import methods
from dpgen_jax.accountant import composition
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.audit import canaries as audit_canaries
from dpgen_jax.audit.attacks import SHOWN
from dpgen_jax.audit.canaries import Canaries, chosen, most
from dpgen_jax.audit.findings import ALARM, Findings, Log, Report, quiet
from dpgen_jax.audit.mechanism import Target, message_shape, promises_nothing
from dpgen_jax.core.config import Budget, MonitorOptions, Runtime, to_json
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import EMPTY, Method, Private, Records, TableSpec, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.data import clients as federations
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import membership
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private import records as sealing
from dpgen_jax.private import teachers
from dpgen_jax.run import capacity, lifecycle, loop, planning
from dpgen_jax.run.calibrate_config import complete, with_records
from dpgen_jax.run.progress import Notices

SAMPLES = 10_000
"""number of synthetic records that the attacker draws"""
DELTAS = tuple(10.0**-k for k in range(2, 13))
"""further deltas at which the ledger promises an epsilon; an alarm of many guesses needs the
smallest
"""
WEAKER = "what other canaries or a better attack would show: a certified number is a lower bound"
LIMITS = (
    "what other canaries would show: a certified number is a lower bound",
    "pretraining and post-training, which read no private value or no released one",
    "bits of the operating system that are not random: the audit draws from the same source")


@dataclasses.dataclass(frozen=True)
class Planted:
    """A data set with canaries.

    Attributes:
        dataset: The data set.
        values: The two possible records of each canary, [2, N, ...], in the form of the data set.
        labels: int [N], their labels, the same for both.
        coins: int [N], which of the two values each canary has.
        others: bool [n], the records that are neither canaries nor empty.
    """

    dataset: Dataset
    values: np.ndarray
    labels: np.ndarray
    coins: np.ndarray
    others: np.ndarray


def dealt(dataset: Dataset, config: MethodConfig, rng: np.random.Generator) -> Dataset:
    """Deals records without clients evenly to the configured number of clients.

    A run deals them by its secret key; the audit deals them itself, since it must replace all
    records of a client.

    Raises:
        UserError: There are fewer records than clients.
    """
    if not config.protects_clients or dataset.clients is not None:
        return dataset
    count = federations.client_count(dataset, config.n_clients)
    return dataclasses.replace(
        dataset, clients=rng.permutation(np.arange(len(dataset.y_train)) % count))


def planted(dataset: Dataset, canaries: int, clients: bool, rng: np.random.Generator) -> Planted:
    """Replaces records, or all records of clients, by canaries.

    Raises:
        UserError: There are more than half as many canaries as records, or clients.
    """
    filled = np.flatnonzero(dataset.y_train != EMPTY)
    owners = np.asarray(dataset.clients)[filled] if clients else filled
    units = np.unique(owners)
    if not 1 <= canaries <= len(units) // 2:
        raise UserError(f"{option('canaries')} is {canaries}; here it is 1 to {len(units) // 2}, "
                        f"half of the {'clients' if clients else 'records'}: the attacker knows "
                        "the others")
    chosen, coins = rng.permutation(units)[:canaries], rng.integers(0, 2, canaries)
    values = np.stack([mixed(dataset, canaries, rng) for _ in range(2)])
    x, y = np.array(dataset.x_train), np.array(dataset.y_train)
    labels, others = np.empty(canaries, y.dtype), y != EMPTY
    for i, unit in enumerate(chosen):
        rows = filled[owners == unit]
        labels[i] = y[rows[0]]
        x[rows], y[rows], others[rows] = values[coins[i], i], labels[i], False
    return Planted(dataclasses.replace(dataset, x_train=x, y_train=y), values, labels, coins,
                   others)


def mixed(dataset: Dataset, n: int, rng: np.random.Generator) -> np.ndarray:
    """Returns n records with entries of different records, so they are far from all records."""
    x = np.asarray(dataset.x_train)[dataset.y_train != EMPTY]
    table = dataset.spec if isinstance(dataset.spec, TableSpec) else None
    entries = transform.decode(table, x) if table else x.reshape(len(x), -1)
    rows = rng.integers(0, len(entries), (n, entries.shape[1]))
    made = np.take_along_axis(entries, rows, 0)
    return (transform.encode(table, made).astype(x.dtype) if table
            else made.reshape(n, *x.shape[1:]))


def judge(found: Findings, made: Planted, synthetic: tuple[np.ndarray, np.ndarray],
          curve: Sequence[tuple[float, float]], steps: int, name: str) -> None:
    """Adds what each attack on samples certifies by its guesses of all coins.

    Args:
        synthetic: Samples of the release and their labels.
        curve: Pairs (epsilon, delta) that all are promised; the first is the stated one.
        steps: Steps of the neighbouring relation from one value of a canary to the other.
    """
    n, (epsilon, delta) = len(made.coins), curve[0]
    candidates = (membership.flat_records(np.concatenate(made.values)), np.tile(made.labels, 2))
    reference = (membership.flat_records(np.asarray(made.dataset.x_train)[made.others]),
                 np.asarray(made.dataset.y_train)[made.others])
    released = membership.flat_records(synthetic[0]), np.asarray(synthetic[1])

    def promise(pairs: Sequence[tuple[float, float]]) -> audit_canaries.Shrink:
        step = audit_canaries.of_pairs(pairs)
        return step if steps == 1 else lambda x: step(step(x))

    guessed = {attack: (int(((score[n:] > score[:n]) == (made.coins > 0)).sum()), 1)
               for attack, score in membership.attack_scores(
                   candidates, released, reference).items()}
    best = max(right for right, _ in guessed.values())
    guessed[f"the best of these {len(guessed)} attacks"] = best, len(guessed)
    for what, (right, tried) in guessed.items():
        alarm = audit_canaries.rejected(promise(curve), n, n, right,
                                        ALARM / len(membership.ATTACKS))
        found.found(f"{name}: samples only, {what}", not alarm,
                    f"{right} of {n} guesses are right", measure=f"epsilon at delta {delta:g}",
                    claimed=epsilon, confidence=1 - SHOWN, certified=audit_canaries.certified(
                        lambda least: promise([(least, delta)]), n, n, right, SHOWN / tried))


def of_samples(target: Target, dataset: Dataset, canaries: int, log: Log) -> Report:
    """Trains once on records with canaries, and attacks samples of the release.

    Raises:
        UserError: There are too many canaries, or the run is not possible.
    """
    found, method = Findings(log), target.method
    config, rng = with_records(target.config, dataset.count), np.random.default_rng()
    dataset, config = planning.federated(dealt(dataset, config, rng), config)
    made = planted(dataset, canaries, config.protects_clients, rng)
    with tempfile.TemporaryDirectory() as folder:
        files = RunFolder(Path(folder, "run"))
        request = lifecycle.Resolved(method, "", config, target.budget, Runtime(), files.root,
                                    False, None, MonitorOptions(
                                        evaluate_every=0, progress=False))
        release = lifecycle.run(request, made.dataset, quiet, Notices(quiet))
        spent = books.account(books.read(files.ledger)).spent()
    stated = membership.guarantee(release.privacy)
    if isinstance(stated, str) or release.classifies:
        found.unchecked(f"{method}: samples only", stated if isinstance(stated, str) else
                        "a classifier makes no samples")
    else:
        curve = [(stated.epsilon, stated.delta), *(
            (composition.epsilon_of(spent, d), d) for d in DELTAS)]
        judge(found, made, release.encoded(SAMPLES, seed=0), [
            pair for pair in curve if np.isfinite(pair[0])], stated.steps, method)
    return Report(subject=f"samples of {method} with {canaries} canaries", limits=(WEAKER,),
                  findings=tuple(found.made), facts=_facts(target, config, dataset, canaries))


def of_releases(target: Target, dataset: Dataset, canaries: int, log: Log) -> Report:
    """Trains once on records with canaries, and certifies epsilon by the guesses of their coins.

    Raises:
        UserError: More canaries than units.
    """
    loop.require_32_bits()
    method, delta, found = target.method, target.delta, Findings(log)
    config, built, shapes = prepared(target, dataset)
    mechanism = built.mechanism
    if refused := promises_nothing(config, mechanism):
        found.unchecked(method, refused)
    else:
        rng = np.random.default_rng()
        made = chosen(built, shapes, dataset.spec.classes, canaries, rng)
        law = audit_canaries.Law.of(made, config.planned_steps)
        guessed, ledger = trained(made, dataset, config, target.budget, rng)
        audit_canaries.judge(found, law, guessed, mechanism.events(config.planned_steps), delta,
                             method)
        found.found(f"{method}: what was charged", ledger <= target.epsilon and np.isfinite(ledger),
                    f"epsilon {at_most(ledger, 4)} of {at_most(target.epsilon)}, in "
                    f"{config.planned_steps} steps")
    return Report(subject=f"a training of {method} with {canaries} canaries", limits=LIMITS,
                  findings=tuple(found.made), facts=_facts(target, config, dataset, canaries))


def _facts(target: Target, config: MethodConfig, dataset: Dataset, canaries: int) -> Json:
    return {"method": target.method, "config": to_json(config), "epsilon": target.epsilon,
            "delta": target.delta, "dataset": dataset.name, "canaries": canaries}


def prepared(target: Target, dataset: Dataset
             ) -> tuple[MethodConfig, Method, list[tuple[int, int]]]:
    """Returns the complete configuration, the method, and (B, M) of a message of each phase."""
    config = complete(target.method, with_records(target.config, dataset.count), dataset.spec,
                      target.budget)
    built: Method = methods.get(target.method).build(config, dataset.spec, Runtime())
    return config, built, [message_shape(phase, dataset.spec, dataset.count)
                           for phase in built.phases or (built,)]


def trained(made: Canaries, dataset: Dataset, config: MethodConfig, budget: Budget,
            rng: np.random.Generator) -> tuple[audit_canaries.Guesses, float]:
    """Trains once through the real loop, with new coins.

    Returns the coins with the evidence on them, and the epsilon of the ledger.
    """
    method = made.watched()
    n, u = dataset.count, method.mechanism.n_units
    dealt = sealing.assign(n, u, rng.bytes(32))
    coins = rng.integers(0, 2, len(made.units))
    y = np.array(dataset.y_train, np.int32)
    first = dealt.index[:, 0]  # of the records of each unit
    y[first] = made.labels(y[first], coins)
    layout = capacity.choose_layout(method, Runtime())
    sealed = sealing.deal(Private(Records(np.asarray(dataset.x_train), y)),  # type: ignore
                          dealt, layout.dealt_units)
    placed = teachers.place(sealed, layout)
    state = loop.initial_state(method, jax.random.key(int(rng.integers(2**32))), layout)
    header = {"epsilon": budget.epsilon, "delta": budget.delta}
    with tempfile.TemporaryDirectory() as folder, Ledger.create(
            Path(folder) / "ledger.jsonl", header) as ledger:
        job = loop.Job(method, layout, ledger, OsBits())
        state = loop.train(job, placed, state, config.planned_steps)
        return audit_canaries.Guesses(coins, np.asarray(state.public.ratio)), ledger.epsilon()


def of_both(target: Target, dataset: Dataset, canaries: int, log: Log) -> Report:
    """Attacks two trainings, one for each view, since each view needs separate canaries.

    For the view of all released values there are as many canaries as fit in units. The last line of
    the report has both numbers and the claim.

    Raises:
        UserError: There are too many canaries, or the run is not possible.
    """
    _, built, shapes = prepared(target, dataset)
    seen = min(canaries, most(built, shapes))
    white = of_releases(target, dataset, seen, log)
    black = of_samples(target, dataset, canaries, log)
    measure = f"epsilon at delta {target.delta:g}"

    def certified(report: Report) -> str:
        values = [finding.certified for finding in report.findings
                  if finding.measure == measure and finding.certified is not None]
        # Of several attacks the last finding has the best, at the confidence of all together.
        return f"{values[-1]:.3g}" if values else "nothing"

    both = dataclasses.replace(
        black, subject=f"{target.method} with {canaries} canaries",
        findings=(*white.findings, *black.findings),
        limits=tuple(dict.fromkeys((*white.limits, *black.limits))),
        facts={**black.facts, "canaries_seen_by_all_releases": seen})
    return dataclasses.replace(both, closing=(
        f"{both.last_line}; {measure}: claimed {at_most(target.epsilon)}, certified "
        f"{certified(white)} from every released value and {certified(black)} from samples only"))
