"""The cost of several processes beside computation: `python -m benchmarks.steps --processes N`.

N processes of this machine meet as those of a run do, and the leader tells the others of blocks of
one step, with as many bits of noise as the preset's step needs. Measured are the seconds until all
have met, the bytes of a block's order and the seconds that telling it takes, beside the seconds of
the published step that `benchmarks.steps` recorded. Between machines the network decides; here they
talk over the loopback, so the bytes are what carries over. The record is results/hosts.json.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

from benchmarks import common

BLOCKS = 20
"""Blocks that are told, the first of which compiles and is not counted."""


def main(args: argparse.Namespace) -> int:
    """Run the processes, write their measurements, and print them as a line.

    Args:
        args: The flags of `benchmarks.steps`.

    Returns:
        The exit code: 0, or 1 where a process failed.
    """
    where = common.machine()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    case = {"preset": args.preset, "processes": args.processes, "coordinator": f"127.0.0.1:{port}"}
    started = [subprocess.Popen(
        [sys.executable, "-m", "benchmarks.host_steps", json.dumps(case | {"index": i})],
        cwd=common.ROOT, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"}) for i in range(args.processes)]
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        return 1
    measured = json.loads(outputs[0].splitlines()[-1])
    steps = json.loads((common.RESULTS / "steps.json").read_text())["results"]["cases"]
    measured["published_step_seconds"] = min(
        step["seconds_per_step"]["median"] for step in steps
        if step["preset"] == args.preset and step["teachers"] == 4000)
    measured["share_of_a_step"] = (measured["seconds_per_block"]["median"]
                                   / measured["published_step_seconds"])
    path = common.RESULTS / "hosts.json" if args.out is None else args.out
    command = [f"--preset={args.preset}", f"--processes={args.processes}"]
    common.write(common.record("steps", command, [], measured, where), path)
    print(f"{args.processes} processes met in {measured['meeting_seconds']:.1f} s; telling a block "
          f"with {measured['bytes_per_block']:,} bytes of bits took "
          f"{1e3 * measured['seconds_per_block']['median']:.1f} ms, "
          f"{measured['share_of_a_step']:.2%} of a published step")
    return 0


def take_part(case: dict[str, Any]) -> dict[str, Any]:
    """Meet the others and tell or hear of the blocks; return what the leader measured."""
    from dpgen_jax.core import hosts

    started = time.perf_counter()
    hosts.start(hosts.Hosts(case["coordinator"], case["processes"], case["index"],
                            join_seconds=300))
    import jax
    import numpy as np

    from benchmarks.step_case import Case, problem
    from dpgen_jax.private import teachers
    from dpgen_jax.private.teachers import Layout

    teachers.meet(Layout(jax.device_count(), 1, tuple(jax.devices())))
    met = time.perf_counter() - started
    mechanism = problem(Case("step", case["preset"], 1, 1, 1)).method.mechanism
    bits = np.random.default_rng(0).integers(0, 2**32, (1, *mechanism.bits_shape), np.uint32)
    seconds = []
    with hosts.alive():
        if not hosts.leads():
            while hosts.hear()[0] != "end":
                pass
            return {}
        with hosts.leading(lambda: 0):
            for _ in range(1 + BLOCKS):
                begun = time.perf_counter()
                hosts.tell("block", {"n": 1}, bits=bits)
                seconds.append(time.perf_counter() - begun)
    return {"preset": case["preset"], "processes": case["processes"], "meeting_seconds": met,
            "bytes_per_block": bits.nbytes, "seconds_per_block": common.timing(seconds[1:])}


if __name__ == "__main__":
    print(json.dumps(take_part(json.loads(sys.argv[1]))))
