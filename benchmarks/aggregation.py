"""Time of G-PATE's aggregation: `python -m benchmarks.aggregation`. It needs no data.

Algorithm 2 of Long et al. 2021 on the gradients of all teachers of a preset: projection, clip,
histograms, Confident-GNMax, and the projection back. Timed in the same turns, in one process, are

- the library's, inside `loop.compile_block`: new random matrices, chunk by chunk the votes of the
  teachers and their sum, noise from fresh bits of the operating system; in the chunks that a run
  takes on this device, and in others;
- "numpy": the algorithm as printed, a loop over samples and dimensions, each a NumPy expression
  over all teachers, with products on one thread, as two took twice as long; on the same gradients,
  with new matrices and noise of NumPy's own generator;
- a step of the preset at two numbers of teachers, by which the time of a step of all of them, which
  does not fit everywhere, is taken to be linear.

The share of the aggregation is its own time, with all teachers, of the step so extrapolated. Both
are given by the wall and by the processor. Before, the library and NumPy run once on the same
matrices and noise, and answers that differ are counted: float32 may round to either side of a bin's
edge. The gradients are random, with a part that is common to a sample's teachers; most votes fall
into the outer two bins, as the paper says of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import threadpoolctl

from benchmarks import common, engine
from dpgen_jax import presets
from dpgen_jax.aggregation import teacher_votes
from dpgen_jax.aggregation.noise import OsBits, SeededBits
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import Array, Method, Private, Records
from dpgen_jax.private.teachers import Layout
from dpgen_jax.run.capacity import choose_layout

RUNTIME = Runtime(moments="bfloat16")


def main(arguments: Sequence[str] | None = None) -> int:
    args, script = parse(arguments)
    print(script.save(measure(args), [args.seed]))
    return 0


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, common.Script]:
    script = common.Script("aggregation", __doc__)
    names = [name for name, each in presets.all_of("gpate").items()
             if each.config.aggregate == "gnmax" and each.config.projection]
    script.add_argument("--preset", default="mnist-eps1", choices=names)
    script.add_argument("--teachers", type=int, default=4000, help="of the aggregation")
    script.add_argument("--chunk", type=int, nargs="*", default=[16, 64],
                        help="chunks beside those that a run takes")
    script.add_argument("--step-teachers", type=int, nargs=2, default=[50, 200],
                        help="of the steps; the larger number second")
    script.add_argument("--repeats", type=int, default=5, help="timed turns, at least 3")
    script.add_argument("--seed", type=int, default=0)
    args = script.begin(arguments)
    if args.repeats < 3:
        script.error("--repeats: a median needs at least 3 turns")
    if args.step_teachers[0] >= args.step_teachers[1]:
        script.error("--step-teachers: the larger number comes second")
    return args, script


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Time all ways in turns."""
    threadpoolctl.threadpool_limits(1, user_api="blas")
    method, _, spec, _ = engine.built("gpate", args.preset, args.teachers)
    mechanism, layout = method.mechanism, choose_layout(method, RUNTIME)
    x = gradients(mechanism, math.prod(spec.shape), args.seed)
    ours = {f"chunk {n}": library(method, x, dataclasses.replace(layout, chunk=n), args.seed)
            for n in dict.fromkeys((layout.chunk, *args.chunk))}
    answers = {name: seeded_step(each, args.seed) for name, each in ours.items()}
    inputs = answers[f"chunk {layout.chunk}"][0], *noises(mechanism, args.seed)
    expected, rng = algorithm_2(mechanism, x, *inputs), np.random.default_rng(args.seed)
    wall, processor = both_clocks({
        "numpy": lambda: algorithm_2(mechanism, x, *anew(mechanism, inputs, rng)),
        **{name: each.step for name, each in ours.items()},
        **{f"step of {n}": whole_step(args.preset, n, args.seed).step
           for n in args.step_teachers}}, args.repeats)
    return {"preset": args.preset, "teachers": args.teachers, "samples": mechanism.bound.rows,
            "projections": mechanism.bound.columns, "bins": mechanism.bound.bins,
            "dimension": x.shape[-1], "queries": mechanism.queries,
            "answered": int(np.count_nonzero(expected[0])),
            "agreement": {name: differences(a[1:], expected) for name, a in answers.items()},
            "device": layout.devices[0].device_kind, "devices": len(layout.devices),
            "chunk_of_a_run": layout.chunk, "step_teachers": args.step_teachers,
            "wall": conclude(wall, layout.chunk, args),
            "processor": conclude(processor, layout.chunk, args)}


def both_clocks(ways: Mapping[str, Callable[[], Any]], repeats: int) -> tuple[dict, dict]:
    """Time as `common.side_by_side`, by the wall and by the processor, all cores added."""
    processor: dict[str, list[float]] = {name: [] for name in ways}

    def counted(name: str) -> Any:
        clock = common.Stopwatch()
        result = jax.block_until_ready(ways[name]())
        processor[name].append(clock.cpu_seconds())
        return result

    calls = {name: lambda name=name: counted(name) for name in ways}
    wall = common.side_by_side(calls, repeats, warmup=1)
    return wall, {name: common.timing(seconds[1:]) for name, seconds in processor.items()}


def conclude(seconds: Mapping[str, dict], chunk: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return ratios to NumPy, the extrapolated step, and the aggregation's share of it."""
    median = {name: timing["median"] for name, timing in seconds.items()}
    few, many = args.step_teachers
    per_teacher = (median[f"step of {many}"] - median[f"step of {few}"]) / (many - few)
    step = median[f"step of {many}"] + (args.teachers - many) * per_teacher
    return {"seconds": seconds, "step_seconds_per_teacher": per_teacher,
            "step_seconds_extrapolated": step, "share": median[f"chunk {chunk}"] / step,
            "ratio": {name: median["numpy"] / median[name] for name in median if "chunk" in name}}


def gradients(mechanism: ConfidentGNMax, dimension: int, seed: int) -> np.ndarray:
    """Return random gradients float32 [U, B, D].

    Entries are about as large as the clip, so that a projection to a few coordinates is many times
    that; half of the variance is common to the teachers.
    """
    rng = np.random.default_rng(seed)
    shape = mechanism.bound.rows, dimension
    x = rng.standard_normal((mechanism.n_units, *shape), np.float32)
    x += rng.standard_normal(shape, np.float32)
    x *= np.float32(mechanism.bound.clip)
    return x


def library(method: Method, x: np.ndarray, layout: Layout, seed: int) -> engine.Library:
    """Return the step of a method whose teachers answer with these gradients and learn nothing.

    Only Algorithm 2 is left. The public state has the matrices and the release of the last step.
    """
    bound, (_, rows, dimension) = method.mechanism.bound, x.shape

    def ask(key: Array, public: Any) -> Array:
        return teacher_votes.projection_matrices(key, rows, dimension, bound.columns)

    def absorb(key: Array, public: Any, matrices: Array, released: Array):
        return (matrices, released, teacher_votes.reconstruct(matrices, released)), {}

    only = dataclasses.replace(
        method, ask=ask, absorb=absorb, init_unit=lambda key: (),
        init=lambda key: absorb(key, None, ask(key, None), jnp.zeros((rows, bound.columns)))[0],
        learn=lambda key, unit, records, matrices: unit,
        answer=lambda key, unit, records, matrices: teacher_votes.project(matrices, records.x))
    records = Private(Records(x, np.zeros(len(x), np.int32)))
    return engine.Library(only, records, jax.random.key(seed), layout, seed)


def seeded_step(ours: engine.Library, seed: int) -> tuple[np.ndarray, ...]:
    """Return the matrices [B, D, k] of a step with this noise, its release, that projected back."""
    ours.bits = SeededBits(seed)
    ours.step()
    ours.bits = OsBits()  # of later steps
    transposed, *rest = jax.device_get(ours.public)
    return np.ascontiguousarray(transposed.swapaxes(1, 2)), *rest


def noises(mechanism: ConfidentGNMax, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the noise of `seeded_step`: int32 [B, k] of tests, [B, k, bins] of counts."""
    bits = SeededBits(seed).draw((1, *mechanism.bits_shape))[0]
    shape = mechanism.bound.rows, mechanism.bound.columns
    return (np.asarray(mechanism.test_noise.sample(bits[:, 0])).reshape(shape),
            np.asarray(mechanism.noise.sample(bits[:, 1:])).reshape(*shape, -1))


def anew(mechanism: ConfidentGNMax, inputs: Sequence[np.ndarray], rng: np.random.Generator) -> list:
    """Draw matrices and noise of the shapes of these, with NumPy's generator."""
    noises = mechanism.test_noise, mechanism.noise
    matrices = rng.standard_normal(inputs[0].shape, np.float32)
    return [matrices / np.float32(math.sqrt(mechanism.bound.columns)), *(
        np.rint(rng.normal(0, noise.sigma, given.shape)).astype(np.int32)
        for noise, given in zip(noises, inputs[1:], strict=True))]


def algorithm_2(mechanism: ConfidentGNMax, x: np.ndarray, matrices: np.ndarray,
                test_noise: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Run Algorithm 2 as printed, in loops over samples and dimensions.

    Args:
      x: Gradients float32 [U, B, D].
      matrices: Projections float32 [B, D, k].
      test_noise: Noise of the threshold tests int32 [B, k].
      noise: Noise of the counts int32 [B, k, bins].

    Returns:
      The release [B, k], 0 where nothing is released, and that projected back [B, D].
    """
    midpoints = np.asarray(mechanism.bound.midpoints)
    released = np.zeros(test_noise.shape, np.float32)
    moved = np.zeros(x.shape[1:], np.float32)
    for j, matrix in enumerate(matrices):
        projected = x[:, j] @ matrix
        for i in range(projected.shape[1]):
            counts = histogram(mechanism, projected[:, i])
            if counts.max() + test_noise[j, i] >= mechanism.votes_needed:
                released[j, i] = midpoints[np.argmax(counts + noise[j, i])]
        moved[j] = matrix @ released[j]
    return released, moved


def histogram(mechanism: ConfidentGNMax, column: np.ndarray) -> np.ndarray:
    """Return the counts [bins] of a projected coordinate [U]: lines 6 and 7 of Algorithm 2."""
    clip = mechanism.bound.clip
    return np.histogram(np.clip(column, -clip, clip), mechanism.bound.bins, (-clip, clip))[0]


def differences(ours: tuple[np.ndarray, ...], plain: tuple[np.ndarray, ...]) -> dict[str, Any]:
    """Compare two answers (released, projected back), the second where the first is the same."""
    (a, a_moved), (b, b_moved) = ours, plain
    same = (a == b).all(1)
    gap = np.abs(a_moved - b_moved)[same].max(initial=0)
    return {"answers_that_differ": int(np.count_nonzero(a != b)),
            "largest_relative_difference": float(gap / np.abs(b_moved).max())}


def whole_step(preset: str, teachers: int, seed: int) -> engine.Library:
    """Return a later step of the preset with this many teachers, each with random records.

    The first one is left out, and given more discriminator steps: where it has as many as a later
    one, and that is one, the compiler drops their loop and then copies the state of all teachers
    at every query, so that a step is quadratic in teachers and the share far smaller.
    """
    p = engine.problem("gpate", preset, teachers, seed=seed)
    return p.library(choose_layout(p.method, RUNTIME))


if __name__ == "__main__":
    raise SystemExit(main())
