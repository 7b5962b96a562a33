"""Faults that are planted on purpose, and the attacks that catch them.

Every attack is made once on the library as it is, where it must find nothing; and then once on each
fault that it must catch. An attack that breaks down has caught nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from dpgen_jax.audit.findings import Findings, Log, Report, Verdict
from dpgen_jax.core.errors import UserError, nearest, one_line

LIMITS = ("faults that nobody thought of, and the same ones at the size of a real run",)


def all_of(names: Sequence[str], log: Log) -> Report:
    """Plants faults one after the other, and attacks each.

    Args:
        names: Names of faults; all if empty.
        log: Prints a line of the audit.

    Returns:
        The report; its closing line is "N caught, M missed".

    Raises:
        UserError: A name that no fault has.
    """
    import jax

    with contextlib.suppress(RuntimeError):  # a backend is already up, with the devices it has
        jax.config.update("jax_num_cpu_devices", max(2, jax.config.jax_num_cpu_devices))  # type: ignore[attr-defined]
    from dpgen_jax.audit.faults.listed import FAULTS as known

    for name in names:
        if name not in known:
            raise UserError(f"no fault is named {name!r}{nearest(name, known)}; known: "
                            f"{', '.join(known)}")
    planted = [known[name] for name in names] or [*known.values()]
    needed = dict.fromkeys(attack for fault in planted for attack in fault.attacks)
    found, enough = Findings(log), len(jax.devices()) > 1
    for attack in needed:
        _sound(attack, found, enough)
    caught = sum(_planted(fault, found, enough) for fault in planted)
    return Report(subject="planted faults", findings=tuple(found.made), limits=LIMITS,
                  closing=f"{caught} caught, {len(planted) - caught} missed")


def _sound(name: str, found: Findings, enough: bool) -> None:
    """Makes an attack on the library as it is."""
    from dpgen_jax.audit.faults.catalogue import ATTACKS, TWO_DEVICES

    if name in TWO_DEVICES and not enough:
        found.add(f"no fault | {name}", Verdict.UNCHECKED, "there is one device")
        return
    alarm = ATTACKS[name]()
    found.found(f"no fault | {name}", not alarm, f"a false alarm: {alarm}" * bool(alarm))


def _planted(fault: object, found: Findings, enough: bool) -> bool:
    """Plants a fault and makes each attack that must catch it; returns whether all did."""
    from dpgen_jax.audit.faults.catalogue import ATTACKS, TWO_DEVICES, Fault

    assert isinstance(fault, Fault)
    caught = True
    for name in fault.attacks:
        check = f"{fault.name} | {name}"
        if name in TWO_DEVICES and not enough:
            found.add(check, Verdict.UNCHECKED, "there is one device")
            caught = False
            continue
        try:
            with fault.plant():
                alarm = ATTACKS[name]()
        except UserError as error:  # the library itself refused
            alarm = f"refused: {one_line(error)}"
        caught &= bool(alarm)
        found.found(check, bool(alarm), f"caught: {alarm[:150]}" if alarm else
                    f"MISSED: {fault.what}")
    return caught
