"""The monitor of a run: the generator as it stands while it trains, and how its samples look.

All of it is computed from released values, and from a public data set where one is named: it costs
no privacy, and whoever picks a step, a preset or a seed by it stays within the promise of each run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from dpgen_jax.core.config import MonitorOptions
from dpgen_jax.core.types import ImageSpec, Spec, UserError
from dpgen_jax.evaluation import networks
from dpgen_jax.nets.classifiers import MLP
from dpgen_jax.release import plots
from dpgen_jax.release.bundle import Release
from dpgen_jax.run import judging
from dpgen_jax.run.best import Best
from dpgen_jax.run.judging import Rows
from dpgen_jax.run.loop import State
from dpgen_jax.run.metrics import MetricsWriter, summary_writer

SAMPLES = 2000
"""Synthetic records of an evaluation, and of each of its tests."""
SCHEDULE = networks.Schedule("watch", epochs=1, min_steps=200, mlp_times=1)
"""Short: a training of 2,000 records must not be felt beside the run."""
COLUMNS = 8
GRIDS = 20
"""Sample grids of a run that TensorBoard gets where no evaluations are asked for."""

GLANCES, FEWEST = 5, 20
"""How often cheap measures are taken where nobody says, and of how many steps at least."""
GLANCED = 500
"""Synthetic records of each draw that cheap measures read."""

@dataclasses.dataclass
class Monitor:
    """Called after each block of steps; looks when one of its steps has come.

    Attributes:
        options: What the user wants to see.
        steps: The steps of the whole run.
        generator: From a state to the release as it stands.
        public: Real, public records to test on, or None.
        last: The step at which it looked last.
        best: Keeps the generator that does best on `public`, where that is wanted.
    """

    options: MonitorOptions
    steps: int
    generator: Callable[[State], Release]
    public: Rows | None
    last: int = 0
    best: Best | None = None

    def __call__(self, state: State, writer: MetricsWriter) -> dict[str, float]:
        """Looks at the generator, if it is time.

        Args:
            state: The state after a block of steps.
            writer: Shows sample grids on TensorBoard.

        Returns:
            The metrics of this step by name; none where it is not time.
        """
        glances = self.options.evaluate_every is None and self.steps >= FEWEST
        every = self.options.evaluate_every or (
            max(1, self.steps // GRIDS) if self.options.tensorboard else
            self.steps // GLANCES if glances else 0)
        row_due = every and (state.done // every > self.last // every or state.done >= self.steps)
        if not row_due:
            return {}
        self.last = state.done
        release = self.generator(state)
        if (self.options.tensorboard and isinstance(release.spec, ImageSpec)
                and not release.classifies):
            writer.show("samples", sample_grid(release), state.done)
        if self.options.evaluate_every:
            scores = judge(release, self.public)
            if self.best:
                self.best.offer(release, scores["public_accuracy"], state.done)
            return scores
        return glance(release) if glances and not release.classifies else {}


def prepare(options: MonitorOptions, spec: Spec, classifies: bool = False) -> Rows | None:
    """Reads the records to test on, and makes sure that the monitor can work.

    Args:
        options: What the user wants to see.
        spec: The schema of the run's records.
        classifies: Whether the run makes a classifier.

    Returns:
        As `judging.rows`.

    Raises:
        UserError: As `judging.rows`, for a classifier that is to be evaluated without records to
            test on, and without tensorboardX.
    """
    if classifies and options.evaluate_every and options.public_dataset is None:
        raise UserError("a classifier has no samples to evaluate; name a --public-dataset to test "
                        "it on, or leave out --evaluate-every")
    if options.tensorboard:
        summary_writer()
    return judging.rows(options, spec)


def judge(release: Release, public: Rows | None) -> dict[str, float]:
    """Judges a release by its samples, whose seeds are fixed: steps differ by the generator alone.

    Args:
        release: A generator or a classifier.
        public: Public records to test on, or None.

    Returns:
        `synthetic_accuracy`: of an MLP that is trained on synthetic records and tested on other
        synthetic ones, high where classes differ; `spread`: see there, near 0 where a class has
        collapsed; `public_accuracy`: of the same MLP on `public` records. Of a classifier the last
        alone, of itself, where there are public records.
    """
    if release.classifies:
        return {} if public is None else {
            "public_accuracy": float(np.mean(release.predict(public[0]) == public[1]))}
    train, test = (_samples(release, seed) for seed in (0, 1))
    net = MLP(release.spec.classes)
    params = networks.fit_classifier(net, *train, SCHEDULE, 0)

    def accuracy(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean(networks.predict(net, params, x).argmax(1) == y))

    scores = {"synthetic_accuracy": accuracy(*test), "spread": spread(*train)}
    return scores if public is None else scores | {"public_accuracy": accuracy(*public)}


def glance(release: Release) -> dict[str, float]:
    """Judges a generator by its samples in a moment, without a training.

    Args:
        release: A generator.

    Returns:
        `nearest_mean_accuracy`: how many synthetic records lie nearest to the mean of their own
        class in another draw, which rises as classes come apart; `contrast` of images: their
        mean standard deviation over pixels, near 0 where they are grey; and `spread`.
    """
    (x, y), (other, labels) = (_samples(release, seed, GLANCED) for seed in (0, 1))
    scores = {"spread": spread(x, y)}
    if isinstance(release.spec, ImageSpec):
        scores["contrast"] = float(x.reshape(len(x), -1).std(1).mean())
    if len(present := np.unique(y)) < 2:
        return scores
    means = np.stack([x[y == label].mean(0).ravel() for label in present])
    # Squared distances but for a term that is the same for all classes, without all differences.
    distances = (means**2).sum(1) - 2 * other.reshape(len(other), -1) @ means.T
    right = present[distances.argmin(1)] == labels
    return {"nearest_mean_accuracy": float(np.mean(right))} | scores


def _samples(release: Release, seed: int, n: int = SAMPLES) -> Rows:
    """Synthetic records as images: the row of a table is an image of one pixel a feature."""
    x, y = release.encoded(n, seed=seed)
    return (x if x.ndim == 4 else x[:, :, None, None]), y


def spread(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the mean over classes of the root mean square deviation of a feature, in [0, 0.5].

    Args:
        x: Records float [n, ...] in [0, 1].
        y: Their labels [n].
    """
    by_class = [x[y == label] for label in np.unique(y)]
    return float(np.mean([np.sqrt(np.mean(np.var(part, 0, np.float64))) for part in by_class]))


def sample_grid(release: Release) -> np.ndarray:
    """Returns a picture uint8 [H, W, 3] of synthetic images, with a row for each class."""
    classes = release.spec.classes
    x, _ = release.sample(classes * COLUMNS, np.repeat(np.arange(classes), COLUMNS), seed=0)
    return np.asarray(plots.grid(x, classes))
