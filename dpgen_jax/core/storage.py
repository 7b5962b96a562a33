"""Releases on object stores (`gs://`, `s3://` and others of fsspec); run folders are refused.

A run's ledger is locked, and is on disk before the noise that it charges for is drawn. An object
store guarantees neither, so a run folder there is refused. A release is public and is written
whole: it is copied there when the run has written it, and read from there.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpgen_jax.core.errors import UserError, one_line, option

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/{1,2}(?P<place>[^/].*)", re.DOTALL)
"""A scheme has two letters or more (one is a drive); `Path` takes away the second slash."""


def url(path: str | Path) -> str | None:
    """Returns the address that a path stands for; None for one of this machine's own.

    Args:
        path: A path, or an address such as gs://bucket/folder.
    """
    match = _URL.fullmatch(str(path))
    if not match or match["scheme"] == "file":
        return None
    return f"{match['scheme']}://{match['place'].rstrip('/')}"


def refuse_remote(root: str | Path) -> None:
    """Refuses an object store as the place of a run folder. Raises: UserError."""
    if address := url(root):
        raise UserError(f"{address} is no place for a run folder: its ledger must be locked, and "
                        "on disk before noise is drawn, which an object store does not promise. "
                        f"Name a folder of a disk by {option('out')}; "
                        f"{option('release_to', address)} copies the finished release there")


def require_local(out: Path) -> None:
    """Refuses an object store as the place of a file or folder. Raises: UserError."""
    if address := url(out):
        raise UserError(f"{address} is not on this machine; write to a disk, then copy it there")


def check_destination(address: str) -> None:
    """Refuses an address that no release can be copied to, before anything is spent.

    Args:
        address: As for `copy`.

    Raises:
        UserError: For what is no address, a missing package, an address that cannot be reached,
            and a folder that holds anything else than a release.
    """
    if url(address) is None:
        raise UserError(f"{option('release_to', address)} is no address such as gs://BUCKET/FOLDER "
                        "or s3://BUCKET/FOLDER; a folder of this machine is named by "
                        f"{option('out')}")
    system, folder = _opened(address)
    with _reported(address):
        names = {Path(name).name for name in system.find(folder)}
    if names and "privacy.json" not in names:
        raise UserError(f"{address} holds other files ({', '.join(sorted(names)[:3])}); name "
                        f"another {option('release_to')}")


def copy(folder: Path, address: str) -> None:
    """Copies a release to an address; config.json, which names the others' content, comes last.

    Args:
        address: Where its files shall be, in place of those that are there.

    Raises:
        UserError: Where it cannot be written.
    """
    system, there = _opened(address)
    paths = sorted((path for path in folder.rglob("*") if path.is_file()),
                   key=lambda path: path.name == "config.json")
    with _reported(address):
        if system.exists(f"{there}/config.json"):  # without it there is no release to load
            system.rm(f"{there}/config.json")
        for path in paths:
            target = f"{there}/{path.relative_to(folder).as_posix()}"
            system.makedirs(target.rpartition("/")[0], exist_ok=True)
            system.put_file(str(path), target)


@contextlib.contextmanager
def on_disk(path: str | Path) -> Iterator[Path]:
    """Yields a folder of this machine with what is there: the path itself, or a copy while within.

    Args:
        path: A path, or the address of a release.

    Raises:
        UserError: Where nothing can be read there.
    """
    address = url(path)
    if address is None:
        yield Path(path)
        return
    system, there = _opened(address)
    with tempfile.TemporaryDirectory() as folder:
        with _reported(address):
            if not system.isfile(f"{there}/config.json"):
                raise UserError(f"{address} holds no release: there is no config.json")
            for name in system.find(there):
                target = Path(folder, name[len(there):].lstrip("/"))
                target.parent.mkdir(parents=True, exist_ok=True)
                system.get_file(name, str(target))
        yield Path(folder)


def _opened(address: str) -> tuple[Any, str]:
    """Returns fsspec's file system of an address, and the folder's path in it."""
    address = url(address) or address
    try:
        import fsspec

        system, folder = fsspec.core.url_to_fs(address, use_listings_cache=False)
    except ImportError as error:
        raise UserError(f"{address} needs a package that is not installed "
                        f"({one_line(error, 200)}): pip install \"dpgen_jax[remote]\"") from error
    except Exception as error:  # of the package of each store
        raise UserError(f"{address} cannot be used: {one_line(error, 200)}") from error
    return system, folder.rstrip("/")


@contextlib.contextmanager
def _reported(address: str) -> Iterator[None]:
    """Turns what a store's package raises into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each package has errors of its own
        raise UserError(f"{url(address)} cannot be used ({type(error).__name__}: "
                        f"{one_line(error, 200)}); check the address and who may use it") from error
