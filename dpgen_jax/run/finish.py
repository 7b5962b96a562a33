"""The end of a run: what was paid for is on disk first."""

from __future__ import annotations

from collections.abc import Callable

from dpgen_jax.run import checkpoint, pictures
from dpgen_jax.run.bundle import Release
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.progress import Notices, reason
from dpgen_jax.types import UserError


def finish(files: RunFolder, release: Release, keep: Callable[[], None], notices: Notices) -> None:
    """Writes the release, then the last checkpoint by `keep`, then the pictures. What fails after
    the release costs itself alone, and a line.

    Errors: UserError where the release cannot be written, after the checkpoint it can be made from.
    """
    try:
        _release(files, release)
    except OSError as error:
        keep()
        raise UserError(
            f"{files.release} cannot be written ({reason(error)}): free some space, then "
            f"--resume --out {files.root} writes it, at no cost in privacy") from error
    keep()
    pictures.write(files, release, notices)


def _release(files: RunFolder, release: Release) -> None:
    """On a full disk the older checkpoints make room for it."""
    try:
        release.save(files.release)
    except OSError:
        if not checkpoint.thin(files.checkpoints, 1):
            raise
        release.save(files.release)
