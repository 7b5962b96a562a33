"""Tiny runs of all methods, and a program that runs them and can be killed at any moment of it."""

import dataclasses
import functools
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax import methods
from dpgen_jax.accountant import ledger as books
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.cli import terminal
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.errors import UserError, one_line
from dpgen_jax.core.run_folder import RunFolder, read_json
from dpgen_jax.data import Dataset, from_arrays
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import ConvNet, MlpNet
from dpgen_jax.nets.resnet import CriticNet, ResNetNet
from dpgen_jax.run import calibrate_config, checkpoint, lifecycle, loop, side_releases
from dpgen_jax.run.training import Training

# The runs that are trained and killed: the smallest configuration of every method.

STEPS, PLANNED, N, CLASSES = 5, 20, 60, 3
"""steps of a run; steps that its budget allows, so that steps may be lost"""
GENERATOR, DISCRIMINATOR, CONV = GeneratorNet(4, 16, 8), DiscriminatorNet(4, 8, 8), ConvNet(4, 4)
TEACHERS = {"teachers": 6, "batch": 4, "d_steps_first": 1, "d_steps": 1, "generator": GENERATOR,
            "discriminator": DISCRIMINATOR}
CRITICS = {"critics": 3, "batch": 4, "critic_steps": 1, "critic_steps_first": 1,
           "records_per_step": 4, "pool": 4, "client_records": 16, "warm_steps": 0,
           "penalty": 0.0, "generator": ResNetNet(2, 2), "critic": CriticNet(2),
           "warm_generator": ResNetNet(2, 2)}
DPSGD = {"batch": 10, "fakes": 6, "g_batch": 6}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "datalens": ("datalens", TEACHERS | {"top_k": 8}),
    "gpate": ("gpate", TEACHERS | {"projection": 4, "bins": 4, "aggregate": "sum"}),
    "gpate-votes": ("gpate", TEACHERS | {"projection": 4, "bins": 4, "threshold": 0.4}),
    "gswgan": ("gswgan", CRITICS),
    "gswgan-warm": ("gswgan", CRITICS | {"warm_steps": 6}),
    "gswgan-rotation": ("gswgan", CRITICS | {"critics_per_step": 1}),
    "dpac": ("dpac", CRITICS | {"t_c": 1, "fake_steps": 1, "real_steps": 1, "fake_batch": 4,
                                "c_penalty": 0.0, "classifier": CriticNet(2)}),
    "pategan": ("pategan", TEACHERS | {"s_hidden": 4, "memory": 2, "s_steps": 1, "g_steps": 1}),
    "pategan-votes": ("pategan", TEACHERS | {"s_hidden": 4, "memory": 2, "s_steps": 1,
                                             "g_steps": 1, "decode": "majority"}),
    "dpgan": ("dpgan", DPSGD | {"generator": GENERATOR, "discriminator": CONV}),
    "dpcgan": ("dpcgan", DPSGD | {"generator": MlpNet(4, (8,)), "hidden": (8,)}),
    "dpmerf": ("dpmerf", {"features": 12, "batch": 12, "generator_steps": 6,
                          "generator": GENERATOR}),
    "mixture": ("mixture", {"cells": 2, "frequencies": 3, "dimensions": 4}),
    "dpmerf_ae": ("dpmerf_ae", {"batch": 10, "embedding_steps": 2, "hidden": 6, "code": 3,
                                "features": 8, "fakes": 12, "generator_steps": 4,
                                "generator": GENERATOR}),
    "fedavg_gan": ("fedavg_gan", {"clients": 3, "client_records": 8, "client_steps": 1,
                                  "client_batch": 3, "pool": 4, "g_steps": 1, "g_batch": 4,
                                  "penalty": 0.0, "generator": GENERATOR, "discriminator": CONV}),
    "dcgan": ("dcgan", {"batch": 4, "penalty": 0.0, "generator": GENERATOR,
                        "discriminator": DISCRIMINATOR}),
    "topagg_sgd": ("topagg_sgd", {"batch": 10, "channels": (3, 4), "hidden": (5,)}),
    "projected_dpgan": ("projected_dpgan", {"batch": 6, "projection": 6, "hidden": 5,
                                            "generator": GENERATOR}),
}


def records() -> Dataset:
    """60 images of noise, of three clients."""
    rng = np.random.default_rng(0)
    data = from_arrays(rng.integers(0, 256, (N, 8, 8, 1), dtype=np.uint8),
                       rng.integers(0, CLASSES, N), CLASSES)
    return dataclasses.replace(data, clients=(np.arange(N) % 3).astype(np.int32))


def case_config(case: str, sigma: float | None, steps: int) -> Any:
    """sigma: None to have it found for so many steps."""
    method, fields = CASES[case]
    if method == "dpmerf":
        steps = 1
    return methods.get(method).Config(**fields, sigma=sigma, steps=steps)


def case_budget(case: str) -> Budget:
    """With class counts where the method takes them."""
    built = case_config(case, 1.0 if case != "dcgan" else 0.0, STEPS)
    bare = built.protects_clients or case in ("dcgan", "topagg_sgd")
    return Budget(float("inf") if case == "dcgan" else 10.0, 1e-3, 0.0 if bare else 0.5)


def case_request(
    case: str, root: Path, resume: bool, sigma: float, save_always: bool
) -> lifecycle.Resolved:
    """A run; save_always: a checkpoint after each step, else only at the end."""
    runtime = Runtime(devices=1, chunk=2, steps_per_call=1,
                      checkpoint_minutes=0.0 if save_always else 60.0)
    return lifecycle.Resolved(
        CASES[case][0], "glyphs", case_config(case, sigma, STEPS), case_budget(case),
        runtime, root, resume)


# The verdict on a run folder after kills: what it states against what was seen from outside.

@dataclasses.dataclass(frozen=True)
class Seen:
    """From the audit: turns of the draws that began, in order; counts: class counts that were
    bought; marks: moments passed.
    """

    turns: tuple[int, ...]
    counts: int
    marks: int


def seen(audit: Path) -> Seen:
    lines = [line.split() for line in audit.read_text().splitlines()] if audit.exists() else []
    turns = [turn for kind, *rest in lines if kind == "draw"
             for turn in range(int(rest[0]), int(rest[0]) + int(rest[1]))]
    kinds = [line[0] for line in lines]
    return Seen(tuple(turns), kinds.count("counts"), kinds.count("mark"))


def under_counted(root: Path, audit: Path) -> list[str]:
    """Where the ledger charges less than was drawn, as lines; none is the only good answer."""
    found, files = seen(audit), RunFolder(root)
    if not files.ledger.exists():
        return [f"no ledger, and {found} was drawn"] if found.turns or found.counts else []
    account = books.account(books.read(files.ledger))
    bought = sum(n for event, n in account.spent() if "class counts" in event.mechanism)
    faults = []
    if account.steps < len(found.turns):
        faults.append(f"{len(found.turns)} steps were drawn, {account.steps} charged")
    if max(found.turns, default=-1) >= account.steps:
        faults.append(f"turn {max(found.turns)} was drawn, and {account.steps} are charged")
    if len(set(found.turns)) < len(found.turns):
        faults.append(f"a turn was drawn twice: {found.turns}")
    if bought < found.counts:
        faults.append(f"class counts were bought {found.counts} times, charged {bought}")
    return faults


def wrong_at_the_end(root: Path, audit: Path) -> list[str]:
    files, faults = RunFolder(root), under_counted(root, audit)
    account, privacy = books.account(books.read(files.ledger)), read_json(
        files.release / "privacy.json")
    if not float(privacy["epsilon"]) >= account.epsilon():
        faults.append(f"states epsilon {privacy['epsilon']}, its ledger {account.epsilon()}")
    if privacy["steps"] > account.steps:
        faults.append(f"states {privacy['steps']} steps, its ledger {account.steps}")
    said = sum(event["count"] for event in privacy["events"])
    if said != sum(n for _, n in account.spent()):
        faults.append(f"states {said} events, its ledger {account.spent()}")
    return faults + _metrics(files, privacy) + _votes(files, account)


def _metrics(files: RunFolder, privacy: dict[str, Any]) -> list[str]:
    steps = [row["step"] for row in run_folder.read(files.metrics) if not row.get("superseded")]
    if steps != sorted(set(steps)) or steps[-1:] < [privacy["steps"]]:
        return [f"metrics tell of steps {steps}, the statement of {privacy['steps']}"]
    return []


def _votes(files: RunFolder, account: Any) -> list[str]:
    """Rows of votes: whole ones, of no more steps than are charged."""
    if not files.votes.exists():
        return []
    size, row = files.votes.stat().st_size, read_json(files.config)["config"]["batch"]
    return [f"{size} bytes of votes are no whole rows"] if size % (4 * row) else []


# `python -m benchmarks.killing`: starts runs as forks of itself, with all imports done.
#
# A line of JSON names the case, the folder, and the moment at which the run shall kill itself, if
# it shall; the answers are the process id and, when it has ended, its exit status. A fork comes
# before any backend of JAX is started, so each run starts its own. The run is instrumented from
# outside: `audit` gets a line before each draw, and one for each moment at which something on the
# disk changes.

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
            if isinstance(bits, SeededBits):  # a block of no round, which only compiles
                return real_draw(mechanism, layout, bits, turn, n, longest)
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
        case_request(request["case"], Path(request["root"]), request["resume"], request["sigma"],
                      request["save_always"]),
        records(), log=lambda line: print(line))


def sigma(case: str) -> float:
    """The noise with which the budget allows all planned steps."""
    data = records()
    config = calibrate_config.with_records(
        case_config(case, None, PLANNED), len(data.y_train)
    )
    return calibrate_config.complete(
        CASES[case][0], config, data.spec, case_budget(case)
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
    terminal.use_all_cores()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            child(json.loads(line))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
