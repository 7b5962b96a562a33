"""The monitor of a run: samples of its generator while it trains, their judge, and the best one.

All of it is computed from released values, and from public records where they are named. So it
costs no privacy, and whoever picks a step, a preset or a seed by it stays within the promise of
each run.

The judge is public records, or samples of an earlier release. An earlier release carries
information on its records, and so does a generator that was picked by it. So all that the earlier
release cost is charged to this run as well, before the first step, and the steps get what is left.

The best generator so far, by a public measure of its samples, lies in private/, as checkpoints do,
so that a resumed run still knows it. It was made of released values only: the choice reads no
record, and costs what was charged for all steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from flax import traverse_util

from dpgen_jax import data
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core import files
from dpgen_jax.core.config import MonitorOptions
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import write_together
from dpgen_jax.core.run_folder import MetricsWriter, RunFolder, read_json, summary_writer
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.data import Dataset, parts
from dpgen_jax.data.base import Uncovered
from dpgen_jax.evaluation import networks
from dpgen_jax.nets.classifiers import MLP
from dpgen_jax.release import bundle, contents, guarantee, plots
from dpgen_jax.release.bundle import Release, load
from dpgen_jax.run.loop import State


class Best:
    """The best generator so far.

    Attributes:
        path: Its file, which need not exist.
        score: Its measure; below 0 before there is one.
        step: The step after which it was taken.
    """

    def __init__(self, path: Path):
        self.path, self.score, self.step = path, -1.0, 0
        if path.exists():
            self.score, self.step = _noted(path)

    def offer(self, release: Release, score: float, step: int) -> None:
        """Keeps a generator that is better than the best so far.

        Raises:
            OSError: It cannot be written; the best so far is still there.
        """
        if not score > self.score:
            return
        flat = traverse_util.flatten_dict(release.model, sep="/")
        data = safetensors.numpy.save({name: np.asarray(array) for name, array in flat.items()},
                                      metadata={"score": repr(float(score)), "step": str(step)})
        write_together(self.path.parent, {self.path.name: data})
        self.score, self.step = float(score), step

    def instead_of(self, last: Release, log: Callable[[str], None]) -> Release:
        """Returns the release with the best generator, whose statement says of which step that is.

        The step is not secret: it follows from released values and the records that judge, which
        are public or were paid for.

        Raises:
            UserError: The file is missing or damaged.
        """
        if not self.step:
            return last
        arrays = bundle.parse_arrays(self.path, files.read_bytes(self.path), bundle.arrays_of_model(
            last.method, last.config, last.spec))
        log(f"the generator of step {self.step} is released: it was the best of those evaluated "
            f"(public_accuracy {self.score:.3f})")
        return dataclasses.replace(last, model=arrays,
                                   privacy=last.privacy | {"kept_step": self.step})


def _noted(path: Path) -> tuple[float, int]:
    """The measure and the step that a file notes."""
    try:
        with safetensors.safe_open(path, "numpy") as stored:
            note = stored.metadata()
        return float(note["score"]), int(note["step"])
    except (safetensors.SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it, and the best generator from now "
                        "on is kept") from error


JUDGE_PREFIX = "release:"
NAMED_JUDGES = "release that judges: "
"""The start of the names of the events of the run whose release judges."""
JUDGE_SAMPLES = 2000
"""The most records to test on."""
JUDGE_SEED = 7
"""The seed of the samples of a release."""
SAME = 0.5
"""The share of the records that judge from which on they are taken for those of the run itself."""

Rows = tuple[np.ndarray, np.ndarray]


def earlier_release(options: MonitorOptions) -> RunFolder | None:
    """Returns the run whose release judges, if one does."""
    place = options.public_dataset or ""
    return RunFolder(Path(place.removeprefix(JUDGE_PREFIX))) if place.startswith(
        JUDGE_PREFIX) else None


def judging_cost(options: MonitorOptions, protects_clients: bool) -> Events:
    """Returns the events of the run whose release judges: those of all that it charged.

    They have names of their own. Where both runs have rounds of the same noise, or bought the same,
    equal events would be mistaken for what the run that is judged has paid for already.

    Raises:
        UserError: For a run without a release or a ledger, for one that guarantees nothing, for
            the release of another run, and for one that protects somebody else.
    """
    run = earlier_release(options)
    if run is None:
        return ()
    stamp = guarantee.of(load(run.root).privacy)
    if stamp.kind != "valid":
        raise UserError(f"the release of {run.root} cannot judge: its statement is '{stamp.text}', "
                        "and this run could not promise more")
    if not run.ledger.is_file():
        raise UserError(f"{run.root} has no {run.ledger.name}, which states the cost of its "
                        f"release; name the folder of the run: {JUDGE_PREFIX}RUN")
    _require_own(run)
    totals = books.account(books.read(run.ledger))
    if protects_clients or totals.header["unit"] != Unit.RECORD:
        raise UserError(f"{run.root} protects a {totals.header['unit']}, and this run "
                        f"{'a client' if protects_clients else 'a record'}; a release can judge "
                        "only where both protect records")
    return tuple((dataclasses.replace(event, mechanism=NAMED_JUDGES + event.mechanism), count)
                 for event, count in totals.spent())


def _require_own(run: RunFolder) -> None:
    """Refuses a release that another run has made, of which earlier versions have kept no trace."""
    if not run.released.is_file():
        return
    there = contents.described(run.release / "config.json").get("generator_sha256")
    if read_json(run.released).get("generator_sha256") != there:
        raise UserError(f"the release in {run.root} was not made by this run, so {run.ledger.name} "
                        "does not state its cost; restore the release of this run")


def require_same_relation(options: MonitorOptions, mechanism: Mechanism) -> None:
    """Refuses to add up costs under two neighbouring relations.

    Raises:
        UserError: Where the run whose release judges has another relation.
    """
    run = earlier_release(options)
    if run is None:
        return
    relation = books.account(books.read(run.ledger)).header["relation"]
    if relation != mechanism.relation:
        raise UserError(f"{run.root} promises {relation}, and this run {mechanism.relation}: their "
                        "costs cannot be added; train both under the same relation")


def judge_identity(options: MonitorOptions) -> str:
    """Returns the id of the run whose release judges; empty where none does."""
    run = earlier_release(options)
    return run.run_id() if run else ""


def judge_rows(options: MonitorOptions, spec: Spec) -> Rows | None:
    """Returns the records on which a classifier of samples is tested.

    Returns:
        Images uint8 [n, H, W, ch] and labels [n], or None where nothing is named.

    Raises:
        UserError: For a table, and for records of another shape or classes.
    """
    place, run = options.public_dataset, earlier_release(options)
    if place is None:
        return None
    if isinstance(spec, TableSpec):
        raise UserError(f"{option('public_dataset')} works for images; a table is judged by its "
                        "own samples")
    if run is not None:
        release = load(run.root)
        _require_alike(place, release.spec, spec)
        return release.sample(JUDGE_SAMPLES, seed=JUDGE_SEED)
    loaded = data.load(place, image_size=spec.height if spec.height == spec.width else None)
    _require_alike(place, loaded.spec, spec)
    x, y = loaded.x_train, loaded.y_train
    if loaded.x_test is not None and loaded.y_test is not None:
        x, y = loaded.x_test, loaded.y_test
    picked = np.random.default_rng(0).permutation(len(y))[:JUDGE_SAMPLES]
    return x[picked], y[picked]


def checked_judge(options: MonitorOptions, dataset: Dataset, public: Rows | None) -> Dataset:
    """Returns the data set, marked `uncovered` if its own records would judge the run.

    The scores of a generator by these records, and which generator is kept, would be published, and
    no epsilon covers that. The records that judge are its own if they are read from the same files,
    or if most of them are the same; a few may be the same by chance, as empty images are.
    """
    if public is None or earlier_release(options):
        return dataset
    lies_there = data.content(options.public_dataset or "")  # however it is read
    if not (lies_there and lies_there == dataset.content) and (
            parts.share_of(public[0], dataset) < SAME):
        return dataset
    what = (f"what --public-dataset {options.public_dataset} tells of generators, as it holds "
            "records of this run's own data set")
    return dataclasses.replace(dataset, uncovered=(*dataset.uncovered, Uncovered(
        what, "name a public data set of other records")))


def _require_alike(place: str, found: Spec, spec: ImageSpec) -> None:
    if found != spec:
        raise UserError(f"{option('public_dataset', place)} has {found}, the run makes {spec}; "
                        "name one of the same shape and classes")


SAMPLES = 2000
"""Synthetic records of an evaluation, and of each of its tests."""
SCHEDULE = networks.Schedule("watch", epochs=1, min_steps=200, mlp_times=1)
"""Short: a training on 2,000 records must not slow the run down noticeably."""
COLUMNS = 8
GRIDS = 20
"""Sample grids of a run that TensorBoard gets where no evaluations are requested."""

GLANCES, FEWEST = 5, 20
"""How often cheap measures are taken by default, and the fewest steps of a run that has them."""
GLANCED = 500
"""Synthetic records of each draw that cheap measures read."""

@dataclasses.dataclass
class Monitor:
    """Called after each block of steps; judges the generator when one of its steps has come.

    Attributes:
        steps: The steps of the whole run.
        generator: From a state to the release as it stands.
        public: Real, public records to test on, or None.
        last: The step at which it judged last.
        best: Keeps the generator that does best on `public`, where that is wanted.
    """

    options: MonitorOptions
    steps: int
    generator: Callable[[State], Release]
    public: Rows | None
    last: int = 0
    best: Best | None = None

    def __call__(self, state: State, writer: MetricsWriter) -> dict[str, float]:
        """Returns the metrics of this step by name; none where it is not time to judge."""
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

    Raises:
        UserError: As `judge_rows`, for a classifier that is to be evaluated without records to
            test on, and without tensorboardX.
    """
    if classifies and options.evaluate_every and options.public_dataset is None:
        raise UserError("a classifier has no samples to evaluate; name a "
                        f"{option('public_dataset')} to test it on, or leave out "
                        f"{option('evaluate_every')}")
    if options.tensorboard:
        summary_writer()
    return judge_rows(options, spec)


def judge(release: Release, public: Rows | None) -> dict[str, float]:
    """Judges a release by its samples, whose seeds are fixed: steps differ only in the generator.

    Returns:
        `synthetic_accuracy`: of an MLP that is trained on synthetic records and tested on other
        synthetic ones, high where classes differ; `spread`: see there, near 0 where a class has
        collapsed; `public_accuracy`: of the same MLP on `public` records. For a classifier only the
        last one, of itself, where there are public records.
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

    The records x are float [n, ...] in [0, 1], their labels [n].
    """
    by_class = [x[y == label] for label in np.unique(y)]
    return float(np.mean([np.sqrt(np.mean(np.var(part, 0, np.float64))) for part in by_class]))


def sample_grid(release: Release) -> np.ndarray:
    """Returns a picture uint8 [H, W, 3] of synthetic images, with a row for each class."""
    classes = release.spec.classes
    x, _ = release.sample(classes * COLUMNS, np.repeat(np.arange(classes), COLUMNS), seed=0)
    return np.asarray(plots.grid(x, classes))
