"""Damaged input of every reader, and what may be said of what is accepted."""

import dataclasses
import functools
import gzip
import itertools
import json
import math
import os
import struct
import tempfile
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import yaml

from benchmarks.fuzzing import case, read_messages, read_runs
from benchmarks.fuzzing.case import (
    DEEP,
    LONG,
    TEXTS,
    WORDS,
    Case,
    changed,
    damaged,
    dumped,
    junk,
    misplaced,
    odd,
    some,
)
from benchmarks.fuzzing.read_ledger import STEP, totals
from benchmarks.fuzzing.trial import environment
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import EpsilonDeltaEvent, GaussianEvent, PoissonGaussianEvent
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core.types import Private
from dpgen_jax.federated import wire
from dpgen_jax.run import lifecycle, loop, stages

# A true run, as its folder looked before each draw and at its end.
#
# All of it is the package's own but for the compiled step, which learns nothing here: what it would
# learn takes long to compile, and no reader looks at it.

Files = dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Moment:
    """files: path in the run folder -> bytes; n_sampled: steps whose noise was drawn by then."""

    files: Files
    n_sampled: int


@functools.cache
def moments() -> tuple[Moment, ...]:
    """Before each draw of a step, and at the end of the run."""
    found: list[Moment] = []
    real = OsBits.draw
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "run"

        def draw(self, shape):
            if (root / "class_counts.json").exists():  # bought first, by draws of their own
                found.append(Moment(snapshot(root), len(found)))
            return real(self, shape)

        with mock.patch.object(OsBits, "draw", draw), \
                mock.patch.object(loop, "compile_block", lambda method, layout: idle), \
                mock.patch.object(stages, "write_pictures", lambda *_: None), \
                mock.patch.dict(os.environ, environment(Path(place) / "home")):
            lifecycle.run(
                read_runs.request(root, False), read_runs.records(), log=lambda line: None)
        found.append(Moment(snapshot(root), len(found)))
    return tuple(found)


def idle(public, units, records, secrets, bits, groups, key, step, n):
    """In place of a compiled block: its state as it was, and no votes."""
    answered = np.zeros((len(bits), 0), np.int32)
    return public, units, {"loss": np.float32(step)}, answered, Private(answered)


def snapshot(root: Path) -> Files:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*"))
            if path.is_file()}


# Damaged idx files, npz files and image folders.

SIZES = (None, None, None, 8, 4, 3, 0, -1, 1000, 100_000, 10**9, 2**31, 2**63)
CLASSES = (None, 3, 3, 3, 1, 0, -1, 10**9, 2**63)
IDX = {"images": "train-images-idx3-ubyte", "labels": "train-labels-idx1-ubyte"}


def _options(draw: Random, spec: str, **more: Any) -> dict[str, Any]:
    """With an odd size, or number of classes, now and then."""
    arrays = {"spec": spec, **more}
    if draw.randrange(4) == 0:
        arrays["image_size"] = draw.choice(SIZES)
    if draw.randrange(6) == 0:
        arrays["classes"] = draw.choice(CLASSES)
    return arrays


def idx(draw: Random) -> Case:
    """One of the two files is odd: its header, its bytes, what it unpacks to."""
    n, side = draw.choice((1, 3, 7)), draw.choice((4, 8))
    files: dict[str, bytes | str] = {}
    target = draw.choice(("images", "labels"))
    for part, shape in {"images": [n, side, side], "labels": [n]}.items():
        pixels = bytes(i % 3 for i in range(math.prod(shape)))
        kind = draw.randrange(10) if part == target else 9
        if kind < 3:
            shape[draw.randrange(len(shape))] = draw.choice(WORDS)
        head = b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
        data, name = head + pixels, IDX[part]
        if kind in (2, 3, 4):
            data = damaged(draw, data)
        if kind in (4, 5, 6):
            data, name = gzip.compress(data), name + ".gz"
            data = damaged(draw, data) if kind == 5 else data
        elif kind == 7:
            data, name = case.gz_bomb(draw, data, b"\0"), name + ".gz"
        files[name] = data
    if draw.randrange(12) == 0:
        misplaced(draw, files)
    return Case({f"set/{name}": data for name, data in files.items()}, _options(draw, "idx:set"))


NPY_DTYPES = ("u1", "u1", "i4", ">i8", "i1", "f4", "f2", ">f8", "g", "c16", "?", "S3", "U2",
              "M8[s]", "m8[D]", "O", "V4", [("a", "u1"), ("b", "f4")])
SHAPES = ((), (0,), (6,), (6, 1), (6, 8), (6, 8, 8), (6, 8, 8, 1), (6, 8, 8, 3), (6, 8, 8, 4),
          (6, 0, 8), (0, 8, 8), (6, 8, 8, 0), (6, 8, 8, 1, 1), (6, 2, 2), (1,) * 32, (6, 3, 5))
TREE = {"x_train": (6, 8, 8), "y_train": (6,), "x_test": (6, 8, 8), "y_test": (6,),
        "classes": (), "client_id": (6,)}


def _array(draw: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Few values, in any order of memory."""
    kind = draw.choice(NPY_DTYPES)
    values = np.arange(math.prod(shape)) % 3
    if kind == "O":
        array = np.array([draw.choice((None, "a", 1, {})) for _ in values], object)
    elif isinstance(kind, str) and kind[0] in "SU":
        array = np.array([draw.choice(("a", "", "\0b")) for _ in values], kind)
    elif isinstance(kind, list) or kind[0] in "VmM":
        array = np.zeros(len(values), kind)
    else:
        array = values.astype(kind)
        if array.dtype.kind in "fc" and draw.randrange(2):
            array[:1] = draw.choice((np.nan, np.inf, -1, 0.5))
        elif array.dtype.kind == "i" and draw.randrange(3) == 0:
            array[:1] = draw.choice((-1, 100, np.iinfo(array.dtype).max, np.iinfo(array.dtype).min))
    return np.asarray(array.reshape(shape), order=draw.choice("CF"))


def _header(draw: Random) -> bytes:
    """A .npy whose header says what its bytes do not bear out."""
    shape = draw.choice(("(6, 8, 8)", "(1000000000, 1000000000)", "(-1, 8, 8)", "()",
                         "(6.0,)", "(2147483648, 8, 8)", "(True,)", "(" * 9000, "6", "None",
                         "(9999999999999999999999,)"))
    kind = draw.choice(("'|u1'", "'|O'", "'<U1000000000'", "'|V0'", "'|S0'", "3", "'<f4, <f4'",
                        "[('a', '|u1', (9, 9))]", "'(1000000,)u1'", "'|u1'\0",
                        "'<M8[1000000000Y]'"))
    text = f"{{'descr': {kind}, 'fortran_order': {draw.choice(('False', 'True', '1'))}, " \
           f"'shape': {shape}, }}".encode()
    version = draw.choice((1, 1, 2, 3, 9))
    length = draw.choice((len(text), len(text), 65535, 0))
    size = struct.pack("<H" if version == 1 else "<I", length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + bytes(384)


def npz(draw: Random) -> Case:
    """One or two arrays are odd or missing, or the archive is."""
    targets = [draw.choice(tuple(TREE)) for _ in range(1 + draw.randrange(2))]
    parts = ("x_train", "y_train", "classes", *draw.choice(((), ("client_id",), (
        "x_test", "y_test"), ("x_test",))))
    arrays = {}
    for name in dict.fromkeys((*parts, *targets)):
        shape, kind = TREE[name], draw.randrange(8) if name in targets else 7
        if kind == 0:
            continue
        if kind == 1:
            arrays[f"{name}.npy"] = _header(draw)
        elif kind < 6:
            arrays[f"{name}.npy"] = case.npy(_array(
                draw, draw.choice(SHAPES) if kind == 2 else shape))
        else:
            plain = np.arange(math.prod(shape)).reshape(shape) % 3 + 3 * (name == "classes")
            arrays[f"{name}.npy"] = case.npy(plain.astype("u1" if name[0] == "x" else "i4"))
    data: bytes | str = case.stored(arrays)
    kind = draw.randrange(16)
    if kind == 0:
        shape = f"({2**20 * draw.choice((1, 64, 4096))}, 16)"
        front = case.npy(np.zeros((1, 16), "u1"))[:-16].replace(b"(1, 16)", shape.encode())
        data = case.zip_bomb("x_train.npy", front, draw.choice((1, 16, 60)))
    elif kind == 1:
        data = case.npy(_array(draw, draw.choice(SHAPES)))
    elif kind < 5:
        data = damaged(draw, data)
    files = {"a.npz": data}
    if kind == 5:
        misplaced(draw, files)
    return Case(files, _options(draw, "npz:a.npz"))


NAMES = ("a", "b", "c", "$x$", "a\nb", ".hidden", " ", "\udcff", "x" * 200, "train", "<b>", "%s{0}")


def folder(draw: Random) -> Case:
    files: dict[str, bytes | str] = {}
    names = [draw.choice(NAMES) for _ in range(1 + draw.randrange(3))]
    for part in ("train", "test")[:1 + draw.randrange(2)]:
        for name in names:
            for i in range(1 + draw.randrange(2)):
                suffix = draw.choice(("png", "png", "jpg", "jpeg", "PNG", "gif"))
                files[f"set/{part}/{name}/{i}.{suffix}"] = _picture(draw, suffix)
    kind = draw.randrange(8)
    if kind == 0:
        misplaced(draw, files)
    elif kind == 1:
        files[f"set/{draw.choice(('train', 'test'))}/{draw.choice(NAMES)}/0.png"] = junk(draw)
    elif kind == 2:
        files[f"set/train/{draw.choice(names)}/9.png"] = draw.choice(("fifo", "device", "folder"))
    options = _options(draw, "folder:set")
    if draw.randrange(3) == 0:
        options["skip_bad"] = True
    return Case(files, options)


def _picture(draw: Random, suffix: str) -> bytes:
    kind = draw.randrange(8)
    if kind == 0:
        return case.wide_png(draw.choice((0, 1, 20_000, 2**31 - 1)), draw.choice((1, 8, 20_000)))
    side = draw.choice((8, 8, 8, 4, 1, 300))
    mode = draw.choice(case.MODES) if kind < 4 else "L"
    data = case.picture(mode, suffix.lower(), 8, side)
    return damaged(draw, data) if kind == 1 else data


# Damaged CSV files and YAML schemas.

COLUMNS = {"age": {"kind": "integer", "min": 0, "max": 110, "nullable": True},
           "dose": {"kind": "continuous", "min": 0, "max": 2.5},
           "ward": {"kind": "categorical", "categories": ["a", "b c", "d"], "other": "d"},
           "grade": {"kind": "ordinal", "categories": ["low", "high"]},
           "outcome": {"kind": "categorical", "categories": ["0", "1"]}}
SCHEMA = {"label": "outcome", "columns": COLUMNS, "read_from_data": ["age.max"],
          "bought": [{"entry": "dose.min", "kind": "epsilon-delta", "count": 1, "epsilon": 0.1,
                      "delta": 0.0, "mechanism": "quantile"}]}
ROWS = [["30", "0.5", "a", "low", "1"], ["", "1e-3", "b c", "high", "0"],
        ["7", "9", "z", "low", "0"]]
CELLS = (*TEXTS, "NA", "1_000", "1e999", "-1e999", "0x10", "1.5", "\"", "a\"b", "\"a,b\"", ",",
         ";", "9" * 400, "+-1", "\u0661", "\ufeff", "1\n2", "True", "infinity")


def csv(draw: Random) -> Case:
    files: dict[str, bytes | str] = {"s.yaml": dumped(SCHEMA), "t.csv": b""}
    name, kind = "t.csv", draw.randrange(16)
    if kind == 0:
        files |= many(draw, draw.choice((100, 1000, 10_000)))
    elif kind == 1:
        files |= categories(draw, draw.choice((100, 1000, 100_000)))
    else:
        rows = [list(COLUMNS), *([*row] for row in ROWS)]
        for _ in range(draw.randrange(4)):
            row = draw.choice(rows)
            row[draw.randrange(5) % len(row)] = draw.choice(CELLS)
        if draw.randrange(4) == 0:
            rows[draw.randrange(4)] *= draw.choice((0, 2, 500))
        end = draw.choice(("\n", "\n", "\r\n", "\r"))
        data = end.join(map(",".join, rows)).encode(
            draw.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16")), "surrogatepass")
        if kind < 5:
            data = damaged(draw, data)
        elif kind < 7:
            name = "t.csv.gz"
            data = damaged(draw, gzip.compress(data)) if kind == 5 else gzip.compress(data)
        elif kind == 7:
            name = "t.csv.gz"
            front = (",".join(COLUMNS) + "\n").encode()
            data = case.gz_bomb(draw, front, draw.choice(
                (b"1,1,a,low,0\n", b"x", b"\n", b",", b"\"", b"\0")))
        files[name] = data
    if kind == 8:
        misplaced(draw, files)
    options = {"spec": f"csv:{name}", "schema": "s.yaml"}
    if draw.randrange(8) == 0:
        options["test_csv"] = draw.choice((name, "none.csv"))
    return Case(files, options)


def many(draw: Random, count: int) -> dict[str, bytes]:
    """A table of that many columns."""
    kind = draw.choice(tuple(COLUMNS)[:4])
    columns = {f"{kind}{i}": COLUMNS[kind] for i in range(count)} | {"outcome": COLUMNS["outcome"]}
    cell = ROWS[0][list(COLUMNS).index(kind)]
    lines = [",".join(columns), *[",".join([cell] * count + ["0"])] * 3]
    return {"s.yaml": dumped({"label": "outcome", "columns": columns}),
            "t.csv": "\n".join(lines).encode()}


def categories(draw: Random, count: int) -> dict[str, bytes]:
    texts = [f"c{i}" for i in range(count)]
    name = draw.choice(("ward", "grade", "outcome"))
    columns = {"age": COLUMNS["age"], "outcome": COLUMNS["outcome"]}
    columns[name] = {"kind": "ordinal" if name == "grade" else "categorical", "categories": texts}
    first = ["1" if key == "age" else texts[-1] if key == name else "0" for key in columns]
    return {"s.yaml": dumped({"label": "outcome", "columns": columns}),
            "t.csv": "\n".join([",".join(columns), ",".join(first)]).encode()}


ODD_YAML = (
    "&a [*a]", "&a {columns: *a}", "{<<: *b}", "? [a, b]\n: c", "!!python/object:os.system {}",
    "--- 1\n--- 2", "a: b: c", "\t- x", "*nobody", "!!binary x", "%YAML 9.9\n---\na: 1", "- - - -",
    "'" * 9, "|\n x", "{[a]: 1}", "? {a: 1}\n: 2", "!<x> y", "\0", "columns: !!set {a}",
    "2001-01-01", "[" * 10_000, "{a: " * 5000, "- " * 5000, "!!str", "&a", "a: *a")


def bomb(draw: Random) -> str:
    """Aliases of aliases: ten to the power of their number of texts, in a place that is read."""
    depth, width = draw.choice((3, 5, 9, 30)), draw.choice((2, 10))
    lines = ["a0: &a0 [x, y]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, depth)]
    last = f"*a{depth - 1}"
    use = draw.choice((f"read_from_data: {last}", f"label: {last}", f"bought: {last}",
                       f"columns: {{x: {{kind: categorical, categories: {last}}}}}",
                       f"columns: {{x: {last}}}", f"columns: {last}"))
    anchors = draw.choice(("", "columns: {x: {kind: integer, min: 0, max: 1}}\nlabel: x\n"))
    return "\n".join(lines) + "\n" + (anchors if "columns" not in use else "") + use + "\n"


def schema(draw: Random) -> Case:
    kind = draw.randrange(16)
    text = yaml.safe_dump(SCHEMA, default_flow_style=draw.choice((False, True, None)))
    if kind < 6:
        data = dumped(changed(draw, SCHEMA))
    elif kind < 10:
        data = damaged(draw, text.encode())
    elif kind == 10:
        data = bomb(draw).encode()
    elif kind == 11:
        data = _spliced(draw, text).encode()
    elif kind == 12:
        data = draw.choice(ODD_YAML).encode()
    elif kind == 13:
        data = text.encode(draw.choice(("utf-16", "utf-8-sig", "latin-1")))
    elif kind == 14:
        data = draw.choice((many, categories))(draw, draw.choice((100, 1000, 10_000)))["s.yaml"]
    else:
        data = yaml.safe_dump(_odd_column(draw)).encode("utf-8", "surrogatepass")
    files: dict[str, bytes | str] = {"s.yaml": data}
    if draw.randrange(20) == 0:
        misplaced(draw, files)
    return Case(files, {"name": "s.yaml"})


def _spliced(draw: Random, text: str) -> str:
    """Odd YAML in place of some values."""
    lines = text.splitlines()
    for i in some(draw, range(len(lines))):
        lines[i] = lines[i].partition(":")[0] + ": " + draw.choice(ODD_YAML)
    return "\n".join(lines)


def _odd_column(draw: Random) -> dict[str, Any]:
    columns: dict[str, Any] = {key: dict(value) for key, value in COLUMNS.items()}
    for column in some(draw, list(columns.values())):
        value = odd(draw)
        column[draw.choice(("min", "max", "categories", "kind", "nullable", "other"))] = \
            str(value) if isinstance(value, int | float) else value
    return {"label": "outcome", "columns": columns}


# Damaged ledgers, and what may be said of one that is still accepted.
#
# Without a new chain of hashes, a file that is accepted consists of the first k lines of the true
# one and a torn tail: it charges, of every event, at least what those k lines charge. Somebody who
# writes a new chain can write whatever he likes; there only the sums must still be sums.

NAME = "ledger.jsonl"
COUNTS = EpsilonDeltaEvent(0.01, mechanism="class-counts")


@functools.cache
def valid(kind: int) -> bytes:
    """A true ledger: 0 plain; 1 with a purchase, an extension and a resume; 2 of drawn records."""
    header = {"epsilon": 3.0, "delta": 1e-5, "relation": "replace-one", "unit": "record",
              "config_hash": "abc"}
    sampled = PoissonGaussianEvent(GaussianEvent(20.0, 40), 0.01, "replace-one")
    step = sampled if kind == 2 else STEP
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        with Ledger.create(path, header) as book:
            if kind == 1:
                book.charge(((COUNTS, 1),))
            book.settle(book.reserve(((step, 10),), 10), ((step, 7),), 7)
            book.reserve(((step, 5),), 5)
        if kind:
            with Ledger.open(path) as book:
                if kind == 1:
                    book.extend(4.0)
                book.settle(book.reserve(((step, 3),), 3), ((step, 3),), 3)
                book.settle(book.reserve(((step, 6),), 6), (), 0)
                book.reserve(((step, 2),), 2)
        return path.read_bytes()


def ledger(draw: Random) -> Case:
    data = valid(draw.randrange(3))
    files: dict[str, bytes | str] = {NAME: data}
    kind = draw.randrange(10)
    if kind == 0:
        misplaced(draw, files)
    elif kind < 3:
        files[NAME] = lines(draw, data)
    elif kind < 5:
        files[NAME] = _rechained(draw, data)
    elif kind < 7:  # as a crash leaves it, or nearly
        files[NAME] = data[:draw.randrange(len(data) + 1)] + (junk(draw) if kind == 6 else b"")
    else:
        files[NAME] = damaged(draw, data)
    return Case(files, known={"true": data, "forged": kind in (3, 4)})


def lines(draw: Random, data: bytes) -> bytes:
    """Whole lines left out, repeated, swapped."""
    parts = data.splitlines(keepends=True)
    for kind in some(draw, ("drop", "repeat", "swap", "cut")):
        if not parts:
            break
        i, j = (draw.randrange(len(parts)) for _ in range(2))
        if kind == "drop":
            del parts[i]
        elif kind == "repeat":
            parts.insert(j, parts[i])
        elif kind == "swap":
            parts[i], parts[j] = parts[j], parts[i]
        else:
            del parts[i:]
    return b"".join(parts)


def _rechained(draw: Random, data: bytes) -> bytes:
    """Other records in a chain that is sound, as far as they can be written at all."""
    records = [json.loads(line) for line in data.splitlines()]
    for record in records:
        del record["prev"], record["hash"]
    i = draw.randrange(len(records))
    records[i] = changed(draw, records[i]) if draw.randrange(4) else odd(draw)
    out, previous = b"", books.CHAIN_START
    for record in records:
        try:
            line, previous = books.chained_line(previous, record)
        except (ValueError, TypeError, AttributeError):  # NaN, or no record: a torn line of it
            return out + repr(record).encode(errors="replace")[:500]
        out += line
    return out


def check_ledger(case: Case, value: dict[str, Any]) -> str | None:
    """Returns what is wrong with an accepted ledger, or None."""
    if value["jax"]:
        return "the accountant imported JAX"
    sums = [value[name] for name in ("before", "after", "again")]
    if not all(float(s["epsilon"]) >= 0 and s["steps"] >= 0 and min(s["counts"].values(), default=0)
               >= 0 for s in sums):
        return f"sums that are none: {sums}"
    if value["before"] != value["after"]:
        return f"a resume charges other than what is read: {value['before']}, {value['after']}"
    if falls_short(value["after"], value["again"]):
        return "a step more charged less"
    return None if case.known["forged"] else below_prefix(case, value["after"])


def below_prefix(case: Case, found: dict[str, Any]) -> str | None:
    """Whether an accepted file charges less than the lines of the true one that it begins with."""
    kept = longest_prefix(case.known["true"], case.files[NAME])
    if not kept:
        return "the first line is not the true one"
    floor = charged(kept)
    if falls_short(floor, found):
        return f"charges {found}, and its first {len(kept.splitlines())} lines charge {floor}"
    return None


def longest_prefix(true: bytes, found: bytes) -> bytes:
    """The whole lines that both begin with."""
    kept = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(
        true.split(b"\n")[:-1], found.split(b"\n"), strict=False))
    return b"".join(line + b"\n" for line, _ in kept)


def falls_short(floor: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether `found` charges fewer steps than `floor`, fewer of an event, or less epsilon."""
    least = float(floor["epsilon"])
    return (found["steps"] < floor["steps"]
            or any(found["counts"].get(event, 0) < n for event, n in floor["counts"].items())
            or (math.isfinite(least) and float(found["epsilon"]) < least))


def charged(data: bytes) -> dict[str, Any]:
    return totals(books.account(books.replay_lines(Path(NAME), data)[0]))


# Run folders of which files are missing, of another time, repeated or damaged; and releases.
#
# What a folder proves of the steps that were drawn: each file that is, byte for byte, that of a
# moment of the true run proves the steps that this file knows of. A folder is refused, or its
# ledger charges at least what its own true lines charge and what any of its files proves.

LEDGER, METRICS, CLASS_COUNTS = "ledger.jsonl", "metrics.jsonl", "class_counts.json"
CHECKPOINTS = "private/checkpoints"
PARTS = (LEDGER, METRICS, CLASS_COUNTS, "config.json", "private/identity.json", CHECKPOINTS,
         "release", "private", "curves.png")
"""files and folders that are removed, exchanged or repeated as a whole"""
JSON = ("config.json", CLASS_COUNTS, "private/identity.json", "release/privacy.json",
        "release/config.json")


def run(draw: Random) -> Case:
    """A folder at some moment, with one to three things done to it."""
    history = moments()
    moment = 1 + draw.randrange(len(history) - 1)
    files: dict[str, Any] = dict(history[moment].files)
    done = [f"as before draw {moment + 1} of {history[-1].n_sampled}"]
    for kind in some(draw, ("remove", "remove", "older", "older", "repeat", "json", "lines",
                            "bytes", "misplaced")):
        if not files:
            break
        done.append(f"{kind} {WAYS[kind](draw, files)}")
    return Case({f"run/{name}": data for name, data in files.items()}, known={"files": files},
                done=done)


def _under(files: dict[str, Any], part: str) -> list[str]:
    return [name for name in files if name == part or name.startswith(part + "/")]


def _part(draw: Random, files: dict[str, Any]) -> str:
    inner = sorted({"/".join(PurePosixPath(name).parts[:3]) for name in files
                    if name.startswith(CHECKPOINTS)})
    return draw.choice((*PARTS, *inner, *(sorted(files)[:1])))


def _remove(draw: Random, files: dict[str, Any]) -> str:
    part = _part(draw, files)
    for name in _under(files, part):
        del files[name]
    return part


def _older(draw: Random, files: dict[str, Any]) -> str:
    """A part as it was at another moment, or never was."""
    part, moment = _part(draw, files), draw.randrange(len(moments()))
    other = moments()[moment].files
    for name in _under(files, part):
        del files[name]
    files.update({name: other[name] for name in _under(other, part)})
    return f"{part} of draw {moment + 1}"


def _repeat(draw: Random, files: dict[str, Any]) -> str:
    """A checkpoint or a file under another name too."""
    part = _part(draw, files)
    new = str(PurePosixPath(part).with_name(draw.choice(("1", "3", "9", "copy", "9.unfinished"))))
    files.update({new + name[len(part):]: files[name] for name in _under(files, part)})
    return f"{part} as {new}"


def _json(draw: Random, files: dict[str, Any]) -> str:
    notes = [name for name in files if name.endswith("note.json")]
    name = draw.choice((*JSON, *sorted(notes)))
    if isinstance(files.get(name), bytes):
        try:
            files[name] = dumped(changed(draw, json.loads(files[name])))
        except (ValueError, RecursionError):
            files[name] = damaged(draw, files[name])
    return name


def _lines(draw: Random, files: dict[str, Any]) -> str:
    """Lines of the ledger or of the metrics left out, repeated or swapped; or a torn end."""
    name = draw.choice((LEDGER, METRICS))
    if isinstance(files.get(name), bytes):
        data = files[name]
        files[name] = data[:draw.randrange(len(data) + 1)] if draw.randrange(2) else \
            lines(draw, data)
    return name


def _bytes(draw: Random, files: dict[str, Any]) -> str:
    name = draw.choice(sorted(files))
    if isinstance(files[name], bytes):
        files[name] = damaged(draw, files[name])
    return name


WAYS = {"remove": _remove, "older": _older, "repeat": _repeat, "json": _json, "lines": _lines,
        "bytes": _bytes, "misplaced": misplaced}


def account(draw: Random) -> Case:
    return run(draw)


def release(draw: Random) -> Case:
    """The release of the finished run, damaged."""
    files: dict[str, Any] = {name: data for name, data in moments()[-1].files.items()
                             if name.startswith("release/")}
    for kind in some(draw, ("json", "json", "bytes", "remove", "misplaced"), 2):
        if kind == "json":
            name = draw.choice(("release/privacy.json", "release/config.json"))
            if isinstance(files.get(name), bytes):
                files[name] = dumped(changed(draw, json.loads(moments()[-1].files[name])))
        elif files:
            WAYS[kind](draw, files)
    return Case(files)


def check_run(case: Case, value: dict[str, Any]) -> str | None:
    """Returns what is wrong with a folder that a resume accepts."""
    files = case.known["files"]
    steps = {name: known for name, known in proven(files).items() if known > value["steps"]}
    if steps:
        return f"{value['steps']} steps are charged, and files prove more: {steps}"
    if CLASS_COUNTS in files and not any("class counts" in event for event in value["counts"]):
        return "class counts are there, and charged nowhere"
    true, found = moments()[-1].files[LEDGER], files.get(LEDGER, b"")
    if not isinstance(found, bytes) or not (kept := longest_prefix(true, found)):
        return None  # a new ledger, in a folder that proves nothing
    floor = charged(kept)
    return f"charges {value}, its own lines {floor}" if falls_short(floor, value) \
        else None


def proven(files: dict[str, Any]) -> dict[str, int]:
    """Steps that were surely drawn, by the files that are those of the true run."""
    history = moments()

    def true(name: str) -> bool:
        return any(moment.files.get(name) == files[name] for moment in history)

    found = {}
    if METRICS in files and true(METRICS):
        rows = [json.loads(line) for line in files[METRICS].splitlines()]
        found[METRICS] = max((row["step"] for row in rows), default=0)
    for step in range(1, history[-1].n_sampled + 1):
        inside = f"{CHECKPOINTS}/{step}"
        if all(name in files and true(name) for name in _under(history[-1].files, inside)) and \
                _under(files, inside):
            found[inside] = step
    if "release/privacy.json" in files and true("release/privacy.json"):
        found["release"] = history[-1].n_sampled
    return found


# Damaged messages of a federation, in either direction, and damaged terms.

DTYPES = ("f4", "f2", "f8", "i4", "u4", "i8", "u1", "?")
question = functools.cache(read_messages.question)
answer = functools.cache(read_messages.answer)


def message(draw: Random) -> Case:
    return Case({"m": _spoiled(draw, question())})


def reply(draw: Random) -> Case:
    return Case({"m": _spoiled(draw, answer())})


def _spoiled(draw: Random, data: bytes) -> bytes:
    """Makes what is said, an array, the header of the file, or its bytes odd."""
    kind = draw.randrange(8)
    if kind < 2:
        return damaged(draw, data)
    if kind == 2:
        size = struct.unpack("<Q", data[:8])[0]
        head = dumped(changed(draw, json.loads(data[8:8 + size])))
        size = draw.choice((len(head), len(head), *WORDS))
        return struct.pack("<Q", size) + head + data[8 + size:]
    about, decoded = wire.decode(data)
    arrays = dict(sorted(decoded.items()))  # safetensors gives them in any order
    if kind < 5:
        note = dumped(_about(draw, about))
        arrays = {wire.ABOUT: np.frombuffer(note, np.uint8)} | {
            f"array/{name}": array for name, array in arrays.items()}
        return wire.safetensors.numpy.save(arrays)
    name = draw.choice((*arrays, "", "x", "about"))
    arrays[name] = _message_array(draw, arrays.get(name, np.zeros(3, np.float32)))
    if draw.randrange(6) == 0:
        del arrays[name]
    return wire.encode(about, arrays)


def _about(draw: Random, about: dict[str, Any]) -> Any:
    if draw.randrange(2):
        return changed(draw, about)
    value = draw.choice((-1, 2**31 - 1, 2**31, 2**64, 0.5, True, "0", None, [], {}, DEEP, LONG,
                         odd(draw)))
    return about | {draw.choice(("turn", "step", "client", "noise", "terms")): value}


def _message_array(draw: Random, array: np.ndarray) -> np.ndarray:
    """Another dtype or shape, or values that no one may send."""
    kind = draw.randrange(4)
    if kind == 0:
        return array.astype(draw.choice(DTYPES))
    if kind == 1:
        return array.reshape(-1)[:draw.randrange(array.size + 1)]
    if kind == 2:
        return np.broadcast_to(array, (draw.choice((0, 2)), *array.shape)).copy()
    array = array.copy()
    most = np.iinfo(array.dtype).min if array.dtype.kind == "i" else draw.choice(
        (np.nan, np.inf, -np.inf, 3e38))
    array.reshape(-1)[:1] = most if array.dtype.kind in "if" else 1
    return array


def terms(draw: Random) -> Case:
    text = read_messages.TERMS.to_text()
    data = damaged(draw, text.encode()) if draw.randrange(3) == 0 else \
        dumped(changed(draw, json.loads(text)))
    return Case({"terms.json": data})


def check_message(case: Case, value: dict[str, Any]) -> str | None:
    """A question asked twice is answered twice at one price, or not at all."""
    if value["answers"] and value["charged"] < 1:
        return f"answered and not charged: {value}"
    return None


def check_reply(case: Case, value: dict[str, Any]) -> str | None:
    form = list(read_messages.method().mechanism.shape)
    if any(shape != form for shape in value["shape"]):
        return f"an answer of another form counts: {value}"
    if bad := [line for line in value["lines"] if len(line.splitlines()) != 1]:
        return f"not one line: {bad[0][:300]!r}"
    return None
