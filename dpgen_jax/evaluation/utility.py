"""How useful synthetic images are: the accuracy of classifiers trained on them, and the reverse.

A classifier is trained with a fixed schedule and judged once, after the last epoch: picking the
best epoch on the test images, as the published codes do, would fit the schedule to them. What may
be used to choose between models is `validation_accuracy` of `gen2real`, which is measured on
labelled images held out of the synthetic ones and so costs no privacy.

Images are [n, H, W] or [n, H, W, ch], uint8 or float in [0, 1]; labels are integers from 0.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from dpgen_jax.nets import classifiers as nets
from dpgen_jax.types import UserError

Images = tuple[np.ndarray, np.ndarray]
Synthetic = Images | Callable[[int, int], Images]
"""Images and labels, or a function of (n, seed) that draws them, such as `Release.sample`."""

CLASSIFIERS = {"cnn": nets.CNN, "mlp": nets.MLP}
TASKS = ("gen2real", "real2gen", "real2real")
VALIDATION_SHARE = 0.1
TEST_CHUNK = 256


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long and how a classifier is trained; nothing in it depends on what is measured.

    It runs whole epochs: `epochs`, or as many as are needed to make `min_steps` steps. The MLP,
    which learns more slowly and costs a fiftieth of the CNN, runs `mlp_times` as many.
    """

    name: str
    epochs: int
    min_steps: int
    mlp_times: int = 4
    batch: int = 128
    optimiser: str = "adam"
    """'adam', or 'sgd' with momentum 0.9."""
    learning_rate: float = 3e-3
    decay: str = "cosine"
    """'cosine' to zero over all steps, or 'constant'."""

    def epochs_for(self, net: Any, steps_per_epoch: int) -> int:
        """Epochs that are run."""
        epochs = max(self.epochs, math.ceil(self.min_steps / steps_per_epoch))
        return epochs * (self.mlp_times if isinstance(net, nets.MLP) else 1)

    def build(self, steps: int) -> optax.GradientTransformation:
        """The optimiser. Errors: UserError for an unknown name."""
        rates = {"cosine": lambda: optax.cosine_decay_schedule(self.learning_rate, steps),
                 "constant": lambda: self.learning_rate}
        optimisers = {"adam": optax.adam, "sgd": functools.partial(optax.sgd, momentum=0.9)}
        rate = _pick("decay", rates, self.decay)()
        return _pick("optimiser", optimisers, self.optimiser)(rate)


FAST = Schedule("fast", epochs=5, min_steps=400)
FULL = Schedule("full", epochs=50, min_steps=5000)
SCHEDULES = {s.name: s for s in (FAST, FULL)}


@dataclasses.dataclass(frozen=True)
class Scores:
    """Accuracies in [0, 1] after the last epoch, on the test images and on the images held out of
    the training set."""

    accuracy: float
    validation_accuracy: float


def accuracy(classifier: str, x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray,
             y_test: np.ndarray, schedule: Schedule = FAST, seed: int = 0) -> float:
    """Test accuracy in [0, 1] after the last epoch. Errors: as `score`."""
    return score(classifier, (x_train, y_train), (x_test, y_test), schedule, seed).accuracy


def score(classifier: str, train: Images, test: Images, schedule: Schedule = FAST,
          seed: int = 0) -> Scores:
    """Trains one classifier on nine tenths of `train` and judges it on the rest and on `test`.

    The same arguments give the same scores. Errors: UserError for images or labels that are
    malformed, not finite or out of range, for fewer than 2 training images or no test image, and
    for an unknown classifier.
    """
    module = _pick("classifier", CLASSIFIERS, classifier)
    x, y = _checked("training", *train, at_least=2)
    x_test, y_test = _checked("test", *test, at_least=1)
    if x.shape[1:] != x_test.shape[1:]:
        raise UserError(f"training images are {x.shape[1:]}, test images {x_test.shape[1:]}; both "
                        "need the same height, width and channels")
    order = np.random.default_rng(seed).permutation(len(y))
    n_held_out = max(1, round(VALIDATION_SHARE * len(y)))
    held_out, kept = order[:n_held_out], order[n_held_out:]
    net = module(int(max(y.max(), y_test.max())) + 1)
    params = fit_classifier(net, x[kept], y[kept], schedule, seed)
    return Scores(_judge(net, params, x_test, y_test),
                  _judge(net, params, x[held_out], y[held_out]))


def fit_classifier(net: Any, x: np.ndarray, y: np.ndarray, schedule: Schedule, seed: int) -> Any:
    """The weights after the last epoch. x [n, H, W, ch], y int32 [n] in 0..net.classes-1."""
    batch = min(schedule.batch, len(y))
    steps_per_epoch = len(y) // batch
    epochs = schedule.epochs_for(net, steps_per_epoch)
    epoch, init = _training(net, schedule, epochs * steps_per_epoch, batch)
    # This generator is several times faster than the default one at dropout's masks on CPUs.
    key = jax.random.key(seed % 2**32, impl="rbg")
    x, y = jnp.asarray(x), jnp.asarray(y)
    state = init(jax.random.fold_in(key, epochs), x[:1])
    for i in range(epochs):
        state = epoch(state, jax.random.fold_in(key, i), x, y)
    return state[0]


@functools.lru_cache(maxsize=8)
def _training(net: Any, schedule: Schedule, steps: int, batch: int) -> tuple[Callable, Callable]:
    """(epoch, init), compiled once for all seeds."""
    optimiser = schedule.build(steps)

    @jax.jit
    def init(key, x):
        params = net.init(key, _pixels(x), train=False)
        return params, optimiser.init(params)

    def loss(params, key, x, y):
        logits = net.apply(params, _pixels(x), train=True, rngs={"dropout": key})
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, y))

    @jax.jit
    def epoch(state, key, x, y):
        k_order, k_dropout = jax.random.split(key)
        steps = len(y) // batch
        order = jax.random.permutation(k_order, len(y))[:steps * batch].reshape(steps, batch)

        def step(state, inputs):
            params, moments = state
            rows, key = inputs
            grads = jax.grad(loss)(params, key, x[rows], y[rows])
            updates, moments = optimiser.update(grads, moments, params)
            return (optax.apply_updates(params, updates), moments), None

        return lax.scan(step, state, (order, jax.random.split(k_dropout, steps)))[0]

    return epoch, init


def _judge(net: Any, params: Any, x: np.ndarray, y: np.ndarray) -> float:
    """The share of right predictions."""
    chunk = min(TEST_CHUNK, len(y))
    pad = -len(y) % chunk
    x = np.pad(x, ((0, pad), *[(0, 0)] * 3)).reshape(-1, chunk, *x.shape[1:])
    y_padded = np.pad(y, (0, pad), constant_values=-1).reshape(-1, chunk)  # -1 is never predicted
    return int(_count_right(net, params, x, y_padded)) / len(y)


@functools.partial(jax.jit, static_argnums=0)
def _count_right(net, params, x, y):
    def right(chunk):
        logits = net.apply(params, _pixels(chunk[0]), train=False)
        return jnp.sum(jnp.argmax(logits, -1) == chunk[1])

    return jnp.sum(lax.map(right, (x, y)))


def _pixels(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x


def gen2real(synthetic: Synthetic, x_test: np.ndarray, y_test: np.ndarray, seeds: int = 3, *,
             n_samples: int = 10_000, classifiers: Sequence[str] = tuple(CLASSIFIERS),
             schedule: Schedule = FAST) -> dict[str, Any]:
    """Train on synthetic, test on real: the main figure of the papers.

    synthetic: arrays, all of which are used, or a function, which draws `n_samples` new ones for
    each seed. Returns {classifier: {"accuracy", "validation_accuracy"}}, each a `summary`; the
    second is computed from synthetic images alone. Errors: as `score`.
    """
    return _over_seeds(lambda seed: (draw(synthetic, n_samples, seed), (x_test, y_test)),
                       seeds, classifiers, schedule, ("accuracy", "validation_accuracy"))


def real2gen(synthetic: Synthetic, x_real: np.ndarray, y_real: np.ndarray, seeds: int = 3, *,
             n_samples: int = 10_000, classifiers: Sequence[str] = tuple(CLASSIFIERS),
             schedule: Schedule = FAST) -> dict[str, Any]:
    """Train on real, test on synthetic: do the images look like their labels? As `gen2real`."""
    return _over_seeds(lambda seed: ((x_real, y_real), draw(synthetic, n_samples, seed)),
                       seeds, classifiers, schedule, ("accuracy",))


def real2real(x_real: np.ndarray, y_real: np.ndarray, x_test: np.ndarray, y_test: np.ndarray,
              seeds: int = 3, *, classifiers: Sequence[str] = tuple(CLASSIFIERS),
              schedule: Schedule = FAST) -> dict[str, Any]:
    """Train on real, test on other real: the upper bound of `gen2real`."""
    return _over_seeds(lambda seed: ((x_real, y_real), (x_test, y_test)),
                       seeds, classifiers, schedule, ("accuracy",))


def utility(synthetic: Synthetic, test: Images, real: Images | None = None, seeds: int = 3, *,
            tasks: Sequence[str] = TASKS, n_samples: int = 10_000,
            classifiers: Sequence[str] = tuple(CLASSIFIERS), schedule: Schedule = FAST
            ) -> dict[str, Any]:
    """The utility part of metrics.json.

    test: real images that are in no training set; real: other real images to train on, of which as
    many are used as there are synthetic ones, and without which `real2gen` and `real2real` are
    left out. tasks: which of the three to do. Returns them as those functions do, and n_samples,
    n_test, seeds, schedule, and `not_covered_by_epsilon`: the keys that were computed from real
    images, which the privacy statement of a release does not cover and which nobody may use to
    choose between models. Errors: as `score`.
    """
    if not callable(synthetic):
        n_samples = len(synthetic[1])
    options = {"classifiers": classifiers, "schedule": schedule}
    out = {}
    if "gen2real" in tasks:
        out["gen2real"] = gen2real(synthetic, *test, seeds, n_samples=n_samples, **options)
    if real is not None:
        picked = np.random.default_rng(0).permutation(len(real[1]))[:n_samples]
        real = real[0][picked], real[1][picked]
        if "real2gen" in tasks:
            out["real2gen"] = real2gen(synthetic, *real, seeds, n_samples=n_samples, **options)
        if "real2real" in tasks:
            out["real2real"] = real2real(*real, *test, seeds, **options)
    seen = [f"{task}.{name}.accuracy" for task, found in out.items() for name in found]
    return out | {"n_samples": n_samples, "n_test": len(test[1]), "seeds": seeds,
                  "schedule": dataclasses.asdict(schedule), "not_covered_by_epsilon": seen}


def summary(values: Sequence[float]) -> dict[str, Any]:
    """{"mean", "std", "values"}; std is that of a sample (n - 1), 0 for a single value."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": std, "values": [float(v) for v in values]}


def draw(synthetic: Synthetic, n: int, seed: int) -> Images:
    """The synthetic images of a seed. Errors: UserError where they are not finite."""
    x, y = synthetic(n, seed) if callable(synthetic) else synthetic
    _check_finite("synthetic", np.asarray(x),
                  "the generator diverged: lower its learning rate and train again")
    return x, y


def _over_seeds(images, seeds, classifiers, schedule, metrics) -> dict[str, Any]:
    if seeds < 1:
        raise UserError(f"seeds must be at least 1, got {seeds}")
    found = {name: [] for name in classifiers}
    for seed in range(seeds):
        train, test = images(seed)
        for name in classifiers:
            found[name].append(score(name, train, test, schedule, seed))
    return {name: {metric: summary([getattr(s, metric) for s in scores]) for metric in metrics}
            for name, scores in found.items()}


def _checked(part: str, x: Any, y: Any, at_least: int) -> Images:
    x, y = np.asarray(x), np.asarray(y)
    x = x[..., None] if x.ndim == 3 else x
    if x.ndim != 4 or x.shape[3] not in (1, 3):
        raise UserError(f"{part} images have shape {x.shape}, expected [n, H, W] or [n, H, W, ch] "
                        "with 1 or 3 channels")
    if y.shape != x.shape[:1] or not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"{part} labels are {y.dtype}{list(y.shape)} for {len(x)} images; expected "
                        "one integer an image")
    if len(y) < at_least:
        raise UserError(f"{len(y)} {part} images; at least {at_least} needed")
    if y.min() < 0:
        raise UserError(f"{part} label {y.min()} is negative; number the classes from 0")
    if x.dtype == np.uint8:
        return x, y.astype(np.int32)
    if not np.issubdtype(x.dtype, np.floating):
        raise UserError(f"{part} images are {x.dtype}, expected uint8 or float in [0, 1]")
    _check_finite(part, x, "leave them out")
    if x.min() < 0 or x.max() > 1:
        raise UserError(f"{part} images are float in [{x.min():.3g}, {x.max():.3g}], expected "
                        "[0, 1]; rescale them, or pass uint8")
    return x.astype(np.float32), y.astype(np.int32)


def _check_finite(part: str, x: np.ndarray, mend: str) -> None:
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        bad = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))
        raise UserError(f"{len(bad)} {part} images hold NaN or infinite values, the first at row "
                        f"{bad[0]}; {mend}")


def _pick(what: str, known: dict[str, Any], name: str) -> Any:
    if name not in known:
        raise UserError(f"unknown {what} {name!r}; known: {', '.join(known)}")
    return known[name]
