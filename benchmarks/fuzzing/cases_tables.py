"""Damaged CSV files and YAML schemas."""

from __future__ import annotations

import gzip
from random import Random
from typing import Any

import yaml

from benchmarks.fuzzing import bombs
from benchmarks.fuzzing.case import Case, misplaced, some
from benchmarks.fuzzing.damage import TEXTS, changed, damaged, dumped, odd

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
            data = bombs.gz_bomb(draw, front, draw.choice(
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
    """A column, or a label, of that many categories."""
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
