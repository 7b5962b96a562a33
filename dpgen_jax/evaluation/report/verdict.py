"""The verdict on a release: one sentence, three numbers in their bounds, and terminal lines.

There is no overall score: what a release can be used for, how similar to real records it is, and
what an attack learns from it are different questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dpgen_jax.core.files import Json
from dpgen_jax.evaluation.scores import percent
from dpgen_jax.release.render import is_leaf, label, number

NAMED = 2
"""The most classes or columns that the sentence names."""
CLASSIFIER_METRICS = ("auroc", "accuracy")
NOTHING_LEARNT = {"auroc": 0.52, "r2": 0.02}
"""Scores up to which a model has learnt nothing."""


class Bounded(NamedTuple):
    """A number of the verdict."""

    name: str
    value: str
    bounds: str
    """The values between which it lies, in words."""


class Use(NamedTuple):
    """The scores of models that learnt from synthetic records, and from real ones."""

    metric: str
    what: str
    """The scores that were averaged, or the column that was predicted."""
    synthetic: float
    std: float
    real: float | None


def sentence(metrics: Mapping[str, Any]) -> str:
    """Return the verdict as one sentence; "" where nothing that it covers was measured.

    Args:
      metrics: The content of metrics.json.
    """
    parts = [_use(metrics), _shares(metrics), _columns(metrics), _groups(metrics)]
    text = "; ".join(part for part in parts if part)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def numbers(metrics: Mapping[str, Any]) -> tuple[Bounded, ...]:
    """Return up to three numbers: of utility, of similarity, and of an attack.

    Args:
      metrics: The content of metrics.json.
    """
    return tuple(part for part in (_used(metrics), _likeness(metrics), _attack(metrics)) if part)


def use(metrics: Mapping[str, Any]) -> Use | None:
    """Return the utility of the records: by classifiers of the label, else by the first target.

    Args:
      metrics: The content of metrics.json.
    """
    averages = metrics.get("average", {})
    accuracy = averages.get("gen2real", {}).get("accuracy")
    if is_leaf(accuracy):
        real = averages.get("real2real", {}).get("accuracy")
        return Use("accuracy", "mean of all classifiers", accuracy["mean"],
                   accuracy.get("std") or 0.0, real["mean"] if is_leaf(real) else None)
    for metric in CLASSIFIER_METRICS:
        means = {task: _means(metrics.get(task, {}), metric) for task in ("gen2real", "real2real")}
        if means["gen2real"]:
            spread = math.sqrt(_mean([leaf ** 2 for leaf in _means(
                metrics["gen2real"], metric, "std")]))
            return Use(metric, "mean of all classifiers", _mean(means["gen2real"]), spread,
                       _mean(means["real2real"]) if means["real2real"] else None)
    for name, target in metrics.get("targets", {}).items():
        metric = metric_of(target.get("gen2real", {}))
        best = {task: max(_means(target.get(task, {}), metric), default=None)
                for task in ("gen2real", "real2real")}
        if best["gen2real"] is not None:
            return Use(metric, f"{name} from the other columns, best model", best["gen2real"], 0.0,
                       best["real2real"])
    return None


def metric_of(models: Mapping[str, Any]) -> str:
    """Return the first metric of the models of a target: AUROC of categories, R2 of numbers.

    Args:
      models: {model: {metric: leaf}}.
    """
    return "r2" if any("r2" in scores for scores in models.values()) else "auroc"


def _means(scores: Mapping[str, Any], metric: str, key: str = "mean") -> list[float]:
    """Return a metric of all models that have it."""
    return [float(model[metric].get(key) or 0.0) for model in scores.values()
            if isinstance(model, dict) and is_leaf(model.get(metric))]


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _use(metrics: Mapping[str, Any]) -> str:
    """Return what is kept of what real records give."""
    found = use(metrics)
    if found is None:
        pairs = metrics.get("fidelity", {}).get("two_way_tvd")
        if not is_leaf(pairs):
            return ""
        floor = pairs.get("floor")
        beside = "" if floor is None else f", where real rows among themselves are {floor:.3f} off"
        return f"pairs of columns are {pairs['mean']:.3f} off{beside}"
    about = "" if found.what.startswith("mean") else f" ({found.what})"
    name, floor = label(found.metric), NOTHING_LEARNT.get(found.metric, 0.0)
    if found.real is None:
        return f"reaches {found.synthetic:.2f} {name}{about}"
    if found.real <= floor:
        return (f"there is nothing to keep: real records give {found.real:.2f} {name} themselves"
                f"{about}")
    if found.synthetic <= floor:
        return f"keeps nothing of {found.real:.2f} {name}: {found.synthetic:.2f}{about}"
    return f"keeps {found.synthetic:.2f} of {found.real:.2f} {name}{about}"


def _shares(metrics: Mapping[str, Any]) -> str:
    """Return whether the shares of the classes are wrong."""
    shares = metrics.get("label_shares", ())
    wrong = [share for share in shares if share["wrong"]]
    if not wrong:
        return "class shares are right" if shares else ""
    wrong.sort(key=lambda share: -abs(share["synthetic"] - share["real"]))
    if len(shares) == 2:  # one of them determines both
        wrong = [min(wrong, key=lambda share: share["real"])]
    named = ", ".join(f"{share['class']} is {percent(share['synthetic'])} of synthetic rows and "
                      f"{percent(share['real'])} of real ones" for share in wrong[:NAMED])
    more = f", and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
    return f"class shares are wrong ({named}{more})"


def _columns(metrics: Mapping[str, Any]) -> str:
    """Return how many columns are far off."""
    part = metrics.get("fidelity", {})
    if "far_off" not in part:
        return ""
    total = len(part.get("one_way_tvd", {}).get("columns", ()))
    if not part["far_off"]:
        return f"none of {total} columns is far off"
    count = len(part["far_off"])
    return f"{count} of {total} columns {'is' if count == 1 else 'are'} far off"


def _groups(metrics: Mapping[str, Any]) -> str:
    """Return the subgroup that comes off worst: in score where models learn, else in pairs."""
    groups = metrics.get("subgroups", ())
    scored = [group for group in groups if is_leaf(group.get("gen2real"))
              and is_leaf(group.get("real2real"))
              and group["real2real"]["mean"] > NOTHING_LEARNT.get(group["metric"], 0.0)]
    if scored:
        worst = max(scored, key=_loss)
        return (f"of the subgroups {worst['group']} (by {worst['by']}) loses most, keeping "
                f"{worst['gen2real']['mean']:.2f} of {worst['real2real']['mean']:.2f} "
                f"{label(worst['metric'])}")
    paired = [group for group in groups if is_leaf(group.get("two_way_tvd"))
              and group["two_way_tvd"].get("floor") is not None]
    if not paired:
        return ""
    worst = max(paired, key=lambda one: one["two_way_tvd"]["mean"] - one["two_way_tvd"]["floor"])
    return (f"of the subgroups {worst['group']} (by {worst['by']}) is farthest off, its pairs by "
            f"{worst['two_way_tvd']['mean']:.2f} where real rows are "
            f"{worst['two_way_tvd']['floor']:.2f} off")


def _loss(group: Mapping[str, Any]) -> float:
    """Return what a subgroup loses of its score beyond two standard errors of few held-out rows.

    An AUROC of mean A has variance at most A (1 - A) / m with m rows of the rarer class (van
    Dantzig 1951); the same is taken for R2.
    """
    score = min(max(group["gen2real"]["mean"], 0.0), 1.0)
    error = math.sqrt(score * (1 - score) / max(group.get("n_rarest") or 1, 1))
    return float(group["real2real"]["mean"] - group["gen2real"]["mean"] - 2 * error)


def _used(metrics: Mapping[str, Any]) -> Bounded | None:
    found = use(metrics)
    if found is None:
        return None
    chance = {"auroc": "0.5 is chance", "r2": "0 is a guess of the mean"}.get(found.metric, "")
    real = "" if found.real is None else f"real records give {found.real:.3f}"
    spread = f" \u00b1 {found.std:.3f}" if found.std else ""
    return Bounded(f"Use: {label(found.metric)} on real records, {found.what}",
                   f"{found.synthetic:.3f}{spread}", _joined(real, chance))


def _likeness(metrics: Mapping[str, Any]) -> Bounded | None:
    part = metrics.get("fidelity", {})
    for key, text, worst in (
            ("two_way_tvd", "Likeness: distance of pairs of columns", "1 is the worst"),
            ("one_way_tvd", "Likeness: distance of columns", "1 is the worst"),
            ("fid_features", "Likeness: Fr\u00e9chet distance of features", "0 is the best")):
        if is_leaf(part.get(key)):
            floor = part[key].get("floor")
            real = "" if floor is None else f"real records among themselves: {number(floor)}"
            places = 3 if key != "fid_features" else 1
            return Bounded(text, f"{part[key]['mean']:.{places}f} \u00b1 "
                           f"{part[key].get('std') or 0:.{places}f}", _joined(real, worst))
    return None


def _attack(metrics: Mapping[str, Any]) -> Bounded | None:
    part = metrics.get("membership") or {}
    scores = {name: attack["auroc"] for name, attack in part.get("attacks", {}).items()
              if is_leaf(attack.get("auroc"))}
    if not scores:
        return None
    strongest = max(scores.values(), key=lambda leaf: leaf["mean"])
    allowed = (part.get("allowed") or {}).get("auroc")
    most = ("no guarantee bounds it" if allowed is None else
            f"the guarantee allows at most {number(float(allowed))}")
    return Bounded("Attack: AUROC of the strongest that guesses who was trained on",
                   f"{strongest['mean']:.3f} \u00b1 {strongest.get('std') or 0:.3f}",
                   _joined("0.5 is chance", most))


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)


TASKS = ("gen2real", "real2gen", "real2real")


def terminal_lines(results: Json) -> Iterator[str]:
    """Yield the verdict, the tasks side by side, the likeness, the subgroups, attacks and notes.

    Args:
      results: The content of metrics.json.

    Yields:
      A line each.
    """
    said = sentence(results)
    if said:
        yield f"verdict: {said}"
    for bounded in numbers(results):
        yield f"{bounded.name}: {bounded.value} ({bounded.bounds})"
    yield results["setting"]["text"]
    yield from _tasks(results)
    yield from _targets(results)
    yield from _likeness_lines(results)
    yield from _subgroups(results)
    if "schema_violations" in results:
        yield f"share of cells that break the schema: {results['schema_violations']['mean']:.2g}"
    for line in results.get("constraints", ()):
        yield f"synthetic rows: {line}"
    if "membership" in results:
        yield results["membership"]["sentence"]
    for note in results.get("notes", []):
        yield f"note: {note}"


def _tasks(results: Json) -> Iterator[str]:
    """Yield a line for each classifier and ranking score, or for its accuracy without one."""
    tasks = [task for task in TASKS if task in results]
    for name, scores in results[tasks[0]].items() if tasks else ():
        shown = [m for m in ("auroc", "auprc") if m in scores] or ["accuracy"]
        for metric in shown:
            parts = [f"{task} {_number(results[task][name][metric])}" for task in tasks
                     if name in results[task]]
            yield f"{name:19} {metric:8}  {'   '.join(parts)}"


def _targets(results: Json) -> Iterator[str]:
    """Yield a line for each column that was predicted, by the best model of each task."""
    for name, by_task in results.get("targets", {}).items():
        parts = []
        for task, models in by_task.items():
            metric = metric_of(models)
            best = max((scores[metric] for scores in models.values()), key=lambda s: s["mean"])
            parts.append(f"{task} {_number(best)}")
        if parts:
            yield f"{name:19} {metric:8}  {'   '.join(parts)}   (best model)"


def _likeness_lines(results: Json) -> Iterator[str]:
    """Yield a line for each measure of likeness, and for each column that is far off."""
    part = results.get("fidelity", {})
    for name, score in part.items():
        if "mean" in score:
            floor = score.get("floor")
            beside = "" if floor is None else f"   real against real {floor:.4f}"
            yield f"{name.replace('_', ' '):22}  {_number(score)}{beside}"
    for sentence in part.get("far_off", ()):
        yield f"far off: {sentence}"


def _subgroups(results: Json) -> Iterator[str]:
    """Yield a line for each subgroup."""
    for group in results.get("subgroups", ()):
        parts = [f"{group['n_test']:,} held-out rows"]
        if "two_way_tvd" in group:
            floor = group["two_way_tvd"]["floor"]
            beside = "" if floor is None else f" (real {floor:.4f})"
            parts.append(f"pairs {group['two_way_tvd']['mean']:.4f}{beside}")
        parts += [f"{task} {group['metric']} {group[task]['mean']:.4f}"
                  for task in TASKS if task in group]
        parts += [group["note"]] if "note" in group else []
        yield f"{group['by']}: {group['group']}: {', '.join(parts)}"


def _number(score: Json) -> str:
    return f"{score['mean']:.4f} +- {score['std']:.4f}"
