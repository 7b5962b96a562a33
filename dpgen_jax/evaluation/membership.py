"""Membership inference against a release, and the bound that its guarantee sets to any attack.

The game: training and held-out records are exchangeable, as independent draws of one population or
a random split of one data set are. An attacker who has the release, and any knowledge of the other
records, judges whether a record was trained on. The attacks here (`attacks`) see synthetic records
of the release alone, and nothing else that a run keeps.

The bound of (epsilon, delta). Exchange a member a with a non-member b: the world in which b was
trained on and a left out has the same law, and its release comes from data that differ in one
record. So an event that the attack looks for has probabilities p and q in the two worlds with
p <= g(q) and q <= g(p), where for replace-one
  g(x) = min(1, delta + e^eps x, 1 - e^-eps (1 - delta - x)),
which is 1 - f of the trade-off function f (Dong, Roth and Su, JRSSB 2022, equation 5; Kairouz, Oh
and Viswanath, ICML 2015). Where the relation is add-remove or zero-out, the two worlds are
both neighbours of the one without a and b, with probability m, but not of each other:
p <= g(m) <= g(g(q)). Hence
  tpr at fpr x: at most g(x), or g(g(x)). Both are concave, so this holds of averages as well.
  advantage: the largest p - q: (e^eps - 1 + 2 delta) / (e^eps + 1) for replace-one. Otherwise
    p - q <= g(m) - (1 - g(1 - m)), concave and symmetric in m: at most 2 g(1/2) - 1.
  auroc: at most (1 + advantage) / 2. It is the probability that of a pair the member has the
    higher score, a tie counting half. Let the event be "a has": the two worlds, equally likely, are
    won with probabilities p and 1 - q, which is 1/2 + (p - q) / 2 on average. (The area under g is
    a bound too, the same for replace-one and delta 0, else weaker.)
Scores over many members and non-members are means over records, or over pairs, each of which obeys
the bound; the expectation of a mean is the mean of expectations, however the records depend on each
other through the one release. Given that release, a sum over disjoint pairs also spreads no more
than a binomial's, except with a probability of the order of n delta (Steinke, Nasr and Jagielski,
"Privacy Auditing with One (1) Training Run", NeurIPS 2023), so that one run can be tested.
Unit "client" protects all records of a client, each of them therefore too. Where the unit is a
subject, subjects are exchanged in the place of records, each with all its rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

from dpgen_jax.core import checks
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.subjects import Subjects
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import attacks, by_subject
from dpgen_jax.evaluation.attacks import Records
from dpgen_jax.evaluation.by_subject import Judged
from dpgen_jax.evaluation.scores import Log, silent, summary
from dpgen_jax.release import guarantee as stamps

CAP = 2000
"""The most members, non-members and reference records of one seed, of each."""
RATE = 0.01
"""The false positive rate of `tpr_at_1_percent_fpr`."""
CHANCE = {"auroc": 0.5, "advantage": 0.0, "tpr_at_1_percent_fpr": RATE}
"""The scores of an attack that guesses."""
WEAK = 0.95
"""An allowed AUROC above this bounds an attack hardly at all."""
STEPS = {"replace-one": 1, "add-remove": 2, "zero-out": 2}
"""Relation -> the steps to a neighbour between two worlds in which a record replaces another."""
UNITS = ("record", "client", "subject")
"""Units of privacy for which the bound holds."""

Unlabelled = tuple[np.ndarray, np.ndarray | None]
"""Records [n, ...] and their labels int [n], or None."""


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """An (epsilon, delta) guarantee, and the most that the game of this module may yield."""

    epsilon: float
    delta: float
    steps: int
    """Steps to a neighbour between the two worlds: 1 or 2, see `STEPS`."""

    def tpr(self, fpr: float) -> float:
        """Return the largest true positive rate at a false positive rate."""
        for _ in range(self.steps):
            fpr = self._step(fpr)
        return fpr

    def _step(self, x: float) -> float:
        """Return g(x) of the module; e^700 stands for all larger factors, without overflow."""
        times = math.exp(min(self.epsilon, 700.0))
        return max(0.0, min(1.0, self.delta + times * x, 1 - (1 - self.delta - x) / times))

    @property
    def advantage(self) -> float:
        """The largest difference of a true and a false positive rate."""
        if self.steps == 2:
            return 2 * self._step(0.5) - 1
        return 1 - 2 * (1 - self.delta) / (1 + math.exp(min(self.epsilon, 700.0)))

    @property
    def auroc(self) -> float:
        """The largest area under the ROC curve."""
        return (1 + self.advantage) / 2

    def allowed(self) -> dict[str, float]:
        """Return the most that any attack can reach in expectation, with the keys of `CHANCE`."""
        return dict(zip(CHANCE, (self.auroc, self.advantage, self.tpr(RATE)), strict=True))

    def beyond(self, n: int) -> dict[str, float]:
        """Return scores that an attack at the bound exceeds in fewer than one of a hundred cases.

        They are `allowed` and three standard errors. An AUROC of mean A has variance at most
        A (1 - A) / n (van Dantzig 1951); the difference a of two rates at most (1 - a^2) / 2n.

        Args:
          n: The number of members, and of non-members.

        Returns:
          The keys of `CHANCE`.
        """
        a, spread = self.advantage, 3 / math.sqrt(n)
        rate = self.tpr(min(1.0, RATE + spread * math.sqrt(RATE * (1 - RATE))))
        margins = (math.sqrt(self.auroc * (1 - self.auroc)), math.sqrt((1 - a * a) / 2),
                   math.sqrt(rate * (1 - rate)))
        return {name: limit + spread * margin for (name, limit), margin in
                zip({**self.allowed(), "tpr_at_1_percent_fpr": rate}.items(), margins, strict=True)}


def guarantee(statement: Json) -> Guarantee | str:
    """Return the guarantee of a privacy statement, or the reason why it bounds no attack.

    Args:
      statement: The content of privacy.json.

    Returns:
      The guarantee, or a reason such as "epsilon is inf and delta 1e-05".
    """
    epsilon, delta = (math.inf if statement.get(name) is None else float(statement[name])
                      for name in ("epsilon", "delta"))
    stamp = stamps.of(statement)
    relation, unit = statement.get("relation"), statement.get("unit")
    if stamp.kind != "valid":
        return f"the statement says: {stamp.text}"
    if not (0 <= epsilon < math.inf and 0 <= delta < 1):
        return f"epsilon is {epsilon:g} and delta {delta:g}"
    if relation not in STEPS or unit not in UNITS:
        return f"no bound is known for relation {relation!r} and unit {unit!r}"
    return Guarantee(epsilon, delta, STEPS[relation])


def membership(draws: Sequence[Unlabelled], members: Unlabelled, non_members: Unlabelled,
               statement: Json, log: Log = silent, subjects: Subjects | None = None
               ) -> tuple[Json, list[str]]:
    """Attack a release, and compute the `membership` part of metrics.json.

    For each draw as many members and non-members are judged, at most `CAP`, and as many further
    non-members are the reference of the attacks, sampled anew.

    Args:
      draws: Synthetic records and labels, one draw a seed: images uint8 or float in [0, 1], or
        encoded rows, such as `Release.sample` of images and `Release.encoded` of tables. Here and
        below labels int [n] may be None.
      members: Training records and labels.
      non_members: Held-out records and labels.
      statement: The content of privacy.json.
      log: A function that takes a line of progress for each draw.
      subjects: Who has which row. They are then judged in the place of records, each by the mean
        score of as many of its rows as a run keeps at most.

    Returns:
      {"attacks": {name: {metric: summary}}, "allowed": by the guarantee, or None where none holds,
      "chance", "strongest": by AUROC, "sentence", "exceeds_guarantee", n_members, n_non_members,
      n_reference}, and its keys for `not_covered_by_epsilon`. tpr_at_1_percent_fpr of attacks is
      left out where a half has fewer than 99 non-members, too few to know 1 % of them.

    Raises:
      UserError: There is no draw; or records are malformed, not finite or too few.
    """
    if not draws:
        raise UserError("seeds must be at least 1, got 0")
    inside = _checked("training", members)
    outside = _checked("held-out", non_members, inside[0].shape[1])
    (n_in, take_in), (n_out, take_out) = by_subject.sides(inside, outside, subjects)
    n = min(CAP, n_in, n_out // 2)
    if n < 2:
        what = "subjects" if subjects else "records"
        raise UserError(f"{n_in} training and {n_out} held-out {what}; membership inference needs "
                        "at least 2 and 4, hold out more")
    by_attack: dict[str, list[dict[str, float]]] = {name: [] for name in attacks.ATTACKS}
    for seed, draw in enumerate(draws):
        synthetic = _checked("synthetic", draw, inside[0].shape[1])
        rng = np.random.default_rng(seed)
        order, picked = rng.permutation(n_out), rng.permutation(n_in)[:n]
        for name, values in _attacked(synthetic, take_in(picked), take_out(order[:n]),
                                      take_out(order[n:2 * n]), seed).items():
            by_attack[name].append(values)
        log(f"membership, seed {seed}: AUROC " + ", ".join(
            f"{name} {values[-1]['auroc']:.3f}" for name, values in by_attack.items()))
    scores = {name: {metric: summary([v[metric] for v in values]) for metric in values[0]}
              for name, values in by_attack.items()}
    keys = [f"membership.attacks.{name}.{metric}" for name in scores for metric in scores[name]]
    return _result(scores, guarantee(statement), n), keys


def _attacked(synthetic: Records, members: Judged, others: Judged, reference: Judged, seed: int
              ) -> dict[str, dict[str, float]]:
    """Return the scores of each attack on members and as many non-members."""
    (inside, of_inside), (outside, of_outside) = members, others
    candidates = (np.concatenate([inside[0], outside[0]]), np.concatenate([inside[1], outside[1]]))
    n = len(of_inside)
    return {name: measured(by_subject.mean(score[:n], of_inside),
                           by_subject.mean(score[n:], of_outside)) for name, score in
            attacks.scores(candidates, synthetic, reference[0], seed).items()}


def measured(inside: np.ndarray, outside: np.ndarray) -> dict[str, float]:
    """Measure how well scores tell members from non-members.

    Thresholds are chosen on every other record and tested on the rest, then the reverse, and the
    two are averaged: the best of all thresholds on the records that chose it would favour the
    attack. That of `tpr_at_1_percent_fpr` is the order statistic of non-members that another
    exceeds with a probability of 1 % at most.

    Args:
      inside: Scores of members float [n].
      outside: Scores of non-members float [n'].

    Returns:
      The keys of `CHANCE`, the last only where n' is large enough.
    """
    halves = [(inside[i::2], outside[i::2]) for i in range(2)]
    advantages, rates = [], []
    for fitted, tested in (halves, halves[::-1]):
        threshold = _best_threshold(*fitted)
        advantages.append(np.mean(tested[0] >= threshold) - np.mean(tested[1] >= threshold))
        rank = math.ceil((1 - RATE) * (len(fitted[1]) + 1))
        if rank <= len(fitted[1]):
            rates.append(np.mean(tested[0] > np.sort(fitted[1])[rank - 1]))
    scores = {"auroc": _auroc(inside, outside), "advantage": float(np.mean(advantages))}
    return scores | ({"tpr_at_1_percent_fpr": float(np.mean(rates))} if len(rates) == 2 else {})


def _auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    truth = np.repeat([1, 0], (len(inside), len(outside)))
    return float(roc_auc_score(truth, np.concatenate([inside, outside])))


def _best_threshold(inside: np.ndarray, outside: np.ndarray) -> float:
    """Return the threshold with the largest difference of the two rates."""
    truth = np.repeat([1, 0], (len(inside), len(outside)))
    fpr, tpr, thresholds = roc_curve(truth, np.concatenate([inside, outside]),
                                     drop_intermediate=False)
    return thresholds[np.argmax(tpr - fpr)]


def _result(attacked: Json, promise: Guarantee | str, n: int) -> Json:
    """Return the `membership` part of metrics.json from the scores of each attack."""
    strongest = max(attacked, key=lambda name: attacked[name]["auroc"]["mean"])
    allowed, limits = (None, {}) if isinstance(promise, str) else (
        promise.allowed(), promise.beyond(n))
    excess = [(name, metric) for name, scores in attacked.items()
              for metric, limit in limits.items()
              if metric in scores and scores[metric]["mean"] > limit]
    return {"attacks": attacked, "allowed": allowed, "chance": CHANCE,
            "strongest": strongest, "exceeds_guarantee": bool(excess),
            "sentence": _sentence(attacked, strongest, promise, excess),
            "n_members": n, "n_non_members": n, "n_reference": n}


def _sentence(attacked: Json, strongest: str, promise: Guarantee | str,
              excess: list[tuple[str, str]]) -> str:
    """Return what the attacks reached, beside what the guarantee allows, as a sentence."""
    auroc = attacked[strongest]["auroc"]
    reached = (f"The strongest of {len(attacked)} attacks ({strongest}) reached AUROC "
               f"{auroc['mean']:.3f} +- {auroc['std']:.3f} (0.5 is guessing)")
    if isinstance(promise, str):
        return f"{reached}; no guarantee holds: {promise}. An attack that fails proves nothing."
    if excess:
        name, metric = excess[0]
        return (f"SOMETHING IS WRONG: the attack {name} reached {metric} "
                f"{attacked[name][metric]['mean']:.3f}; the guarantee allows any attack at most "
                f"{promise.allowed()[metric]:.3f}, and chance does not explain the rest. Either "
                "the code has a fault and the guarantee does not hold, or the held-out records "
                "differ from the training records. Do not share the release before you know which.")
    little = (" At this epsilon nearly everything is allowed: the bound says little."
              if promise.auroc > WEAK else "")
    limit = format(promise.auroc, ".3f" if promise.auroc < 0.99 else ".6g")
    return (f"{reached}; the guarantee allows at most {limit} for any attack.{little} "
            "An attack that fails proves nothing.")


def _checked(part: str, records: Unlabelled, features: int | None = None) -> Records:
    """Return flattened records, after a check of their shape, values and number of features."""
    x, labels = np.asarray(records[0]), records[1]
    y = np.zeros(len(x), int) if labels is None else np.asarray(labels)
    if x.ndim < 2 or y.shape != x.shape[:1]:
        raise UserError(f"{part} records have shape {x.shape} and labels {y.shape}; expected "
                        "[n, ...] and one label a record")
    x = attacks.flat(x)
    if features is not None and x.shape[1] != features:
        raise UserError(f"{part} records have {x.shape[1]} values, training records {features}; "
                        "both need the same shape")
    checks.unit_range(part, x, tolerance=1e-6)
    return x, y
