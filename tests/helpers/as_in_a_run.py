"""Checks of programs that are compiled as a run compiles them: `conftest` sets flags
that make other programs of the same code, so this runs in a process of its own.

    python tests/helpers/as_in_a_run.py FUNCTION WORD ...   prints what it returned, as JSON
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation import clip, compression, moments, teacher_votes, topagg
from dpgen_jax.aggregation.bound import FewRows
from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.compression import CountSketch, KLevels, SketchedSigns
from dpgen_jax.aggregation.mechanism import LocalMechanism
from dpgen_jax.aggregation.moments import CellVotes
from dpgen_jax.aggregation.noise import RoundedGaussian, SeededBits
from dpgen_jax.aggregation.teacher_votes import LabelVotes, OneHot
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.core.types import Method, Private, Records, Spec
from dpgen_jax.private import teachers
from dpgen_jax.private.teachers import Layout, on_devices
from dpgen_jax.run import loop

RECORDS = 6
"""of a unit"""


def layout(method: Method, chunk: int) -> Layout:
    schedule = method.mechanism.schedule
    return Layout(method.mechanism.n_units, chunk, tuple(jax.devices()[:1]),
                  n_cohorts=schedule.n_cohorts, sampled=schedule.batch_capacity is not None)


def block(method: Method, spec: Spec, chunk: int) -> str:
    """The optimised program of a block of the loop."""
    where = layout(method, chunk)
    state = loop.initial_state(method, jax.random.key(0), where)
    shape = (where.n_units, 1) if where.sampled else (where.padded, RECORDS)
    own = Private(Records(jnp.zeros((*shape, *spec.shape), spec.dtype),
                          jnp.zeros(shape, jnp.int32)))
    inputs = loop.draw(method.mechanism, where, SeededBits(0), 0, 1,
                       loop.longest_block(method.mechanism))
    compiled = loop.compile_block(method, where).lower(
        state.public, state.units, own, *inputs, state.key, 0, 1).compile()
    return compiled.as_text()


def without_training(method: Method) -> Method:
    """The generator learns nothing: it is public, costs most of the compilation, and comes after
    the sum."""
    return dataclasses.replace(method, absorb=lambda key, public, query, released: (
        public, {"released": jnp.mean(released)}))


READ_ONLY = "sources", "sources_of_bounds"
"""Functions that read a program and do not run it: LLVM, which makes machine code of the program
that is read, need not optimise it. That changes no byte of the program."""


def call(function: str, *words: Any) -> Any:
    """In a new process, with the flags that a run has."""
    env = {name: value for name, value in os.environ.items()
           if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    if function in READ_ONLY:
        env["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    env["PYTHONPATH"] = os.pathsep.join(["tests", "tests/methods", os.getcwd(),
                                         env.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, str(Path(__file__)), function, *map(str, words)],
                          env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def sources(name: str, *chunks: str) -> list:
    """Return for each size of a chunk of a method (the operations that made integers of floats
    beside the check, the number of checks)."""
    import hlo
    import test_battery

    method, found = test_battery.built(name)[0], []
    for chunk in chunks:
        program = block(method, test_battery.spec_of(name), int(chunk))
        read = hlo.sums(program, method.mechanism.shape)
        found.append((sorted(read.from_floats), len(read.enforced)))
    return found


def one_of_each_bound() -> dict[str, Method]:
    """The method of `adversary` behind every bound of the library, and clients of a federation."""
    from planted import toy as adversary

    def behind(bound, shape=adversary.SHAPE, message=lambda m: m, **fields):
        method = adversary.build(answer=lambda *args: message(adversary.answer(*args)))
        built = method.mechanism
        if not fields:
            built = dataclasses.replace(built, bound=bound, shape=shape)
        else:
            built = LocalMechanism(bound=bound, shape=shape, schedule=built.schedule,
                                   n_units=built.n_units, decode=built.decode, **fields)
        return without_training(dataclasses.replace(method, mechanism=built))

    rows, columns = adversary.SHAPE
    votes, norm = TopKSign(4, rows), RowL2(1.0, columns, rows, 100)
    return {
        "RowL2": behind(norm),
        "GradientL2": behind(GradientL2(1.0, rows * columns, 4095), (1, rows * columns),
                             lambda m: m.reshape(1, -1)),
        "KLevels": behind(KLevels(4, columns, rows)),
        "TopKSign": behind(votes),
        "SketchedSigns": behind(SketchedSigns(votes, CountSketch(3, 8, columns)), (rows, 24)),
        "FewRows": behind(FewRows(TopKSign(4, rows - 1), rows)),
        "OneHot": behind(OneHot(2, columns, rows, 1.0), (rows, 2 * columns)),
        "CellVotes": behind(CellVotes(2 * columns, 40, 50), (1, 40), lambda m: m.reshape(1, -1)),
        "LabelVotes": behind(LabelVotes(rows), (rows, 1), lambda m: m[:, :1]),
        "clients": behind(norm, noise=RoundedGaussian(50.0)),
    }


def sources_of_bounds(checked: str, *names: str) -> dict[str, list]:
    """Return for each bound (the operations that made integers of floats beside the check, the
    number of checks). checked: "loop", or "inline": the planted fault, the code before."""
    import hlo
    from planted import toy as adversary

    if checked == "inline":
        for module in (clip, moments, teacher_votes, compression, compression, topagg):
            module.enforce = lambda entries, within: jnp.where(within(entries), entries, 0)
    found = {}
    methods = one_of_each_bound()
    for name in names or methods:
        method = methods[name]
        read = hlo.sums(block(method, adversary.SPEC, 2), method.mechanism.shape)
        found[name] = sorted(read.from_floats), len(read.enforced)
    return found


def places(*names: str) -> dict[str, int]:
    """Return for each method how many entries of messages depend on where a unit lies."""
    from message_positions import differing

    return {name: differing(name) for name in names}


def summed(method: Method, where: Layout):
    """(units, records, secrets, query) -> int32 [B, D], the bounded sum of one step."""
    def local(units, own, secrets, query):
        this = teachers.Round(query, jnp.int32(3), jnp.int32(0))
        return teachers.bounded_sum(method, where, units, own, secrets, this)[1]

    compiled = on_devices(local, where, (True, not where.sampled, True, False), False, ())
    return lambda *args: np.asarray(jax.tree.leaves(compiled(*args))[0], np.int64)


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
