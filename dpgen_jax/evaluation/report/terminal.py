"""The lines that a terminal shows of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from dpgen_jax.core.strict_json import Json
from dpgen_jax.evaluation.report import verdict

TASKS = ("gen2real", "real2gen", "real2real")


def lines(results: Json) -> Iterator[str]:
    """Yield the verdict, the tasks side by side, the likeness, the subgroups, attacks and notes.

    Args:
      results: The content of metrics.json.

    Yields:
      A line each.
    """
    said = verdict.sentence(results)
    if said:
        yield f"verdict: {said}"
    for bounded in verdict.numbers(results):
        yield f"{bounded.name}: {bounded.value} ({bounded.bounds})"
    yield results["setting"]["text"]
    yield from _tasks(results)
    yield from _targets(results)
    yield from _likeness(results)
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
            metric = verdict.metric_of(models)
            best = max((scores[metric] for scores in models.values()), key=lambda s: s["mean"])
            parts.append(f"{task} {_number(best)}")
        if parts:
            yield f"{name:19} {metric:8}  {'   '.join(parts)}   (best model)"


def _likeness(results: Json) -> Iterator[str]:
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
