"""Speed and memory of stacked critics and of one critic at a time.

    python -m benchmarks.critics [--critics 100] [--width 64] [--chunk N] [--repeats 5]

Both ways take the same GS-WGAN step on the same random records of 28x28, 60 a critic: 5 critic
steps with gradient penalty on 32 records each, and the critic's gradient at 32 fakes. "one by one"
is a Python loop over critics that calls one compiled function; "stacked" is the library's block.
They are timed in turns. The generator is small, so that the critics decide the time; its share is
reported. Operations are counted by `critic_flops`, and compared with a matrix product's rate. The
record has critic steps a second, bytes per critic and these rates, in results/critics-WIDTH.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import Any

import jax
import numpy as np

from benchmarks import common
from benchmarks.steps import Library, PlainLoop, Problem, generator_alone
from dpgen_jax import presets
from dpgen_jax.cli import terminal
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import ImageSpec, Private, Records
from dpgen_jax.methods import gswgan
from dpgen_jax.nets.resnet import CriticNet, ResNetNet
from dpgen_jax.private import teachers
from dpgen_jax.run.capacity import choose_layout

SPEC = ImageSpec(28, 28, 1, 10)
RECORDS = 60


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--critics", type=int, default=100)
    parser.add_argument("--width", type=int, default=64, help="of the critic; published: 64")
    parser.add_argument("--chunk", type=int, default=0, help="as in Runtime")
    parser.add_argument("--devices", type=int, default=0, help="as in Runtime")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out")
    return parser.parse_args()


def critic_flops(width: int, spec: ImageSpec, batch: int) -> int:
    """Count the multiplications and additions of one critic step: three convolutions and the heads.

    Real and fake records pass forwards and twice that backwards; the interpolates of the penalty
    forwards, back to the image, and twice both for the gradient of that.
    """
    sizes = (spec.channels, width, 2 * width, 4 * width)
    side, macs = (spec.height, spec.width), 0
    for i in range(3):
        side = tuple(math.ceil(s / 2) for s in side)
        macs += math.prod(side) * 25 * sizes[i] * sizes[i + 1]
    macs += math.prod(side) * sizes[3] * (1 + spec.classes)
    return 2 * macs * batch * (3 + 3 + 6)


def problem(args: argparse.Namespace) -> Problem:
    """Return the method, its configuration and random records."""
    _, preset = presets.get("gswgan", "mnist-published")
    config = dataclasses.replace(
        preset.config, critics=args.critics, critics_per_step=0, warm_steps=0,
        critic=CriticNet(args.width), generator=ResNetNet(10, 16), pool=4)
    method = gswgan.build(config, SPEC, Runtime())
    rng = np.random.default_rng(0)
    shape = args.critics, RECORDS
    records = Records(rng.integers(0, 256, (*shape, *SPEC.shape), np.uint8),
                      rng.integers(0, SPEC.classes, shape, np.int32))
    return Problem(method, config, SPEC, records, seed=0)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Time both ways in turns, and compute the rates."""
    p = problem(args)
    layout = choose_layout(p.method, Runtime(devices=args.devices, chunk=args.chunk))
    rate = common.matmul_rate()
    stacked = Library(p.method, Private(p.records), p.key, layout, p.seed)
    one_by_one = PlainLoop(p)
    public = jax.jit(p.method.init, out_shardings=layout.replicated)(p.key)
    generator = generator_alone(p, layout, public)
    timed = common.side_by_side({"stacked": stacked.step, "one by one": one_by_one.step,
                                 "generator alone": generator}, args.repeats)
    rate = max(rate, common.matmul_rate())
    n = p.config.critic_steps * args.critics
    flops = n * critic_flops(args.width, SPEC, p.config.records_per_step)
    per_second = {name: n / timed[name]["median"] for name in ("stacked", "one by one")}
    sizes = {moments: teachers.unit_bytes(gswgan.build(p.config, SPEC, Runtime(moments=moments)))
             for moments in ("float32", "bfloat16")}
    return {"critics": args.critics, "width": args.width, "chunk": layout.chunk,
            "devices": len(layout.devices), "device": jax.devices()[0].device_kind,
            "seconds_per_step": timed, "critic_steps_per_second": per_second,
            "ratio": per_second["stacked"] / per_second["one by one"],
            "flops_per_second": flops / timed["stacked"]["median"],
            "matmul_flops_per_second": rate,
            "fraction_of_matmul_rate": flops / timed["stacked"]["median"] / rate,
            "generator_share": timed["generator alone"]["median"] / timed["stacked"]["median"],
            "bytes_per_critic": sizes,
            "bytes_of_1000_critics": {name: 1000 * size for name, size in sizes.items()}}


def main() -> None:
    """Run the benchmark and write its record."""
    args = arguments()
    terminal.use_all_cores()
    where = common.machine()
    flags = [f"--critics {args.critics}", f"--width {args.width}"]
    out = args.out or common.RESULTS / f"critics-{args.width}.json"
    print(common.write(common.record("critics", flags, [0], measure(args), where), out))


if __name__ == "__main__":
    terminal.main(lambda argv: main())
