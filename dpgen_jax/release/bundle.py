"""The release: a generator or classifier with its statement, all that may be shared."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from flax import traverse_util

from dpgen_jax import methods
from dpgen_jax.aggregation.discrete_laplace import class_prior
from dpgen_jax.core import reading, storage
from dpgen_jax.core.atomic import json_bytes, write_together
from dpgen_jax.core.config import from_json, to_json
from dpgen_jax.core.types import ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.data import finishing, transform
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.release import conditions, contents, documents, exact, model, showing
from dpgen_jax.release.conditions import Labels, Where
from dpgen_jax.release.sampling import CHUNK, SEEDS, Sampler, Source, finished
from dpgen_jax.run.folder import read_json
from dpgen_jax.version import __version__


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
    config: MethodConfig
    spec: Spec
    model: dict[str, Any]
    privacy: dict[str, Any]
    class_counts: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return showing.text(self)

    def _repr_html_(self) -> str:
        return showing.html(self)

    def sample(self, n: int, labels: Labels = None, seed: int | None = None, where: Where = None
               ) -> tuple[np.ndarray, np.ndarray]:
        """Draws synthetic records; it costs no privacy, seeded or not.

        Args:
            n: How many.
            labels: The classes to draw from in equal shares; by default all, in equal shares or as
                the released class counts say. Numbers, or names as texts.
            seed: To repeat a draw.
            where: Conditions that every record meets: a dict from column names to a value, several
                values of which one must be met, or a comparison such as ">=60"; or texts such as
                "age>=60". None stands for null.

        Returns:
            Images uint8 [n, H, W, ch], or table rows float64 [n, columns] with numbers as they are,
            categories as their index and null as NaN; and labels int32 [n].

        Raises:
            UserError: For n below 1, unknown labels and conditions that cannot be met, and for a
                classifier.
        """
        return together(self.stream(n, labels, seed, where))

    def stream(self, n: int, labels: Labels = None, seed: int | None = None, where: Where = None,
               max_tries: int | None = None) -> Sampler:
        """Returns the records of `sample` in blocks, of which one at a time is in memory.

        Args:
            n: How many.
            labels: As for `sample`.
            seed: As for `sample`, and the same records.
            where: As for `sample`.
            max_tries: The most records that are drawn to find n that meet the conditions.

        Returns:
            An iterable of pairs (records, labels), whose `report` says how conditions were met.

        Raises:
            UserError: As `sample`.
        """
        self._require_generator()
        if not isinstance(seed, int | np.integer | None):
            raise UserError(f"seed is {seed!r}; give a whole number")
        seed = int(seed) % SEEDS if seed is not None else secrets.randbits(31)
        wanted = conditions.parse(where, self.spec)
        made = exact.narrowed(model.built(self.method, self.config, self.spec), self.model,
                          self.class_shares, wanted)
        draw = model.drawing(self.method, self.config, self.spec, made.model, seed)
        source = Source(draw, functools.partial(finished, self.spec), made.prior, made.columns,
                        made.share)
        return Sampler(source, wanted, n, self._numbers(labels), seed, max_tries)

    def encoded(self, n: int, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Draws synthetic rows in the form in which a table is encoded.

        Args:
            n: How many.
            seed: To repeat a draw.

        Returns:
            Rows float32 [n, F] with hard one-hots, which keep the constraints of the schema, and
            labels int32 [n].
        """
        x, y = together(self.stream(n, None, seed).encoded())
        if isinstance(self.spec, TableSpec) and self.spec.constraints:
            made = finishing.finished(self.spec, x, y)
            x = transform.encode(self.spec, made.codes).astype(np.float32)
        return x, y

    def frame(self, n: int, seed: int | None = None, labels: Labels = None, where: Where = None
              ) -> Any:
        """Draws synthetic rows of a table as a pandas DataFrame.

        Args:
            n: How many.
            seed: To repeat a draw.
            labels: As for `sample`.
            where: As for `sample`.

        Raises:
            UserError: Without pandas, for images, and as `sample`.
        """
        from dpgen_jax.data import frames

        self._require_generator()
        if not isinstance(self.spec, TableSpec):
            raise UserError("this release makes images, which are no table; use sample")
        return frames.frame(self.spec, *self.sample(n, labels, seed, where))

    @property
    def classifies(self) -> bool:
        """Whether this is a classifier, which has `predict` and makes no records."""
        return model.built(self.method, self.config, self.spec).predict is not None

    def predict(self, x: object) -> np.ndarray:
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
        x = model.as_generated(self.spec, x)
        predictor = model.compiled(self.method, self.config, self.spec)

        def chunk(start: int) -> np.ndarray:
            part = x[start:start + CHUNK]
            padded = np.zeros((CHUNK, *x.shape[1:]), np.float32)
            padded[:len(part)] = part
            return np.asarray(predictor(self.model, padded)).argmax(1)[:len(part)]

        parts = [chunk(start) for start in range(0, len(x), CHUNK)]
        return np.concatenate([np.zeros(0, np.int32), *parts]).astype(np.int32)

    @property
    def class_shares(self) -> np.ndarray | None:
        """The shares in which labels are drawn, bought or the model's; None: equal shares."""
        if self.class_counts is not None:
            return class_prior(self.class_counts)
        of_model = model.built(self.method, self.config, self.spec).class_shares
        if of_model is None:
            return None
        shares = np.maximum(np.asarray(of_model(self.model), np.float64), 0)
        return shares / shares.sum()

    def classes(self, names: Iterable[object]) -> list[int]:
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
            raise UserError(f"label {bad[0]!r} is not one of {', '.join(known)}" + (
                "" if self.spec.class_names or isinstance(self.spec, ImageSpec) else
                "; the table has no label, so give conditions on its columns"))
        return [known[str(name)] for name in names]

    def _require_generator(self) -> None:
        if self.classifies:
            raise UserError(f"{self.method} releases a classifier, which makes no records; use "
                            "predict")

    def _numbers(self, labels: Labels) -> np.ndarray | None:
        """The classes that are named, int [k]; None for None."""
        if labels is None:
            return None
        wanted = np.atleast_1d(labels)
        if wanted.dtype.kind in "US":
            wanted = np.array(self.classes(wanted.tolist()), np.int64)
        if wanted.dtype.kind not in "iu" and wanted.size:
            raise UserError(f"labels are {wanted.dtype}; give numbers or names of classes")
        return wanted.ravel().astype(np.int64)

    def save(self, root: str | Path) -> Path:
        """Writes the files of `stated`, config.json and generator.safetensors.

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
        write_together(root, self.stated() | {
            "config.json": json_bytes(described), "generator.safetensors": data})
        (root / "README.md").unlink(missing_ok=True)  # of an earlier version, and its statement
        return root

    def stated(self) -> dict[str, bytes]:
        """Returns the bytes of privacy.json, statement.html and README.txt, by name."""
        return documents.files(self.privacy, self.spec, documents.of_release(
            self.spec, self.classifies))


def together(blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The records and the labels of all blocks."""
    x, y = zip(*blocks, strict=True)
    return np.concatenate(x), np.concatenate(y)


def load(root: str | Path) -> Release:
    """Reads a release folder, or the release of a run folder.

    Args:
        root: The folder, or the address of a release on an object store.

    Raises:
        UserError: Naming the file that is missing or damaged.
    """
    with storage.on_disk(root) as folder:
        return _read(folder)


def _read(root: Path) -> Release:
    """The release in a folder of this machine."""
    root = contents.located(root)
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
