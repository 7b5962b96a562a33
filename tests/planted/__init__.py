"""Faults that are planted on purpose, and the attacks that catch them.

Every attack is made once on the library as it is, where it must find nothing; and then once on each
fault that it must catch. An attack that breaks down has caught nothing.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence

import jax

from dpgen_jax.audit.findings import Findings, Log, Report, Verdict
from dpgen_jax.core.errors import UserError, nearest, one_line
from planted.catalogue import ATTACKS, FAULTS, TWO_DEVICES, Fault

__all__ = ["FAULTS", "all_of"]
importlib.import_module("planted.faults")  # which registers them
LONGEST = 150
"""letters of what an attack found that are shown"""
LIMITS = ("faults that nobody thought of, and the same ones at the size of a real run",)


def all_of(names: Sequence[str], log: Log) -> Report:
    """Plants faults one after the other, all of them by default, and attacks each.

    The closing line of the report is "N caught, M missed".
    """
    with contextlib.suppress(RuntimeError):  # a backend is already up, with the devices it has
        devices = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined, unused-ignore]
        jax.config.update("jax_num_cpu_devices", max(2, devices))
    for name in names:
        if name not in FAULTS:
            raise UserError(f"no fault is named {name!r}{nearest(name, FAULTS)}; known: "
                            f"{', '.join(FAULTS)}")
    planted = [FAULTS[name] for name in names] or [*FAULTS.values()]
    needed = dict.fromkeys(attack for fault in planted for attack in fault.attacks)
    found, enough = Findings(log), len(jax.devices()) > 1
    for attack in needed:
        _sound(attack, found, enough)
    caught = sum(_planted(fault, found, enough) for fault in planted)
    return Report(subject="planted faults", findings=tuple(found.made), limits=LIMITS,
                  facts={"faults": {fault.name: fault.what for fault in planted}},
                  closing=f"{caught} caught, {len(planted) - caught} missed")


def _sound(name: str, found: Findings, enough: bool) -> None:
    """Makes an attack on the library as it is."""
    check = f"no fault | {name}"
    if name in TWO_DEVICES and not enough:
        found.add(check, Verdict.UNCHECKED, "there is one device")
        return
    alarm, broken = _made(name)
    found.found(check, not alarm and not broken, broken or f"a false alarm: {alarm}" * bool(alarm))


def _planted(fault: Fault, found: Findings, enough: bool) -> bool:
    """Plants a fault and makes each attack that must catch it; returns whether all did."""
    caught = True
    for name in fault.attacks:
        check = f"{fault.name} | {name}"
        if name in TWO_DEVICES and not enough:
            found.add(check, Verdict.UNCHECKED, "there is one device")
            caught = False
            continue
        with fault.plant():
            alarm, broken = _made(name)
        caught &= bool(alarm)
        found.found(check, bool(alarm), f"caught: {alarm[:LONGEST]}" if alarm else
                    f"MISSED: {fault.what}{broken and f' ({broken})'}")
    return caught


def _made(name: str) -> tuple[str, str]:
    """Makes an attack: what it found, and why it broke down."""
    try:
        return ATTACKS[name](), ""
    except UserError as error:
        return f"the library refuses: {one_line(error)}", ""
    except Exception as error:  # whatever a fault does to an attack, it has not caught it so
        return "", f"the attack broke down: {type(error).__name__}: {one_line(error)[:LONGEST]}"
