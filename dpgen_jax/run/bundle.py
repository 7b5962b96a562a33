"""The release: a generator and its privacy statement. All that may be shared, nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import secrets
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax import traverse_util

from dpgen_jax import methods
from dpgen_jax.config import from_json, to_json
from dpgen_jax.run.folder import read_json, write_json
from dpgen_jax.types import ImageSpec, UserError
from dpgen_jax.version import __version__

SAMPLE_CHUNK = 500


@dataclasses.dataclass(frozen=True)
class Release:
    """What training hands over.

    method: its name; config, spec: public; model: nested dict of arrays, released values only;
    privacy: the statement of privacy.json.
    """

    method: str
    config: Any
    spec: ImageSpec
    model: dict[str, Any]
    privacy: dict[str, Any]

    def sample(self, n: int, labels: Any = None, seed: int | None = None
               ) -> tuple[np.ndarray, np.ndarray]:
        """n synthetic records: images uint8 [n, H, W, ch], labels int32 [n].

        labels: the classes to draw from in equal shares (all by default). seed: to repeat a draw;
        sampling costs no privacy, seeded or not. Errors: UserError for n < 1 or unknown labels.
        """
        if n < 1:
            raise UserError(f"cannot sample {n} records; at least 1 is needed")
        wanted = np.arange(self.spec.classes) if labels is None else np.atleast_1d(labels)
        bad = [int(w) for w in wanted if not 0 <= w < self.spec.classes]
        if bad or not len(wanted):
            raise UserError(f"label {bad[0] if bad else '(none)'} is not in "
                            f"0..{self.spec.classes - 1}")
        key = jax.random.key(seed % 2**32 if seed is not None else secrets.randbits(31))
        y = np.resize(wanted, n).astype(np.int32)
        x = [self._draw(jax.random.fold_in(key, start), y[start:start + SAMPLE_CHUNK])
             for start in range(0, n, SAMPLE_CHUNK)]
        return np.concatenate(x), y

    def _draw(self, key: jax.Array, y: np.ndarray) -> np.ndarray:
        """One chunk, padded to a fixed shape: compiled once, and an image does not depend on how
        many are asked for."""
        padded = jnp.zeros(SAMPLE_CHUNK, jnp.int32).at[:len(y)].set(y)
        images = _sampler(self.method, self.config, self.spec)(self.model, key, padded)
        return np.asarray(jnp.round(images * 255).astype(jnp.uint8))[:len(y)]

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
            "generator_sha256": hashlib.sha256(data).hexdigest(), "package_version": __version__})
        write_json(root / "privacy.json", to_json(self.privacy))
        return root


_SAMPLERS: dict[Any, Any] = {}


def _sampler(method: str, config: Any, spec: ImageSpec):
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
    if not (root / "config.json").is_file():
        raise UserError(f"{root} is neither a run nor a release: it holds no release/config.json "
                        "or config.json")
    config, privacy = read_json(root / "config.json"), read_json(root / "privacy.json")
    if not {"method", "config", "spec", "generator_sha256"} <= config.keys():
        raise UserError(f"{root / 'config.json'} is damaged: it does not describe a release")
    path = root / "generator.safetensors"
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
        from_json(ImageSpec, config["spec"]),
        traverse_util.unflatten_dict(safetensors.numpy.load(data), sep="/"), privacy)


def statement(*, method: str, preset: str | None, budget: Any, mechanism: Any, spent: tuple,
              steps: int, noise_source: str, n_records: int, notes: tuple[str, ...] = ()
              ) -> dict[str, Any]:
    """privacy.json. epsilon is the budget fixed before the first release, never a reading taken
    while training; the events are those of the ledger."""
    private = all(hasattr(event, "sigma") for event, _ in spent)
    return {
        "epsilon": budget.epsilon if private else math.inf,
        "delta": budget.delta,
        "relation": mechanism.relation,
        "unit": mechanism.unit,
        "accountant": "exact Gaussian differential privacy",
        "events": [{"mechanism": event.mechanism, "sigma": getattr(event, "sigma", 0.0),
                    "sensitivity": getattr(event, "sensitivity", None), "count": count}
                   for event, count in spent],
        "steps": steps,
        "method": method,
        "preset": preset,
        "records": n_records,
        "noise_source": noise_source,
        "not_accounted": [
            "hyper-parameter tuning", "other runs on the same records (budgets add up)",
            "side channels (timing, memory, power)",
            "the generator of the operating system, whose strength is computational"],
        "data_notes": list(notes),
        "data_dependent_epsilon": None,
        "package_version": __version__,
    }
