"""The release: a generator, or a classifier, and its privacy statement. All that may be shared,
nothing else."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax import traverse_util

from dpgen_jax import methods, reading
from dpgen_jax.aggregation.discrete_laplace import class_prior
from dpgen_jax.config import from_json, to_json
from dpgen_jax.data import transform
from dpgen_jax.run import contents, statement
from dpgen_jax.run.atomic import json_bytes, write_together
from dpgen_jax.run.folder import read_json
from dpgen_jax.types import ImageSpec, Method, Spec, TableSpec, UserError
from dpgen_jax.version import __version__

CHUNK = 500
"""Records that are made, or told apart, in one call."""


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
        Errors: UserError for n < 1 or unknown labels, and of a classifier.
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

    @property
    def classifies(self) -> bool:
        """Whether this is a classifier, which has `predict` and makes no records."""
        return _method(self.method, self.config, self.spec).predict is not None

    def predict(self, x: Any) -> np.ndarray:
        """The class int32 [n] of each of x: images uint8, or float in [0, 1], [n, H, W(, ch)]; or
        rows of a table as they are encoded, float [n, F] in [0, 1]. Costs no privacy. Errors:
        UserError for others, and of a generator."""
        if not self.classifies:
            raise UserError(f"{self.method} releases a generator, which tells no classes apart; "
                            "use sample, and train a classifier on what it makes")
        x, predictor = _as_drawn(self.spec, x), _compiled(self.method, self.config, self.spec)

        def chunk(start: int) -> np.ndarray:
            part = x[start:start + CHUNK]
            padded = np.zeros((CHUNK, *x.shape[1:]), np.float32)
            padded[:len(part)] = part
            return np.asarray(predictor(self.model, padded)).argmax(1)[:len(part)]

        parts = [chunk(start) for start in range(0, len(x), CHUNK)]
        return np.concatenate([np.zeros(0, np.int32), *parts]).astype(np.int32)

    def classes(self, names: Any) -> list[int]:
        """The classes of these names, or their numbers, unless a name is a number itself or the
        records are a table's. Errors: UserError for others."""
        numbers = [str(i) for i in range(self.spec.classes)]
        known = {name: i for i, name in enumerate(self.spec.class_names or numbers)}
        if isinstance(self.spec, ImageSpec) and not any(name.isdecimal() for name in known):
            known |= {name: i for i, name in enumerate(numbers)}
        bad = [name for name in map(str, names) if name not in known]
        if bad:
            raise UserError(f"label {bad[0]!r} is not one of {', '.join(known)}")
        return [known[str(name)] for name in names]

    def _draw(self, n: int, labels: Any, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
        if self.classifies:
            raise UserError(f"{self.method} releases a classifier, which makes no records; use "
                            "predict")
        if n < 1:
            raise UserError(f"cannot sample {n} records; at least 1 is needed")
        seed = seed % 2**32 if seed is not None else secrets.randbits(31)
        y = self._labels(n, labels, seed)
        key, sampler = jax.random.key(seed), _compiled(self.method, self.config, self.spec)

        def chunk(start: int) -> np.ndarray:
            # Padded to a fixed shape: compiled once, and a record does not depend on how many are
            # asked for.
            part = y[start:start + CHUNK]
            padded = jnp.zeros(CHUNK, jnp.int32).at[:len(part)].set(part)
            return np.asarray(sampler(self.model, jax.random.fold_in(key, start), padded)
                              )[:len(part)]

        return np.concatenate([chunk(start) for start in range(0, n, CHUNK)]), y

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
        """Writes privacy.json, README.md, config.json and generator.safetensors into `root`: a
        generator never lies beside the statement of another. Errors: OSError, with what was there
        still there."""
        root = Path(root)
        flat = traverse_util.flatten_dict(self.model, sep="/")
        data = safetensors.numpy.save({k: np.asarray(v) for k, v in flat.items()})
        described = {
            "method": self.method, "config": to_json(self.config), "spec": to_json(self.spec),
            "class_counts": to_json(self.class_counts),
            "generator_sha256": hashlib.sha256(data).hexdigest(), "package_version": __version__}
        write_together(root, statement.files(self.privacy) | {
            "config.json": json_bytes(described), "generator.safetensors": data})
        return root


def _finished(spec: Spec, x: np.ndarray) -> np.ndarray:
    """Records as a user takes them, from records as the method draws them."""
    if isinstance(spec, TableSpec):
        return transform.decode(spec, x)
    return np.round(x * 255).astype(np.uint8)


def _as_drawn(spec: Spec, x: Any) -> np.ndarray:
    """float32 [n, *spec.shape] in [0, 1], the inverse of `_finished` for images. Errors:
    UserError for records of another shape, type or range."""
    x = np.asarray(x)
    if isinstance(spec, ImageSpec) and spec.channels == 1 and x.shape[1:] == spec.shape[:2]:
        x = x[..., None]
    if x.shape[1:] != spec.shape or x.ndim == 0:
        raise UserError(f"records have shape {x.shape}, expected [n, "
                        f"{', '.join(map(str, spec.shape))}]")
    if x.dtype == np.uint8 and isinstance(spec, ImageSpec):
        return x / np.float32(255)
    if not np.issubdtype(x.dtype, np.floating):
        raise UserError(f"records are {x.dtype}; give uint8 images, or floats in [0, 1]")
    if not np.all((x >= 0) & (x <= 1)):  # false for NaN
        raise UserError("records have values outside [0, 1] or NaN; scale them to [0, 1]")
    return x.astype(np.float32)


@functools.lru_cache(64)
def _method(method: str, config: Any, spec: Spec) -> Method:
    return methods.get(method).build(config, spec)


@functools.lru_cache(64)
def _compiled(method: str, config: Any, spec: Spec) -> Callable:
    """`sample` of a generator, `predict` of a classifier."""
    built = _method(method, config, spec)
    return jax.jit(built.predict or built.sample)


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
    held = contents.described(root / "config.json")
    privacy = contents.statement(read_json(root / "privacy.json"), str(root / "privacy.json"))
    path = root / "generator.safetensors"
    if not path.exists():
        raise UserError(f"cannot read {path}: it is missing; the run has no release yet, finish it "
                        "with --resume")
    data = reading.read_bytes(path)
    if hashlib.sha256(data).hexdigest() != held.get("generator_sha256"):
        raise UserError(f"{path} is damaged: its SHA-256 differs from the one in config.json")
    spec, counts = contents.spec(held["spec"]), held.get("class_counts")
    if counts and len(counts) != spec.classes:  # noisy ones, which may be negative
        raise UserError(f"{root / 'config.json'} is damaged: class_counts are {len(counts)} counts "
                        f"of {spec.classes} classes")
    config = from_json(methods.get(held["method"]).Config, held["config"], "config")
    return Release(held["method"], config, spec, _model(path, data, held["method"], config, spec),
                   privacy, tuple(counts) if counts else None)


def _model(path: Path, data: bytes, method: str, config: Any, spec: Spec) -> dict[str, Any]:
    """The arrays, which must be those that the method releases: by name, shape and type."""
    try:
        flat = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: no file of arrays ({error})") from error
    expected = _arrays(method, config, spec)
    for name in sorted(expected.keys() | flat.keys()):
        wanted, given = (f"{part[name].dtype} of shape {list(part[name].shape)}"
                         if name in part else "absent" for part in (expected, flat))
        if wanted != given:
            raise UserError(f"{path} is damaged: the array {name[:100]!r} is {given}, by "
                            f"config.json it is {wanted}")
    return traverse_util.unflatten_dict(flat, sep="/")


@functools.lru_cache(64)
def _arrays(method: str, config: Any, spec: Spec) -> dict[str, jax.ShapeDtypeStruct]:
    """Name -> shape and type of each array of a release; nothing is computed. Errors: UserError."""
    def model(key: jax.Array) -> Any:
        built = _method(method, config, spec)
        public = built.init(key)
        return built.refine(key, built.polish.init(key, public) if built.polish else public)

    try:
        return traverse_util.flatten_dict(jax.eval_shape(model, jax.random.key(0)), sep="/")
    except UserError:
        raise
    except Exception as error:  # what networks make of sizes that nobody trained
        raise UserError("config.json is damaged: it describes no model that can be built "
                        f"({type(error).__name__})") from error
