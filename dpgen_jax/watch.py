"""What is shown of a run while it trains: the generator as it stands, and how its samples look.

All of it is computed from released values, and from a public data set where one is named: it costs
no privacy, and whoever picks a step, a preset or a seed by it stays within the promise of each run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from dpgen_jax import data
from dpgen_jax.config import Watch
from dpgen_jax.evaluation import networks
from dpgen_jax.loop import State
from dpgen_jax.nets.classifiers import MLP
from dpgen_jax.run import plots
from dpgen_jax.run.bundle import Release
from dpgen_jax.run.metrics import MetricsWriter, summary_writer
from dpgen_jax.types import ImageSpec, Spec, TableSpec, UserError

SAMPLES = 2000
"""Synthetic records of an evaluation, and of each of its tests."""
SCHEDULE = networks.Schedule("watch", epochs=1, min_steps=200, mlp_times=1)
"""Short: a training of 2,000 records must not be felt beside the run."""
COLUMNS = 8
GRIDS = 20
"""Sample grids of a run that TensorBoard gets where no evaluations are asked for."""

Rows = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass
class Watcher:
    """Called after each block of steps; looks when one of its steps has come.

    steps: of the whole run; generator(state) -> the release as it stands. public: real, public
    records to test on, or None. last: the step at which it looked last.
    """

    asked: Watch
    steps: int
    generator: Callable[[State], Release]
    public: Rows | None
    last: int = 0

    def __call__(self, state: State, writer: MetricsWriter) -> dict[str, float]:
        """The metrics of this step, none where it is not time; sample grids go to TensorBoard."""
        every = self.asked.evaluate_every or (
            max(1, self.steps // GRIDS) if self.asked.tensorboard else 0)
        due = every and (state.done // every > self.last // every or state.done >= self.steps)
        if not due:
            return {}
        self.last = state.done
        release = self.generator(state)
        if (self.asked.tensorboard and isinstance(release.spec, ImageSpec)
                and not release.classifies):
            writer.show("samples", sample_grid(release), state.done)
        return judge(release, self.public) if self.asked.evaluate_every else {}


def prepare(asked: Watch, spec: Spec, classifies: bool = False) -> Rows | None:
    """The public records to test on, once it is sure that the run can be watched as asked.

    classifies: whether the run makes a classifier. Errors: UserError for a public data set of
    another shape or classes, for a classifier that is to be evaluated without one, and without
    tensorboardX.
    """
    if classifies and asked.evaluate_every and asked.public_dataset is None:
        raise UserError("a classifier has no samples to evaluate; name a --public-dataset to test "
                        "it on, or leave out --evaluate-every")
    if asked.tensorboard:
        summary_writer()
    if asked.public_dataset is None:
        return None
    if isinstance(spec, TableSpec):
        raise UserError("--public-dataset works for images; a table is watched by its own samples")
    loaded = data.load(asked.public_dataset, image_size=(
        spec.height if spec.height == spec.width else None))
    if loaded.spec != spec:
        raise UserError(f"--public-dataset {asked.public_dataset} holds {loaded.spec}, the run "
                        f"makes {spec}; name one of the same shape and classes")
    held = (loaded.x_train, loaded.y_train) if loaded.x_test is None else (
        loaded.x_test, loaded.y_test)
    picked = np.random.default_rng(0).permutation(len(held[1]))[:SAMPLES]
    return held[0][picked], held[1][picked]


def judge(release: Release, public: Rows | None) -> dict[str, float]:
    """`synthetic_accuracy`: of an MLP that is trained on synthetic records and tested on other
    synthetic ones, high where classes differ; `spread`: the mean over classes of the root mean
    square deviation of a feature, in [0, 0.5], near 0 where a class has collapsed;
    `public_accuracy`: of the same MLP on `public` records. Of a classifier the last alone, of
    itself, where there are public records.

    The draws have fixed seeds, so that steps differ by the generator alone.
    """
    if release.classifies:
        return {} if public is None else {
            "public_accuracy": float(np.mean(release.predict(public[0]) == public[1]))}
    train, test = (_drawn(release, seed) for seed in (0, 1))
    net = MLP(release.spec.classes)
    params = networks.fit_classifier(net, *train, SCHEDULE, 0)

    def accuracy(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean(networks.predict(net, params, x).argmax(1) == y))

    found = {"synthetic_accuracy": accuracy(*test), "spread": spread(*train)}
    return found if public is None else found | {"public_accuracy": accuracy(*public)}


def _drawn(release: Release, seed: int) -> Rows:
    """Records as images: the row of a table is an image of one pixel a feature."""
    x, y = release.encoded(SAMPLES, seed=seed)
    return (x if x.ndim == 4 else x[:, :, None, None]), y


def spread(x: np.ndarray, y: np.ndarray) -> float:
    """The mean over classes of the root mean square deviation of a feature of x [n, ...]."""
    of_class = [x[y == label] for label in np.unique(y)]
    return float(np.mean([np.sqrt(np.mean(np.var(part, 0))) for part in of_class]))


def sample_grid(release: Release) -> np.ndarray:
    """uint8 [H, W, 3]: a row for each class."""
    classes = release.spec.classes
    x, _ = release.sample(classes * COLUMNS, np.repeat(np.arange(classes), COLUMNS), seed=0)
    return np.asarray(plots.grid(x, classes))
