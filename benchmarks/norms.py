r"""Norms of gradients before they are clipped, over training: GS-WGAN, Figures 2 and A1.

    python -m benchmarks.norms --dataset idx:mnist --steps 150 --critics 60
    nohup python -m benchmarks.norms --dataset idx:mnist --gswgan mnist-published --sizes paper &

Four systems, each once as it is (clipped, with the noise of its preset) and once with gradients
that are neither clipped nor noised: a DP-SGD GAN with the standard loss and one with the
Wasserstein loss and clipped weights, whose records answer with gradients of all weights of the
discriminator; and GS-WGAN with its gradient penalty and without, whose critics answer with
gradients at fakes. Systems and networks are the library's own; their rounds run in plain JAX here,
in float32, so that nothing needs to be clipped.

Who may know the norms: those of records and of private critics are as private as the records. They
are written here because the images of a benchmark are public, and belong to no release. The
discriminator of DP-SGD is itself released, so the norm of its gradient at a fake costs nothing
("on fakes"); at a fake, no critic of GS-WGAN may be looked at.

A run can be stopped and started again with the same flags: finished variants are kept, and the
others go on from their last checkpoint in OUT. The record and the picture are
results/norms-DATA-SIZES.json and .png.
"""

import argparse
import dataclasses
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from benchmarks import common
from dpgen_jax import data, methods, presets
from dpgen_jax.cli import terminal
from dpgen_jax.core.config import Budget, Runtime, digest, to_json
from dpgen_jax.core.types import Array, ImageSpec, Method, PyTree, Records, UserError
from dpgen_jax.methods import gswgan
from dpgen_jax.run.calibrate_config import complete, with_records

# The training that `benchmarks.norms` follows: rounds in plain JAX, with every unit's norms.

BINS = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 81)])
"""edges of the histograms"""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
CHECKPOINT_SECONDS = 300


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """One system, clipped or not.

    Attributes:
        records: x [U, m, ...] and y [U, m] of all units, on the host.
        chunk: Most units in one product.
        clip: The clip, in units of a gradient.
        noise: Standard deviation of the noise on the sum over units, for each entry.
    """

    method: Method
    config: Any
    preset: str
    records: Records
    per_step: int
    clipped: bool
    chunk: int
    clip: float
    noise: float


def one_step(s: Study, step: int, key: Array, public: PyTree, units: PyTree, records: Records
             ) -> tuple[PyTree, PyTree, Array]:
    """Run one step: ask, let the units of the step learn and answer, add up, absorb.

    Args:
      units: The state of the units of the step, leaves [m, ...].

    Returns:
      The public state, the units' state, and the norms [m, B] of their gradients before clipping.
    """
    method = s.method
    k_ask, k_units, k_noise, k_absorb = jax.random.split(jax.random.fold_in(key, step), 4)
    query = method.ask(k_ask, public)

    def one(i: Array, unit: PyTree, records: Records) -> tuple[PyTree, Array, Array]:
        k_learn, k_answer = jax.random.split(jax.random.fold_in(k_units, i))
        unit = method.learn(k_learn, unit, records, query)
        message = method.answer(k_answer, unit, records, query)
        norms = jnp.linalg.norm(message, axis=-1)
        most = s.clip if s.clipped else jnp.inf
        share = jnp.minimum(1, most / jnp.maximum(norms, 1e-30))
        return unit, message * jnp.reshape(share, (-1, 1)), norms

    chunk = max(c for c in range(1, min(s.chunk, s.per_step) + 1) if s.per_step % c == 0)
    folded = jax.tree.map(lambda a: a.reshape(-1, chunk, *a.shape[1:]),
                          (jnp.arange(s.per_step), units, records))

    def add(total: Array, part: PyTree) -> tuple[Array, tuple[PyTree, Array]]:
        unit, shown, norms = jax.vmap(one)(*part)
        return total + shown.sum(0), (unit, norms)

    total, (units, norms) = jax.lax.scan(add, jnp.zeros(method.mechanism.shape), folded)
    units, norms = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), (units, norms))
    if s.clipped:
        total += s.noise * jax.random.normal(k_noise, total.shape)
    public, _ = method.absorb(k_absorb, public, query, total / s.per_step)
    return public, units, norms


@functools.lru_cache(maxsize=1)
def compiled(s: Study) -> Callable[..., tuple[PyTree, PyTree, Array]]:
    """Return `one_step` of a study, compiled once."""
    return jax.jit(functools.partial(one_step, s))


def start(s: Study, key: Array) -> tuple[PyTree, PyTree]:
    method, warm = s.method, s.method.pretraining
    x, y = jnp.asarray(s.records.x), jnp.asarray(s.records.y)

    def one(part: tuple[Array, Array, Array]) -> PyTree:
        i, x, y = part
        k = jax.random.fold_in(key, i)
        if warm is None:
            return method.init_unit(k)
        return warm.finish(jax.lax.fori_loop(
            0, warm.steps, lambda j, state: warm.step(jax.random.fold_in(k, j), state,
                                                      Records(x, y)), warm.init(k)))

    units = jax.jit(lambda: jax.lax.map(one, (jnp.arange(len(y)), x, y),
                                        batch_size=min(s.chunk, len(y))))()
    return jax.jit(method.init)(jax.random.fold_in(key, len(y))), units


def summary(norms: np.ndarray, clip: float) -> dict[str, Any]:
    """Return the distribution of some norms, and what clipping does to it; None of no norm."""
    flat = np.asarray(norms, float).ravel()
    flat = flat[np.isfinite(flat)]

    def spread(values: np.ndarray) -> dict[str, float] | None:
        return {"mean": float(values.mean()), "std": float(values.std())} if len(flat) else None

    quantiles = np.quantile(flat, QUANTILES).tolist() if len(flat) else None
    return {"quantiles": quantiles and dict(zip(map(str, QUANTILES), quantiles, strict=True)),
            "before": spread(flat), "after": spread(np.minimum(flat, clip)),
            "share_above_clip": float((flat > clip).mean()) if len(flat) else None,
            "histogram": np.histogram(flat, BINS)[0].tolist(), "not_finite": norms.size - len(flat)}


def on_fakes(s: Study) -> Callable[[Array, PyTree], Array] | None:
    """Return a function of the public state: norms at 64 fakes, where the discriminator is public.

    None for critics, which are private.
    """
    method = s.method
    if hasattr(s.config, "critics"):
        return None
    classes = 10 if not hasattr(s.config, "classes") else s.config.classes

    def norms(key: Array, public: PyTree) -> Array:
        labels = jnp.arange(64) % classes
        fakes = method.sample(method.finalize(key, public), key, labels)
        query = method.ask(key, public)
        x = jnp.round(255 * fakes).astype(jnp.uint8)[:, None]
        return jax.vmap(lambda x, y: jnp.linalg.norm(
            method.answer(key, (), Records(x, y), query), axis=-1))(x, labels[:, None])

    return jax.jit(norms)


def save(path: Path, step: int, rows: list, state: PyTree) -> None:
    """Write a checkpoint, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as out:
        np.savez(out, step=step, rows=json.dumps(rows),
                 **{f"leaf{i}": leaf for i, leaf in enumerate(jax.tree.leaves(state))})
    part.replace(path)


def load(path: Path, like: PyTree) -> tuple[int, list, PyTree]:
    """Read a checkpoint of a state shaped as this one."""
    with np.load(path) as kept:
        leaves = [jnp.asarray(kept[f"leaf{i}"]) for i in range(len(jax.tree.leaves(like)))]
        return (int(kept["step"]), json.loads(str(kept["rows"])),
                jax.tree.unflatten(jax.tree.structure(like), leaves))


def follow(s: Study, seed: int, points: int, path: Path) -> list[dict[str, Any]]:
    """Train on from the checkpoint, if there is one; return the norms over training."""
    key, steps = jax.random.key(seed), s.config.steps
    state, first, rows = start(s, key), 0, []
    if path.exists():
        first, rows, state = load(path, state)
    public, units = state
    step_of = compiled(s)
    public_norms, saved = on_fakes(s), time.monotonic()
    shown = set(np.linspace(0, steps - 1, min(points, steps)).round().astype(int).tolist())
    everyone = np.arange(len(s.records.y))
    for step in range(first, steps):
        rng = np.random.default_rng([seed, step])
        chosen = (everyone if s.per_step == len(everyone)
                  else rng.choice(len(everyone), s.per_step, replace=False))
        of_step = jax.tree.map(lambda a, at=chosen: a[at], units)
        records = Records(jnp.asarray(s.records.x[chosen]), jnp.asarray(s.records.y[chosen]))
        public, of_step, norms = step_of(step, key, public, of_step, records)
        units = jax.tree.map(lambda a, b, at=chosen: a.at[at].set(b), units, of_step)
        if step in shown:
            row = {"step": step, **summary(np.asarray(norms), s.clip)}
            if public_norms:
                row["on_fakes"] = summary(np.asarray(public_norms(key, public)), s.clip)
            rows.append(row)
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            save(path, step + 1, rows, (public, units))
            saved = time.monotonic()
    return rows


# The picture of `benchmarks.norms`: norms over training, and their distribution at the end.

def draw(variants: dict[str, Any], bins: np.ndarray, path: Path) -> None:
    """Draw a column for each variant: quantiles over training, and the last quarter's histogram."""
    figure = Figure(figsize=(2.6 * len(variants), 5), dpi=110, layout="constrained")
    axes = figure.subplots(2, len(variants), sharey="row", squeeze=False)
    for (above, below), (name, variant) in zip(axes.T, variants.items(), strict=True):
        rows, clip = variant["rows"], variant["settings"]["clip"]
        steps = [row["step"] for row in rows]
        q = {key: [row["quantiles"][key] for row in rows] for key in rows[0]["quantiles"]}
        above.fill_between(steps, q["0.05"], q["0.95"], alpha=0.2, linewidth=0)
        above.fill_between(steps, q["0.25"], q["0.75"], alpha=0.4, linewidth=0)
        above.plot(steps, q["0.5"], label="of units (private)")
        if "on_fakes" in rows[0]:
            above.plot(steps, [row["on_fakes"]["quantiles"]["0.5"] for row in rows], color="C1",
                       linewidth=0.9, label="on fakes (public)")
        above.set(yscale="log", xlabel="step")
        above.set_title(name.replace(", ", ",\n"), fontsize=8)
        late = np.sum([row["histogram"] for row in rows[-max(1, len(rows) // 4):]], 0)
        below.stairs(late / max(1, late.sum()), bins, fill=True, alpha=0.5)
        below.set(xscale="log", xlim=(1e-3, 1e3), xlabel="norm before clipping, last quarter")
        last = rows[-1]
        below.text(0.03, 0.97, f"mean {last['before']['mean']:.3g}, clipped "
                   f"{last['after']['mean']:.3g}\nstd {last['before']['std']:.3g}, clipped "
                   f"{last['after']['std']:.3g}", transform=below.transAxes, va="top", fontsize=6)
        above.axhline(clip, color="black", linewidth=0.8, linestyle=":")
        below.axvline(clip, color="black", linewidth=0.8, linestyle=":")
    axes[0, 0].set_ylabel("norm: median, 25 to 75 %, 5 to 95 %")
    axes[0, 0].legend(fontsize=6, frameon=False)
    axes[1, 0].set_ylabel("share of gradients")
    figure.savefig(path)


GENERATOR = {"logit_slope": "sigmoid", "generator": gswgan.SMALL.generator}
"""Fields by which GS-WGAN's generator has the slope of the paper and does not move its images."""
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "DP-SGD GAN": ("dpcgan", {}),
    "DP-SGD GAN, clipped weights": ("dpgan", {}),
    "GS-WGAN": ("gswgan", GENERATOR),
    "GS-WGAN, no penalty": ("gswgan", GENERATOR | {"penalty": 0.0}),
}
"""Method and fields of each."""


def arguments(argv: list[str]) -> argparse.Namespace:
    script = common.Script("norms", __doc__, record="--record")
    script.add_argument("--dataset", default="idx:mnist", help="images of the presets' shape")
    script.add_argument("--dpcgan", default="mnist-eps10-published", help="preset")
    script.add_argument("--dpgan", default="mnist-eps10-published", help="preset")
    script.add_argument("--gswgan", default="mnist-eps10", help="preset")
    script.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    script.add_argument("--steps", type=int, help="those of the preset if left out")
    script.add_argument("--critics", type=int, help="of GS-WGAN; those of the preset if left out")
    script.add_argument("--warm-steps", type=int, help="of GS-WGAN; the preset's if left out")
    script.add_argument("--batch", type=int, help="of DP-SGD; that of the preset if left out")
    script.add_argument("--points", type=int, default=60, help="steps whose norms are written")
    script.add_argument("--chunk", type=int, default=64, help="most units in one product")
    script.add_argument("--seed", type=int, default=0)
    script.add_argument("--sizes", default="small", help="names the record")
    script.add_argument("--out", type=Path, help="of checkpoints; runs/norms-DATA-SIZES")
    args = script.begin(argv)
    args.script, args.stem = script, f"norms-{args.dataset.split(':')[-1]}-{args.sizes}"
    args.out = args.out or Path("runs") / args.stem
    return args


def configured(args: argparse.Namespace, name: str) -> tuple[str, presets.Preset, Any]:
    """Return the preset of a system, and its configuration with what the command line changes."""
    system, fields = SYSTEMS[name]
    preset_name, preset = presets.get(system, getattr(args, system))
    wanted = {"steps": args.steps, "critics": args.critics, "warm_steps": args.warm_steps,
              "batch": args.batch if system != "gswgan" else None}
    return preset_name, preset, dataclasses.replace(preset.config, **fields, **{
        key: value for key, value in wanted.items()
        if value is not None and hasattr(preset.config, key)})


def study(args: argparse.Namespace, dataset: data.Dataset, name: str, clipped: bool) -> Study:
    system, (preset_name, preset, config) = SYSTEMS[name][0], configured(args, name)
    if not isinstance(dataset.spec, ImageSpec) or dataset.spec != preset.spec:
        raise UserError(f"--dataset {args.dataset} has records {dataset.spec}; preset "
                        f"{preset_name} of {system} is for {preset.spec}")
    n, x, y = len(dataset.y_train), np.asarray(dataset.x_train), np.asarray(dataset.y_train)
    config = complete(system, with_records(config, n), dataset.spec,
                      Budget(preset.epsilon, preset.delta))
    built = methods.get(system).build(config, dataset.spec, Runtime())
    units = getattr(config, "critics", n)
    order = np.random.default_rng(args.seed).permutation(n)[:n // units * units]
    records = Records(x[order].reshape(units, -1, *x.shape[1:]),
                      y[order].reshape(units, -1).astype(np.int32))
    per_step = (config.critics_per_step or units) if system == "gswgan" else config.batch
    mechanism: Any = built.mechanism
    return Study(built, config, preset_name, records, per_step, clipped, args.chunk, config.clip,
                 getattr(mechanism.noise, "sigma", 0.0) * mechanism.bound.grid)


def main(argv: list[str]) -> None:
    args = arguments(argv)
    terminal.use_all_cores()
    dataset, variants = data.load(args.dataset), dict[str, Any]()
    known = args.script.earlier(args.stem).get("variants", {})

    def save(variants: dict[str, Any]) -> Path:
        return args.script.save({"dataset": args.dataset, "bins": BINS.tolist(),
                                 "variants": variants}, [args.seed], args.stem)

    for name in args.systems:
        for clipped in (True, False):
            s = study(args, dataset, name, clipped)
            title = f"{name}, {'clipped' if clipped else 'not clipped'}"
            settings = {"preset": s.preset, "config": to_json(s.config), "clip": s.clip,
                        "noise": s.noise if clipped else 0.0, "units_per_step": s.per_step,
                        "seed": args.seed, "points": args.points}
            if known.get(title, {}).get("settings") == settings:
                variants[title] = known[title]
                continue
            clock, path = common.Stopwatch(), checkpoint(args.out, title, settings)
            rows = follow(s, args.seed, args.points, path)
            variants[title] = {"settings": settings, "rows": rows,
                               "seconds_since_start": clock.seconds()}
            path.unlink(missing_ok=True)
            print(f"{title}: median norm {rows[0]['quantiles']['0.5']:.3g} at the first step, "
                  f"{rows[-1]['quantiles']['0.5']:.3g} at the last", flush=True)
            save({**known, **variants})
    path = save(variants)
    draw(variants, BINS, path.with_suffix(".png"))
    print(path)


def checkpoint(out: Path, title: str, settings: dict[str, Any]) -> Path:
    """Return the checkpoint of a variant; other settings have another, and begin anew."""
    return out / f"{title.replace(', ', '-')}-{digest(settings)[:8]}.npz"


if __name__ == "__main__":
    terminal.main(main)
