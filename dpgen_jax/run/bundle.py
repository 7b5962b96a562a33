"""The release: a generator and its privacy statement. All that may be shared, nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax import traverse_util

from dpgen_jax import methods
from dpgen_jax.accountant.events import Events, SampledGaussianEvent
from dpgen_jax.aggregation.discrete_laplace import class_prior
from dpgen_jax.config import from_json, to_json
from dpgen_jax.data import transform
from dpgen_jax.run.folder import read_json, write_json
from dpgen_jax.types import ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.version import __version__

SAMPLE_CHUNK = 500


@dataclasses.dataclass(frozen=True)
class Release:
    """What training hands over.

    method: its name; config, spec: public; model: nested dict of arrays, released values only;
    privacy: the statement of privacy.json; class_counts: the noisy class counts that were bought,
    by which labels are drawn, or None: all classes in equal shares.
    """

    method: str
    config: Any
    spec: Spec
    model: dict[str, Any]
    privacy: dict[str, Any]
    class_counts: tuple[int, ...] | None = None

    def sample(self, n: int, labels: Any = None, seed: int | None = None
               ) -> tuple[np.ndarray, np.ndarray]:
        """n synthetic records: images uint8 [n, H, W, ch], or table rows float64 [n, columns] with
        numbers as they are, categories as their index and null as NaN; and labels int32 [n].

        labels: the classes to draw from in equal shares; by default all, in equal shares or as the
        released class counts say. seed: to repeat a draw; sampling costs no privacy, seeded or not.
        Errors: UserError for n < 1 or unknown labels.
        """
        x, y = self._draw(n, labels, seed)
        return _finished(self.spec, x), y

    def encoded(self, n: int, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """n synthetic rows as a table is encoded, float32 [n, F] with hard one-hots, and labels."""
        return self._draw(n, None, seed)

    def frame(self, n: int, seed: int | None = None) -> Any:
        """n synthetic rows of a table as a pandas DataFrame. Errors: UserError without pandas."""
        from dpgen_jax.data import tables

        return tables.frame(self.spec, *self.sample(n, seed=seed))

    def classes(self, names: Any) -> list[int]:
        """The classes of these names: category texts of a table, or their numbers. Errors:
        UserError for others."""
        known = (list(self.spec.label.categories) if isinstance(self.spec, TableSpec)
                 else [str(i) for i in range(self.spec.classes)])
        bad = [name for name in map(str, names) if name not in known]
        if bad:
            raise UserError(f"label {bad[0]!r} is not one of {', '.join(known)}")
        return [known.index(str(name)) for name in names]

    def _draw(self, n: int, labels: Any, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
        if n < 1:
            raise UserError(f"cannot sample {n} records; at least 1 is needed")
        seed = seed % 2**32 if seed is not None else secrets.randbits(31)
        y = self._labels(n, labels, seed)
        key, sampler = jax.random.key(seed), _sampler(self.method, self.config, self.spec)

        def chunk(start: int) -> np.ndarray:
            # Padded to a fixed shape: compiled once, and a record does not depend on how many are
            # asked for.
            part = y[start:start + SAMPLE_CHUNK]
            padded = jnp.zeros(SAMPLE_CHUNK, jnp.int32).at[:len(part)].set(part)
            return np.asarray(sampler(self.model, jax.random.fold_in(key, start), padded)
                              )[:len(part)]

        return np.concatenate([chunk(start) for start in range(0, n, SAMPLE_CHUNK)]), y

    def _labels(self, n: int, labels: Any, seed: int) -> np.ndarray:
        if labels is None and self.class_counts is not None:
            rng = np.random.default_rng([seed, 1])
            return rng.choice(self.spec.classes, n, p=class_prior(self.class_counts)
                              ).astype(np.int32)
        wanted = np.arange(self.spec.classes) if labels is None else np.atleast_1d(labels)
        bad = [int(w) for w in wanted if not 0 <= w < self.spec.classes]
        if bad or not len(wanted):
            raise UserError(f"label {bad[0] if bad else '(none)'} is not in "
                            f"0..{self.spec.classes - 1}")
        return np.resize(wanted, n).astype(np.int32)

    def save(self, root: str | Path) -> Path:
        """Writes generator.safetensors, config.json and privacy.json into `root`."""
        root = Path(root)
        root.mkdir(parents=True, exist_ok=True)
        flat = traverse_util.flatten_dict(self.model, sep="/")
        data = safetensors.numpy.save({k: np.asarray(v) for k, v in flat.items()})
        temporary = root / "generator.safetensors.tmp"
        temporary.write_bytes(data)
        temporary.replace(root / "generator.safetensors")
        write_json(root / "config.json", {
            "method": self.method, "config": to_json(self.config), "spec": to_json(self.spec),
            "class_counts": to_json(self.class_counts),
            "generator_sha256": hashlib.sha256(data).hexdigest(), "package_version": __version__})
        write_json(root / "privacy.json", to_json(self.privacy))
        return root


_SAMPLERS: dict[Any, Any] = {}


def _finished(spec: Spec, x: np.ndarray) -> np.ndarray:
    """Records as a user takes them, from records as the method draws them."""
    if isinstance(spec, TableSpec):
        return transform.decode(spec, x)
    return np.round(x * 255).astype(np.uint8)


def spec_from_json(value: dict[str, Any]) -> Spec:
    """The schema of config.json. Errors: UserError."""
    return from_json(TableSpec if "columns" in value else ImageSpec, value)


def _sampler(method: str, config: Any, spec: Spec):
    key = (method, config, spec)
    if key not in _SAMPLERS:
        _SAMPLERS[key] = jax.jit(methods.get(method).build(config, spec).sample)
    return _SAMPLERS[key]


def load(root: str | Path) -> Release:
    """Reads a release folder, or the release of a run folder.

    Errors: UserError naming the file that is missing or damaged.
    """
    root = Path(root)
    if (root / "release").is_dir():
        root = root / "release"
    if (root / "ledger.jsonl").is_file():
        raise UserError(f"the run in {root} has no release yet; finish it with --resume --out "
                        f"{root}")
    if not (root / "config.json").is_file():
        raise UserError(f"{root} is neither a run nor a release: it holds no release/config.json "
                        "or config.json")
    config = read_json(root / "config.json")
    if not {"method", "config", "spec", "generator_sha256"} <= config.keys():
        raise UserError(f"{root / 'config.json'} is damaged: it does not describe a release")
    privacy, path = read_json(root / "privacy.json"), root / "generator.safetensors"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; the run has no release yet, "
                        "finish it with --resume") from error
    if hashlib.sha256(data).hexdigest() != config["generator_sha256"]:
        raise UserError(f"{path} is damaged: its SHA-256 differs from the one in config.json")
    module = methods.get(config["method"])
    return Release(
        config["method"], from_json(module.Config, config["config"]),
        spec_from_json(config["spec"]),
        traverse_util.unflatten_dict(safetensors.numpy.load(data), sep="/"), privacy,
        tuple(config["class_counts"]) if config.get("class_counts") else None)


def accountant(events: Events) -> str:
    """How `accountant.gaussian.epsilon` counts these."""
    if any(isinstance(event, SampledGaussianEvent) for event, _ in events):
        return "Renyi differential privacy, with secret draws without replacement"
    return "exact Gaussian differential privacy; basic composition with pure releases"


def statement(*, method: str, preset: str | None, epsilon: float, delta: float, mechanism: Any,
              spent: tuple, steps: int, noise_source: str, population: dict[str, int],
              notes: tuple[str, ...] = (), stamp: dict[str, Any] | None = None
              ) -> dict[str, Any]:
    """privacy.json. epsilon is the budget fixed before the first release, never a reading taken
    while training; the events are those of the ledger. population: the public number of records,
    or of clients; stamp: what else must be said."""
    return {
        "epsilon": epsilon,
        "delta": delta,
        "relation": mechanism.relation,
        "unit": mechanism.unit,
        "accountant": accountant(spent),
        "events": [{**event.statement(), "count": count} for event, count in spent],
        "steps": steps,
        "method": method,
        "preset": preset,
        **population,
        "noise_source": noise_source,
        "not_accounted": [
            "hyper-parameter tuning", "other runs on the same records (budgets add up)",
            "side channels (timing, memory, power)",
            "the generator of the operating system, whose strength is computational"],
        "data_notes": list(notes),
        "data_dependent_epsilon": None,
        "package_version": __version__,
        **(stamp or {}),
    }
