"""How a CSV file is written: its separator and encoding, declared in a schema as `file`.

Each line is decoded by itself (`csv_files`), so that no byte of one record changes how another is
read. A line ends with the byte 0x0A, or, in an encoding whose signs have two or four bytes each,
with the sign of these bytes.
"""

from __future__ import annotations

import codecs
import dataclasses
import functools
import itertools
from pathlib import Path

from dpgen_jax.core import reading
from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import UserError

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
LONGEST_LINE = 2**24
"""The bytes of a line, at most: one that never ends would fill the memory."""
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
         codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""The encodings that the first bytes of a file tell."""
WESTERN = "cp1252"
"""The encoding of texts that are not UTF-8."""
WIDE_ENDS = {"utf-16-le": b"\n\0", "utf-16-be": b"\0\n", "utf-32-le": b"\n\0\0\0",
             "utf-32-be": b"\0\0\0\n"}
"""How a line ends in the encodings whose signs have several bytes each."""
WIDE = ("utf-16", "utf-32", *WIDE_ENDS)
"""Encodings in which a byte too many moves all bytes after it: they are read strictly."""
STATEFUL = ("hz", "iso2022", "utf-7")
"""Beginnings of encodings in which a byte may change what all after it in a line mean."""
BEFORE_HEADER = 1000
"""Empty lines that are skipped for the header, at most."""
ENCODING = "file.encoding"
"""The entry of `read_from_data` for an encoding that a draft read from rows."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a CSV file is written. Nothing of it is published.

    Attributes:
        separator: The name of the sign between cells, of `SEPARATORS`.
        encoding: The name of the encoding, as Python knows it.
        errors: What happens to bytes that are none of the encoding: `strict`, an error, or
            `replace`, by a sign for them.
        multiline: Whether a cell in quotes may hold line ends. Then a quote that one record leaves
            open takes others into its cell, so that a schema with it is `uncovered`.
    """

    separator: str = "comma"
    encoding: str = "utf-8"
    errors: str = "strict"
    multiline: bool = False

    @property
    def entries(self) -> dict[str, str]:
        """The entries that a schema has for it: those that are not the default."""
        return {field.name: "true" if value is True else value
                for field in dataclasses.fields(self)
                if (value := getattr(self, field.name)) != field.default}


DEFAULT = Dialect()


def declared(entries: object) -> Dialect:
    """Returns the dialect that a schema declares.

    Args:
        entries: Its block `file`.

    Raises:
        UserError: For another entry, or a separator or encoding that is not known.
    """
    known = [field.name for field in dataclasses.fields(Dialect)]
    if not isinstance(entries, dict) or not all(isinstance(v, str) for v in entries.values()):
        raise UserError("file is no block of entries; write {separator: semicolon}")
    for key in entries:
        if key not in known:
            raise UserError(f"file: unknown key {key!r}{nearest(key, known)}; known: "
                            f"{', '.join(known)}")
    spans = entries.get("multiline", "false")
    if spans not in ("true", "false"):
        raise UserError(f"file: multiline is {spans!r}; write true or false")
    made = Dialect(**entries | {"multiline": spans == "true"})
    names = {sign: name for name, sign in SEPARATORS.items()}
    made = dataclasses.replace(made, separator=names.get(made.separator, made.separator))
    if made.errors not in ("strict", "replace"):
        raise UserError(f"file: errors is {made.errors!r}; write strict or replace")
    if made.separator not in SEPARATORS:
        raise UserError(f"file: separator is {made.separator!r}; known: {', '.join(SEPARATORS)}")
    if not _is_known(made.encoding):
        raise UserError(f"file: encoding {made.encoding!r} is not known; utf-8, utf-16 and cp1252 "
                        "are")
    if made.errors == "replace" and not replaces(made.encoding):
        raise UserError(f"file: errors: replace is not for {made.encoding}, in which one wrong "
                        "byte changes what the bytes after it mean; leave errors out, or save the "
                        "file as UTF-8")
    return made


def _is_known(encoding: str) -> bool:
    """Returns whether Python knows an encoding of texts whose lines end as this module says."""
    try:
        if not codecs.lookup(encoding).encode("a")[0] or not "a".encode(encoding):
            return False
        # The dots keep out idna, which is for names of hosts.
        return _named(encoding) in WIDE or "..\n".encode(_named(encoding)) == b"..\n"
    except (LookupError, TypeError, ValueError):
        return False


def _named(encoding: str) -> str:
    """Returns Python's name of an encoding; UTF-8 may always begin with its mark."""
    name = codecs.lookup(encoding).name
    return "utf-8" if name == "utf-8-sig" else name


def replaces(encoding: str) -> bool:
    """Returns whether wrong bytes may be replaced one by one in an encoding.

    Args:
        encoding: The encoding, which is known.
    """
    return _named(encoding) not in WIDE and not _named(encoding).startswith(STATEFUL)


def of_lines(encoding: str, start: bytes) -> str:
    """Returns the encoding by which each line of a file is decoded by itself: one without a mark.

    Args:
        encoding: The declared encoding.
        start: The first bytes of the file.

    Raises:
        UnicodeError: The mark is missing that says how UTF-16 or UTF-32 is written.
    """
    name = _named(encoding)
    if name not in ("utf-16", "utf-32"):
        return name
    for order in ("le", "be"):
        if start.startswith("\ufeff".encode(f"{name}-{order}")):
            return f"{name}-{order}"
    raise UnicodeError(f"no {name}")


def detected(text: bytes) -> Dialect:
    """Returns how a text is written, as far as it tells.

    Args:
        text: The text; its first line tells the separator.
    """
    encoding = next((name for mark, name in MARKS.items() if text.startswith(mark)), "")
    if not encoding:
        start = text[:4096]
        if start[1::2].count(0) > len(start) / 4 or start[::2].count(0) > len(start) / 4:
            encoding = "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
        else:
            try:
                text.decode("utf-8")
                encoding = "utf-8"
            except UnicodeDecodeError:
                encoding = WESTERN
    lines = text[:2**20].decode(encoding, "replace").lstrip("\ufeff\r\n").splitlines() or [""]
    counts = {name: lines[0].count(sign) for name, sign in SEPARATORS.items()}
    return Dialect(max(counts, key=lambda name: counts[name]), encoding)


def of_header(path: Path) -> Dialect:
    """Returns how a file is written, by its header alone, which is public.

    No row may decide how others are read. So bytes that do not fit are replaced one by one, and in
    an encoding where that cannot be done they are an error.

    Args:
        path: The file.

    Raises:
        UserError: It cannot be read.
    """
    with reading.opened(path) as file:
        lines = iter(functools.partial(file.readline, LONGEST_LINE), b"")
        line = next((line for line in itertools.islice(lines, BEFORE_HEADER)
                     if line.strip(b"\r\n")), b"")
    made = detected(line)
    return dataclasses.replace(
        made, errors="replace" if replaces(made.encoding) else "strict")


def fault(line: bytes, number: int, dialect: Dialect, error: UnicodeError) -> str:
    """Returns where a line is not of its encoding, and the mend.

    Args:
        line: The bytes of the line.
        number: Its number, from 1.
        dialect: How its file is said to be written.
        error: What the encoding says of it.
    """
    is_wide = _named(dialect.encoding) in WIDE
    other = dialect.encoding if is_wide and number > 1 else detected(line).encoding
    mend = "save the file as UTF-8" if other == dialect.encoding else (
        f"save it as UTF-8, or declare file: {{encoding: {other}}} in a schema")
    if is_wide:
        return (f"line {number}: no {dialect.encoding}: a byte is missing there or too many, or "
                f"the file is of another encoding; mend the line, or {mend}")
    if not isinstance(error, UnicodeDecodeError):
        return f"line {number}: no {dialect.encoding}; {mend}"
    cell = line[:error.start].count(SEPARATORS[dialect.separator].encode()) + 1
    return (f"line {number}, cell {cell}: byte 0x{line[error.start]:02x} is no "
            f"{dialect.encoding}; {mend}")
