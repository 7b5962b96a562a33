"""Runs whose queries may stay without an answer: the budget then allows more steps than planned."""

import re
import signal

import pytest
import runs
import small_datalens

from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core.config import Budget, MonitorOptions
from dpgen_jax.data import from_arrays
from dpgen_jax.methods import gpate
from dpgen_jax.run import lifecycle
from dpgen_jax.run.progress import Notices

# All but the noise says no to every query.
CONFIG = gpate.Config(teachers=10, batch=2, projection=2, bins=3, sigma=12.0, sigma_ratio=2.0,
                      threshold=0.99, generator=small_datalens.CONFIG.generator,
                      discriminator=small_datalens.CONFIG.discriminator)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_once")
def test_a_run_beyond_its_planned_steps_says_where_it_stands(tmp_path, monkeypatch, capsys):
    draw, draws = OsBits.draw, []

    def interrupted(self, shape):
        draws.append(shape)
        if len(draws) == planned + 1:
            signal.raise_signal(signal.SIGINT)
        return draw(self, shape)

    def run(resume: bool) -> tuple[int, str]:
        said: list[str] = []
        request = lifecycle.Resolved("gpate", None, CONFIG, Budget(1.5, 1e-3), runs.RUNTIME,
                                    tmp_path / "run", resume,
                                    monitor=MonitorOptions(verbose=True))
        release = lifecycle.run(request, from_arrays(*runs.images(), 3), said.append,
                                Notices(said.append))
        text = "\n".join([*said, capsys.readouterr().err])
        return release.privacy["steps"], text

    planned = 4
    monkeypatch.setattr(OsBits, "draw", interrupted)
    steps, text = run(False)
    assert steps == planned + 1
    assert int(re.search(r"(\d+) steps, sigma", text)[1]) == planned
    assert f"stopped at step {steps}, and the budget may allow more: you interrupted it" in text
    steps, text = run(True)
    assert steps > planned + 2 and f"{planned + 2}/? steps, " in text
    again, text = run(True)
    assert again == steps and "compiling" not in text and "stopped" not in text
