"""Stacked critics against one critic at a time: critic steps a second, and bytes per critic.

    python -m benchmarks.critics [--critics 100] [--width 64] [--chunk N] [--repeats 5]

Both ways take the same GS-WGAN step on the same random records of 28x28, 60 a critic: 5 critic
steps with gradient penalty on 32 records each, and the critic's gradient at 32 fakes. "one by one"
is a Python loop over critics that calls one compiled function; "stacked" is the library's block.
They are timed in turns. The generator is small, so that the critics are what is measured; its share
is given. Operations are counted as `critic_flops` says, and set against a matrix product's rate.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import Any

import jax
import numpy as np

from benchmarks import common
from benchmarks.step_case import Library, PlainLoop, Problem, generator_alone
from dpgen_jax import cli, presets
from dpgen_jax.capacity import choose_layout
from dpgen_jax.config import Runtime
from dpgen_jax.methods import gswgan
from dpgen_jax.nets.critic import CriticNet
from dpgen_jax.nets.resnet import ResNetNet
from dpgen_jax.private import teachers
from dpgen_jax.types import ImageSpec, Private, Records

SPEC = ImageSpec(28, 28, 1, 10)
RECORDS = 60


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--critics", type=int, default=100)
    parser.add_argument("--width", type=int, default=64, help="of the critic; published: 64")
    parser.add_argument("--chunk", type=int, default=0, help="as in Runtime")
    parser.add_argument("--devices", type=int, default=0, help="as in Runtime")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out")
    return parser.parse_args()


def critic_flops(width: int, spec: ImageSpec, batch: int) -> int:
    """Of one critic step: multiplications and additions of the three convolutions and the heads.

    Forwards and twice that backwards through real and fake records; through the interpolates of
    the penalty forwards, back to the image, and twice both for the gradient of that.
    """
    sizes = (spec.channels, width, 2 * width, 4 * width)
    side, macs = (spec.height, spec.width), 0
    for i in range(3):
        side = tuple(math.ceil(s / 2) for s in side)
        macs += math.prod(side) * 25 * sizes[i] * sizes[i + 1]
    macs += math.prod(side) * sizes[3] * (1 + spec.classes)
    return 2 * macs * batch * (3 + 3 + 6)


def problem(given: argparse.Namespace) -> Problem:
    _, preset = presets.get("gswgan", "mnist-published")
    config = dataclasses.replace(
        preset.config, critics=given.critics, critics_per_step=0, warm_steps=0,
        critic=CriticNet(given.width), generator=ResNetNet(10, 16), pool=4)
    method = gswgan.build(config, SPEC, Runtime())
    rng = np.random.default_rng(0)
    shape = given.critics, RECORDS
    records = Records(rng.integers(0, 256, (*shape, *SPEC.shape), np.uint8),
                      rng.integers(0, SPEC.classes, shape, np.int32))
    return Problem(method, config, SPEC, records, seed=0)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    p = problem(given)
    layout = choose_layout(p.method, Runtime(devices=given.devices, chunk=given.chunk))
    rate = common.matmul_rate()
    stacked = Library(p.method, Private(p.records), p.key, layout, p.seed)
    one_by_one = PlainLoop(p)
    public = jax.jit(p.method.init, out_shardings=layout.replicated)(p.key)
    generator = generator_alone(p, layout, public)
    timed = common.side_by_side({"stacked": stacked.step, "one by one": one_by_one.step,
                                 "generator alone": generator}, given.repeats)
    rate = max(rate, common.matmul_rate())
    n = p.config.critic_steps * given.critics
    flops = n * critic_flops(given.width, SPEC, p.config.records_per_step)
    per_second = {name: n / timed[name]["median"] for name in ("stacked", "one by one")}
    sizes = {moments: teachers.unit_bytes(gswgan.build(p.config, SPEC, Runtime(moments=moments)))
             for moments in ("float32", "bfloat16")}
    return {"critics": given.critics, "width": given.width, "chunk": layout.chunk,
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
    given = arguments()
    cli.use_all_cores()
    where = common.machine()
    shown = [f"--critics {given.critics}", f"--width {given.width}"]
    out = given.out or common.RESULTS / f"critics-{given.width}.json"
    print(common.write(common.record("critics", shown, [0], measure(given), where), out))


if __name__ == "__main__":
    cli.main(lambda argv: main())
