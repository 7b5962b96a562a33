"""The release: a generator or classifier with its statement, all that may be shared."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from flax import traverse_util

from dpgen_jax import methods
from dpgen_jax.core import arrays, files, storage
from dpgen_jax.core.config import from_json, to_json
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import json_bytes, write_together
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.core.types import (
    CountTable,
    ImageSpec,
    Method,
    PyTree,
    Refinement,
    Spec,
    TableSpec,
    UserError,
)
from dpgen_jax.data.table import constraints, transform
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.release import contents, documents, guarantee, render, sampling
from dpgen_jax.release.sampling import (
    CHUNK,
    SEEDS,
    Labels,
    Sampler,
    Source,
    Where,
    finished,
    key_at,
)
from dpgen_jax.version import __version__


@functools.lru_cache(64)
def built_model(method: str, config: MethodConfig, spec: Spec) -> Method:
    """Builds a method once for each configuration and schema."""
    return methods.get(method).build(config, spec)


def tables(method: str, config: MethodConfig, spec: Spec, arrays: Any, privacy: dict[str, Any]
           ) -> tuple[CountTable, ...]:
    """Returns the noisy tables of counts that a release was made of, if its method lists them.

    The statement says how many steps there were.
    """
    listed = built_model(method, config, spec).tables
    return listed(arrays, privacy["steps"]) if listed and "steps" in privacy else ()


@functools.lru_cache(64)
def compiled_model(method: str, config: MethodConfig, spec: Spec) -> Callable[..., Any]:
    """Returns the jitted `sample` of a generator, or `predict` of a classifier.

    Raises:
        ValueError: For a method with neither.
    """
    function = (of_method := built_model(method, config, spec)).predict or of_method.sample
    if function is None:
        raise ValueError(f"{method} has neither sample nor predict")
    return jax.jit(function)


def parse_arrays(path: Path, data: bytes, expected: dict[str, jax.ShapeDtypeStruct]
                 ) -> dict[str, Any]:
    """Reads the arrays of a release, a nested dict, from the contents of its file.

    Raises:
        UserError: For other contents than safetensors, or an array of another name, shape or type
            than `arrays_of_model` expects.
    """
    try:
        flat = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: not a file of arrays ({error})") from error
    for name, wanted, present in _differing(expected, flat):
        raise UserError(f"{path} is damaged: the array {name[:100]!r} is {present}, by "
                        f"config.json it is {wanted}")
    return traverse_util.unflatten_dict(flat, sep="/")


@functools.lru_cache(64)
def arrays_of_model(method: str, config: MethodConfig, spec: Spec
                    ) -> dict[str, jax.ShapeDtypeStruct]:
    """Finds the shape and type of each array of a release by its name; nothing is computed.

    Raises:
        UserError: For a configuration of which no model can be built.
    """
    def model(key: jax.Array) -> Any:
        of_method = built_model(method, config, spec)
        public, training = of_method.init(key), of_method.post_training
        return of_method.finalize(key, training.init(key, public) if training else public)

    try:
        return named(jax.eval_shape(model, jax.random.key(0)))
    except UserError:
        raise
    except Exception as error:  # what networks make of sizes that nobody trained
        raise UserError("config.json is damaged: it does not describe a model that can be built "
                        f"({type(error).__name__})") from error


def named(model: PyTree) -> dict[str, Any]:
    """Returns the arrays of a model by the names that they have in the file of a release."""
    flat: dict[str, Any] = traverse_util.flatten_dict(model, sep="/")
    return flat


def check(method: Method, spec: Spec) -> None:
    """Checks that the state after the last step can become a release, which must not fail then.

    The functions of the method get shapes and types, and nothing is computed. It is called before
    anything is spent.

    Raises:
        TypeError: For a function of the method that cannot take what it will be given, or whose
            result cannot be stored or used.
        UserError: From the method.
    """
    key, size = jax.random.key(0), jax.ShapeDtypeStruct
    state = _result("init", method.init, key)
    if training := method.post_training:
        state = _result("post_training.init", training.init, key, state)
        after, metrics = _result("post_training.step", lambda *args: tuple(training.step(*args)),
                                 key, state, size((), np.int32))
        _require("post_training.step", (after, metrics),
                 (state, dict.fromkeys(metrics, size((), np.float32))))
    model = _result("finalize", method.finalize, key, state)
    _require_storable(model)
    if method.predict:
        rows = size((CHUNK, *spec.shape), np.float32)
        _require("predict", _result("predict", method.predict, model, rows),
                 size((CHUNK, spec.classes), np.float32))
    elif method.sample:
        labels = size((CHUNK,), np.int32)
        _require("sample", _result("sample", method.sample, model, key, labels),
                 size((CHUNK, *spec.shape), np.float32))
    else:
        raise TypeError("the method has neither `sample` nor `predict`, so its release cannot be "
                        "used")
    if method.class_shares:
        _require("class_shares", _result("class_shares", method.class_shares, model),
                 size((spec.classes,), np.float32))


def refined(refinement: Refinement, public: PyTree, model: dict[str, Any]) -> dict[str, Any]:
    """Returns the model as its refinement makes it.

    Args:
        refinement: What goes on from `Method.finalize`.
        public: The state that `Method.finalize` got, of NumPy.
        model: Nested dict of arrays of NumPy.

    Raises:
        TypeError: The refinement changes the name, the shape or the type of an array.
        Exception: From the refinement, of any kind.
    """
    made: dict[str, Any] = jax.tree.map(np.asarray, refinement.apply(public, model))
    for name, wanted, present in _differing(named(model), named(made)):
        raise TypeError(f"the array {name!r} is {present}, expected {wanted}")
    return made


def _result(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """The shapes and types of what a function of a method makes of such arguments."""
    try:
        return jax.eval_shape(function, *args)
    except UserError:
        raise
    except Exception as error:  # of any kind, as the author of a method may err in any way
        raise TypeError(f"`Method.{name}` fails on its "
                        f"inputs ({type(error).__name__}: {error})") from error


def _require(name: str, made: PyTree, expected: PyTree) -> None:
    """Refuses a function of a method by the shapes and types of what it makes."""
    found, wanted = (jax.tree.map(_kind, tree) for tree in (made, expected))
    if found != wanted:
        raise TypeError(f"`Method.{name}` returns {found}, expected {wanted}")


def _require_storable(model: PyTree) -> None:
    """Refuses a model that the file of a release would not give back."""
    try:
        empty = jax.tree.map(lambda array: np.zeros(0, array.dtype), model)
        data = safetensors.numpy.save(named(empty))
        read = traverse_util.unflatten_dict(safetensors.numpy.load(data), sep="/")
        _require("finalize", read, empty)
    except Exception as error:  # flax and safetensors raise many kinds
        raise TypeError(f"`Method.finalize` returns {str(model)[:200]}, which cannot be released: "
                        "return a dictionary of arrays, which may be nested, whose names do not "
                        "contain '/'") from error


def _kind(array: Any) -> str:
    """The type and the shape of an array, in words."""
    return f"{array.dtype} of shape {list(array.shape)}"


def _differing(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The arrays that differ in type or shape: the name, what is expected, and what is found."""
    for name in sorted(expected.keys() | found.keys()):
        wanted, present = (_kind(part[name]) if name in part else "absent"
                           for part in (expected, found))
        if wanted != present:
            yield name, wanted, present


def as_generated(spec: Spec, x: object) -> np.ndarray:
    """Returns records as a method draws them, float32 [n, *spec.shape] in [0, 1].

    Those are given as `Release.predict` takes them.

    Raises:
        UserError: For other shapes, types and values.
    """
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
    arrays.check_unit_range("records", x)
    return x.astype(np.float32)


SEED, ROWS, COLUMNS, CLASSES = 0, 5, 8, 10
"""The seed, rows of a table, images of a class, and classes that a notebook shows."""


def release_text(release: Release) -> str:
    """Returns a few public lines: what a release is, what it promises, and how it is used."""
    privacy = release.privacy
    preset = f", preset {privacy['preset']}" if privacy.get("preset") else ""
    steps = f", {privacy['steps']:,} steps" if isinstance(privacy.get("steps"), int) else ""
    use = documents.of_release(release.spec, release.classifies).code[-1]
    lines = (f"Release of {release.method}{preset}{steps}", documents.makes(release.spec),
             f"guarantee: {guarantee.line(privacy)}", use)
    return render.visible("\n".join(" ".join(line.split()) for line in lines))


def release_html(release: Release) -> str:
    """Returns the same as HTML, with synthetic images or rows."""
    picture, head, rows = None, list[str](), list[list[str]]()
    if isinstance(release.spec, TableSpec) and not release.classifies:
        names, cells = constraints.written_cells(release.spec, *release.arrays(ROWS, seed=SEED))
        head, rows = names[:CLASSES], [row[:CLASSES] for row in cells]
    elif not release.classifies:
        picture = _grid(release)
    return render.page(__package__, "release.html", text=release_text(release), picture=picture,
                       head=head, rows=rows)


def _grid(release: Release) -> render.Figure:
    """A row of images for each of the first classes."""
    from dpgen_jax.release import plots

    classes = min(release.spec.classes, CLASSES)
    x, _ = release.arrays(classes * COLUMNS, np.repeat(np.arange(classes), COLUMNS), SEED)
    file = io.BytesIO()
    plots.grid(x, classes, release.spec.class_names[:classes] or None).save(file, "PNG")
    return render.Figure("Synthetic images, a row for each class", "", file.getvalue())


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
        return release_text(self)

    def _repr_html_(self) -> str:
        return release_html(self)

    def sample(self, n: int, labels: Labels = None, seed: int | None = None, where: Where = None
               ) -> Any:
        """Draws synthetic records in the form in which the real ones came; it costs no privacy.

        Args:
            n: How many.
            labels: The classes to draw from in equal shares; by default all, in equal shares or as
                the released class counts say. Numbers, or names as texts.
            seed: To repeat a draw.
            where: Conditions that every record meets: a dict from column names to a value, several
                values of which one must be met, or a comparison such as ">=60"; or texts such as
                "age>=60". None stands for null.

        Returns:
            Of a table a pandas DataFrame with the columns of the schema in their order, each of the
            type that it declares. Of images a pair: images uint8 [n, H, W, ch], and labels
            int32 [n].

        Raises:
            UserError: For n below 1, unknown labels and conditions that cannot be met, for a
                classifier, and for a table without pandas.
        """
        if not isinstance(self.spec, TableSpec):
            return self.arrays(n, labels, seed, where)
        from dpgen_jax.release import frames

        return frames.to_frame(self.spec, *self.arrays(n, labels, seed, where))

    def frame(self, n: int, seed: int | None = None, labels: Labels = None, where: Where = None
              ) -> Any:
        """Draws the rows of a table as `sample` does, which had this name before.

        Raises:
            UserError: For images, and as `sample`.
        """
        self._require_generator()
        if not isinstance(self.spec, TableSpec):
            raise UserError("this release makes images, not tables; use sample")
        return self.sample(n, labels, seed, where)

    def arrays(self, n: int, labels: Labels = None, seed: int | None = None, where: Where = None
               ) -> tuple[np.ndarray, np.ndarray]:
        """Draws the records of `sample` as arrays.

        Returns:
            Images uint8 [n, H, W, ch], or table rows float64 [n, columns] with numbers as they are,
            categories as their index and null as NaN; and labels int32 [n].

        Raises:
            UserError: As `sample`.
        """
        return together(self.stream(n, labels, seed, where))

    def stream(self, n: int, labels: Labels = None, seed: int | None = None, where: Where = None,
               max_tries: int | None = None) -> Sampler:
        """Returns the records of `arrays` in blocks, of which one at a time is in memory.

        `max_tries` is the most records that are drawn to find n that meet the conditions.

        Returns:
            An iterable of pairs (records, labels), whose `report` says how conditions were met.

        Raises:
            UserError: As `sample`.
        """
        self._require_generator()
        if not isinstance(seed, int | np.integer | None):
            raise UserError(f"seed is {seed!r}; give a whole number")
        seed = int(seed) % SEEDS if seed is not None else secrets.randbits(31)
        wanted = sampling.parse_conditions(where, self.spec)
        made = sampling.narrowed(built_model(self.method, self.config, self.spec), self.model,
                                 self.class_shares, wanted)
        key = jax.random.key(seed)
        sample = compiled_model(self.method, self.config, self.spec)

        def draw(start: int, labels: np.ndarray) -> np.ndarray:
            # Padded to a fixed shape: compiled once, and a record does not depend on how many are
            # drawn.
            padded = np.zeros(CHUNK, np.int32)
            padded[:len(labels)] = labels
            drawn = sample(made.model, key_at(jax.random.fold_in, key, start), padded)
            return np.asarray(drawn)[:len(labels)]

        source = Source(draw, functools.partial(finished, self.spec), made.prior, made.columns,
                        made.share)
        return Sampler(source, wanted, n, self._numbers(labels), seed, max_tries)

    def encoded(self, n: int, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Draws synthetic rows in the form in which a table is encoded.

        Returns:
            Rows float32 [n, F] with hard one-hots, which keep the constraints of the schema, and
            labels int32 [n].
        """
        x, y = together(self.stream(n, None, seed).encoded())
        if isinstance(self.spec, TableSpec) and self.spec.constraints:
            made = constraints.finished(self.spec, x, y)
            x = transform.encode(self.spec, made.codes).astype(np.float32)
        return x, y

    @property
    def classifies(self) -> bool:
        """Whether this is a classifier, which has `predict` and makes no records."""
        return built_model(self.method, self.config, self.spec).predict is not None

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
            raise UserError(f"{self.method} releases a generator, which does not classify; use "
                            "sample, and train a classifier on the samples")
        x = as_generated(self.spec, x)
        predictor = compiled_model(self.method, self.config, self.spec)

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
        of_model = built_model(self.method, self.config, self.spec).class_shares
        if self.class_counts is not None:  # no class is lost to the noise of its count
            shares = np.maximum(np.asarray(self.class_counts, np.float64), 1)
        elif of_model is not None:
            shares = np.maximum(np.asarray(of_model(self.model), np.float64), 0)
        else:
            return None
        return shares / shares.sum()

    def classes(self, names: Iterable[object]) -> list[int]:
        """Returns the numbers of classes that are named.

        A number names its class too, unless a class has such a name or the records are a table's.

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
            raise UserError(f"{self.method} releases a classifier, which does not make records; "
                            "use predict")

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
        """Writes the files of `stated`, config.json and generator.safetensors; returns the folder.

        A generator is never left with the statement of another one.

        Raises:
            OSError: Where it cannot be written; what was there is still there.
        """
        root = Path(root)
        data = safetensors.numpy.save(jax.tree.map(np.asarray, named(self.model)))
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
            self.spec, self.classifies, self.method))


def together(blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The records and the labels of all blocks."""
    x, y = zip(*blocks, strict=True)
    return np.concatenate(x), np.concatenate(y)


def load(root: str | Path) -> Release:
    """Reads a release folder, or the release of a run folder, here or on an object store.

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
                        f"with {option('resume', True)}")
    data = files.read_bytes(path)
    if hashlib.sha256(data).hexdigest() != described.get("generator_sha256"):
        raise UserError(f"{path} is damaged: its SHA-256 differs from the one in config.json")
    spec, counts = contents.spec(described["spec"]), described.get("class_counts")
    if counts and len(counts) != spec.classes:  # noisy ones, which may be negative
        raise UserError(f"{root / 'config.json'} is damaged: class_counts are {len(counts)} counts "
                        f"of {spec.classes} classes")
    config = from_json(methods.get(described["method"]).Config, described["config"], "config")
    arrays = parse_arrays(path, data, arrays_of_model(described["method"], config, spec))
    return Release(described["method"], config, spec, arrays, privacy,
                   tuple(counts) if counts else None)
