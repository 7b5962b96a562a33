"""Two directives of what commands print.

`command-help MODULE [ARGUMENTS]` is what `python -m MODULE ARGUMENTS --help` prints, and
`preset-list METHOD` the presets of a method and what differs from their sources.

The command runs in the process that builds the documentation, since a process for each would take
longer than all of the rest.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import sys
import warnings
from collections.abc import Iterator

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from dpgen_jax import presets


@contextlib.contextmanager
def command_line(argv: list[str]) -> Iterator[io.StringIO]:
    """Sets the arguments of a program and a width of 96 columns, and collects what it prints."""
    before, columns = sys.argv, os.environ.get("COLUMNS")
    sys.argv, os.environ["COLUMNS"] = argv, "96"
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the module is imported already
            yield printed
    finally:
        sys.argv = before
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns


def text_of(module: str, arguments: list[str]) -> str:
    """Returns what a command prints for `--help`.

    Raises:
        RuntimeError: The command did not end with exit code 0, or printed nothing.
    """
    code: object = 0
    # The help of `train` alone is a short one; that of a method has all flags.
    flag = "--help-all" if module == "dpgen_jax.train" and arguments else "--help"
    with command_line([module, *arguments, flag]) as printed:
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as stop:
            code = stop.code
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue()).strip()
    if code or not text:
        raise RuntimeError(f"python -m {module} {' '.join(arguments)} --help: exit code {code}")
    return text


class CommandHelp(Directive):
    """Shows the command and its help as one block."""

    required_arguments = 1
    optional_arguments = 100

    def run(self) -> list[nodes.Node]:
        """Returns the block."""
        module, *arguments = self.arguments
        text = text_of(module, arguments)
        return [nodes.literal_block(text, text, language="text", classes=["command-help"])]


class PresetList(Directive):
    """Shows the presets of a method as one block."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the block."""
        text = "\n".join(presets.listed(self.arguments[0]))
        return [nodes.literal_block(text, text, language="text", classes=["command-help"])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive; the working directory of the process is shared, so no threads."""
    app.add_directive("command-help", CommandHelp)
    app.add_directive("preset-list", PresetList)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
