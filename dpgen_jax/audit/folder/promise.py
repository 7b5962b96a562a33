"""The promise of a release, recomputed from the ledger and config.json."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from dpgen_jax.accountant import composition
from dpgen_jax.accountant import ledger as books
from dpgen_jax.aggregation.noise import OsBits, SeededBits
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder.reading import Book, Folder, attempt
from dpgen_jax.core.config import to_json
from dpgen_jax.core.files import Json
from dpgen_jax.core.run_folder import go_on, read_json
from dpgen_jax.core.terms import ProtectedUnit, Unit, at_most
from dpgen_jax.federated import server
from dpgen_jax.release import contents, documents
from dpgen_jax.release import guarantee as statements
from dpgen_jax.release.bundle import load
from dpgen_jax.release.guarantee import Protected
from dpgen_jax.run import checkpoint, stages
from dpgen_jax.run.costs import EX_POST
from dpgen_jax.run.monitor import Best


def release_of_itself(folder: Folder, findings: Findings, same: bool) -> None:
    """Checks a separate release: its parts must be consistent."""
    privacy = folder.statement
    wrong = [f"{name} is {privacy.get(name)!r} here and {other!r} in config.json"
             for name, other in (("method", folder.config["method"]),
                                 ("package_version", folder.version))
             if privacy.get(name) != other]
    findings.found("privacy.json and config.json describe the same release", not wrong,
                   "; ".join(wrong))
    if same:
        _costs(folder, findings)
    findings.unchecked("epsilon from the ledger, charges against releases, permissions",
                       "the ledger stays with the person who trained it",
                       "ask them for `python -m dpgen_jax.audit RUN`")


def _costs(folder: Folder, findings: Findings) -> None:
    """Compares the events of a statement with the mechanism that config.json builds."""
    privacy, mechanism = folder.statement, folder.mechanism
    if mechanism.cost_depends_on_answers:
        return  # only the ledger has the number of answered queries
    listed = {json.dumps({k: v for k, v in event.items() if k != "count"}, sort_keys=True):
              event.get("count", 0) for event in to_json(privacy.get("events", []))}
    due = mechanism.events(privacy.get("steps", 0))
    wrong = [f"{event.statement()} is due {n} times" for event, n in due
             if listed.get(json.dumps(to_json(event.statement()), sort_keys=True), 0) < n]
    claimed, needed = privacy["epsilon"], composition.epsilon_of(due, privacy["delta"])
    if needed > float(claimed):
        wrong.append(f"{privacy['steps']} steps cost epsilon {at_most(needed)}, and {claimed} "
                     "is stated")
    findings.found("privacy.json charges at least what the mechanism of config.json costs",
                   not wrong, "; ".join(wrong) or f"its {privacy['steps']} steps cost "
                   f"epsilon {at_most(needed)} of {claimed}")


def stated(folder: Folder, findings: Findings) -> None:
    """Adds the promise of the release; it passes only if the promise covers everything."""
    valid = statements.of(folder.statement).kind == "valid"
    findings.add("privacy.json promises something",
                 Verdict.HOLDS if valid else Verdict.UNCHECKED,
                 statements.line(folder.statement)
                 + "; this does not count as a pass" * (not valid))


def recomputed(folder: Folder, findings: Findings) -> None:
    """Compares privacy.json with what the ledger and config.json of a run imply."""
    written = read_json(folder.release / "privacy.json")
    book = next((book for book in (folder.book, *folder.book.earlier())
                 if _may_belong(folder.statement, book)), folder.book)
    expected = to_json(_expected(folder, book))
    wrong = [f"{name} is {_short(written.get(name))}, ledger and configuration give "
             f"{_short(expected.get(name))}" for name in {**expected, **written}
             if written.get(name) != expected.get(name)]
    findings.found("privacy.json is what ledger.jsonl and config.json give", not wrong,
                   "; ".join(wrong) or f"{len(expected)} fields, epsilon {expected['epsilon']}")
    _steps(folder, findings, book)
    known = as_written(folder, findings)
    if "kept_step" in written:
        _kept(folder, findings, written["kept_step"])
    if books.published(book.records) is not None:
        findings.add("the sanitised data-dependent epsilon",
                     Verdict.HOLDS if known else Verdict.UNCHECKED,
                     "its cost is charged and its fields agree with the ledger; the number itself "
                     "is noisy, computed from votes, and cannot be recomputed" + (
                         ": it is the one that was written" if known else ""))


def _may_belong(statement: dict[str, Any], book: Book) -> bool:
    """Whether a statement may belong to a ledger, by fields that are fast to compare."""
    targets = {float(statement.get(name) or 0) for name in ("epsilon", "budget_epsilon")}
    between = statements.between_hosts(book.account.processes)
    return (statement.get("events") == to_json(statements.stated_events(book.account.spent()))
            and book.account.target in targets
            and statement.get("not_accounted", [])[len(statements.NOT_ACCOUNTED):] == between)


def _steps(folder: Folder, findings: Findings, book: Book) -> None:
    """Compares the steps of a statement with rounds and checkpoints; reports any later ones."""
    check = "the steps in privacy.json were charged"
    made, charged = folder.statement.get("steps", 0), book.account.steps
    taken = checkpoint.steps(folder.files.checkpoints)
    last = taken[-1] if taken and not folder.of_server and book is folder.book else made
    if made > charged or made < last:
        findings.found(check, False, f"{made} steps were made and {charged} rounds charged"
                       if made > charged else
                       f"it says {made} steps, and the last checkpoint is of step {last}")
    elif made > last:
        findings.unchecked(check, f"it says {made} steps, and the last checkpoint is of step "
                           f"{last}: a later one may not have been written")
    else:
        findings.found(check, True, f"{made} steps, {charged} rounds charged")
    if book is not folder.book:
        more = folder.book.account.steps - charged
        findings.unchecked(
            "the run is finished", "it continued after this release, to which the other checks "
            f"refer: {more} rounds were charged since "
            "and are in no release", go_on(folder.root))


def as_written(folder: Folder, findings: Findings) -> bool:
    """Compares privacy.json, byte for byte, with what was written.

    Returns whether a digest of it was stored; earlier versions did not.
    """
    path = folder.files.released
    known = read_json(path).get("privacy_sha256") if path.exists() else None
    what = "privacy.json is the one that was written"
    if known is None:
        findings.unchecked(what, f"{path.name} in private/, which has the digests of the statement "
                           "and of the generator, is missing or of an earlier version: whether "
                           "both are those of this run is unknown")
        return False
    digest = _digest(folder, "privacy.json")
    findings.found(what, digest in known,
                   f"{path.name} in private/ has its digest" if digest in known else
                   f"{path.name} in private/ has the digest of another")
    return True


def _kept(folder: Folder, findings: Findings, stated_step: Any) -> None:
    """Compares the step of the released generator with that of its source file."""
    what, path = "the generator is that of the step which did best", folder.files.best
    why = attempt(lambda: Best(path)) if path.exists() else f"{path} is missing"
    if why:
        findings.unchecked(what, why)
        return
    step = Best(path).step
    findings.found(what, stated_step == step,
                   f"privacy.json says step {stated_step}, {path.name} {step}")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 100 else f"{text[:60]} ... {text[-30:]}"


def _expected(folder: Folder, book: Book) -> Json:
    """The statement that the ledger and the configuration imply.

    Steps and the kept step are taken from the statement, and compared separately. The noise sources
    of the clients of a federation are taken from it too, but not compared, since only the clients
    have them.
    """
    config, account, written = folder.config, book.account, folder.statement
    seeded = config.get("seed") is not None
    source = SeededBits.label if seeded else OsBits.label
    steps = written.get("steps", 0)
    facts = statements.Facts(
        method=str(config.get("method_then", config["method"])), preset=config.get("preset"),
        steps=steps,
        noise_source=str(written["noise_source"]) if folder.of_server else source,
        accounting=folder.method_config.accounting, as_published=stages.as_published(
            config["method"], folder.method_config, account.header["delta"], steps),
        made_by=config.get("made_by"), started_on=config.get("started_on"))
    privacy = statements.statement(facts, account, str(folder.mechanism.relation),
                                   _protected(folder))
    privacy |= {name: written[name] for name in ("kept_step", "texts") if name in written}
    if (event := books.published(book.records)) is not None:
        privacy |= _with_bound(folder, book, event)
    return privacy


def _with_bound(folder: Folder, book: Book, event: Any) -> Json:
    """The fields of a statement that were written when a data-dependent bound was published."""
    said = folder.statement.get("data_dependent_epsilon") or {}
    targets = [float(record["epsilon"]) for record in book.records
               if record["kind"] in ("header", "extend")]
    return {"budget_epsilon": targets[0], "data_dependent_epsilon": {
        "epsilon": said.get("epsilon"), "order": event.order, "kind": EX_POST,
        "own_cost_rdp": event.rdp, "epsilon_without_it": targets[-2],
        "may_be_too_low_with_probability": folder.method_config.sanitiser.failure}}


def _protected(folder: Folder) -> Protected:
    """Who is protected, by config.json and the mechanism."""
    config, mechanism = folder.config, folder.mechanism
    if folder.of_server:
        return server.protected(mechanism)
    said = config.get("unit", {})
    notes, uncovered = tuple(config.get("data_notes", ())), tuple(config.get("not_covered", ()))
    simulated, records = config.get("simulated", ""), config.get("records")
    bought = config.get("bought_from", {})
    if said:
        unit = ProtectedUnit(Unit.SUBJECT, said["unit_column"], said["rows_per_unit"])
        return Protected(unit, {"subjects": said["subjects"]}, notes, uncovered)
    if mechanism.unit == Unit.RECORD:
        counts = {"records": int(records or 0)}
        return Protected(ProtectedUnit(), counts, notes, uncovered, simulated, bought)
    if records is None:
        return Protected(ProtectedUnit(Unit.CLIENT), {"clients": mechanism.n_units}, notes,
                         uncovered)
    counts = {"records": records, "simulated_clients": mechanism.n_units}
    return Protected(ProtectedUnit(), counts, notes, uncovered, simulated, bought)


def sound(folder: Folder, findings: Findings) -> None:
    """Loads the release, and compares its config.json with that of the run."""
    why = attempt(lambda: load(folder.release))
    findings.found("the generator is the one that release/config.json names, and loads", not why,
                   why or _digest(folder, "generator.safetensors")[:16])
    if not why:
        _for_people(folder, findings)
    if not folder.whole or why:
        return
    described = contents.described(folder.release / "config.json")
    spec, spec_of_run = ({name: value for name, value in config["spec"].items()
                          if name not in ("class_names", "targets")}
                         for config in (described, folder.config))
    counts = (read_json(folder.files.class_counts).get("counts")
              if folder.files.class_counts.exists() else None)
    pairs = {"method": (described["method"], folder.config["method"]),
             "config": (described["config"], folder.config["config"]),
             "spec": (spec, spec_of_run),
             "class_counts": (described.get("class_counts"), counts)}
    if folder.files.released.exists():  # earlier runs have none
        pairs["generator_sha256"] = (described.get("generator_sha256"), read_json(
            folder.files.released).get("generator_sha256"))
    wrong = [f"{name} is {_short(one)}, the run's is {_short(other)}"
             for name, (one, other) in pairs.items() if one != other]
    findings.found("release/config.json is that of the run", not wrong, "; ".join(wrong))


def _for_people(folder: Folder, findings: Findings) -> None:
    """Compares the texts of the release with those generated from privacy.json."""
    if (folder.release / "README.md").is_file():
        by = folder.version or "unknown"
        commit = str(folder.config.get("git") or "")[:10]
        findings.unchecked(
            "the texts of the release say what privacy.json says",
            f"version {by}{f' (commit {commit})' * bool(commit)} wrote README.md, in words that "
            "this version cannot reproduce",
            f"compare its epsilon with that of privacy.json. {_rewritten(folder)}")
        return
    if folder.statement.get("texts") != documents.TEXTS:
        findings.unchecked(
            "README.txt and statement.html say what privacy.json says",
            "they were written in the words of another version, and cannot be compared",
            f"compare their epsilon with that of privacy.json. {_rewritten(folder)}")
        return
    texts = {name: text for name, text in load(folder.release).stated().items()
             if name != "privacy.json"}
    wrong = [name for name, text in texts.items()
             if not (path := folder.release / name).is_file() or path.read_bytes() != text]
    findings.found(f"{' and '.join(texts)} say what privacy.json says", not wrong,
                   f"{' and '.join(wrong)}: differs from what "
                   "this privacy.json gives" * bool(wrong))


def _rewritten(folder: Folder) -> str:
    """Says how the texts of a release are written again."""
    return ("A resume writes README.txt and statement.html again: "
            + (go_on(folder.root) if folder.whole else "ask the person who trained it"))


def _digest(folder: Folder, name: str) -> str:
    return hashlib.sha256((folder.release / name).read_bytes()).hexdigest()


def holds(folder: Folder) -> bool:
    """Returns whether there is a release with a promise."""
    return (folder.released and not attempt(lambda: folder.statement)
            and statements.of(folder.statement).kind == "valid")


def named(folder: Folder) -> Json:
    """Returns the digest of a released generator, by which a report recognises its audit."""
    name = "generator.safetensors"
    there = (folder.release / name).is_file()
    return {"generator_sha256": _digest(folder, name)} if there else {}
