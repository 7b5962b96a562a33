"""Run folders on the command line: which one a word names, and the request that began it.

Folders of version 0.1.0 keep the words of a command, which are parsed into a request.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from dpgen_jax import methods
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.core.request import Request
from dpgen_jax.core.run_folder import RunFolder, read_json
from dpgen_jax.presets import choice
from dpgen_jax.run import reading, undeclared


def request_of(root: Path) -> Request:
    """Returns what was stated for a run, of any version.

    Args:
        root: The run folder.

    Raises:
        UserError: There is no run, or it does not record how it was started, or this version has
            not what it needs.
    """
    config = RunFolder(root).config
    typed = read_json(config).get("typed") if config.is_file() else None
    if typed is None:
        return reading.stored_request(root)
    if not (isinstance(typed, list) and typed and all(isinstance(word, str) for word in typed)):
        raise UserError(f"{config} is damaged: typed is not a list of words; restore it")
    from dpgen_jax.cli import train_flags

    method, *words = typed
    words = _without_removed(method, words, root)
    _, stated = train_flags.parse(method, words)
    fields = {"source": choice.DEMONSTRATION[1]} | train_flags.as_fields(stated)
    request = Request().changed(**fields, method=method)
    if undeclared.stored(root) is None or RunFolder(root).waiting:
        return request
    # What was bought lies in the folder, wherever that is now.
    name = "schema" if RunFolder(root).schema.is_file() else "class_names"
    return Request().changed(**vars(request) | {
        "data": {key: value for key, value in request.data.items() if key != name}})


def _without_removed(method: str, words: list[str], root: Path) -> list[str]:
    """The words without flags that this version does not have, and the run does not need.

    Raises:
        UserError: The run needs them.
    """
    config = read_json(RunFolder(root).config).get("config")
    if isinstance(config, dict) and (config.get("nearest") or {}).get("images"):
        raise UserError(f"{root} began when teachers without networks were a setting of {method}, "
                        "which is now the method prototypes: resume it with that version, or start "
                        "a new run, whose epsilon adds to this one's; its release stays as it is")
    kept, is_removed = [], False
    for word in words:
        if word.startswith("--"):
            is_removed = word.startswith("--nearest.") or (
                method == "pategan" and word.startswith(("--frequencies", "--step-size")))
        kept += [word] * (not is_removed)
    return kept


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
    raise UserError(f"there is no folder {word!r}, and no method with that name{likely}; methods: "
                    f"{', '.join(methods.NAMES)}")


def _folders_beside(path: Path) -> list[str]:
    """Sibling folders, as they would be typed, to suggest in an error."""
    with contextlib.suppress(OSError):
        return sorted(str(path.parent / other.name) for other in path.parent.iterdir()
                      if other.is_dir())
    return []
