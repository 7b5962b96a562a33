"""Writes the pages of docs/reference/api: one for each folder, and one for the public names.

A page for each of the modules, as autosummary makes them, would be some two hundred pages, each
with a table of contents of all others: most of the time of a build.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

from sphinx.application import Sphinx

import dpgen_jax

HEAD = """{title}
{rule}

.. autosummary::

{rows}
"""
MODULE = """
``{name}``
{rule}

.. automodule:: {name}
"""


def modules(package: str) -> list[str]:
    """Returns the names of all modules in a folder of the package, and in those below it."""
    found = pkgutil.walk_packages([str(Path(dpgen_jax.__path__[0], package))],
                                  f"dpgen_jax.{package}.")
    inside = sorted(m.name for m in found if not m.name.split(".")[-1].startswith("_"))
    itself = [f"dpgen_jax.{package}"]
    return [*(itself if importlib.import_module(itself[0]).__doc__ else []), *inside]


def page(package: str) -> str:
    """Returns the page of a folder: one line for each module, then all of them."""
    names = modules(package)
    title = f"dpgen_jax.{package}"
    rows = "\n".join(f"   {name}" for name in names)
    parts = [MODULE.format(name=name, rule="-" * (len(name) + 4)) for name in names]
    return HEAD.format(title=title, rule="=" * len(title), rows=rows) + "".join(parts)


def public_page() -> str:
    """Returns the page of the names in `dpgen_jax.__all__`, which are loaded when they are used."""
    parts = ["Public names", "============", ""]
    for name in dpgen_jax.__all__:
        value = getattr(dpgen_jax, name)
        if inspect.isclass(value):
            parts += [f".. autoclass:: dpgen_jax.{name}", ""]
        elif inspect.ismodule(value):  # a package that can be called
            call = type(value).__call__
            words = str(inspect.signature(call)).replace("self, ", "").replace("self", "")
            parts += [f".. py:function:: dpgen_jax.{name}{words}", "   :no-index:", "",
                      f"   {(call.__doc__ or '').splitlines()[0]}", ""]
        elif callable(value):
            parts += [f".. autofunction:: dpgen_jax.{name}", ""]
    return "\n".join(parts)


def write(app: Sphinx) -> None:
    """Writes the pages whose text changed, so that Sphinx reads no other again."""
    folder = Path(app.srcdir, "reference", "api")
    folder.mkdir(exist_ok=True)
    packages = sorted(m.name for m in pkgutil.iter_modules(dpgen_jax.__path__) if m.ispkg)
    wanted = {folder / f"{package}.rst": page(package) for package in packages}
    wanted[folder / "public.rst"] = public_page()
    for path in set(folder.glob("*.rst")) - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Runs before Sphinx looks for documents."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
