"""`python run_process.py REQUEST`: one process of seeded or killed runs, some after the other.

A line of JSON says which of how many processes it is, which runs it makes, and when it is stopped
or kills itself. A file outside of the run folders gets what was drawn here, and a digest of the
bits that each block was computed with.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
from seeded import ALL, SEED, dataset

from benchmarks.killing import Audit
from dpgen_jax import methods
from dpgen_jax.aggregation import noise
from dpgen_jax.cli import terminal
from dpgen_jax.core import hosts
from dpgen_jax.core.config import Runtime
from dpgen_jax.run import follower, lifecycle, loop, stages
from dpgen_jax.run.planning import Resolved
from dpgen_jax.run.progress import Notices

DRAWS = (noise.OsBits, noise.SeededBits)


def watch(audit: Audit) -> None:
    """Writes down each draw of this process, and the bits of each block."""
    def logged(real):
        def draw(self, shape):
            audit.say("source")
            return real(self, shape)
        return draw

    for source in DRAWS:
        source.draw = logged(source.draw)

    real_draw, real_run_block = loop.draw, loop.run_block

    def draw(*arguments):
        draws = real_draw(*arguments)
        if not only_compiles(*arguments):
            audit.say(f"drawn {digest(draws)}")
        return draws

    def run_block(block, records, state, layout, draws, n):
        if n:
            audit.say(f"block {state.step} {n} {digest(draws)}")
        return real_run_block(block, records, state, layout, draws, n)

    loop.draw = draw
    loop.run_block = follower.run_block = run_block


def only_compiles(mechanism, layout, bits, *_) -> bool:
    """Whether a draw is for the block of no round; a round draws from a `Remembered` source."""
    return isinstance(bits, noise.SeededBits)


def digest(draws: loop.Draws) -> str:
    """A digest of the secret bits of a block."""
    arrays = (np.ascontiguousarray(array).tobytes() for array in draws)
    return hashlib.sha256(b"".join(arrays)).hexdigest()


def marks(audit: Audit) -> None:
    """The moments at which this process may kill itself."""
    if hosts.leads():
        audit.install()
        audit.around(hosts, "tell")
        return
    for module, name in ((hosts, "hear"), (follower, "run_block"), (follower.Follower, "save"),
                         (follower.Follower, "saved")):
        audit.around(module, name)


def interrupt_at(draw: int) -> None:
    """Ctrl-C in the middle of this draw of noise; 0: never."""
    real, drawn = loop.draw, []

    def interrupted(*arguments):
        if not only_compiles(*arguments):
            drawn.append(arguments)
            if len(drawn) == draw:
                signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    loop.draw = interrupted


def run(request: dict, name: str, root: Path) -> None:
    """One run of a case of `seeded` in the folder `root`."""
    case = ALL[name]
    config = methods.get(case.method).Config(**case.fields | request.get("fields", {}))
    asked = Resolved(
        case.method, "tiny", config, case.budget,
        Runtime(devices=request["devices"], chunk=1, steps_per_call=1, checkpoint_minutes=0),
        root, request["resume"], request["seed"])
    if hosts.leads():
        notices = Notices()
        lifecycle.run(asked, dataset(case.data), notices=notices)
        assert not notices.failures, notices.failures  # a checkpoint that cannot be written is one
    else:
        lifecycle.join(asked, dataset(case.data))()


def main() -> None:
    request = {"resume": False, "seed": SEED, "moment": 0, "stop": 0} | json.loads(sys.argv[1])
    stages.write_pictures = lambda *_: None  # which take as long as the training
    meeting = hosts.Hosts() if request["processes"] == 1 else hosts.Hosts(
        request["coordinator"], request["processes"], request["index"], join_seconds=1800)
    hosts.start(meeting)
    audit = Audit(Path(request["audit"]), request["moment"], request.get("torn", False))
    watch(audit)
    marks(audit)
    interrupt_at(request["stop"] if hosts.leads() else 0)
    with hosts.alive():
        for name in request["cases"]:
            run(request, name, Path(request["place"]) / name.replace(" ", "-"))


if __name__ == "__main__":
    terminal.use_all_cores()
    os.umask(0o077)
    main()
