r"""A debugging task: whether samples show that some clients' images are inverted.

    python -m benchmarks.federated                                   # MNIST, 200 simulated clients
    python -m benchmarks.federated --dataset femnist:fed_emnist_train.h5 --classes 36 --out runs/f
    python -m benchmarks.federated --dataset femnist:fed_emnist_train.h5 --classes 36 --out runs/f \
        --methods fedavg_gan --presets fedavg_gan=femnist-published --noise .01 .1 .5

Task of Augenstein et al. 2020 (arXiv 1911.06679), as GS-WGAN runs it: one generator is trained over
clients that are believed to be sound, one over suspect ones, of whom most invert their images
(`benchmarks.federated`). Nobody looks at a client's records; whoever looks at the two generators'
samples should see which is which. The record, results/federated-DATA.json, has for each run the
mean brightness of samples, Inception Score and Frechet distances, over all records and by client,
the bytes that a client receives and sends in one step, and what the run costs, proven and as the
paper counts it; a picture beside it has samples of all. With --noise nothing is promised: the noise
multipliers are the papers', and the cost is what they amount to. With --out the script can be
stopped and started again: it goes on with what is there.
"""

import argparse
import dataclasses
import itertools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.serialization import msgpack_restore, msgpack_serialize, to_state_dict
from matplotlib.figure import Figure

from benchmarks import common, training
from benchmarks.client_likeness import by_client
from dpgen_jax import data, methods, presets
from dpgen_jax.accountant import composition, events
from dpgen_jax.accountant.events import ideal_noise
from dpgen_jax.accountant.ledger import account, read
from dpgen_jax.cli import terminal
from dpgen_jax.core.config import Budget, digest, to_json
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.run_folder import RunFolder, read_json, write_json
from dpgen_jax.core.types import EMPTY
from dpgen_jax.data import clients, without_empty_slots
from dpgen_jax.data.clients import Classifier, Range
from dpgen_jax.evaluation import fidelity, pretrained
from dpgen_jax.evaluation.assessment import Assessment
from dpgen_jax.evaluation.results import Real
from dpgen_jax.run import lifecycle, planning

# The two federations of the debugging task: clients believed to be sound, and suspect ones.

CHOICES = ("halves", "private", "public", "bought")
"""How clients are chosen: by number alone; by a CNN trained on their records, as the papers do,
which no epsilon covers; by a CNN trained on public images; by one trained on what a share of
epsilon bought."""
FAULTY = {"halves": 0.8, "private": 0.5, "public": 0.5, "bought": 0.5}
"""The share of clients with the fault: of the suspect half, or of all clients."""
READER_SAMPLES = 10_000
"""Synthetic images from which a bought CNN learns."""


@dataclasses.dataclass(frozen=True)
class Federation:
    """The clients of one run."""

    name: str
    dataset: data.Dataset
    clients: int
    faulty: int


@dataclasses.dataclass(frozen=True)
class Options:
    """How clients are chosen, and what that may cost."""

    choice: str
    accuracy: tuple[float, float] | None = None
    """The most of suspect clients and the least of sound ones; None for the quartiles, which are
    read from the clients' records."""
    public: data.Dataset | None = None
    """The images that a public CNN learns from."""
    epsilon: float = 1.0
    delta: float = 1e-5
    reader: Path | None = None
    """The folder of the run that pays for a bought CNN, by this preset of Fed-Avg GAN."""
    preset: str = "femnist"
    course: fidelity.Course = fidelity.FULL


def named(dataset: data.Dataset, count: int) -> data.Dataset:
    """Return the data set with clients: those that it names, or `count` simulated ones."""
    return dataset if dataset.clients is not None else clients.split(dataset, count, None, seed=0)


def federations(dataset: data.Dataset, options: Options, cnn: fidelity.Judge) -> dict[str,
                                                                                      Federation]:
    """Choose the clients of both federations."""
    if options.choice == "halves":
        return _halves(dataset, FAULTY["halves"])
    with_fault, faulty = clients.flipped(dataset, FAULTY[options.choice], seed=0)
    worlds = {"sound": (dataset, faulty[:0]), "suspect": (with_fault, faulty)}
    if options.choice == "private":
        return _private(worlds, options, _reads(cnn))
    if options.accuracy is None:
        raise UserError("without a look at private records the accuracies by which clients are "
                        "chosen must be named: pass --accuracy LOW HIGH")
    reads, origin, rows = _reader(dataset, options)
    ranges = _ranges(*options.accuracy)
    return {name: _federation(name, clients.emptied(world, reads, ranges[name], origin, rows),
                              faulty) for name, (world, faulty) in worlds.items()}


def _halves(dataset: data.Dataset, share: float) -> dict[str, Federation]:
    """Deal clients to both by a public seed; some of the second half invert their images."""
    count = int(dataset.clients.max()) + 1
    first = np.random.default_rng(0).permutation(count) < count // 2
    suspect, faulty = clients.flipped(clients.part_of(dataset, ~first), share, seed=0)
    return {"sound": _federation("sound", clients.part_of(dataset, first), faulty[:0]),
            "suspect": _federation("suspect", suspect, faulty)}


def _private(worlds: dict[str, tuple[data.Dataset, np.ndarray]], options: Options,
             reads: Classifier) -> dict[str, Federation]:
    """Choose as the papers do, which every run states as not covered."""
    accuracy = {name: clients.accuracies(world, reads) for name, (world, _) in worlds.items()}
    low, high = options.accuracy or np.nanquantile(accuracy["sound"], (0.25, 0.75)).tolist()
    result = {}
    for name, (world, faulty) in worlds.items():
        taking_part = _ranges(low, high)[name]
        stays = taking_part.contains(accuracy[name])
        part = clients.left_out(world, stays, "those whose records a classifier reads with "
                                f"an accuracy {taking_part}")
        result[name] = Federation(name, part, int(stays.sum()), int(stays[faulty].sum()))
    return result


def _ranges(low: float, high: float) -> dict[str, Range]:
    """Return the accuracies of both federations."""
    return {"sound": Range(least=high), "suspect": Range(most=low)}


def _federation(name: str, part: data.Dataset, faulty: np.ndarray) -> Federation:
    """Count the clients with records, all told and faulty."""
    present = np.unique(part.clients[part.y_train != EMPTY])
    return Federation(name, part, len(present), int(np.isin(faulty, present).sum()))


def _reads(cnn: fidelity.Judge) -> Classifier:
    return lambda x: cnn.see(x)[1].argmax(1)


def _reader(dataset: data.Dataset, options: Options
            ) -> tuple[Classifier, str, tuple[dict[str, Any], ...]]:
    """Return a classifier that no private record decided about, its origin, and what it cost."""
    if options.choice == "public":
        public = options.public
        if public is None:
            raise UserError("a public classifier needs public images: pass --public DATASET")
        if public.spec != dataset.spec or public.x_test is None:
            raise UserError(f"{public.name} is {public.spec}, the clients' records {dataset.spec}; "
                            "public images need the same schema, and a held-out part")
        cnn = fidelity.train_judge((public.x_train, public.y_train), (public.x_test, public.y_test),
                                   options.course)
        return _reads(cnn), f"trained on {public.name}, which is public", ()
    release, rows = _bought(dataset, options)
    x, y = release.arrays(READER_SAMPLES, seed=0)
    cut = READER_SAMPLES // 10
    cnn = fidelity.train_judge((x[cut:], y[cut:]), (x[:cut], y[:cut]), options.course)
    return _reads(cnn), (f"trained on samples of a release of Fed-Avg GAN on these clients, for "
                         f"epsilon {options.epsilon:g}"), rows


def _bought(dataset: data.Dataset, options: Options
            ) -> tuple[lifecycle.Release, tuple[dict[str, Any], ...]]:
    """Train Fed-Avg GAN over all clients; also return the events that this costs."""
    config = presets.get("fedavg_gan", options.preset)[1].config
    everyone, config = planning.federated(dataset, config)
    release = trained(lifecycle.Resolved(
        "fedavg_gan", options.preset, config, Budget(options.epsilon, options.delta),
        out=options.reader), everyone)
    spent = account(read(RunFolder(options.reader).ledger)).spent()
    return release, tuple(events.to_json(spent))


def trained_once(path: Path, train: Callable[[], fidelity.Judge]) -> fidelity.Judge:
    """Return the CNN of a file, or train it and write the file: a choice by it stays the same.

    Args:
      path: The file; it is as private as the records that the CNN learnt from.
    """
    if not path.exists():
        cnn = train()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_bytes(msgpack_serialize(to_state_dict(vars(cnn))))
        part.replace(path)
    return fidelity.Judge(**msgpack_restore(path.read_bytes()))


def trained(request: lifecycle.Resolved, dataset: data.Dataset) -> lifecycle.Release:
    if training.is_finished(request.out):
        return lifecycle.load(request.out)
    with training.unfinished(request.out):
        return training.run(dataclasses.replace(request, accept_uncovered=True), dataset)


PRESETS = {"gswgan": "federated", "fedavg_gan": "femnist"}
READER_SHARE = 0.5
"""The share of epsilon that pays for a bought classifier."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One run of the benchmark; without a noise multiplier that follows from epsilon."""

    federation: str
    method: str
    preset: str
    noise: float | None

    @property
    def title(self) -> str:
        """Return the label of a picture."""
        noise = "" if self.noise is None else f", noise {self.noise:g}"
        return f"{self.method}, {self.federation} clients{noise}"


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    script = common.Script("federated", __doc__, record="--json")
    script.add_argument("--dataset", default="idx:mnist")
    script.add_argument("--classes", type=int, help="of a data set that leaves a choice")
    script.add_argument("--image-size", type=int)
    script.add_argument("--clients", type=int, default=200,
                        help="to simulate, where the data set names none")
    script.add_argument("--choice", choices=CHOICES,
                        help="how clients are chosen; private, as the papers do, where the data "
                        "set names them, else halves")
    script.add_argument("--accuracy", type=float, nargs=2, metavar=("LOW", "HIGH"),
                        help="the most of suspect clients and the least of sound ones")
    script.add_argument("--public", help="the data set of --choice public")
    script.add_argument("--federations", nargs="+", default=["sound", "suspect"],
                        choices=("sound", "suspect"))
    script.add_argument("--methods", nargs="+", default=["gswgan"], choices=PRESETS)
    script.add_argument("--presets", nargs="+", default=[], metavar="METHOD=NAME")
    script.add_argument("--epsilon", type=float, default=10.0)
    script.add_argument("--noise", type=float, nargs="+",
                        help="noise multipliers in the place of an epsilon")
    script.add_argument("--steps", type=int, help="those of the preset if left out")
    script.add_argument("--samples", type=int, default=4000)
    script.add_argument("--fast", action="store_true", help="a CNN that is trained in a minute")
    script.add_argument("--inception", type=Path, help="weights for the FID of the papers")
    script.add_argument("--out", type=Path, help="run folders; temporary ones if left out")
    args = script.begin(argv)
    args.script = script
    return args


def loaded(args: argparse.Namespace) -> data.Dataset:
    dataset = data.load(args.dataset, classes=args.classes, image_size=args.image_size)
    if dataset.x_test is None:
        raise UserError(f"{dataset.name} has no held-out part, on which samples are measured: put "
                        "the file of the test records beside that of the training records")
    return named(dataset, args.clients)


def cases(args: argparse.Namespace) -> list[Case]:
    named = PRESETS | dict(text.partition("=")[::2] for text in args.presets)
    return [Case(federation, method, named[method], noise) for method, noise, federation in
            itertools.product(args.methods, args.noise or [None], args.federations)]


def options(args: argparse.Namespace, dataset: data.Dataset, root: Path) -> Options:
    """Decide how clients are chosen."""
    choice = args.choice or ("halves" if dataset.simulated else "private")
    public = None if args.public is None else data.load(
        args.public, classes=args.classes, image_size=args.image_size)
    return Options(
        choice, args.accuracy and tuple(args.accuracy), public, args.epsilon * READER_SHARE,
        delta(dataset), root / "reader", course=fidelity.COURSES["fast" if args.fast else "full"])


def delta(dataset: data.Dataset) -> float:
    """Return a delta below one over the number of all clients."""
    return min(1e-5, 0.1 / (int(dataset.clients.max()) + 1))


def request(case: Case, args: argparse.Namespace, dataset: data.Dataset, root: Path
            ) -> tuple[lifecycle.Resolved, data.Dataset]:
    """Return what is asked for, in a folder whose name changes with it, and the data set."""
    changed = {"steps": args.steps, "sigma": case.noise}
    config = dataclasses.replace(presets.get(case.method, case.preset)[1].config, **{
        name: value for name, value in changed.items() if value is not None})
    part, config = planning.federated(dataset, config)
    budget = Budget(args.epsilon if case.noise is None else math.inf, delta(dataset))
    known = digest([args.dataset, args.choice, case, config, budget, part.spec, part.notes, [
        entry.what for entry in part.uncovered]])[:10]
    name = f"{case.method}-{case.federation}-{known}"
    return lifecycle.Resolved(case.method, case.preset, config, budget, out=root / name), part


def bytes_of_a_step(method: str, config: Any, spec: Any) -> dict[str, int]:
    """Return the bytes that one client receives and sends in one step, as plain arrays."""
    built = methods.get(method).build(config, spec)
    query = jax.eval_shape(lambda key: built.ask(key, built.init(key)), jax.random.key(0))
    down = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(query))
    return {"to_a_client": down, "from_a_client": 4 * int(np.prod(built.mechanism.shape))}


def cost(method: str, config: Any, spec: Any, delta: float) -> dict[str, Any]:
    """Return what the noise amounts to, proven and by the paper's formula."""
    spent = methods.get(method).mechanism(config, spec).events(config.steps)
    paper = methods.published(method, config, delta)
    return {"delta": delta,
            "epsilon_of_ideal_noise": composition.epsilon_of(ideal_noise(spent), delta),
            "as_published": paper and {"epsilon": paper.epsilon(config.steps),
                                       "epsilon_classic": paper.epsilon(config.steps, "classic"),
                                       "formula": paper.formula}}


def measured(case: Case, args: argparse.Namespace, federation: Federation,
             dataset: data.Dataset, cnn: fidelity.Judge, root: Path) -> tuple[dict, np.ndarray]:
    request_of_run, part = request(case, args, federation.dataset, root)
    release = trained(request_of_run, part)
    x, y = release.arrays(args.samples, seed=0)
    shown = x[np.argsort(y, kind="stable")][::max(1, args.samples // 100)][:100]
    how = digest([args.samples, args.fast, str(args.inception)])[:6]
    path = request_of_run.out.with_name(f"{request_of_run.out.name}.{how}.json")
    if not path.exists():
        write_json(path, to_json(_row(case, args, federation, dataset, cnn, release, (x, y))))
    return read_json(path), shown


def _row(case: Case, args: argparse.Namespace, federation: Federation,
         dataset: data.Dataset, cnn: fidelity.Judge, release: lifecycle.Release,
         samples: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """Measure a release."""
    features = None
    if args.inception is not None:
        weights = pretrained.INCEPTION.load(args.inception)
        features = lambda x: pretrained.INCEPTION.features(weights, x)  # noqa: E731
    real, part = without_empty_slots(dataset), without_empty_slots(federation.dataset)
    row = dataclasses.asdict(case) | {
        "clients": federation.clients, "inverted_clients": federation.faulty,
        "mean_brightness_of_samples": float(samples[0].mean() / 255),
        "bytes_of_a_step": bytes_of_a_step(case.method, release.config, release.spec),
        "cost": cost(case.method, release.config, release.spec, 1 / release.config.n_clients),
        "privacy": release.privacy,
        "fidelity": Assessment.of([fidelity.fidelity(
            [samples], Real(real.spec, (dataset.x_test, dataset.y_test),
                            (real.x_train, real.y_train)),
            cnn, features and fidelity.Inception(features))], {}).json()["fidelity"]}
    row |= by_client(samples[0], part.x_train, part.y_train, part.clients, cnn, features)
    row.pop("not_covered_by_epsilon")
    if case.federation == "sound":
        row["gen2real_cnn"] = common.utility_of(
            release, dataset, ("gen2real",), 1, args.samples, classifiers=("cnn",)
        )["gen2real"]["cnn"]
    return row


def picture(grids: dict[str, np.ndarray], path: Path) -> None:
    """Draw one panel of samples for each run, on one grey scale."""
    columns = min(3, len(grids))
    rows = -(-len(grids) // columns)
    figure = Figure(figsize=(4.5 * columns, 4.9 * rows), layout="constrained")
    for axes, (name, x) in zip(np.ravel(figure.subplots(rows, columns)), grids.items(),
                               strict=False):
        tiles = np.resize(x, (100, *x.shape[1:3])).reshape(10, 10, *x.shape[1:3])
        axes.imshow(tiles.transpose(0, 2, 1, 3).reshape(10 * x.shape[1], -1), cmap="gray",
                    vmin=0, vmax=255)
        axes.set_title(name)
    for axes in figure.axes:
        axes.set_axis_off()
    figure.savefig(path, dpi=80)


def run(args: argparse.Namespace, root: Path) -> Path:
    """Run all cases; write the record after each."""
    dataset, course = loaded(args), fidelity.COURSES["fast" if args.fast else "full"]
    real = without_empty_slots(dataset)
    kept = root / f"cnn-{digest([args.dataset, args.classes, args.image_size, args.fast])[:10]}"
    cnn = trained_once(kept, lambda: fidelity.train_judge(
        (real.x_train, real.y_train), (dataset.x_test, dataset.y_test), course, log=print))
    chosen = options(args, dataset, root)
    both = federations(dataset, chosen, cnn)
    stem, rows, grids = f"federated-{dataset.name}", [], {}
    for case in cases(args):
        row, grids[case.title] = measured(case, args, both[case.federation], dataset, cnn, root)
        rows.append(row)
        results = {"choice": chosen.choice, "runs": rows,
                   "brightness_of_the_data": float(real.x_train.mean() / 255)}
        picture(grids, args.script.save(results, [0], stem).with_suffix(".png"))
    return args.script.path(stem)


def main(argv: list[str]) -> None:
    args = arguments(argv)
    terminal.use_all_cores()
    with tempfile.TemporaryDirectory() as scratch:
        print(run(args, args.out or Path(scratch)))


if __name__ == "__main__":
    terminal.main(main)
