"""One row of `benchmarks.epochs` in a process: `python -m benchmarks.epoch_case JSON`.

The last line of its output has the measurements as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from typing import Any

import jax
import numpy as np

from benchmarks import common
from benchmarks.step_case import Library
from dpgen_jax import methods, presets
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.types import Method, Private, Records
from dpgen_jax.private import teachers
from dpgen_jax.run.calibrate_config import complete


@dataclasses.dataclass(frozen=True)
class Case:
    """A timed case: a preset with some fields changed, and the share of its teachers."""

    method: str
    preset: str
    fields: dict[str, Any]
    share: float
    chunk: int
    devices: int
    moments: str
    repeats: int
    seed: int


def built(case: Case) -> tuple[Method, Any, tuple[int, int]]:
    """Return the method, the preset, and how many teachers have how many records each."""
    _, preset = presets.get(case.method, case.preset)
    config = dataclasses.replace(preset.config, **case.fields)
    per_teacher = preset.records // config.teachers
    count = max(config.bins if hasattr(config, "bins") else 1,
                math.ceil(case.share * config.teachers))
    # No budget: what is timed is a step, however many of them are proven to be affordable.
    config = complete(case.method, dataclasses.replace(config, teachers=count, steps=10),
                      preset.spec, Budget(math.inf, preset.delta))
    method = methods.get(case.method).build(config, preset.spec, Runtime(moments=case.moments))
    return method, preset, (count, per_teacher)


def main() -> None:
    """Time a step after the first, with random records, and print the measurements."""
    case = Case(**json.loads(sys.argv[1]))
    method, preset, shape = built(case)
    needed, free = teachers.unit_bytes(method) * shape[0], common.available_bytes()
    if jax.default_backend() == "cpu" and free is not None and needed + 2**29 > free:
        raise SystemExit(f"the teachers' state takes {needed / 1e9:.1f} GB; {free / 1e9:.1f} GB "
                         "are available; time fewer of them with --share")
    rng = np.random.default_rng(case.seed)
    records = Records(rng.integers(0, 256, (*shape, *preset.spec.shape), np.uint8),
                      rng.integers(0, preset.spec.classes, shape, np.int32))
    devices = tuple(jax.devices()[:case.devices])
    layout = teachers.Layout(shape[0], case.chunk, devices)
    whole = Library(method, Private(records), jax.random.key(case.seed), layout, case.seed)
    step = common.side_by_side({"step": whole.step}, case.repeats)["step"]
    print(json.dumps({
        "seconds_per_step": step, "teachers": shape[0], "records_per_teacher": shape[1],
        "compile_seconds": whole.compile_seconds, "peak_resident_bytes": common.peak_bytes(),
        "device": devices[0].device_kind, "devices": len(devices)}))


if __name__ == "__main__":
    main()
