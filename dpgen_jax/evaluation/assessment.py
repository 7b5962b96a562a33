"""All that an evaluation found, and its views: metrics.json, the verdict, lines for a terminal.

`Assessment.json` gives the content of metrics.json, and `read` the assessment of such a content, of
earlier versions as well. The report is the third view (`report.py`).

The verdict sums findings up, the worst first: what synthetic rows of a table lack (`losses`), what
the records can be used for, and what an attack learns from them. Sizes order the findings; there is
no overall score.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Required, TypedDict

from dpgen_jax.core.files import Json
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import comparison
from dpgen_jax.evaluation.results import TASKS, Finding, Key, Part, Score, Severity
from dpgen_jax.release import contents
from dpgen_jax.release.render import label, number

FLOOR = ("fidelity", "subgroups")
"""Parts of metrics.json whose distances have a floor, null where it was not measured."""
VERDICT = "verdict"
"""The key of metrics.json that holds the verdict, which is computed anew where a file is read."""


class Group(NamedTuple):
    """A subgroup of the rows of a table."""

    by: str
    name: str
    findings: dict[str, Finding]
    """By their names; none where it has too few rows."""
    n_test: int
    n_rarest: int | None
    """Held-out rows of its rarest class."""
    real_share: Score | None
    """Its share of the real rows."""
    metric: str | None
    """The name of the scores `gen2real` and `real2real`."""
    note: str


class Attacks(NamedTuple):
    """The facts on the membership attacks, beside their scores."""

    sentence: str = ""
    exceeds_guarantee: bool = False
    n_members: int = 0
    n_non_members: int = 0
    n_reference: int = 0


@dataclasses.dataclass(frozen=True)
class Assessment:
    """The findings of an evaluation, and everything else that metrics.json has, nested as there."""

    findings: tuple[Finding, ...] = ()
    facts: Json = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, parts: Sequence[Part], facts: Json) -> Assessment:
        """Return the assessment of what the measures returned, and of facts on all of them."""
        merged: Json = {}
        for part in parts:
            _merge(merged, part.facts)
        findings = tuple(finding for part in parts for finding in part.findings)
        uncovered = [key for part in parts for key in part.real_facts]
        for finding in findings:
            if finding.from_real and not _covers(uncovered, finding.path):
                uncovered.append(finding.path)
        return cls(findings, merged | facts | {
            "notes": [note for part in parts for note in part.notes],
            "not_covered_by_epsilon": uncovered})

    def json(self) -> Json:
        """Return the content of metrics.json."""
        document: Json = copy.deepcopy(self.facts)
        for finding in self.findings:
            place: Any = document
            for name in finding.key:
                place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
            place |= _leaf(finding)
        if judged := [_judged(finding) for finding in verdict(self)]:
            document[VERDICT] = judged
            listed = document.get("not_covered_by_epsilon")
            if listed is not None and VERDICT not in listed:
                document["not_covered_by_epsilon"] = [*listed, VERDICT]
        return document

    def fact(self, *key: str) -> Any:
        """Return the fact at a key, or None."""
        value: Any = self.facts
        for name in key:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def under(self, *key: str | int) -> list[Finding]:
        """Return the findings whose key is longer and begins so."""
        return [one for one in self.findings if len(one.key) > len(key)
                and one.key[:len(key)] == key]

    def names(self, *key: str | int) -> list[str]:
        """Return the names that stand next after a key in those of the findings, each once."""
        return list(dict.fromkeys(str(one.key[len(key)]) for one in self.under(*key)))

    def at(self, *key: str | int) -> Finding | None:
        """Return the finding of a key, or None."""
        return next((one for one in self.findings if one.key == key), None)

    def is_from_real(self, path: str) -> bool:
        """Return whether the value at a dotted key follows from real records.

        That is assumed of all values where metrics.json does not list them.
        """
        return _covers(self.fact("not_covered_by_epsilon"), path)

    @property
    def tasks(self) -> list[str]:
        """The tasks of classifiers that were measured."""
        return [task for task in TASKS if self.under(task)]

    @property
    def attacks(self) -> Attacks:
        """The facts on the membership attacks."""
        known = self.fact("membership")
        return Attacks(**{name: known[name] for name in Attacks._fields if name in known}
                       ) if isinstance(known, dict) else Attacks()

    @property
    def shares(self) -> list[Finding]:
        """The share of each class."""
        return [Finding(("label_shares", one["class"]), Score(one["synthetic"]), Score(one["real"]),
                        severity=Severity.CAUTION if one["wrong"] else Severity.FINE)
                for one in self.fact("label_shares") or ()]

    @property
    def groups(self) -> list[Group]:
        """The subgroups."""
        return [Group(one["by"], one["group"], {
            found.name: found for found in self.under("subgroups", i) if len(found.key) == 3},
            one["n_test"], one.get("n_rarest"),
            Score(one["real_share"]) if "real_share" in one else None, one.get("metric"),
            one.get("note", "")) for i, one in enumerate(self.fact("subgroups") or ())]


class ScoreJson(TypedDict, total=False):
    """A score over seeds."""

    mean: Required[float]
    std: float | None
    values: list[float]
    floor: float | None


class SettingJson(TypedDict, total=False):
    """The measures that an evaluation wrote."""

    name: str
    text: str
    schedule: Json


class MembershipJson(TypedDict, total=False):
    """The success of attacks, and the most that the guarantee allows."""

    attacks: dict[str, dict[str, ScoreJson]]
    allowed: dict[str, float] | None
    chance: dict[str, float]
    sentence: str
    exceeds_guarantee: bool


class MetricsJson(TypedDict, total=False):
    """metrics.json."""

    release: contents.Statement
    kind: Required[str]
    dataset: str
    setting: SettingJson | None
    gen2real: dict[str, dict[str, ScoreJson]]
    real2gen: dict[str, dict[str, ScoreJson]]
    real2real: dict[str, dict[str, ScoreJson]]
    average: dict[str, dict[str, ScoreJson | list[str]]]
    fidelity: Json
    membership: MembershipJson | None
    notes: list[str]
    not_covered_by_epsilon: list[str]
    n_samples: int
    n_test: int
    seeds: int


def load(path: Path) -> Assessment:
    """Read a file metrics.json, in which all scores must be finite numbers.

    Raises:
        UserError: It is missing or damaged.
    """
    mend = "evaluate the run again"
    written = read_json(path)
    measured = contents.checked(MetricsJson, written, path, mend)
    if "release" in written:  # none where the synthetic records came as a table
        contents.statement(written["release"], f"{path}, release")
    for part in _dicts(measured):
        if "mean" in part and not isinstance(part["mean"], dict):
            score = contents.checked(ScoreJson, part, path, mend)
            if not math.isfinite(score["mean"] + (score.get("std") or 0)):
                raise UserError(f"{path} is damaged: a score is infinite; {mend}")
    return read(measured)


def _dicts(value: object) -> list[Json]:
    """Return all dicts within a value, at any depth."""
    parts, found = [value], []
    while parts:
        found += [part for part in parts if isinstance(part, dict)]
        parts = [inner for part in parts for inner in (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())]
    return found


def read(document: Json) -> Assessment:
    """Return the assessment of the content of metrics.json; keys that are not known are kept."""
    document = {name: value for name, value in document.items() if name != VERDICT}
    listed, findings = document.get("not_covered_by_epsilon"), []
    membership = document.get("membership")
    bounds = membership if isinstance(membership, dict) else {}

    def walk(value: Any, key: Key) -> Any:
        if isinstance(value, list):
            return [walk(part, (*key, i)) for i, part in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if is_score(value):
            floor = value.get("floor")
            limits = bounds if key[:2] == ("membership", "attacks") else {}
            findings.append(Finding(
                key, Score(value["mean"], value.get("std"), tuple(value.get("values") or ())),
                None if floor is None else Score(floor),
                (limits.get("chance") or {}).get(key[-1]),
                (limits.get("allowed") or {}).get(key[-1]),
                _covers(listed, ".".join(map(str, key)))))
            value = {name: part for name, part in value.items() if name not in _SCORE}
        rest = {name: walk(part, (*key, name)) for name, part in value.items()}
        # A score that nothing else is known of leaves nothing behind.
        return {name: part for name, part in rest.items()
                if part or not is_score(value[name])}

    facts = walk(document, ())
    return Assessment(tuple(findings), facts)


_SCORE = ("mean", "std", "values", "floor")


def is_score(value: object) -> bool:
    """Return whether a value of metrics.json is a score {"mean", ...}."""
    return (isinstance(value, dict) and isinstance(value.get("mean"), int | float)
            and not isinstance(value["mean"], bool))


def over_runs(runs: Sequence[Any]) -> Any:
    """Return several trainings as one: each score is that of their means.

    So a deviation is that between trainings, and no longer that between seeds of one evaluation.

    Args:
      runs: What `evaluate` returned for each training, or the content of its metrics.json.

    Returns:
      The same kind of value; what is no score is that of the first training.

    Raises:
      UserError: There are none, or they have different measures.
    """
    if not runs:
        raise UserError("no training to average over; give what evaluate returned for each")
    if not isinstance(runs[0], Assessment):
        return over_runs([read(run) for run in runs]).json()
    scores = [{one.key: one.value.mean for one in run.findings} for run in runs]
    if any(other.keys() != scores[0].keys() for other in scores):
        raise UserError("the trainings were not measured alike; evaluate them with the same flags")
    return dataclasses.replace(runs[0], findings=tuple(
        dataclasses.replace(one, value=Score.of([of_run[one.key] for of_run in scores]))
        for one in runs[0].findings))


def _covers(listed: Sequence[str] | None, path: str) -> bool:
    """Return whether a list of dotted keys names a path or what it is a part of."""
    return listed is None or any(f"{path}.".startswith(f"{key}.") for key in listed)


def _merge(into: Json, facts: Json) -> None:
    """Add facts, object by object."""
    for name, value in facts.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = copy.deepcopy(value)


def _leaf(finding: Finding) -> Json:
    """Return a finding as metrics.json has it."""
    real = finding.real
    with_floor = real is not None or (finding.key[0] in FLOOR and finding.name not in (
        "synthetic_share", *TASKS))
    floor = {"floor": None if real is None else real.mean} if with_floor else {}
    return finding.value.json() | floor


def _judged(finding: Finding) -> Json:
    """Return a finding of the verdict as metrics.json has it."""
    more: Json = ({"kind": finding.key[1], "columns": [*finding.key[2:]]}
                  if finding.key[0] == "losses" else {})
    return {"name": str(finding.key[1 if more else -1]), "text": finding.text,
            "severity": finding.severity.name.lower(), "advice": finding.advice,
            "value": finding.value.mean,
            "real": finding.real and finding.real.mean, "chance": finding.chance,
            "allowed": finding.allowed, "size": finding.size} | more


NOTHING_LEARNT = {"auroc": 0.52, "r2": 0.02}
"""Scores up to which a model has learnt nothing."""
CHANCE = {"auroc": 0.5, "r2": 0.0}
RANKING = ("auroc", "auprc")
FIRST = 3
"""The losses that the verdict names; the others are listed after it."""
OTHERS = 5
"""The other findings of a kind that a sentence names."""
BEST = "best classifier"
POINTS, DETECTED = 0.03, 0.1
"""The units of a lost score, and of an AUROC by which synthetic rows are told from real ones."""


def verdict(found: Assessment) -> list[Finding]:
    """Return what the findings come to, the worst first: losses, use, subgroups, likeness, attack.

    Of each kind of loss there is one finding, whose text names the others.
    """
    judges: tuple[Callable[[Assessment], Finding | None], ...] = (
        use, _groups, _detected, _likeness, _attack)
    judged = [*_losses(found), *(finding for judge in judges if (finding := judge(found)))]
    return sorted(judged, key=lambda finding: -finding.size)


def sentences(found: Assessment) -> list[str]:
    """Return the verdict as sentences, the worst loss first; none where nothing was measured."""
    judged = [finding for finding in verdict(found) if finding.text]
    texts = [finding.text for finding in judged]
    if found.fact("losses") is not None and not any(finding.size >= 1 for finding in judged):
        texts.insert(0, "No loss was found that is larger than the difference of two halves of "
                        "the real rows")
    return [f"{text[0].upper() if not _is_named(text, found) else text[0]}{text[1:]}."
            for text in texts]


def _is_named(text: str, found: Assessment) -> bool:
    """Return whether a text begins with the name of a column, which keeps its letters."""
    names = (name for entry in found.fact("losses") or () for name in entry["columns"])
    return any(text.startswith(name) for name in names)


def sentence(found: Assessment) -> str:
    """Return the worst `FIRST` losses, and the use, as one text; "" where nothing was measured."""
    said, judged = sentences(found), [one for one in verdict(found) if one.text]
    offset = len(said) - len(judged)
    kept = [text for i, text in enumerate(said)
            if i < FIRST or judged[i - offset].key[0] == "use"]
    return " ".join(kept)


def more(found: Assessment) -> list[str]:
    """Return the sentences that `sentence` leaves out."""
    said = sentence(found)
    return [text for text in sentences(found) if text not in said]


def advice(found: Assessment) -> list[str]:
    """Return what a user can do about the findings of the verdict, each advice once."""
    return list(dict.fromkeys(finding.advice for finding in verdict(found) if finding.advice))


def _losses(found: Assessment) -> list[Finding]:
    """Return the worst loss of each kind, with the others of the kind in its text."""
    by_kind: dict[str, list[Json]] = {}
    for entry in found.fact("losses") or ():
        by_kind.setdefault(entry["kind"], []).append(entry)
    judged = []
    for first, *rest in by_kind.values():
        worst, text = comparison.read(first), first["text"]
        names = list(dict.fromkeys(" and ".join(entry["columns"]) for entry in rest
                                   if entry["columns"] != first["columns"]))
        if names:
            left = first["of_kind"] - 1 - len(rest)
            text += (f"; likewise {', '.join(names[:OTHERS])}"
                     f"{f' and {left} more' if left > 0 else ''}")
        judged.append(dataclasses.replace(worst, text=text,
                                          details=tuple(map(comparison.read, rest))))
    return judged


def use(found: Assessment) -> Finding | None:
    """Return what the records can be used for.

    That is the score of the best classifier of the label, else of the best model of the first
    column that was predicted, with that of the best one that real records trained. Its key is
    ("use", metric, what it is the score of).
    """
    for metric in ("auroc", "accuracy"):
        ours, theirs = ([one for one in found.under(task) if one.name == metric]
                        for task in ("gen2real", "real2real"))
        if ours:
            return _kept(metric, BEST, ours, theirs)
    for name in found.names("targets"):
        ours, theirs = (_of_first_metric(found.under("targets", name, task))
                        for task in ("gen2real", "real2real"))
        if ours:
            return _kept(ours[0].name, f"{name} from the other columns, best model", ours, theirs)
    return None


def _of_first_metric(models: Sequence[Finding]) -> list[Finding]:
    """Return the first metric of the models of a target: R2 of numbers, AUROC of categories."""
    name = "r2" if any(one.name == "r2" for one in models) else "auroc"
    return [one for one in models if one.name == name]


def _kept(metric: str, what: str, ours: Sequence[Finding], theirs: Sequence[Finding]) -> Finding:
    """Return how much the best model keeps of what real records give."""
    best = max(ours, key=lambda one: one.value.mean)
    real = max((one.value for one in theirs), key=lambda one: one.mean, default=None)
    value, name, least = best.value, label(metric), NOTHING_LEARNT.get(metric, 0.0)
    about = label(str(best.key[1])) if what == BEST else what.removesuffix(", best model")
    reached = (f"the best model of synthetic records ({about}) reaches {value.mean:.2f} {name} on "
               "real ones")
    lost, size = False, 0.0
    if real is None:
        text = reached
    elif real.mean <= least:
        text = (f"there is nothing to keep: the best model of real records gives {real.mean:.2f} "
                f"{name} itself ({about})")
    else:
        size = (real.mean - value.mean - 2 * (value.std or 0.0)) / POINTS
        text = f"{reached} (that of real records {real.mean:.2f})"
        if lost := value.mean <= least:
            size, text = comparison.MOST, f"nothing can be predicted: {text}"
    severity = Severity.ALARM if lost else Severity.CAUTION if size >= 1 else Severity.FINE
    return Finding(("use", metric, what), value, real, CHANCE.get(metric), text=text,
                   severity=severity, size=min(max(size, 0.0), comparison.MOST),
                   advice="" if not severity else comparison.EPSILON if metric != "accuracy" else
                   "train with a larger epsilon, or on more records",
                   details=tuple(ours))


def _real(finding: Finding) -> float:
    """Return the score of real records, which is known here."""
    return finding.real.mean if finding.real else math.nan


def _detected(found: Assessment) -> Finding | None:
    """Return how well synthetic rows are told from real ones, and by which columns."""
    one = found.at("fidelity", "detection_auroc")
    if one is None:
        return None
    least = max(0.5, one.real.mean if one.real else 0.5) + DETECTED / 2
    size = (one.value.mean - least) / DETECTED
    if size < 1:
        return None
    known = found.fact("fidelity", "detection") or {}
    by = " and ".join(known.get("columns", ()))
    how = "" if not by else (f", by the values of {by}" if known.get("each_by_itself")
                             else f", by how {by} depend on other columns")
    real = "" if one.real is None else f" (for real rows it reaches {one.real.mean:.2f})"
    return dataclasses.replace(
        one, key=("detection",), chance=0.5, size=size, severity=Severity.CAUTION,
        text=f"a model tells synthetic rows from real ones with an AUROC of {one.value.mean:.2f}"
             f"{real}{how}", advice=comparison.EPSILON)


def _groups(found: Assessment) -> Finding | None:
    """Return the subgroup that comes off worst: in score where models learn, else in pairs."""
    scored = [group for group in found.groups if {"gen2real", "real2real"} <= group.findings.keys()
              and group.findings["real2real"].value.mean > NOTHING_LEARNT.get(
                  group.metric or "", 0.0)]
    if scored:
        worst = max(scored, key=_loss)
        ours, theirs = worst.findings["gen2real"], worst.findings["real2real"]
        text = (f"of the subgroups {worst.name} (by {worst.by}) loses most, keeping "
                f"{ours.value.mean:.2f} of {theirs.value.mean:.2f} {label(worst.metric or '')}")
        size = max(0.0, _loss(worst) / POINTS)
        return dataclasses.replace(ours, key=("subgroup",), real=theirs.value, text=text,
                                   size=min(size, comparison.MOST_OF_A_GROUP))
    pairs = [(group, group.findings["two_way_tvd"]) for group in found.groups
             if "two_way_tvd" in group.findings and group.findings["two_way_tvd"].real]
    if not pairs:
        return None
    worst, pair = max(pairs, key=lambda one: one[1].value.mean - _real(one[1]))
    text = (f"of the subgroups {worst.name} (by {worst.by}) is farthest off, its pairs by "
            f"{pair.value.mean:.2f} where real rows are {_real(pair):.2f} off")
    return dataclasses.replace(pair, key=("subgroup",), text=text)


def _loss(group: Group) -> float:
    """Return what a subgroup loses of its score beyond two standard errors of few held-out rows.

    An AUROC of mean A has variance at most A (1 - A) / m with m rows of the rarer class (van
    Dantzig 1951); the same is taken for R2.
    """
    ours, theirs = (group.findings[task].value.mean for task in ("gen2real", "real2real"))
    score = min(max(ours, 0.0), 1.0)
    return theirs - ours - 2 * math.sqrt(score * (1 - score) / max(group.n_rarest or 1, 1))


def _likeness(found: Assessment) -> Finding | None:
    """Return the distance of the records; it is a number beside the sentence."""
    for key in ("two_way_tvd", "one_way_tvd", "fid_features"):
        if finding := found.at("fidelity", key):
            return dataclasses.replace(finding, key=("likeness", key))
    return None


def _attack(found: Assessment) -> Finding | None:
    """Return the AUROC of the strongest attack; it is a number beside the sentence."""
    tried = [one for one in found.under("membership", "attacks") if one.name == "auroc"]
    if not tried:
        return None
    strongest = max(tried, key=lambda one: one.value.mean)
    beyond = found.attacks.exceeds_guarantee
    return dataclasses.replace(
        strongest, key=("attack", str(strongest.key[2])), chance=0.5, details=tuple(tried),
        severity=Severity.ALARM if beyond else Severity.FINE, size=2 * comparison.MOST * beyond,
        text=found.attacks.sentence.rstrip(".") if beyond else "",
        advice="do not share the release before you know why an attack reached more than is "
               "allowed" if beyond else "")


class Bounded(NamedTuple):
    """A number of the verdict, as text."""

    name: str
    value: str
    bounds: str
    """The values between which it lies."""


LIKENESS = {"two_way_tvd": ("Likeness: distance of pairs of columns", "1 is the worst"),
            "one_way_tvd": ("Likeness: distance of columns", "1 is the worst"),
            "fid_features": ("Likeness: Fr\u00e9chet distance of features", "0 is the best")}
GUESS = {"auroc": "0.5 is chance", "r2": "0 is a guess of the mean"}


def numbers(found: Assessment) -> list[Bounded]:
    """Return up to three numbers of the verdict: of use, of likeness, and of an attack."""
    judged = {str(one.key[0]): one for one in verdict(found)}
    return [_bounded(judged[name]) for name in ("use", "likeness", "attack") if name in judged]


def _bounded(one: Finding) -> Bounded:
    """Return a finding of the verdict beside what it lies between."""
    spread, real = one.value.std or 0.0, one.real
    if one.key[0] == "use":
        bounds = ("" if real is None else "in brackets: trained on real records",
                  GUESS.get(str(one.key[1]), ""))
        return _number(f"Use: {label(str(one.key[1]))} on real records, {one.key[2]}",
                       f"{one.value.mean:.3f}" + (f" \u00b1 {spread:.3f}" if spread else "")
                       + ("" if real is None else f" ({real.mean:.3f})"), bounds)
    if one.key[0] == "likeness":
        name, worst = LIKENESS[one.name]
        places = 1 if one.name == "fid_features" else 3
        return _number(name, f"{one.value.mean:.{places}f} \u00b1 {spread:.{places}f}", (
            "" if real is None else f"real records among themselves: {number(real.mean)}", worst))
    most = ("no guarantee bounds it" if one.allowed is None else
            f"the guarantee allows at most {number(float(one.allowed))}")
    return _number("Attack: AUROC of the strongest membership attack",
                   f"{one.value.mean:.3f} \u00b1 {spread:.3f}", ("0.5 is chance", most))


def _number(name: str, value: str, bounds: Sequence[str]) -> Bounded:
    return Bounded(name, value, "; ".join(filter(None, bounds)))


def terminal_lines(found: Assessment) -> Iterator[str]:
    """Yield the lines of a terminal: verdict, tasks, likeness, subgroups, attacks and notes."""
    if said := sentence(found):
        yield f"verdict: {said}"
    for line in more(found):
        yield f"also: {line}"
    for line in advice(found):
        yield f"advice: {line}"
    for bounded in numbers(found):
        yield f"{bounded.name}: {bounded.value} ({bounded.bounds})"
    if text := found.fact("setting", "text"):
        yield text
    yield from _tasks(found)
    yield from _targets(found)
    yield from _likeness_lines(found)
    yield from _subgroups(found)
    if broken := found.at("schema_violations"):
        yield f"share of cells that break the schema: {broken.value.mean:.2g}"
    for line in found.fact("constraints") or ():
        yield f"synthetic rows: {line}"
    if found.attacks.sentence:
        yield found.attacks.sentence
    for note in found.fact("notes") or ():
        yield f"note: {note}"


def _tasks(found: Assessment) -> Iterator[str]:
    """Yield a line for each classifier and ranking score, or for its accuracy without one."""
    for name in found.names(found.tasks[0]) if found.tasks else ():
        metrics = found.names(found.tasks[0], name)
        ranking = [metric for metric in RANKING if metric in metrics]
        for metric in ranking or ["accuracy"]:
            parts = [f"{task} {_text(score)}" for task in found.tasks
                     if (score := found.at(task, name, metric))]
            yield f"{name:19} {metric:8}  {'   '.join(parts)}"


def _targets(found: Assessment) -> Iterator[str]:
    """Yield a line for each column that was predicted, by the best model of each task."""
    for name in found.names("targets"):
        tasks = found.names("targets", name)
        best = [max(_of_first_metric(found.under("targets", name, task)),
                    key=lambda one: one.value.mean) for task in tasks]
        parts = [f"{task} {_text(one)}" for task, one in zip(tasks, best, strict=True)]
        yield f"{name:19} {best[0].name:8}  {'   '.join(parts)}   (best model)"


def _likeness_lines(found: Assessment) -> Iterator[str]:
    """Yield a line for each measure of likeness, and for each column that is far off."""
    for one in found.under("fidelity"):
        if len(one.key) == 2:
            real = "" if one.real is None else f"   real against real {one.real.mean:.4f}"
            least = found.at("baselines", "independent", one.name)
            parts = "columns" if found.fact("kind") == "table" else "pixels"
            real += "" if least is None else f"   independent {parts} {least.value.mean:.4f}"
            yield f"{one.name.replace('_', ' '):22}  {_text(one)}{real}"
    for line in found.fact("fidelity", "far_off") or ():
        yield f"far off: {line}"


def _subgroups(found: Assessment) -> Iterator[str]:
    """Yield a line for each subgroup."""
    for group in found.groups:
        parts = [f"{group.n_test:,} held-out rows"]
        if pair := group.findings.get("two_way_tvd"):
            real = "" if pair.real is None else f" (real {pair.real.mean:.4f})"
            parts.append(f"pairs {pair.value.mean:.4f}{real}")
        parts += [f"{task} {group.metric} {group.findings[task].value.mean:.4f}"
                  for task in TASKS if task in group.findings]
        parts += [group.note] if group.note else []
        yield f"{group.by}: {group.name}: {', '.join(parts)}"


def _text(finding: Finding) -> str:
    return f"{finding.value.mean:.4f} +- {finding.value.std or 0:.4f}"
