"""The code that all programs of peers share: it needs pandas and numpy alone.

A program is given a folder with train.csv, schema.yaml (which is JSON) and job.json, and writes
synthetic.csv. Categories and nulls are as in the schema; numbers that come out of a peer outside of
their bounds, or broken where they are whole, are moved to the nearest that the schema allows.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

BINS = 20
"""Equal bins of a number between its declared bounds, for peers that take categories alone."""
FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()


def read():
    job = json.loads((FOLDER / "job.json").read_text())
    columns = json.loads((FOLDER / "schema.yaml").read_text())["columns"]
    texts = pd.read_csv(FOLDER / "train.csv", dtype=str, keep_default_na=False)
    frame = pd.DataFrame({name: _column(texts[name], columns[name]) for name in columns})
    return job, columns, frame


def _column(texts, entries):
    if "categories" in entries:
        return texts.where(texts != "", None)
    numbers = pd.to_numeric(texts.where(texts != "", None)).astype(float)
    return numbers.clip(float(entries["min"]), float(entries["max"]))


def write(frame, columns):
    """Write synthetic rows as the schema has them."""
    done = {}
    for name, entries in columns.items():
        values = frame[name]
        if "categories" not in entries:
            values = pd.to_numeric(values, errors="coerce").clip(float(entries["min"]),
                                                                 float(entries["max"]))
            if not entries.get("nullable"):
                values = values.fillna((float(entries["min"]) + float(entries["max"])) / 2)
            if entries["kind"] == "integer":
                values = values.round().astype("Int64")
        else:
            known = set(entries["categories"])
            spare = "" if entries.get("nullable") else entries["categories"][0]
            values = [text if text in known else spare for text in values.astype(object)]
        done[name] = values
    pd.DataFrame(done).to_csv(FOLDER / "synthetic.csv", index=False)


def report(**facts):
    """Leave facts of this run for the results file."""
    (FOLDER / "report.json").write_text(json.dumps(facts))


def coded(frame, columns):
    """Return rows as integers, null the last, and the number of values of each column, by name."""
    codes, sizes = {}, {}
    for name, entries in columns.items():
        if "categories" in entries:
            index = {text: code for code, text in enumerate(entries["categories"])}
            values, size = frame[name].map(index), len(index)
        else:
            low, high = float(entries["min"]), float(entries["max"])
            share = (frame[name] - low) / ((high - low) or 1.0)
            size = _bins(entries)
            values = np.floor(share * size).clip(0, size - 1)
        codes[name] = values.fillna(size).astype(int)
        sizes[name] = size + bool(entries.get("nullable"))
    return pd.DataFrame(codes), sizes


def decoded(codes, columns, rng):
    """Return rows of integers as a frame; a number is drawn evenly from its bin."""
    frame = {}
    for name, entries in columns.items():
        values = np.asarray(codes[name]).astype(int)
        if "categories" in entries:
            texts = np.array([*entries["categories"], None], dtype=object)
            frame[name] = texts[values]
        else:
            low, high, size = float(entries["min"]), float(entries["max"]), _bins(entries)
            numbers = low + (values + rng.random(len(values))) / size * (high - low)
            if entries["kind"] == "integer" and size > high - low:
                numbers = low + values
            frame[name] = np.where(values == size, np.nan, numbers)
    return pd.DataFrame(frame)


def _bins(entries):
    width = float(entries["max"]) - float(entries["min"])
    return int(width) + 1 if entries["kind"] == "integer" and width < BINS else BINS
