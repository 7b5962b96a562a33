"""How a CSV file is written: its separator and encoding, declared in a schema as `file`."""

from __future__ import annotations

import codecs
import dataclasses
from pathlib import Path

from dpgen_jax.core import reading
from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import UserError

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
LONGEST_LINE = 2**24
"""The letters of a line, at most: one that never ends would fill the memory."""
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
         codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""The encodings that the first bytes of a file tell."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a CSV file is written. Nothing of it is published.

    Attributes:
        separator: The name of the sign between cells, of `SEPARATORS`.
        encoding: The name of the encoding, as Python knows it.
        errors: What happens to bytes that are none of the encoding: `strict`, an error, or
            `replace`, by a sign for them.
    """

    separator: str = "comma"
    encoding: str = "utf-8"
    errors: str = "strict"

    @property
    def entries(self) -> dict[str, str]:
        """The entries that a schema has for it: those that are not the default."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)
                if getattr(self, field.name) != field.default}


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
    made = Dialect(**entries)
    names = {sign: name for name, sign in SEPARATORS.items()}
    made = dataclasses.replace(made, separator=names.get(made.separator, made.separator))
    if made.errors not in ("strict", "replace"):
        raise UserError(f"file: errors is {made.errors!r}; write strict or replace")
    if made.separator not in SEPARATORS:
        raise UserError(f"file: separator is {made.separator!r}; known: {', '.join(SEPARATORS)}")
    try:
        if codecs.lookup(made.encoding).encode("a")[0] and "a".encode(made.encoding):
            return made
    except (LookupError, TypeError, ValueError):
        pass
    raise UserError(f"file: encoding {made.encoding!r} is not known; utf-8, utf-16 and cp1252 are")


def detected(text: bytes) -> Dialect:
    """Returns how the text of a file is written, for a draft and for errors.

    Args:
        text: The text of the file.
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
                encoding = "cp1252"
    lines = text[:2**20].decode(encoding, "replace").lstrip("\ufeff\r\n").splitlines() or [""]
    counts = {name: lines[0].count(sign) for name, sign in SEPARATORS.items()}
    return Dialect(max(counts, key=lambda name: counts[name]), encoding)


def of_header(path: Path) -> Dialect:
    """Returns how a file is written, by its first line alone: the header is public.

    No row may decide how the others are read, so bytes that do not fit are replaced one by one.

    Args:
        path: The file.

    Raises:
        UserError: It cannot be read.
    """
    with reading.opened(path) as file:
        line = file.readline(LONGEST_LINE)
    return dataclasses.replace(detected(line), errors="replace")


def fault(text: bytes, dialect: Dialect) -> str:
    """Returns where a text is not of its encoding, and the mend.

    Args:
        text: The text of the file.
        dialect: How it is said to be written.
    """
    mend = f"save it as UTF-8, or declare file: {{encoding: {detected(text).encoding}}} in a schema"
    try:
        text.decode(dialect.encoding)
    except UnicodeDecodeError as error:
        start = text.rfind(b"\n", 0, error.start) + 1
        line = text.count(b"\n", 0, error.start) + 1
        sign = SEPARATORS[dialect.separator].encode()
        return (f"line {line}, cell {text.count(sign, start, error.start) + 1}: byte "
                f"0x{text[error.start]:02x} is no {dialect.encoding}; {mend}")
    return f"line 1: no {dialect.encoding}; {mend}"
