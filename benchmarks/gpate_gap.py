r"""Where G-PATE loses accuracy, step by step from mean gradients to what its authors published.

    python -m benchmarks.gpate_gap --dataset idx:mnist              # few teachers, on two cores
    python -m benchmarks.gpate_gap --dataset idx:mnist --teachers 4000 --networks published \
        --classifier-steps 1280 --runs 3 --out gap.json             # the same at full scale

Every setting is the preset mnist-eps1-code (or that of Fashion-MNIST) with the fields of `SETTINGS`
changed, in the 232 steps after which the paper stops. With fewer teachers than the preset's 4,000
the noise shrinks by the same factor, so that it is the published share of the votes; each teacher
keeps 15 records, unless a setting says otherwise. `--networks small` narrows both networks.

A CNN learns from 10,000 synthetic images, and is tested on 2,000 validation records, taken from the
training part, after 20 of its steps and whenever these have doubled. The record has the accuracy
after the last of them and the best, which is what a paper reports that chooses the epoch by its
test. Each setting also reports three means over its steps: the cosine between the move of a fake
and the mean gradient of the teachers, the share of votes in the fullest bin, and the share of
queries that were answered. Noise is seeded: nothing here promises privacy. The record is written
after every run, and the same command goes on where it stopped.

The record also has what the published noise makes of the votes of `PAPERS`, the trainings of 4,000
and 2,000 teachers: how often the bin with most votes is released, and how often the second one.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import common
from benchmarks.validation_part import split
from dpgen_jax import data, presets
from dpgen_jax.aggregation import teacher_votes
from dpgen_jax.cli import terminal
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.types import Array, Method, PyTree, Records
from dpgen_jax.data.base import Dataset
from dpgen_jax.evaluation import networks
from dpgen_jax.evaluation.results import summary
from dpgen_jax.methods import gpate
from dpgen_jax.nets.classifiers import CNN
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet

STEPS = 232
"""The steps after which the paper's run at epsilon 1 stops (appendix G)."""
RECORDS = 15
"""Records of a teacher, of the paper's 4,000."""
VALIDATION, IMAGES = 2_000, 10_000
FIRST_TEST = 20
"""Steps of the classifier after which it is first tested."""
SMALL = {"generator": GeneratorNet(50, 128, 16), "discriminator": DiscriminatorNet(8, 16, 32)}

Settings = dict[str, dict[str, Any]]
_SILENT = {"sigma": 0.0}
_ALL = {"threshold": 0.01}
SETTINGS: Settings = {
    "mean gradients": {**_SILENT, "aggregate": "sum", "projection": 0},
    "votes on pixels": {**_SILENT, "projection": 0},
    "mean of projected gradients": {**_SILENT, "aggregate": "sum"},
    "votes on projections": _SILENT,
    "votes, noise of the answer": {**_ALL, "sigma_ratio": 1e-3},
    "published": {},
    "votes, every query answered": {**_SILENT, **_ALL},
    "votes, 100 coordinates": {**_SILENT, "projection": 100},
    "votes, 150 records a teacher": {**_SILENT, "records": 150},
    "votes, 5 teacher steps a round": {**_SILENT, "d_steps": 5, "d_steps_first": 5},
    "votes, 3 times the steps": {**_SILENT, "steps": 3 * STEPS},
    "votes, shared optimisers": {**_SILENT, "sharing": 40},
    "published, shared optimisers": {"sharing": 40},
    "published, noise of epsilon 10": {"sigma": 0.05, "sigma_ratio": 6.0},
    "published, mean of the histogram": {"aggregate": "mean"},
    "published, 5 teacher steps a round": {"d_steps": 5, "d_steps_first": 5},
    "published, 3 times the steps": {"steps": 3 * STEPS},
}
"""The differences from the published settings. `sigma` is a share of the teachers, `records` the
number of records of each, and `sharing` the number of teachers that take turns with the state of
one optimiser, as in the authors' code: then a record moves the answers of many teachers, and no
epsilon holds. The others are fields of the configuration."""


PAPERS = ("papers-gpate-mnist-mnist-eps1-code-5e2d47132e",
          "papers-gpate-mnist-mnist-eps10-code-5bb8757b3a")
DRAWS = 200_000


def noisy_winners(stem: str) -> dict[str, float]:
    """Return how often each bin wins, by simulation, with the mean shares of the votes of a run.

    The second bin is taken to be at the other end, as where votes are signs; the mean of a released
    coordinate is then a share of the clip. Without noise, all answered, it is `without_noise`.
    """
    found = common.results(stem)
    config, votes = found["run"]["config"], found["votes"]
    first, second = votes["most agreed bin"], votes["second"]
    shares = np.full(config["bins"], (1 - first - second) / (config["bins"] - 2))
    shares[0], shares[-1] = first, second
    sigma = config["sigma"] / config["teachers"]
    noise = np.random.default_rng(0).normal(0, sigma, (DRAWS, config["bins"]))
    winners = np.argmax(shares + noise, 1)
    middles = np.linspace(1, -1, 2 * config["bins"] + 1)[1::2]
    return {"first": float(np.mean(winners == 0)),
            "second": float(np.mean(winners == config["bins"] - 1)),
            "answered": votes["answered"], "steps": found["privacy"]["steps"],
            "mean": float(votes["answered"] * np.mean(middles[winners])),
            "without_noise": float(middles[0])}


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    script = common.Script("gpate_gap", __doc__)
    script.add_argument("--dataset", default="idx:mnist")
    script.add_argument("--preset", default="mnist-eps1-code")
    script.add_argument("--teachers", type=int, default=40)
    script.add_argument("--networks", choices=("small", "published"), default="small")
    script.add_argument("--settings", nargs="+", default=list(SETTINGS), metavar="NAME",
                        help="of these; all of them if left out: " + "; ".join(SETTINGS))
    script.add_argument("--runs", type=int, default=1, help="trainings of each setting")
    script.add_argument("--classifier-steps", type=int, default=160)
    args = script.begin(argv)
    if unknown := [name for name in args.settings if name not in SETTINGS]:
        raise UserError(f"--settings {unknown[0]}: choose from {'; '.join(SETTINGS)}")
    args.script = script
    return args


def configured(args: argparse.Namespace, fields: dict[str, Any]) -> tuple[gpate.Config, int, int]:
    """Return the configuration of a setting, the records of a teacher, and who share moments."""
    preset = presets.get("gpate", args.preset)[1].config
    changed = {"steps": STEPS, "sigma": preset.sigma / preset.teachers, **fields}
    records, sharing = changed.pop("records", RECORDS), changed.pop("sharing", 1)
    changed["sigma"] *= args.teachers
    nets = SMALL if args.networks == "small" else {}
    return dataclasses.replace(preset, teachers=args.teachers, **nets, **changed), records, sharing


def dealt(dataset: Dataset, teachers: int, each: int) -> Records:
    """Return the records of each teacher, [teachers, each, ...]."""
    needed = teachers * each
    if needed > len(dataset.y_train):
        raise UserError(f"{teachers} teachers with {each} records need {needed:,}; the training "
                        f"part without the validation records has {len(dataset.y_train):,}")
    return Records(dataset.x_train[:needed].reshape(teachers, each, *dataset.spec.shape),
                   dataset.y_train[:needed].reshape(teachers, each))


def train(config: gpate.Config, dataset: Dataset, records: Records, sharing: int, seed: int
          ) -> tuple[PyTree, Method, dict[str, Any]]:
    """Train by the functions of the method, without the machinery of a run.

    Returns:
      The model, its method, and the means over steps that the docstring of the module names.
    """
    method = gpate.build(config, dataset.spec, Runtime(moments="float32"))
    # Its answers are the gradients themselves.
    bare = gpate.build(dataclasses.replace(config, aggregate="sum", projection=0), dataset.spec)
    mechanism = method.mechanism
    rng, root = np.random.default_rng(seed), jax.random.key(seed)

    def one(carry: Any, inputs: Any) -> Any:
        total, gradients, optimisers, key, query = carry
        params, part, number = inputs
        key = jax.random.fold_in(key, number)
        place = number % (config.teachers // sharing)
        state = jax.tree.map(lambda moments: moments[place], optimisers)
        unit = method.learn(key, (params, state), part, query)
        optimisers = jax.tree.map(lambda moments, new: moments.at[place].set(new), optimisers,
                                  unit[1])
        mine = bare.answer(key, unit, part, query)
        message = teacher_votes.project(query.question, mine) if config.projection else mine
        total += mechanism.bound.project(key, message)
        return (total, gradients + mine, optimisers, key, query), unit[0]

    @jax.jit
    def round_of(number: Array, public: PyTree, units: PyTree, records: Records, bits: Array
                 ) -> Any:
        key = jax.random.fold_in(root, number)
        query = method.ask(key, public)
        start = (jnp.zeros(mechanism.shape, jnp.int32),
                 jnp.zeros((config.batch, int(np.prod(dataset.spec.shape)))), units[1], key, query)
        (votes, gradients, optimisers, *_), params = jax.lax.scan(
            one, start, (units[0], records, jnp.arange(config.teachers)))
        outcome = mechanism.decide(votes, bits)
        value = mechanism.value(outcome)
        public, _ = method.absorb(key, public, query, value)
        move = teacher_votes.reconstruct(query.question, value) if config.projection else value
        return public, (params, optimisers), {
            "cosine": _cosine(move, gradients), **_counted(config, votes),
            "answered": jnp.mean(mechanism.answered(outcome)) if config.aggregate == "gnmax"
            else jnp.ones(())}

    public = jax.jit(method.init)(root)
    params, moments = jax.jit(jax.vmap(method.init_unit))(jax.random.split(root, config.teachers))
    units = params, jax.tree.map(lambda each: each[:config.teachers // sharing], moments)
    found = []
    for number in range(config.steps or 0):
        bits = rng.integers(0, 2**32, mechanism.bits_shape, np.uint32)
        public, units, row = round_of(number, public, units, records, bits)
        found.append(row)
    means = {name: float(np.mean([row[name] for row in found])) for name in found[0]}
    return method.finalize(root, public), method, means


def _cosine(move: Array, gradients: Array) -> Array:
    """The mean over fakes of the cosine between two [B, D]; 0 where a fake does not move."""
    lengths = jnp.linalg.norm(move, axis=1) * jnp.linalg.norm(gradients, axis=1)
    return jnp.mean(jnp.sum(move * gradients, 1) / jnp.maximum(lengths, 1e-30))


def _counted(config: gpate.Config, votes: Array) -> dict[str, Array]:
    """The mean share of the votes in the fullest bin of a histogram, where there are any."""
    if config.aggregate not in ("gnmax", "mean"):
        return {}
    counts = votes.reshape(-1, config.bins)
    return {"fullest_bin": jnp.mean(jnp.max(counts, 1)) / config.teachers}


Images = tuple[np.ndarray, np.ndarray]


def curve(images: Images, real: Images, classes: int, lengths: list[int], seed: int
          ) -> list[float]:
    """Return the accuracy of a CNN on real images after these numbers of steps of one training."""
    net, optimiser = CNN(classes), optax.adam(1e-3)
    x, y = map(jnp.asarray, images)
    key = jax.random.key(seed, impl="rbg")
    params = net.init(key, x[:1], train=False)
    state = optimiser.init(params)

    @jax.jit
    def step(number: Array, params: PyTree, state: Any) -> tuple[PyTree, Any]:
        k_rows, k_dropout = jax.random.split(jax.random.fold_in(key, number))
        rows = jax.random.randint(k_rows, (128,), 0, len(y))

        def loss(params: PyTree) -> Array:
            logits = net.apply(params, x[rows], train=True, rngs={"dropout": k_dropout})
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, y[rows]))

        updates, state = optimiser.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    found = []
    for number in range(lengths[-1]):
        params, state = step(number, params, state)
        if number + 1 in lengths:
            guess = networks.predict(net, params, real[0]).argmax(-1)
            found.append(float(np.mean(guess == real[1])))
    return found


def lengths_of(steps: int) -> list[int]:
    """Return the steps after which the classifier is tested, the last of them `steps`."""
    doubled = [FIRST_TEST * 2**n for n in range(20)]
    return [length for length in doubled if length < steps] + [steps]


def measured(args: argparse.Namespace, dataset: Dataset, name: str, seed: int) -> dict[str, Any]:
    """Train one setting, and return what came out."""
    config, each, sharing = configured(args, SETTINGS[name])
    records = dealt(dataset, config.teachers, each)
    watch = common.Stopwatch()
    model, method, means = train(config, dataset, records, sharing, seed)
    seconds = watch.seconds()
    assert method.sample is not None
    labels = np.arange(IMAGES, dtype=np.int32) % dataset.spec.classes
    draw = jax.jit(method.sample)
    images = np.concatenate([draw(model, jax.random.key(i), part)
                             for i, part in enumerate(np.split(labels, IMAGES // 1000))])
    assert dataset.x_test is not None and dataset.y_test is not None
    real = dataset.x_test[:VALIDATION], dataset.y_test[:VALIDATION]
    accuracies = curve((images, labels), real, dataset.spec.classes,
                       lengths_of(args.classifier_steps), seed)
    return {"seconds": seconds, "cpu_seconds": watch.cpu_seconds(), **means,
            "accuracies": accuracies}


def row(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a setting's runs, and over them the last and the best accuracy, and each mean."""
    found = {field: summary([run[field] for run in runs])
             for field in ("cosine", "fullest_bin", "answered") if field in runs[0]}
    found["last"] = summary([run["accuracies"][-1] for run in runs])
    found["best"] = summary([max(run["accuracies"]) for run in runs])
    return {"name": name, "changed": SETTINGS[name], "runs": runs} | found


def main(argv: Sequence[str] | None = None) -> None:
    args = arguments(argv)
    script = args.script
    dataset = split(data.load(args.dataset), 1 / 6)
    stem = f"gpate-gap-{dataset.name}"
    asked = {"dataset": args.dataset, "preset": args.preset, "teachers": args.teachers,
             "networks": args.networks, "classifier_steps": args.classifier_steps}
    earlier = script.earlier(stem)
    known = ({found["name"]: found["runs"] for found in earlier["rows"]
              if found["changed"] == SETTINGS.get(found["name"])}
             if earlier.get("settings") == asked else {})
    winners = {stem: noisy_winners(stem) for stem in PAPERS}

    def save() -> None:
        rows = [row(each, known[each]) for each in SETTINGS if known.get(each)]
        script.save({"settings": asked, "rows": rows, "winners": winners}, range(args.runs), stem)

    for seed in range(args.runs):
        for name in args.settings:
            runs = known.setdefault(name, [])
            if len(runs) > seed:
                continue
            started = time.perf_counter()
            runs.append(measured(args, dataset, name, seed))
            save()
            print(f"{name}: {runs[-1]}, {time.perf_counter() - started:.0f} s", flush=True)
    save()


if __name__ == "__main__":
    terminal.main(main)
