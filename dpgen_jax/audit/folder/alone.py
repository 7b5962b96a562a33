"""A release alone, whose ledger lies with whoever trained it: whether its parts agree."""

from __future__ import annotations

import json

from dpgen_jax.accountant import gaussian
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder.reading import Folder
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.config import to_json


def of_itself(folder: Folder, findings: Findings, same: bool) -> None:
    """Checks what a release alone says: that its parts agree with each other.

    Args:
        folder: A release alone, with a statement.
        findings: Where findings are added.
        same: Whether this version made it.
    """
    privacy = folder.statement
    wrong = [f"{name} is {privacy.get(name)!r} here and {other!r} in config.json"
             for name, other in (("method", folder.config["method"]),
                                 ("package_version", folder.version))
             if privacy.get(name) != other]
    findings.found("privacy.json and config.json speak of one release", not wrong,
                   "; ".join(wrong))
    if same:
        _costs(folder, findings)
    findings.add("epsilon from the ledger, charges against releases, permissions",
                 Verdict.UNCHECKED, "the ledger lies with whoever trained it: ask them for "
                 "`python -m dpgen_jax.audit RUN`")


def _costs(folder: Folder, findings: Findings) -> None:
    """Compares the events of a statement with the mechanism that config.json builds."""
    privacy, mechanism = folder.statement, folder.mechanism
    if mechanism.cost_depends_on_answers:
        return  # how many queries were answered stands in the ledger alone
    listed = {json.dumps({k: v for k, v in event.items() if k != "count"}, sort_keys=True):
              event.get("count", 0) for event in to_json(privacy.get("events", []))}
    due = mechanism.events(privacy.get("steps", 0))
    wrong = [f"{event.statement()} is due {n} times" for event, n in due
             if listed.get(json.dumps(to_json(event.statement()), sort_keys=True), 0) < n]
    claimed, needed = privacy["epsilon"], gaussian.epsilon(due, privacy["delta"])
    if needed > float(claimed):
        wrong.append(f"{privacy['steps']} steps cost epsilon {at_most(needed)}, and {claimed} "
                     "is stated")
    findings.found("privacy.json charges at least what the mechanism of config.json costs",
                   not wrong, "; ".join(wrong) or f"its {privacy['steps']} steps alone cost "
                   f"epsilon {at_most(needed)} of {claimed}")
