"""The training that `benchmarks.norms` follows: rounds in plain JAX, with every unit's norms."""

from __future__ import annotations

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

from dpgen_jax.core.types import Array, Method, PyTree, Records

BINS = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 81)])
"""edges of the histograms"""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
CHECKPOINT_SECONDS = 300


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """One system, clipped or not.

    Attributes:
        method: The method, built.
        config: Its configuration.
        preset: The name of its preset.
        records: x [U, m, ...] and y [U, m] of all units, on the host.
        per_step: Units of a step.
        clipped: Whether gradients are clipped and noised.
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
      s: The study.
      step: The number of the step.
      key: The key of the run.
      public: The public state.
      units: The state of the units of the step, leaves [m, ...].
      records: Theirs, on the device.

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
    """Return the public state and the state of all units, after their warm start."""
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
    """Return the distribution of some norms, and what clipping does to it.

    Args:
      norms: Norms, any shape.
      clip: The clip.
    """
    flat = np.asarray(norms, float).ravel()
    flat = flat[np.isfinite(flat)]
    after = np.minimum(flat, clip)
    return {"quantiles": dict(zip(map(str, QUANTILES), np.quantile(flat, QUANTILES).tolist(),
                                  strict=True)) if len(flat) else None,
            "before": {"mean": float(flat.mean()), "std": float(flat.std())} if len(flat) else None,
            "after": {"mean": float(after.mean()), "std": float(after.std())}
            if len(flat) else None,
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
    """Train, and return the distributions of norms over training.

    Args:
      s: The study.
      seed: Of everything random.
      points: How many steps are described.
      path: The checkpoint, from which it goes on where there is one.
    """
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
