"""Attacks on what is promised, by anybody: `python -m dpgen_jax.audit`, see `command_line`."""

from __future__ import annotations


def command(argv: list[str]) -> int | None:
    """Runs the command; returns its exit code.

    Args:
        argv: The arguments after the command's name.

    Raises:
        UserError: Bad arguments, and from the audits.
    """
    from dpgen_jax.audit import command_line

    return command_line.command(argv)
