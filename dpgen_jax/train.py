"""python -m dpgen_jax.train [METHOD] [--dataset D] [--preset NAME] [--epsilon E] [--out DIR] ..."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dpgen_jax import schema
from dpgen_jax.cli import parser, terminal, train_flags
from dpgen_jax.core import hosts
from dpgen_jax.core.console import program, tell
from dpgen_jax.core.run_folder import RunFolder, default_root
from dpgen_jax.presets import choice


def command(argv: list[str]) -> int | None:
    """Runs the command; returns its exit code. Raises: UserError, BudgetExceeded."""
    if parser.peek(argv, "--init-schema") is not None:
        terminal.renamed("train --init-schema", "schema")
        schema.command(parser.without_flag(argv, "--init-schema"))
        return None
    if {"--help", "-h"} & set(argv):
        print(train_flags.help_text(program("train"), parser.split_method(argv, "")[0]))
        raise SystemExit(0)
    if "--help-all" in argv:
        train_flags.parse(parser.split_method(argv, "")[0] or choice.DEMONSTRATION[0], ["--help"])
    terminal.use_all_cores()
    call = train_flags.call(argv)
    hosts.start(call.meeting, call.stated)
    with hosts.alive():
        return trained(call)


def trained(call: train_flags.Call) -> int | None:
    """Trains, or rehearses it; returns the exit code.

    Raises:
        UserError: As `lifecycle.run`.
        BudgetExceeded: Likewise.
    """
    from dpgen_jax.run import fitting, lifecycle, reading, undeclared
    from dpgen_jax.run.progress import Notices

    found = reading.of_source(call.request, call.dry_run)
    if found.supposed is not None:
        for line in lifecycle.purchase_lines(found.request, found.remarks, found.supposed):
            tell(line)
        return None
    with undeclared.remembered(found.request.out):
        request, dataset = fitting.prepared(found)
        notices = Notices()
        if call.dry_run:
            for line in (lifecycle.rehearse(request, dataset, notices=notices)
                         if hosts.leads() else ()):
                tell(line)
            return None
        if not hosts.leads():
            take_part = lifecycle.join(request, dataset)
            del dataset  # the records of other processes' units need not stay in memory
            return take_part()
        if request.out is None and not request.resume:  # named here for the last lines
            root = default_root(request.method, dataset.name)
            request = dataclasses.replace(request, out=root)
        lifecycle.run(request, dataset, notices=notices)
    for line in next_steps(request.out, dataset.x_test is not None) if request.out else ():
        tell(line)
    return notices.exit_code or None


def next_steps(root: Path, tested: bool) -> list[str]:
    """Returns the last lines of a run: where things are, and the command that evaluates it."""
    release = RunFolder(root).release
    lines = [f"samples: {path}" for path in (release / "samples.png", release / "samples.csv")
             if path.is_file()]
    lines.append(f"statement: {release / 'statement.html'} (what is promised, in plain words)")
    if tested:
        lines.append(f"evaluate it: {program('evaluate', root)} (with --fast in less time)")
    return lines


if __name__ == "__main__":
    terminal.main(command)
