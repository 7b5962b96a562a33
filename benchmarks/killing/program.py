"""`python -m benchmarks.killing.program`: starts runs as forks of itself, with all imports done.

A line of JSON names the case, the folder, and the moment at which the run shall kill itself, if it
shall; the answers are the process id and, when it has ended, its exit status. A fork comes before
any backend of JAX is started, so each run starts its own.

The run is instrumented from outside: `audit` gets a line before each draw, and one for each moment
at which something on the disk changes; the library has no hook for it.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from benchmarks.killing import cases
from dpgen_jax.core import cli
from dpgen_jax.core.errors import UserError, one_line
from dpgen_jax.run import calibrate_config, checkpoint, lifecycle, loop, side_releases
from dpgen_jax.run.training import Training


class Audit:
    """Lines of a file outside of the run folder, one at a time and whole; and the chosen end.

    moment: how many marks there are before the process kills itself; 0: never. torn: whether it
    then leaves half of the line that it was writing to the ledger.
    """

    def __init__(self, path: Path, moment: int, torn: bool):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._moment, self._torn, self._marks = moment, torn, 0

    def say(self, line: str) -> None:
        os.write(self._fd, line.encode() + b"\n")

    def mark(self, where: str, before_death: Any = lambda: None) -> None:
        """A moment. before_death() is called if it is the last one."""
        self._marks += 1
        self.say(f"mark {where}")
        if self._marks == self._moment:
            before_death()
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, module: Any, name: str) -> None:
        """Marks before and after each call of a function."""
        real = getattr(module, name)

        @functools.wraps(real)
        def marked(*args, **options):
            self.mark(f"before {name}")
            out = real(*args, **options)
            self.mark(f"after {name}")
            return out

        setattr(module, name, marked)

    def install(self) -> None:
        """In this process, for good."""
        real_draw, real_write, real_counts = loop.draw, os.pwrite, \
            side_releases.single_releases.class_counts

        def draw(mechanism, layout, bits, turn, n, longest):
            self.mark("before draw")
            self.say(f"draw {turn} {n}")
            out = real_draw(mechanism, layout, bits, turn, n, longest)
            self.mark("after draw")
            return out

        def pwrite(descriptor, data, offset):
            half = functools.partial(real_write, descriptor, data[:len(data) // 2], offset)
            self.mark("before pwrite", half if self._torn else lambda: None)
            written = real_write(descriptor, data, offset)
            self.mark("after pwrite")
            return written

        def counts(*args, **options):
            self.say("counts")
            out = real_counts(*args, **options)
            self.mark("after class_counts")
            return out

        loop.draw, os.pwrite = draw, pwrite
        side_releases.single_releases.class_counts = counts
        for module, name in ((os, "replace"), (os, "rename"), (os, "fsync"), (os, "mkdir"),
                             (os, "ftruncate"), (Training, "save"), (checkpoint.shutil, "rmtree")):
            self.around(module, name)


def run(request: dict[str, Any]) -> None:
    """One run, in a fork: exits as the command would."""
    if "plan" in request:
        Path(request["plan"]).write_text(json.dumps(sigma(request["case"])))
        return
    Audit(Path(request["audit"]), request["moment"], request["torn"]).install()
    lifecycle.run(
        cases.request(request["case"], Path(request["root"]), request["resume"], request["sigma"],
                      request["save_always"]),
        cases.records(), log=lambda line: print(line))


def sigma(case: str) -> float:
    """The noise with which the budget allows all planned steps."""
    data = cases.records()
    config = calibrate_config.with_records(
        cases.config(case, None, cases.PLANNED), len(data.y_train)
    )
    return calibrate_config.complete(
        cases.CASES[case][0], config, data.spec, cases.budget(case)
    ).sigma


def child(request: dict[str, Any]) -> None:
    """Everything that is printed goes to the case's log."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    code = 0
    try:
        run(request)
    except UserError as error:
        print(f"error: {one_line(error)}", flush=True)
        code = error.exit_code
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


def main() -> None:
    cli.use_all_cores()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            child(json.loads(line))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
