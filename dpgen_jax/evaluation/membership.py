"""Membership inference against a release, and the bound that its guarantee sets to any attack.

The game. Training and held-out records are exchangeable, as independent draws of one population or
a random split of one data set are. An attacker who has the release, and any knowledge of the other
records, judges whether a record was trained on.

The attacks. They see synthetic records of the release, and nothing else that a run keeps. Each
scores candidates by their distances to synthetic records: the higher the score, the more likely the
candidate is a training record. All three compare a candidate with the records of its own class, or
with all where its class has none. Records are flattened to float32 [n, F] in [0, 1] and labels int
[n]. `nearest` and `closeness` quote and measure real records: they are for the data holder only.

The bound of (epsilon, delta). Exchange a member a with a non-member b: the world in which b was
trained on and a left out has the same law, and its release comes from data that differ in one
record. So an event that the attack looks for has probabilities p and q in the two worlds with
p <= g(q) and q <= g(p), where for replace-one

  g(x) = min(1, delta + e^eps x, 1 - e^-eps (1 - delta - x)),

which is 1 - f of the trade-off function f (Dong, Roth and Su, JRSSB 2022, equation 5; Kairouz, Oh
and Viswanath, ICML 2015). Where the relation is add-remove or zero-out, the two worlds are both
neighbours of the one without a and b, with probability m, but not of each other:
p <= g(m) <= g(g(q)). Hence

  tpr at fpr x: at most g(x), or g(g(x)). Both are concave, so this holds of averages as well.
  advantage: the largest p - q: (e^eps - 1 + 2 delta) / (e^eps + 1) for replace-one. Otherwise
    p - q <= g(m) - (1 - g(1 - m)), concave and symmetric in m: at most 2 g(1/2) - 1.
  auroc: at most (1 + advantage) / 2. It is the probability that of a pair the member has the
    higher score, a tie counting half. Let the event be "a has": the two worlds, equally likely, are
    won with probabilities p and 1 - q, which is 1/2 + (p - q) / 2 on average. (The area under g is
    a bound too, the same for replace-one and delta 0, else weaker.)

Scores over many members and non-members are means over records, or over pairs, each of which obeys
the bound. The expectation of a mean is the mean of expectations, however the records depend on each
other through the one release. Given that release, a sum over disjoint pairs also spreads no more
than a binomial's, except with a probability of the order of n delta (Steinke, Nasr and Jagielski,
"Privacy Auditing with One (1) Training Run", NeurIPS 2023), so that one run can be tested.

Units. Unit "client" protects all records of a client, and therefore each of them. Where the unit is
a subject, subjects are exchanged in the place of records, each with all its rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import randomized_svd

from dpgen_jax.core import arrays
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation.results import (
    Finding,
    Log,
    Part,
    Real,
    Score,
    Setting,
    Synthetic,
    silent,
)
from dpgen_jax.release import guarantee as stamps

Records = tuple[np.ndarray, np.ndarray]
"""Flattened records float32 [n, F] in [0, 1] and labels int [n]."""

ATTACKS = ("closest_record", "density", "density_ratio")
COMPONENTS = 20
"""The most principal components along which densities are estimated."""
CHUNK = 500
"""Records whose distances to all others are in memory at once."""
BLOCK = 20_000
"""The most real records that are searched at once."""
VALUES = 2**26
"""The most values of real records that are searched at once: 256 MB as floats."""


def flat_records(x: np.ndarray) -> np.ndarray:
    """Flatten images [n, H, W, ch], uint8 or float in [0, 1], or rows [n, F], to float32 [n, F]."""
    x = np.asarray(x)
    scale = 255 if x.dtype == np.uint8 else 1
    return np.divide(x.reshape(len(x), -1), scale, dtype=np.float32)


def attack_scores(candidates: Records, synthetic: Records, reference: Records, seed: int = 0
                  ) -> dict[str, np.ndarray]:
    """Score each candidate by each of `ATTACKS`, float [n]; the higher, the more likely a member.

    The attacks are closest_record: minus the distance to the closest synthetic record; density: the
    log-density under the synthetic records, a Gaussian kernel estimate along at most `COMPONENTS`
    principal components of the synthetic records, with Scott's bandwidth, n^(-1 / (d + 4)) standard
    deviations of each of the d components; and density_ratio: that minus the log-density under
    `reference`, real records that are neither members nor candidates, so that a record that is
    typical of the population is not taken for a member. The seed is that of the search for
    components.

    Source:
      Density: Hilprecht et al., "Monte Carlo and Reconstruction Membership Inference Attacks
      against Generative Models", PETS 2019. Ratio: DOMIAS; van Breugel et al., AISTATS 2023.
    """
    project = _components(synthetic[0], seed)
    judged, released, population = (
        (project(x), y) for x, y in (candidates, synthetic, reference))
    density = _by_class(_log_density, judged, released)
    closest = _by_class(lambda x, records: nearest(x, records)[1][:, 0], candidates, synthetic)
    ratio = density - _by_class(_log_density, judged, population)
    return dict(zip(ATTACKS, (-closest, density, ratio), strict=True))


def _by_class(score: Callable[[np.ndarray, np.ndarray], np.ndarray], candidates: Records,
              records: Records) -> np.ndarray:
    """Score candidates against the records of their class, or against all if it has none."""
    x, y = candidates
    values = np.empty(len(x))
    for label in np.unique(y):
        same = records[1] == label
        values[y == label] = score(x[y == label], records[0][same] if same.any() else records[0])
    return values


def _components(x: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return the map of records to their coordinates float64 [n, d] along principal components.

    The components are the leading ones of x; coordinates are in standard deviations of x, and
    components without spread are left out.
    """
    centre = x.mean(0)
    _, size, axes = randomized_svd(x - centre, min(COMPONENTS, *x.shape), random_state=seed)
    kept = size > 1e-4 * max(size.max(), 1e-6)
    axes = axes[kept] / (size[kept, None] / np.sqrt(max(1, len(x) - 1)))
    return lambda records: ((records - centre) @ axes.T).astype(np.float64)


def _log_density(x: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Return the kernel estimate float [n] from `records` [N, d] at x [n, d]."""
    n, d = records.shape
    width = n ** (-1 / (d + 4))
    logs = [logsumexp(-cdist(part, records, "sqeuclidean") / (2 * width**2), axis=1)
            for part in _chunks(x)] if d else [np.zeros(len(x))]
    return np.concatenate(logs) - np.log(n) - d * np.log(width)


def nearest(x: np.ndarray, real: np.ndarray, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Find the k nearest real records of each record, nearest first; for the data holder only.

    The search is exact, and a copy has distance 0. The result is their indices int [n, k] and their
    Euclidean distances float [n, k].
    """
    block = _at_once(real, BLOCK)
    parts = [_nearest(flat_records(x), flat_records(real[start:start + block]), k)
             for start in range(0, len(real), block)]
    rows = np.concatenate([rows + i * block for i, (rows, _) in enumerate(parts)], 1)
    distances = np.concatenate([distances for _, distances in parts], 1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(rows, order, 1), np.take_along_axis(distances, order, 1)


def _nearest(x: np.ndarray, real: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `nearest` of flat records, in no order."""
    search = NearestNeighbors(n_neighbors=min(k, len(real)), algorithm="brute").fit(real)
    indices, size = search.kneighbors(x, return_distance=False), _at_once(x, CHUNK)
    # The search computes distances by products, whose rounding gives a copy a distance above 0;
    # they are measured again by differences.
    return indices, np.concatenate([
        np.linalg.norm(part[:, None] - real[rows], axis=2)
        for part, rows in zip(_chunks(x, size), _chunks(indices, size), strict=True)])


def _at_once(records: np.ndarray, most: int) -> int:
    """Return how many records may be taken at once: `most`, or fewer where they are large."""
    return max(1, min(most, VALUES // max(1, math.prod(records.shape[1:]))))


def _chunks(x: np.ndarray, size: int = CHUNK) -> list[np.ndarray]:
    return [x[start:start + size] for start in range(0, len(x), size)]


def closeness(synthetic: np.ndarray, training: np.ndarray, held_out: np.ndarray) -> Json:
    """Compare how near synthetic and held-out records lie to training records.

    It is for the data holder only. Held-out records show how near real records lie that were not
    trained on. The time is in proportion to all three counts: pass a few thousand synthetic and
    held-out records.

    Returns:
      {"synthetic", "held_out"}, each {"percentile_1", "median", "copies"} of the distance to the
      nearest training record, copies being the share at distance 0; and "closer_than_held_out", the
      share of synthetic records that are closer than the first percentile of held-out ones: about
      0.01 for records that lie as held-out ones do, 1 for copies.
    """
    near, near_held_out = (nearest(x, training)[1][:, 0] for x in (synthetic, held_out))
    first = float(np.percentile(near_held_out, 1))
    result: Json = {
        name: {"percentile_1": float(np.percentile(distances, 1)),
               "median": float(np.median(distances)), "copies": float(np.mean(distances == 0))}
        for name, distances in (("synthetic", near), ("held_out", near_held_out))}
    return result | {"closer_than_held_out": float(np.mean(near < first))}


Judged = tuple[Records, np.ndarray]
"""Records, and which of those who are judged has each: int [r], ascending from 0."""
Side = tuple[int, Callable[[np.ndarray], Judged]]
"""The number of subjects of a part, and from subjects int [s] to their records."""


def side(records: Records, owners: np.ndarray | None, most: int, seed: int) -> Side:
    """Return a part of the data as subjects.

    `owners` int [n] has the subject of each record; None where each record is its own. At most
    `most` records of a subject are judged, picked at random.
    """
    x, y = records
    if owners is None:
        return len(y), lambda picked: ((x[picked], y[picked]), np.arange(len(picked)))
    names, subject = np.unique(owners, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(subject[order], kind="stable")]
    sizes = np.bincount(subject)
    first = np.cumsum(sizes) - sizes

    def take(picked: np.ndarray) -> Judged:
        places = np.repeat(np.arange(len(picked)), np.minimum(sizes[picked], most))
        within = np.arange(len(places)) - np.searchsorted(places, places)
        rows = order[first[picked][places] + within]
        return (x[rows], y[rows]), places

    return len(names), take


def _by_subject(scores: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the mean float [s] of the scores float [r] of the records of each subject."""
    return np.bincount(places, scores) / np.bincount(places)


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

        They are `allowed` and three standard errors, for n members and n others. An AUROC of mean A
        has variance at most A (1 - A) / n (van Dantzig 1951); the difference a of two rates at most
        (1 - a^2) / 2n.
        """
        a, spread = self.advantage, 3 / math.sqrt(n)
        rate = self.tpr(min(1.0, RATE + spread * math.sqrt(RATE * (1 - RATE))))
        margins = (math.sqrt(self.auroc * (1 - self.auroc)), math.sqrt((1 - a * a) / 2),
                   math.sqrt(rate * (1 - rate)))
        return {name: limit + spread * margin for (name, limit), margin in
                zip({**self.allowed(), "tpr_at_1_percent_fpr": rate}.items(), margins, strict=True)}


def guarantee(statement: Json) -> Guarantee | str:
    """Return the guarantee of a privacy statement, or why it bounds no attack, as a text."""
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


def membership(real: Real, synthetic: Synthetic, setting: Setting) -> Part:
    """Attack a release, as a `results.Measure`: see `attacked`."""
    statement = {} if synthetic.release is None else synthetic.release.privacy
    return attacked(setting.draws(synthetic, setting.compared), real, statement, setting.log)


def attacked(draws: Sequence[Records], real: Real, statement: Json, log: Log = silent) -> Part:
    """Attack synthetic records.

    For each draw as many members and non-members are judged, at most `CAP`, and as many further
    non-members, sampled for each draw, are the reference of the attacks. Where there are subjects
    they are judged in the place of records, each by the mean score of as many of its rows as a run
    keeps at most.

    Args:
      draws: Synthetic records and labels, one draw a seed.
      real: The training records are the members, the held-out ones the non-members.
      statement: The content of privacy.json.
      log: A function that takes a line of progress for each draw.

    Returns:
      Findings ("membership", "attacks", attack, metric), tpr_at_1_percent_fpr only where a half has
      99 non-members or more, as fewer do not show 1 % of them; and the facts `allowed` by the
      guarantee (None where none holds), `chance`, `strongest` by AUROC, `sentence`,
      `exceeds_guarantee`, n_members, n_non_members and n_reference.

    Raises:
      UserError: There is no draw; or records are malformed, not finite or too few.
    """
    if not draws:
        raise UserError("seeds must be at least 1, got 0")
    if real.train is None:
        raise UserError("membership inference needs the training records")
    inside = _checked("training", real.train)
    outside = _checked("held-out", real.test, inside[0].shape[1])
    who = real.subjects
    n_in, take_in = side(inside, who.train if who else None, who.rows if who else 1, 0)
    n_out, take_out = side(outside, who.test if who else None, who.rows if who else 1, 1)
    n = min(CAP, n_in, n_out // 2)
    if n < 2:
        what = "subjects" if who else "records"
        raise UserError(f"{n_in} training and {n_out} held-out {what}; membership inference needs "
                        "at least 2 and 4, hold out more")
    by_attack: dict[str, list[dict[str, float]]] = {name: [] for name in ATTACKS}
    for seed, draw in enumerate(draws):
        synthetic = _checked("synthetic", draw, inside[0].shape[1])
        rng = np.random.default_rng(seed)
        order, picked = rng.permutation(n_out), rng.permutation(n_in)[:n]
        for name, values in _attacked(synthetic, take_in(picked), take_out(order[:n]),
                                      take_out(order[n:2 * n]), seed).items():
            by_attack[name].append(values)
        log(f"membership, seed {seed}: AUROC " + ", ".join(
            f"{name} {values[-1]['auroc']:.3f}" for name, values in by_attack.items()))
    return _part({name: {metric: Score.of([v[metric] for v in values]) for metric in values[0]}
                  for name, values in by_attack.items()}, guarantee(statement), n)


def _attacked(synthetic: Records, members: Judged, others: Judged, reference: Judged, seed: int
              ) -> dict[str, dict[str, float]]:
    """Return the scores of each attack on members and as many non-members."""
    (inside, of_inside), (outside, of_outside) = members, others
    candidates = (np.concatenate([inside[0], outside[0]]), np.concatenate([inside[1], outside[1]]))
    n = len(of_inside)
    return {name: measured(_by_subject(score[:n], of_inside),
                           _by_subject(score[n:], of_outside)) for name, score in
            attack_scores(candidates, synthetic, reference[0], seed).items()}


def measured(inside: np.ndarray, outside: np.ndarray) -> dict[str, float]:
    """Measure, with the keys of `CHANCE`, how well scores distinguish members from non-members.

    Thresholds are chosen on every other record and tested on the rest, then the reverse, and the
    two are averaged: the best of all thresholds on the records that chose it would favour the
    attack. That of `tpr_at_1_percent_fpr` is the order statistic of non-members that another
    exceeds with a probability of 1 % at most; it is left out where there are too few of them.
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


Scores = dict[str, dict[str, Score]]
"""Attack -> metric -> its score."""


def _part(scores: Scores, promise: Guarantee | str, n: int) -> Part:
    """Return the findings and facts of the scores of attacks on n members and n others."""
    strongest = max(scores, key=lambda name: scores[name]["auroc"].mean)
    allowed = None if isinstance(promise, str) else promise.allowed()
    excess = beyond(scores, promise, n)
    facts = {"allowed": allowed, "chance": CHANCE, "strongest": strongest,
             "exceeds_guarantee": bool(excess),
             "sentence": _sentence(scores, strongest, promise, excess),
             "n_members": n, "n_non_members": n, "n_reference": n}
    findings = tuple(
        Finding(("membership", "attacks", name, metric), score, chance=CHANCE[metric],
                allowed=allowed[metric] if allowed else None)
        for name, by_metric in scores.items() for metric, score in by_metric.items())
    return Part(findings, {"membership": facts}, tuple(
        f"membership.{name}" for name in facts if name not in ("allowed", "chance")))


def beyond(scores: Scores, promise: Guarantee | str, n: int) -> list[tuple[str, str]]:
    """Return the (attack, metric) that reached more than a guarantee allows n members."""
    limits = {} if isinstance(promise, str) else promise.beyond(n)
    return [(name, metric) for name, by_metric in scores.items()
            for metric, limit in limits.items()
            if metric in by_metric and by_metric[metric].mean > limit]


def _sentence(scores: Scores, strongest: str, promise: Guarantee | str,
              excess: list[tuple[str, str]]) -> str:
    """Return what the attacks reached, and what the guarantee allows, as a sentence."""
    auroc = scores[strongest]["auroc"]
    reached = (f"The strongest of {len(scores)} attacks ({strongest}) reached AUROC "
               f"{auroc.mean:.3f} +- {auroc.std:.3f} (0.5 is guessing)")
    if isinstance(promise, str):
        return f"{reached}; no guarantee holds: {promise}. An attack that fails proves nothing."
    if excess:
        name, metric = excess[0]
        return (f"SOMETHING IS WRONG: the attack {name} reached {metric} "
                f"{scores[name][metric].mean:.3f}; the guarantee allows any attack at most "
                f"{promise.allowed()[metric]:.3f}, and chance does not explain the rest. Either "
                "the code has a fault and the guarantee does not hold, or the held-out records "
                "differ from the training records. Do not share the release before you know which.")
    little = (" At this epsilon nearly everything is allowed: the bound says little."
              if promise.auroc > WEAK else "")
    limit = format(promise.auroc, ".3f" if promise.auroc < 0.99 else ".6g")
    return (f"{reached}; the guarantee allows at most {limit} for any attack.{little} "
            "An attack that fails proves nothing.")


def _checked(part: str, records: Records, features: int | None = None) -> Records:
    """Return flattened records, after a check of their shape, values and number of features."""
    x, y = np.asarray(records[0]), np.asarray(records[1])
    if x.ndim < 2 or y.shape != x.shape[:1]:
        raise UserError(f"{part} records have shape {x.shape} and labels {y.shape}; expected "
                        "[n, ...] and one label a record")
    x = flat_records(x)
    if features is not None and x.shape[1] != features:
        raise UserError(f"{part} records have {x.shape[1]} values, training records {features}; "
                        "both need the same shape")
    arrays.check_unit_range(part, x, tolerance=1e-6)
    return x, y
