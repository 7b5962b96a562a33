"""The run folder: the places of its files, and how they are read and written.

Metrics are one line of public scalars for each block of steps, and optionally TensorBoard. Rows of
lost steps stay, marked {"superseded": true}: they prove that those steps were made. If a row has
`charged`, a resume refuses a ledger that charges fewer steps.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import numbers
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core import files
from dpgen_jax.core.console import program
from dpgen_jax.core.errors import on_command_line
from dpgen_jax.core.files import Json, parse_json, sync
from dpgen_jax.core.types import UserError
from dpgen_jax.version import __version__

# They determine the computation and its cost; the header of the ledger contains their hash.
MEANING = ("method", "dataset", "spec", "config", "budget", "records", "unit")

FEDERATION = "federation"
"""The data set in the config.json of a federation's server, which has no data."""


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """DIR/{config.json, ledger.jsonl, metrics.jsonl, private/, release/}.

    There is also class_counts.json if class counts were bought. If undeclared facts were bought,
    there is purchase.json, with schema.yaml, or with class_names.txt if a name contains a comma.
    """

    root: Path

    @property
    def config(self) -> Path:
        """The configuration of the run."""
        return self.root / "config.json"

    @property
    def ledger(self) -> Path:
        """The ledger of the run."""
        return self.root / "ledger.jsonl"

    @property
    def metrics(self) -> Path:
        """The public metrics, one line for each block of steps."""
        return self.root / "metrics.jsonl"

    @property
    def private(self) -> Path:
        """The folder that only its owner may open."""
        return self.root / "private"

    @property
    def identity(self) -> Path:
        """The key that deals the records, and their fingerprint."""
        return self.private / "identity.json"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.private / "checkpoints"

    @property
    def best(self) -> Path:
        """The best generator so far, if the run keeps it."""
        return self.private / "best.safetensors"

    @property
    def votes(self) -> Path:
        """The stored sums of votes, for methods that have them."""
        return self.private / "votes.i4"

    @property
    def noise_digests(self) -> Path:
        """Keyed digests of the random bits of each round."""
        return self.private / "noise_digests.txt"

    @property
    def released(self) -> Path:
        """The digests of the generator that was released, and of its statement."""
        return self.private / "released.json"

    @property
    def holder(self) -> Path:
        """The page on earlier runs that only the data holder may read."""
        return self.private / "for_the_data_holder.txt"

    @property
    def class_counts(self) -> Path:
        """The noisy class counts that were bought."""
        return self.root / "class_counts.json"

    @property
    def schema(self) -> Path:
        """The schema that was bought, or read from the records."""
        return self.root / "schema.yaml"

    @property
    def class_names(self) -> Path:
        """The names of bought classes, if one contains a comma."""
        return self.root / "class_names.txt"

    @property
    def answer(self) -> Path:
        """The result of a purchase; while the file exists, nothing is bought again."""
        return self.root / "purchase.json"

    @property
    def waiting(self) -> bool:
        """Whether the run has begun with a purchase, and its configuration is not complete."""
        return self.config.is_file() and "spec" not in read_json(self.config) and (
            "purchase" in read_json(self.config))

    @property
    def release(self) -> Path:
        """The release: the only folder that may be shared."""
        return self.root / "release"

    def run_id(self) -> str:
        """Returns the random id of the run, 32 hex digits.

        The ledger, private/ and the journal identify the run by it. It is empty in a folder without
        a config.json.

        Raises:
            UserError: config.json does not contain it.
        """
        if not self.config.exists():
            return ""
        identity = read_json(self.config).get("run")
        if not (isinstance(identity, str) and re.fullmatch("[0-9a-f]{32}", identity)):
            raise UserError(f"{self.config} does not name its run, so it comes from an earlier "
                            "version: start a new run, whose epsilon adds to this one's")
        return identity

    def unused(self) -> bool:
        """Whether the folder has only what a first start creates before config.json."""
        begun = _names(self.root) - {"private", "config.json.tmp"}
        return not begun and not _names(self.private)

    def traces(self) -> list[str]:
        """Returns the paths in the folder that a run creates after its ledger.

        A first start creates private/, config.json, private/identity.json and the ledger in this
        order, each completely or not at all, except the ledger's header; then it may charge, and
        then draw. So if there is anything else, something may have been drawn.
        """
        before = {"config.json", "config.json.tmp", "private", self.ledger.name, "audit",
                  f"{self.ledger.name}.lock",  # on Windows
                  *(path.name + end for path in (self.schema, self.class_names, self.answer)
                    for end in ("", ".tmp"))}
        known = {self.identity.name, self.identity.name + ".tmp"}
        return sorted([*(_names(self.root) - before),
                       *(f"private/{name}" for name in _names(self.private) - known)])


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def default_root(method: str, dataset: str) -> Path:
    """runs/METHOD-DATASET-TIME."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{method}-{dataset}-{now}"


def existing(root: Path) -> RunFolder:
    """The folder of a run. Raises UserError if it has neither config.json nor ledger.jsonl."""
    if (files := RunFolder(root)).config.exists() or files.ledger.exists():
        return files
    raise UserError(f"{root} is not a run folder; name the one that the training printed")


def go_on(root: Path, **options: object) -> str:
    """Returns how to resume a run: the command or the call, with further options."""
    try:
        config = read_json(RunFolder(root).config)
    except UserError:
        config = {}
    stated = config.get("request")
    source = config.get("typed") or (isinstance(stated, dict) and stated.get("source"))
    if on_command_line() and source:
        return program("train", resume=root, **options)
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"resume({str(root)!r}{', DATA' * (not source)}{more})"


def environment() -> Json:
    """Versions and the git hash of the code, for config.json and benchmark results."""
    packages = ("jax", "jaxlib", "flax", "optax", "numpy", "dp-accounting")
    here = Path(__file__).resolve().parent
    git = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True,
                         text=True, check=False) if (here.parents[1] / ".git").exists() else None
    return {
        "versions": {"dpgen_jax": __version__, "python": platform.python_version()}
        | {name: metadata.version(name) for name in packages},
        "git": git.stdout.strip() or None if git else None,
    }


def write_json(path: Path, value: object, mode: int = 0o644) -> None:
    """Writes completely or not at all; the file and its name are on disk when the call returns."""
    temporary = path.with_name(path.name + ".tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as out:
        json.dump(value, out, indent=1, allow_nan=False)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)
    sync(path.parent)


def read_json(path: Path) -> Json:
    """Reads a JSON object by `files.parse_json`.

    Raises:
        UserError: The file is missing, not a regular file, or not such an object.
    """
    data = files.read_bytes(path, files.JSON_BYTES)
    try:
        return parse_json(data)
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error


OF_SAMPLES = ("nearest_mean_accuracy", "synthetic_accuracy", "public_accuracy", "contrast",
              "spread")
"""Measures of samples, between 0 and 1, which the monitor computes at intervals."""
EPSILON, BUDGET_EPSILON = "epsilon", "budget_epsilon"
"""Columns of the epsilon charged so far, for a run with and without a guarantee."""
NO_METRICS = ("step", "charged", EPSILON, BUDGET_EPSILON, "seconds")
"""columns that are not metrics of the method"""


class MetricsWriter:
    """Appends rows to a JSONL file, each flushed, so that a run can be watched and interrupted.

    resume_step: the step from which a run continues; later rows are marked as superseded, since
    their steps will be written again. None changes no rows. A torn last line from a crash is
    removed in both cases. tensorboard: a folder to which the scalars are also written.

    Raises:
        UserError: The file cannot be read or written, or tensorboardX is needed and not installed.
    """

    def __init__(self, path: str | Path, resume_step: int | None = None,
                 tensorboard: str | Path | None = None):
        path = Path(path)
        self._board = _board(tensorboard, resume_step) if tensorboard is not None else None
        try:
            _supersede(path, math.inf if resume_step is None else resume_step)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error

    def write(self, row: Json) -> None:
        """Writes one line.

        Args:
            row: JSON values and scalars, `step` among them; NaN and infinities become null.

        Raises:
            UserError: For other values, before anything is written.
        """
        row = _strict(row)
        self._file.write(_line(row))
        self._file.flush()
        if self._board:
            for name, value in row.items():
                if name not in ("step", "charged") and isinstance(value, int | float):
                    self._board.add_scalar(name, value, row["step"])

    def show(self, name: str, image: np.ndarray, step: int) -> None:
        """Writes a picture uint8 [H, W, 3] to TensorBoard, if it is used."""
        if self._board:
            self._board.add_image(name, image, step, dataformats="HWC")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        if self._board:
            self._board.close()

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: str | Path) -> list[Json]:
    """Reads the rows, without superseded ones.

    A missing file has none, and a torn last line is left out.

    Raises:
        UserError: For a damaged line before the last, naming it.
    """
    return [row for row in every(path) if not row.get("superseded")]


def charged(path: str | Path) -> int:
    """The largest `charged` of any row, including superseded ones; 0 without any.

    Raises:
        UserError: As `read`.
    """
    return max((row.get("charged", 0) for row in every(path)), default=0)


def every(path: str | Path) -> list[Json]:
    """Reads all rows, superseded ones included.

    Raises:
        UserError: As `read`.
    """
    path = Path(path)
    if not path.exists():
        return []
    lines = files.read_bytes(path, files.JSON_BYTES).splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(_row(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise UserError(f"{path}, line {number} is damaged ({str(error)[:80]}); delete that "
                            "line") from error
    return rows


def _row(line: bytes) -> Json:
    row = parse_json(line)
    for name in ("step", "charged"):
        value = row.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is not a number of steps")
    return row


def _supersede(path: Path, step: float) -> None:
    """Marks later rows and drops a torn line, in a new file, so a crash leaves one of the two."""
    rows = [row | {"superseded": True} if row.get("step", 0) > step else row for row in every(path)]
    kept = "".join(map(_line, rows))
    if not path.exists() or kept.encode() == path.read_bytes():
        return
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as out:
        out.write(kept)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)


def _line(row: Json) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(v) for v in value]
    if value is None or isinstance(value, bool | str):
        return value
    if getattr(value, "shape", None) == ():  # scalars of numpy and JAX
        return _strict(value.item())
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    raise UserError(f"a metric is {type(value).__name__}; expected a number, a text or a scalar")


def _board(folder: str | Path, resume_step: int | None) -> Any:
    # Hides what an interrupted run wrote after the step from which it is resumed.
    return summary_writer()(str(folder), purge_step=resume_step + 1 if resume_step else None)


def summary_writer() -> Any:
    """The class that writes for TensorBoard.

    Raises:
        UserError: tensorboardX is missing.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise UserError("TensorBoard output needs tensorboardX; install it with "
                        "pip install 'dpgen_jax[tensorboard]', or leave it out") from error
    return SummaryWriter
