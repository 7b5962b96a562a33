"""Lets Sphinx read docstrings that are plain text, as people read them in an editor.

Docstrings here put code between single backticks and use `*`, `|` and trailing underscores as
themselves. reStructuredText gives all of these a meaning, so they are escaped before napoleon reads
the sections.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"(?<![`:])(`{1,2})([^`\n]+?)\1(?!`)")
SPECIAL = re.compile(r"(\*|\||(?<=\w)_(?!\w))")
SECTION = re.compile(r"[A-Z][A-Za-z ]*:\Z")


def escape(line: str) -> str:
    """Makes single backticks code and leaves no other character with a meaning of its own."""
    parts, end = [], 0
    for match in CODE.finditer(line):
        parts += [SPECIAL.sub(r"\\\1", line[end:match.start()]), f"``{match[2].strip()}``"]
        end = match.end()
    # A backtick without a partner on its line belongs to code that runs over two lines.
    rest = SPECIAL.sub(r"\\\1", line[end:]).replace("`", "\\`")
    return "".join(parts) + rest


def with_literal_blocks(lines: list[str]) -> list[str]:
    """Marks indented text after a blank line as literal, unless a section explains the indent."""
    done: list[str] = []
    literal = False
    in_section = False
    for i, line in enumerate(lines):
        indented = line.startswith("    ")
        if line.strip() and not indented:
            literal, in_section = False, bool(SECTION.match(line.strip()))
        if indented and not in_section and not literal and i and not lines[i - 1].strip():
            done += ["::", ""]
            literal = True
        done.append(line if literal else escape(line))
    return done


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrites a docstring in place, before napoleon does (which has priority 500).

    Napoleon takes what stands before a colon for the type of an attribute.
    """
    if what in ("attribute", "property", "data") and lines:
        lines[0] = lines[0].replace(": ", " \N{EN DASH} ", 1)
    lines[:] = with_literal_blocks(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the hook."""
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
