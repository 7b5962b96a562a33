"""The release: a generator or classifier with its statement, all that may be shared."""

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
from dpgen_jax.aggregation.discrete_laplace import class_prior
from dpgen_jax.core import checks, reading
from dpgen_jax.core.atomic import json_bytes, write_together
from dpgen_jax.core.config import from_json, to_json
from dpgen_jax.core.types import ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.data import transform
from dpgen_jax.release import contents, model, statement
from dpgen_jax.run.folder import read_json
from dpgen_jax.version import __version__

CHUNK = 500
"""Records that are made, or told apart, in one call."""


@dataclasses.dataclass(frozen=True)
class Release:
    """A trained generator or classifier, with its privacy statement.

    Attributes:
        method: The name of the method.
        config: Its complete configuration, public.
        spec: The schema of the records, public.
        model: Nested dict of arrays, made of released values only.
        privacy: The statement of privacy.json.
        class_counts: The noisy class counts that were bought, by which labels are drawn; None: all
            classes in equal shares.
    """

    method: str
    config: Any
    spec: Spec
    model: dict[str, Any]
    privacy: dict[str, Any]
    class_counts: tuple[int, ...] | None = None

    def sample(self, n: int, labels: Any = None, seed: int | None = None
               ) -> tuple[np.ndarray, np.ndarray]:
        """Draws synthetic records; it costs no privacy, seeded or not.

        Args:
            n: How many.
            labels: The classes to draw from in equal shares; by default all, in equal shares or as
                the released class counts say.
            seed: To repeat a draw.

        Returns:
            Images uint8 [n, H, W, ch], or table rows float64 [n, columns] with numbers as they are,
            categories as their index and null as NaN; and labels int32 [n].

        Raises:
            UserError: For n below 1 or unknown labels, and for a classifier.
        """
        x, y = self._draw(n, labels, seed)
        return _finished(self.spec, x), y

    def encoded(self, n: int, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Draws synthetic rows in the form in which a table is encoded.

        Args:
            n: How many.
            seed: To repeat a draw.

        Returns:
            Rows float32 [n, F] with hard one-hots, and labels int32 [n].
        """
        return self._draw(n, None, seed)

    def frame(self, n: int, seed: int | None = None) -> Any:
        """Draws synthetic rows of a table as a pandas DataFrame.

        Args:
            n: How many.
            seed: To repeat a draw.

        Raises:
            UserError: Without pandas, and for images.
        """
        from dpgen_jax.data import tables

        self._require_generator()
        if not isinstance(self.spec, TableSpec):
            raise UserError("this release makes images, which are no table; use sample")
        return tables.frame(self.spec, *self.sample(n, seed=seed))

    @property
    def classifies(self) -> bool:
        """Whether this is a classifier, which has `predict` and makes no records."""
        return model.built(self.method, self.config, self.spec).predict is not None

    def predict(self, x: Any) -> np.ndarray:
        """Classifies records; it costs no privacy.

        Args:
            x: Images uint8, or float in [0, 1], [n, H, W] or [n, H, W, ch]; or rows of a table as
                they are encoded, float [n, F] in [0, 1].

        Returns:
            The class of each, int32 [n].

        Raises:
            UserError: For other records, and for a generator.
        """
        if not self.classifies:
            raise UserError(f"{self.method} releases a generator, which tells no classes apart; "
                            "use sample, and train a classifier on what it makes")
        x, predictor = _as_drawn(self.spec, x), model.compiled(self.method, self.config, self.spec)

        def chunk(start: int) -> np.ndarray:
            part = x[start:start + CHUNK]
            padded = np.zeros((CHUNK, *x.shape[1:]), np.float32)
            padded[:len(part)] = part
            return np.asarray(predictor(self.model, padded)).argmax(1)[:len(part)]

        parts = [chunk(start) for start in range(0, len(x), CHUNK)]
        return np.concatenate([np.zeros(0, np.int32), *parts]).astype(np.int32)

    @property
    def class_shares(self) -> np.ndarray | None:
        """The shares in which labels are drawn: of class counts that were bought, or the model's.

        None: equal shares.
        """
        if self.class_counts is not None:
            return class_prior(self.class_counts)
        of_model = model.built(self.method, self.config, self.spec).class_shares
        if of_model is None:
            return None
        shares = np.maximum(np.asarray(of_model(self.model), np.float64), 0)
        return shares / shares.sum()

    def classes(self, names: Any) -> list[int]:
        """Returns the numbers of classes that are named.

        A number names its class too, unless a class has such a name or the records are a table's.

        Args:
            names: Names or numbers of classes.

        Raises:
            UserError: For any other name.
        """
        numbers = [str(i) for i in range(self.spec.classes)]
        known = {name: i for i, name in enumerate(self.spec.class_names or numbers)}
        if isinstance(self.spec, ImageSpec) and not any(name.isdecimal() for name in known):
            known |= {name: i for i, name in enumerate(numbers)}
        bad = [name for name in map(str, names) if name not in known]
        if bad:
            raise UserError(f"label {bad[0]!r} is not one of {', '.join(known)}")
        return [known[str(name)] for name in names]

    def _require_generator(self) -> None:
        if self.classifies:
            raise UserError(f"{self.method} releases a classifier, which makes no records; use "
                            "predict")

    def _draw(self, n: int, labels: Any, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
        self._require_generator()
        if n < 1:
            raise UserError(f"cannot sample {n} records; at least 1 is needed")
        seed = seed % 2**32 if seed is not None else secrets.randbits(31)
        y = self._labels(n, labels, seed)
        key, sampler = jax.random.key(seed), model.compiled(self.method, self.config, self.spec)

        def chunk(start: int) -> np.ndarray:
            # Padded to a fixed shape: compiled once, and a record does not depend on how many are
            # asked for.
            part = y[start:start + CHUNK]
            padded = jnp.zeros(CHUNK, jnp.int32).at[:len(part)].set(part)
            return np.asarray(sampler(self.model, jax.random.fold_in(key, start), padded)
                              )[:len(part)]

        return np.concatenate([chunk(start) for start in range(0, n, CHUNK)]), y

    def _labels(self, n: int, labels: Any, seed: int) -> np.ndarray:
        shares = self.class_shares
        if labels is None and shares is not None:
            rng = np.random.default_rng([seed, 1])
            return rng.choice(self.spec.classes, n, p=shares).astype(np.int32)
        wanted = np.arange(self.spec.classes) if labels is None else np.atleast_1d(labels)
        bad = [int(w) for w in wanted if not 0 <= w < self.spec.classes]
        if bad or not len(wanted):
            raise UserError(f"label {bad[0] if bad else '(none)'} is not in "
                            f"0..{self.spec.classes - 1}")
        return np.resize(wanted, n).astype(np.int32)

    def save(self, root: str | Path) -> Path:
        """Writes privacy.json, README.md, config.json and generator.safetensors.

        A generator never lies beside the statement of another.

        Args:
            root: The folder.

        Returns:
            The folder.

        Raises:
            OSError: Where it cannot be written; what was there is still there.
        """
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
    """Checked records as a method draws them, float32 [n, *spec.shape] in [0, 1]."""
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
    checks.unit_range("records", x)
    return x.astype(np.float32)


def load(root: str | Path) -> Release:
    """Reads a release folder, or the release of a run folder.

    Raises:
        UserError: Naming the file that is missing or damaged.
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
    described = contents.described(root / "config.json")
    privacy = contents.statement(read_json(root / "privacy.json"), str(root / "privacy.json"))
    path = root / "generator.safetensors"
    if not path.exists():
        raise UserError(f"cannot read {path}: it is missing; the run has no release yet, finish it "
                        "with --resume")
    data = reading.read_bytes(path)
    if hashlib.sha256(data).hexdigest() != described.get("generator_sha256"):
        raise UserError(f"{path} is damaged: its SHA-256 differs from the one in config.json")
    spec, counts = contents.spec(described["spec"]), described.get("class_counts")
    if counts and len(counts) != spec.classes:  # noisy ones, which may be negative
        raise UserError(f"{root / 'config.json'} is damaged: class_counts are {len(counts)} counts "
                        f"of {spec.classes} classes")
    config = from_json(methods.get(described["method"]).Config, described["config"], "config")
    arrays = model.parse(path, data, model.arrays(described["method"], config, spec))
    return Release(described["method"], config, spec, arrays, privacy,
                   tuple(counts) if counts else None)
