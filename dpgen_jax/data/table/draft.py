"""A draft of a table's schema: what is read from the data, and how a schema is written.

A draft marks every entry that was read from private records. If an entry is replaced by the word
`private`, it can be bought under differential privacy instead (`run.purchase`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import yaml

from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError, listed, nearest, option, quoted
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import NO_LABEL, Column, TableSpec
from dpgen_jax.data.table import columns, patterns, schema, transform
from dpgen_jax.data.table.columns import (
    IDENTIFIER,
    LEFT_OUT,
    NULLS,
    SPACE,
    UNDECIDED,
    UNREAD,
    column,
    distinguishable,
)
from dpgen_jax.data.table.parsing import Cells
from dpgen_jax.data.table.schema import ENCODING

MAX_CATEGORIES = 100
KEY = re.compile(r"(^|[^a-zA-Z])(?i:id|uid|uuid|guid|key|index|nr|no)$|[a-z]ID$")
"""Names of columns of keys; names are public."""
ENOUGH = 50
"""The fewest values from which the shape of a column of numbers is drafted."""
SPIKE, AMONG = 0.1, 20
"""A special value has at least this share of the cells, among more distinct values than this
number."""
TAIL = 0.02
"""The median of a column with a heavy tail lies below this share of its range."""
DAYS = ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%Y%m%d", "%d-%m-%Y",
        "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%m/%d/%y", "%Y-%m")
HOURS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
FORMATS = [*(("date", day) for day in DAYS if day != "%Y%m%d"),
           *(("datetime", f"{day}{between}{hour}{zone}") for day in DAYS
             for between in (" ", "T") for hour in HOURS for zone in ("", "Z")),
           *(("time", hour) for hour in HOURS),
           *(("duration", form) for form in ("H:MM:SS", "H:MM"))]
"""The kinds and formats that are tried, in this order."""
MARKS = ((".", ""), (".", ","), (",", ""), (",", "."), (",", " "), (".", " "), (".", "'"))
"""The marks that are tried: of decimals, and between thousands."""


@dataclasses.dataclass(frozen=True)
class Remark:
    """Why a column is drafted as it is, and what else could be written.

    Attributes:
        why: The reason; it may quote the cells.
        instead: Entries of the column, as a schema has them.
    """

    why: str
    instead: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Drafted:
    """A draft.

    Attributes:
        document: The document of the schema.
        remarks: On columns that are undecided or never read, by name.
    """

    document: Json
    remarks: Mapping[str, Remark] = dataclasses.field(default_factory=dict)

    @property
    def undecided(self) -> list[str]:
        """The names of the columns whose kind is still `?`."""
        return [name for name, made in self.document["columns"].items()
                if made["kind"] == UNDECIDED]

    def condensed(self) -> Drafted:
        """Returns the draft with many numbered columns that are alike declared by one range."""
        return dataclasses.replace(self, document=patterns.condensed(self.document))

    def lines(self) -> list[str]:
        """Returns lines on what was read from the records, bought, left out, and is undecided."""
        any_kind = {"kind": "categorical", "categories": ["a", "b"]}
        made = schema.parse(self.document | {"columns": {
            name: any_kind if entries["kind"] == UNDECIDED else entries
            for name, entries in self.document["columns"].items()}}, "the draft")
        lines = [f"not covered by epsilon: {entry.what}" for entry in made.uncovered]
        if left_out := [name for name in made.spec.left_out if name in self.remarks]:
            lines.append(f"left out, by the look of their cells: {listed(left_out)}")
        if names := self.undecided:
            lines.append(f"undecided: {listed(names)}; each has kind: \"?\", the reason and "
                         "suggestions, and training refuses the schema until you write its entries")
        return [*lines, *made.notes]


Entries = Json | tuple[Json, Remark]
"""The entries of a column, with a remark where there is one."""


def _undecided(why: str, *instead: str) -> Entries:
    return {"kind": UNDECIDED}, Remark(why, instead)


def drafted_entries(texts: list[str], is_label: bool, dtype: str = "") -> Entries:
    """Drafts the entries of a column from its cells.

    The label is a category whatever it looks like. `dtype` is the type in which the column came,
    where it has one (`columns`).
    """
    present = [text for text in texts if text not in NULLS]
    if is_label:
        return _of_label(present, len(texts))
    if not present:
        return _undecided("no values", f"{{kind: {LEFT_OUT}}}",
                          "{kind: categorical, categories: [A, B], nullable: true}")
    made = _of_present(present, dtype)
    if isinstance(made, tuple) or made["kind"] in UNREAD:
        return made
    return {**made, "nullable": "true" if len(present) < len(texts) else "false"}


def _of_label(present: list[str], rows: int) -> Entries:
    """Drafts the classes of a label."""
    classes = ordered(present)
    if len(classes) > MAX_CATEGORIES:
        return _undecided(f"{len(classes)} different texts, and a draft has at most "
                          f"{MAX_CATEGORIES} classes",
                          "{kind: categorical, categories: {file: CLASSES.txt}}",
                          "{kind: integer, min: 0, max: 9}, with `targets` in place of `label`")
    if len(classes) < 2:
        return _undecided(f"{len(classes)} class; a label has 2 at least",
                          "{kind: categorical, categories: [A, B]}",
                          f"{{kind: {LEFT_OUT}}}, without `label`")
    if len(present) < rows:
        listed_ = _value(classes)
        return _undecided("empty cells, and every row needs its class",
                          f"{{kind: categorical, categories: {listed_}, odd: \"null\"}}: rows "
                          "without a class are left out",
                          f"{{kind: categorical, categories: {listed_}, nullable: true}}, with "
                          "`targets` in place of `label`")
    return {"kind": "categorical", "categories": classes}


def _of_present(texts: list[str], dtype: str) -> Entries:
    """Drafts the entries of a column but for its nulls, from cells that are none."""
    unique = list(dict.fromkeys(texts))
    is_padded = len({len(text) for text in unique}) == 1 < len(unique[0]) and any(
        text[0] == "0" for text in unique) and all(re.fullmatch("[0-9]+", text) for text in unique)
    if (dtype.startswith("category") or is_padded) and len(unique) <= MAX_CATEGORIES:
        return {"kind": "categorical", "categories": ordered(unique)}
    if is_padded and len(unique) == len(texts):
        return {"kind": "identifier", "pattern": "#" * len(unique[0])}
    if is_padded:  # numerals of one length with zeros in front, such as zip codes
        return {"kind": "codes", "categories": ordered(unique)}
    compact = {transform.compact_format(text) for text in unique}
    if compact in ({transform.COMPACT}, {transform.LONGER}):
        return {"kind": "datetime", "min": min(unique), "max": max(unique), "format": compact.pop()}
    are_names = not dtype.lower().startswith("float") and _loses_digits(unique)
    values = None if are_names else _values(transform.number, texts)
    if values is not None:
        made = _shape(values, {})
        return made | (_decimals(unique, ".") if made["kind"] == "continuous" else {})
    if len(unique) == 2 and {text.casefold() for text in unique} == {"true", "false"}:
        return {"kind": "boolean", "categories": sorted(unique, key=str.casefold)}
    formed = _dated(unique, dtype.startswith("timedelta64")) or (
        None if are_names else _marked(unique, texts))
    if formed is not None:
        return formed
    if (looks := _look(unique, len(texts))) is not None:
        return looks
    if len(unique) > MAX_CATEGORIES and len(unique) == len(texts) and (pattern := _pattern(unique)):
        return {"kind": "identifier", "pattern": pattern}
    return _categories(unique)


def _loses_digits(unique: list[str]) -> bool:
    """Returns whether numerals are so long that numbers would not keep them: they are names."""
    return all(re.fullmatch("[0-9]+", text) for text in unique) and any(
        int(text[:400]) > 2**53 for text in unique)


def ordered(texts: Iterable[str]) -> list[str]:
    """Returns each text once, numbers by their value: 9 before 10."""
    return sorted(set(texts), key=lambda text: (transform.number(text) or 0.0, text))


def drafted_numbers(low: float, high: float, whole: bool) -> dict[str, str]:
    """Returns the kind and bounds of a column of numbers, of which the ends are known.

    Whole numbers that an integer column cannot distinguish are continuous.
    """
    if whole and distinguishable(math.floor(low), math.ceil(high)):
        return {"kind": "integer", "min": str(math.floor(low)), "max": str(math.ceil(high))}
    return {"kind": "continuous", "min": repr(float(low)), "max": repr(float(high))}


def _categories(texts: list[str]) -> Entries:
    categories = ordered(texts)
    odd = [text for text in categories if transform.number(text) is None]
    if len(categories) > MAX_CATEGORIES and 2 * len(odd) < len(categories):
        values = [value for text in categories if (value := transform.number(text)) is not None]
        made = drafted_numbers(min(values), max(values), all(map(float.is_integer, values)))
        ends = ", ".join(f"{key}: {value}" for key, value in made.items())
        return _undecided(f"{len(values)} different numbers, and texts that are none: "
                          f"{listed(odd)}",
                          f"{{{ends}, nullable: true, odd: \"null\"}}: the texts are read as null",
                          f"{{kind: {LEFT_OUT}}}")
    codes = "{kind: codes, categories: {file: CODES.txt}}"
    if len(categories) > MAX_CATEGORIES and (pattern := _pattern(texts)):
        return _undecided(f"{len(categories)} different texts, some in several rows; leave it out "
                          f"and name it as the {option('unit')} if it names persons",
                          codes, f"{{kind: identifier, pattern: {_quoted(pattern)}}}")
    if len(categories) > MAX_CATEGORIES:
        return _undecided(f"{len(categories)} different texts without a common pattern", codes,
                          f"{{kind: {LEFT_OUT}}}")
    return {"kind": "categorical", "categories": categories}


EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}")
PHONE = re.compile(r"(?=.*[ ()/+-])(?:[ ()/+-]*\d){7,15}")
PERSON = re.compile(r"[^\W\d_a-z][\w'.-]*(,? [^\W\d_a-z][^\W\d]*[.'\w-]*){1,3}")
FEWEST_TEXTS, WORDS = 20, 4
"""The different texts that phone numbers, names and free text exceed, and the mean words of the
latter."""
MOSTLY = 0.95
"""The share of a column's texts that decides its look."""


def _look(unique: list[str], cells: int) -> Entries | None:
    """Drafts a column that looks like personal texts: it is never read."""
    def share(form: re.Pattern[str]) -> float:
        return sum(form.fullmatch(text) is not None for text in unique) / len(unique)

    if share(EMAIL) >= MOSTLY:
        return _unread("e-mail addresses")
    if len(unique) <= FEWEST_TEXTS or 2 * len(unique) <= cells:
        return None
    if share(PHONE) >= MOSTLY:
        pattern = _pattern(unique)
        return {"kind": IDENTIFIER, "pattern": pattern} if "#" in pattern else _unread(
            "phone numbers", "{kind: identifier, pattern: \"### ### ####\"}")
    if share(PERSON) >= MOSTLY:
        return _unread("names", "{kind: text, placeholder: \"(name)\"}")
    if sum(len(text.split()) for text in unique) >= WORDS * len(unique):
        return _unread("free text")
    return None


def _unread(what: str, instead: str = "{kind: text, placeholder: \"(text)\"}") -> Entries:
    return {"kind": LEFT_OUT}, Remark(f"looks like {what}: neither read nor released", (instead,))


def _values(read: Any, texts: list[str]) -> np.ndarray | None:
    """Returns the codes of texts, float64 [n]; None where one of them has none."""
    values = list(itertools.takewhile(lambda value: value is not None, map(read, texts)))
    return np.array(values, np.float64) if len(values) == len(texts) else None


def _shape(values: np.ndarray, written: dict[str, str]) -> Json:
    special: list[str] = []
    counts = Counter(values.tolist()) if len(values) >= ENOUGH else Counter()
    for value, count in counts.most_common(2):
        if count >= SPIKE * len(values) and len(counts) > AMONG and len(counts) > 2:
            special.append(f"{value:g}" if float(f"{value:g}") == value else repr(value))
    rest = values[~np.isin(values, [float(text) for text in special])]
    low, high = float(rest.min()), float(rest.max())
    made: Json = drafted_numbers(low, high, bool((values == np.rint(values)).all())) | written
    if special:
        made["special"] = special
    if (len(rest) >= ENOUGH and np.median(rest) - low < TAIL * (high - low)
            and len(np.unique(rest)) > AMONG):
        try:
            column("", made | {"scale": "log"})
        except UserError:  # whole numbers that a log scale would not keep apart
            return made
        made["scale"] = "log"
    return made


def _decimals(texts: list[str], mark: str) -> dict[str, str]:
    """Returns the number of decimals where all texts have as many, and some end in a zero."""
    ends = {len(text.rpartition(mark)[2]) if mark in text else 0 for text in texts}
    zeros = any(mark in text and text.endswith("0") for text in texts)
    plain = all(re.fullmatch(r"[+-]?[\d.,' ]+", text) for text in texts)
    return {"decimals": str(*ends)} if len(ends) == 1 and zeros and plain and 0 < max(
        ends) < 16 else {}


def _dated(texts: list[str], are_durations: bool) -> dict[str, str] | None:
    """Returns the entries of dates and times, by the first format that reads all texts.

    Of stamps with offsets the zone is the commonest one.
    """
    zones = Counter(transform.zone_name(offset) for text in texts
                    if re.search(r":\d\d\D*[+-]|:.*UTC", text)
                    and (offset := transform.offset_of(text)) is not None)
    zone = {"zone": max(zones, key=lambda name: zones[name])} if zones else {}
    in_parts = any(transform.FRACTION.search(text) for text in texts)
    for kind, form in FORMATS:
        if (are_durations and kind != "duration") or (
                in_parts and "%S" in form and "%f" not in form):
            continue
        if zone and kind == "datetime":
            form += transform.ZONE
        shaped = Column("", "integer", written=kind, format=form,  # type: ignore[arg-type]
                        zone=zone.get("zone", "") * (kind == "datetime"))
        read = transform.reader(shaped)
        if read(texts[0]) is not None and (values := _values(read, texts)) is not None:
            low, high = transform.texts(shaped, np.array([values.min(), values.max()]))
            return {"kind": kind, "min": low, "max": high, "format": form} | (
                zone if kind == "datetime" else {})
    return None


def _marked(unique: list[str], texts: list[str]) -> Json | None:
    around = re.fullmatch(r"[+-]?([^\d+-]*?)([+-]?\d[\d.,' ]*?)([^\d+-]*)",
                          unique[0].replace("\u202f", " ").replace("\u00a0", " "))
    if around is None or (around[1][-1:].isalpha() and len(unique) == len(texts) > MAX_CATEGORIES):
        return None  # the latter are identifiers, as id7
    unit = f"{around[1]}{{}}{around[3]}" if around[1] or around[3] else ""
    cut = slice(len(around[1]), -len(around[3]) or None)
    if any(re.match(r"0\d", text.lstrip("+-")[cut]) for text in unique):
        return None  # numerals with zeros in front, which a number would lose
    for mark, thousands in MARKS:
        shaped = Column("", "continuous", unit=unit, marks=mark + thousands)
        values = _values(transform.reader(shaped), texts)
        if values is not None:
            written = {"unit": unit} if unit else {}
            written |= {"decimal_mark": mark} if mark != "." else {}
            written |= {"thousands": thousands.replace(" ", SPACE)} if thousands else {}
            made = _shape(values, written)
            digits = _decimals([text.lstrip("+-")[cut] for text in unique], mark)
            return made | (digits if made["kind"] == "continuous" else {})
    return None


def _pattern(texts: list[str]) -> str:
    """Returns the pattern of identifiers of one shape, or an empty text."""
    signs = []
    for letters in itertools.zip_longest(*texts, fillvalue=""):
        options = "".join(sorted({*letters}))
        if len({*letters}) == 1 and not options.isdigit():
            signs.append(options)
        elif "" not in letters and re.fullmatch("[0-9]+|[A-Z]+", options):
            signs.append("#" if options.isdigit() else "@")
        else:
            return ""
    return "".join(signs)


HEADER = """\
# The schema of {source}: edit it, then pass it as the schema of a run.
# Replace an entry by what you know without the data and remove it from read_from_data, or write
# `private` in its place (min and max together, or categories) and buy it:
#   python -m dpgen_jax.schema {source} --schema THIS --schema-epsilon E --out NEW"""
LEAKS = """\
# KEEP IT PRIVATE: entries read from private records are covered by no epsilon. A run refuses them,
# or publishes them (--accept-uncovered), and its statement says so."""
NEARLY_ALL = 0.9
"""The share of cells that are numbers, from which a text among them is pointed out."""
READ = "  # read from private data"
PAID = "  # bought under differential privacy"
BOUGHT = "# Leave `bought` as it is: every training run with this schema charges it."


def draft(cells: Cells, label: str | None, described: Mapping[str, Json] | None = None,
          types: Mapping[str, str] | None = None) -> Drafted:
    """Drafts a schema whose kinds, bounds, categories and nulls are READ FROM THE DATA.

    A column for which nothing is found gets the kind `?`, with which no schema is read.

    Args:
        cells: The cells of a CSV file.
        label: The column of the classes; None for rows without classes.
        described: Entries of columns that are known without the data.
        types: The types in which columns came, by name (`columns`).

    Returns:
        The draft, whose `read_from_data` lists what was read.

    Raises:
        UserError: There is no such label, or no row.
    """
    if label is not None and label not in cells.columns:
        raise UserError(f"{option('label', label)}: no such column{nearest(label, cells.columns)}; "
                        f"known: {listed(cells.columns)}")
    if not cells.rows:
        raise UserError(f"{cells.source}: no rows; at least 1 is needed")
    known, came = described or {}, types or {}
    columns, remarks = {}, {}
    for name, texts in cells.columns.items():
        made = _described(name, texts, name == label, known.get(name, {}), came.get(name, ""))
        columns[name], remark = made if isinstance(made, tuple) else (made, None)
        if remark is not None:
            remarks[name] = remark
    read = [f"{name}.{entry}" for name, made in columns.items() for entry in made
            if (name, entry) != (label, "kind") and made[entry] != known.get(name, {}).get(entry)
            and made[entry] != UNDECIDED]
    document = ({} if label is None else {"label": label}) | {
        "columns": columns, "read_from_data": [*[ENCODING] * cells.encoding_from_rows, *read]}
    if cells.dialect.entries:
        document = {"file": cells.dialect.entries} | document
    drafted = Drafted(document, remarks)
    drafted.lines()  # it is a schema, but for what is undecided
    for name in columns:
        if name != label and columns[name]["kind"] == "categorical" and name not in known:
            _point_out_odd_cells(name, cells)
    return drafted


def _point_out_odd_cells(name: str, cells: Cells) -> None:
    """Points out, to the data holder, a text that makes categories of a column of numbers."""
    texts = cells.columns[name]
    present = [i for i, text in enumerate(texts) if text not in NULLS]
    odd = [i for i in present if transform.number(texts[i]) is None]
    numbers = len(present) - len(odd)
    if odd and numbers >= NEARLY_ALL * (numbers + len(odd)):
        tell(f"private: {cells.source}, {cells.rows[odd[0]]}: column {name} is drafted as "
             f"categories, since {quoted(texts[odd[0]])} is not a number, unlike nearly all other "
             "cells; if the value is missing, empty the cell, or declare kind: integer or "
             "continuous, with nullable: true and odd: null", sys.stderr)


def with_durations(names: Iterable[str]) -> TableSpec:
    """Returns a schema by which durations of whole seconds in these columns become texts."""
    form = transform.DEFAULTS["duration"]
    return TableSpec(tuple(Column(name, "continuous", written="duration", format=form)
                           for name in names), NO_LABEL, 0)


def _described(name: str, texts: list[str], is_label: bool, known: Json, dtype: str) -> Entries:
    """Returns the entries of a column; what is not known is read from its cells.

    With the type in which it came, it comes out in that type.
    """
    is_whole = columns.is_whole_type(dtype)
    if "categories" in known:
        null = "true" if any(text in NULLS for text in texts) else "false"
        made = {"kind": "categorical"} | ({} if is_label else {"nullable": null}) | known
    else:
        read = drafted_entries(texts, is_label, dtype)
        if isinstance(read, tuple):
            return read
        made = read | known
        if read["kind"] == "continuous" and is_whole:  # of a range too large for an integer
            made["kind"] = "continuous"
        elif "kind" in known and "decimals" not in known:
            made.pop("decimals", None)  # of texts that were made of numbers
    if made["kind"] in UNREAD:
        return made | ({"dtype": dtype} if dtype == "string" else {})
    more = {"decimals": "0"} if made["kind"] == "continuous" and is_whole else {}
    declared = dtype and columns.declared_type(column(name, made | more), dtype)
    return made | more | {"dtype": declared} if declared else made


def render(document: Json, source: str, remark: str = "",
           remarks: Mapping[str, Remark] | None = None) -> str:
    """Writes a schema as YAML, with a comment next to each entry that comes from the records.

    Args:
        document: The schema.
        source: The name of the CSV file that it was drafted from.
        remark: What stands in front; by default how a draft is finished.
        remarks: Those of a draft.
    """
    read, purchases = document.get("read_from_data", []), document.get("bought", [])
    from_data, paid = set(read), {entry for row in purchases for entry in (
        row["entry"] if isinstance(row["entry"], list) else [row["entry"]])}
    warnings = [LEAKS] * bool(read) + [BOUGHT] * bool(purchases)
    written = [f"  {key}: {_text(value)}{READ * (f'file.{key}' in from_data)}"
               for key, value in document.get("file", {}).items()]
    above = "\n".join(f"# {line}" for line in remark.splitlines())
    lines = [above or HEADER.format(source=source), *warnings,
             *(["file:", *written] if written else []),
             *([f"name: {_text(document['name'])}"] if "name" in document else []),
             *([f"label: {_text(document['label'])}"] if "label" in document else []),
             *([f"targets: {_value(document['targets'])}"] if "targets" in document else []),
             "columns:"]
    for name, made in document["columns"].items():
        whole = f"{name}.kind" in paid
        lines.append(f"  {_text(name)}:{PAID * whole}")
        about = (remarks or {}).get(name)
        for key, value in made.items():
            spoken = f"{name}.{schema.TERMS.get(key, key)}"
            remark = (READ if f"{name}.{key}" in from_data else
                      PAID if spoken in paid and not whole else "")
            if about is not None and key == "kind":
                remark = f"{remark or '  #'}{';' * bool(remark)} {_commented(about.why)}"
            lines.append(f"    {key}: {_value(value)}{remark}")
        lines += [f"  # or {_text(name)}: {_commented(other)}"
                  for other in (about.instead if about else ())]
    if document.get("constraints"):
        lines += ["constraints:", *(f"  - {_quoted(text)}" for text in document["constraints"])]
    if read:
        lines += ["read_from_data:", *(f"  - {_text(entry)}" for entry in read)]
    if purchases:
        lines += ["bought:", *(f"  - {{{', '.join(f'{k}: {_value(v)}' for k, v in row.items())}}}"
                               for row in purchases)]
    return "\n".join(lines) + "\n"


def _commented(text: str) -> str:
    """Returns a text as a comment of one line has it."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_quoted(text) for text in value)}]"
    return _text(str(value))


def _text(text: str) -> str:
    return text if re.fullmatch(r"[+-]?\w[\w.+-]*", text, re.ASCII) else _quoted(text)


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf).strip()
