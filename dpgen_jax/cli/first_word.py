"""The first word of `account` and `audit`: the name of a method, or the folder of a run."""

from __future__ import annotations

import contextlib
from pathlib import Path

from dpgen_jax import methods
from dpgen_jax.core.errors import UserError, nearest


def folder_of(word: str) -> Path | None:
    """Returns the folder that a word names, or None where it is the name of a method.

    Args:
        word: The first word of the command; the name of a method wins over a folder.

    Raises:
        UserError: It is neither; with the method or the folder that is named most like it.
    """
    path = Path(word)
    if word in methods.NAMES:
        return None
    if path.is_dir():
        return path
    if path.is_file():
        raise UserError(f"{word} is a file; name the folder of a run")
    likely = nearest(word, [*methods.NAMES, *_folders_beside(path)])
    raise UserError(f"there is no folder {word!r}, and no method of that name{likely}; methods: "
                    f"{', '.join(methods.NAMES)}")


def _folders_beside(path: Path) -> list[str]:
    """Sibling folders, as they would be typed, to suggest in an error."""
    with contextlib.suppress(OSError):
        return sorted(str(path.parent / other.name) for other in path.parent.iterdir()
                      if other.is_dir())
    return []
