"""Seeded runs that are stopped twice, and each time gone on with elsewhere: a program.

`python tests/helpers/state_elsewhere.py CASE FOLDER PLACES ...` makes a run of a case of `seeded`
for each PLACES, as device,disk,host: a step with the state of its units in each place, the last one
going on to the end. It prints a line for each run: a digest of the release, and what is left in
private/. As a program it is compiled as a run is.
"""

import signal
import sys
from pathlib import Path

import compiled
import pytest
import seeded
from test_digests import digest

from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.config import Runtime
from dpgen_jax.run import capacity

FIELDS = {"datalens images": {"teachers": 5}, "gpate images": {"teachers": 5},
          "gswgan images": {"critics": 6, "warm_steps": 2}}


def run(name: str, root: Path, places: list[str]) -> str:
    """A run in a folder; its digest, and what is left in private/."""
    draw = SeededBits.draw
    for i, place in enumerate(places):
        last, asked = i + 1 == len(places), []

        def stop_after_this_step(self, shape, last=last, asked=asked):
            if not (last or asked):
                asked.append(shape)
                signal.raise_signal(signal.SIGINT)
            return draw(self, shape)

        seeded.RUNTIME = Runtime(devices=1, chunk=2, steps_per_call=1, state=place)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(SeededBits, "draw", stop_after_this_step)
            release = seeded.train(seeded.ALL[name], root, resume=i > 0, steps=3, **FIELDS[name])
        assert release.privacy["steps"] == (3 if last else i + 1)
    return " ".join([digest(release), *sorted(p.name for p in (root / "private").iterdir())])


def main(name: str, folder: str, *runs: str) -> None:
    """Trains, and prints."""
    capacity.SLAB_BYTES = 1  # a slab is then a chunk of two
    with compiled.once():
        for i, places in enumerate(runs):
            print(run(name, Path(folder, str(i)), places.split(",")))


if __name__ == "__main__":
    main(*sys.argv[1:])
