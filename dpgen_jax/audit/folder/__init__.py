"""The audit of a run folder: whether everything that it states is true.

It only reads. For a release without its run it checks what the release states, and names what can
be checked only with the run folder.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from dpgen_jax.audit import attacks, mechanism
from dpgen_jax.audit.findings import Findings, Log, Report, Verdict, quiet
from dpgen_jax.audit.folder import leaks, promise, reading, replay, spending
from dpgen_jax.audit.folder.reading import Folder
from dpgen_jax.core.config import DataOptions
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json
from dpgen_jax.core.request import Request
from dpgen_jax.core.run_folder import go_on
from dpgen_jax.core.terms import at_most
from dpgen_jax.release import contents
from dpgen_jax.version import __version__

LIMITS = (
    "a ledger and a configuration that were forged together, with all files that refer to them: "
    "the chain is not a signature",
    "code that drew or added other noise than its mechanism states: `audit METHOD` attacks "
    "that, and `audit --faults` shows what it would catch",
    "bits of noise that were used twice in purchases, or in what was published after the run: no "
    "digests of them are kept",
    "words hidden in the pixels of a picture, or in the weights of the generator")


def of_folder(root: Path, place: str | None = None, options: DataOptions = DataOptions(),
              log: Log = quiet, seconds: float = 0.0, stated: Request | None = None) -> Report:
    """Checks a run folder, finished, stopped or running, or a release by itself.

    Args:
        place: The training data set, as for `data.load`, or None.
        seconds: How long the mechanism of the run is attacked as well; 0: not at all.
        stated: The request of a run of an earlier version, whose folder does not contain it.

    Returns:
        The report. A run that promises nothing, is not finished, or was made by another version
        does not pass: some checks cannot be made.

    Raises:
        UserError: The folder is not a run, or data cannot be read.
    """
    folder, findings, limits = reading.opened(root, stated), Findings(log), list(LIMITS)
    broken = reading.attempt(lambda: folder.config)
    findings.found("config.json can be read", not broken,
                   broken or str(folder.config.get("method")))
    if broken:
        return _report(root, findings, limits)
    if folder.waiting:
        limits += _purchased(folder, findings)
        leaks.kept_private(folder, findings)
        return _report(root, findings, limits)
    same = _same_version(folder, findings)
    if folder.whole:
        limits += _spending(folder, findings, same)
        leaks.kept_private(folder, findings)
    words: list[leaks.Word] = []
    if place is not None and folder.whole:
        words = replay.on_data(folder, place, options, findings)
    else:
        limits.append("whether one record moves only its own unit"
                      + f": name {option('dataset')}" * folder.whole)
    _release(folder, findings, same, words)
    curves = _curves(folder, findings, same, seconds)
    return dataclasses.replace(_report(root, findings, limits), curves=curves,
                               facts=promise.named(folder))


def _curves(folder: Folder, findings: Findings, same: bool, seconds: float) -> Json:
    """The curve that the run promises, and those of its mechanism if that is attacked."""
    curves: Json = {}
    if folder.whole and promise.holds(folder) and not reading.attempt(lambda: folder.book):
        spent = folder.book.account.spent()
        if spending.quick(spent):
            curves["the whole run: promised"] = attacks.promised(spent)
    if same and seconds:
        records = int(folder.config.get("records") or folder.mechanism.n_units)
        spec = contents.spec(folder.config["spec"])
        curves |= mechanism.of_config(folder.config["method"], folder.method_config, spec,
                                      records, seconds, findings)
    return curves


def _same_version(folder: Folder, findings: Findings) -> bool:
    """Whether this version made the folder, so that its mechanism can be rebuilt."""
    if folder.version != __version__:
        findings.unchecked(
            "the run was made by this version",
            f"it was made by version {folder.version or 'unknown'}, and this is {__version__}: "
            "only that version can compute what its mechanism costs; this does not count as a pass")
        return False
    why = reading.attempt(lambda: folder.mechanism)
    findings.found("the mechanism of config.json can be built", not why,
                   why or f"{folder.config['method']} by version {__version__}")
    return not why


def _spending(folder: Folder, findings: Findings, same: bool) -> list[str]:
    """Checks ledger, charges and journal; returns what is not covered."""
    if not spending.chained(folder, findings):
        return []
    if folder.in_use:
        findings.unchecked("the run has ended", "another process continues it: this audit checks "
                           "the run up to now")
    if same:
        spending.of_this_run(folder, findings)
        spending.as_the_mechanism_says(folder, findings)
        if not folder.of_client:
            spending.against_releases(folder, findings)
        spending.bits_once(folder, findings)
        spending.class_counts(folder, findings)
        spending.purchases_of_the_data(folder, findings)
        spending.covered(folder, findings)
    unseen = [spending.journalled(folder, findings)]
    if folder.of_server:
        unseen.append("bits of noise that clients used twice: each client's own folder has the "
                      "digests; audit that")
    return [limit for limit in unseen if limit]


def _purchased(folder: Folder, findings: Findings) -> list[str]:
    """Checks a run between a purchase and its training; returns what is not covered."""
    if not spending.chained(folder, findings):
        return []
    spending.purchases_alone(folder, findings)
    unseen = spending.journalled(folder, findings)
    findings.unchecked(
        "the run is finished",
        "it has bought the undeclared columns or classes of its data, and has not trained yet",
        "another process continues it" if folder.in_use else go_on(folder.root))
    return [unseen] * bool(unseen)


def _release(folder: Folder, findings: Findings, same: bool, words: list[leaks.Word]) -> None:
    """Checks the release and its statement, or the promise of a client, which has no release."""
    if folder.of_client:
        budget, seed = folder.config.get("budget", {}), folder.config.get("seed")
        epsilon = float(budget.get("epsilon", math.inf))
        sound = seed is None and math.isfinite(epsilon)
        findings.add(
            "the client promises something", Verdict.HOLDS if sound else Verdict.UNCHECKED,
            f"epsilon {at_most(epsilon)} at delta {budget.get('delta')} to its own records"
            if sound else "its noise is made from a seed, or its epsilon is infinite; this does "
            "not count as a pass")
        return
    if not folder.released:
        findings.unchecked("the run is finished", "it has no release, and promises nothing yet",
                           "resume it, or audit it when it is done")
        return
    if (why := reading.attempt(lambda: folder.statement)):
        findings.found("privacy.json can be read", False, why)
    else:
        promise.stated(folder, findings)
        if same and folder.whole and not reading.attempt(lambda: folder.book):
            promise.recomputed(folder, findings)
        elif not folder.whole:
            promise.release_of_itself(folder, findings, same)
        promise.sound(folder, findings)
    leaks.release_alone(folder, findings, words)


def _report(root: Path, findings: Findings, limits: list[str]) -> Report:
    made = tuple(findings.made)
    failed = [finding for finding in made if finding.verdict == Verdict.FAILS]
    open_ones = [finding for finding in made if finding.verdict == Verdict.UNCHECKED]
    if failed:
        closing = f"{len(failed)} of {len(made)} checks FAIL: {failed[0].check}"
    elif open_ones:
        closing = (f"not a pass: {len(made) - len(open_ones)} checks hold, and {len(open_ones)} "
                   f"could not be made ({open_ones[0].check})")
    else:
        closing = f"all {len(made)} checks hold"
    return Report(subject=f"run {root}", findings=made, limits=tuple(limits), closing=closing)
