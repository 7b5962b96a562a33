"""A reader with every fault that the harness must notice."""

import os
import signal
import time
from pathlib import Path
from random import Random

from benchmarks.fuzzing.case import Case
from dpgen_jax.core.errors import UserError


def planted(root: Path) -> str:
    """Does what the file `does` says."""
    does = (root / "does").read_text()
    if does == "refuse":
        raise UserError("one line")
    if does == "quiet":
        raise UserError("")
    if does == "raise":
        raise KeyError(does)
    if does == "sleep":
        time.sleep(60)
    if does == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if does == "fill":
        return str(len(bytearray(os.urandom(2**20)) * 4096))
    if does == "recurse":
        return planted(root)
    while does == "spin":
        pass
    return does


def make(draw: Random) -> Case:
    return Case({"does": draw.choice((b"return", b"refuse", b"raise"))})
