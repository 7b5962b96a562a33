"""Releases on object stores (`gs://`, `s3://` and others of fsspec); run folders are refused.

A run's ledger is locked, and is on disk before the noise that it charges for is drawn. An object
store guarantees neither, so run folders there are refused. A release is public and is written
completely: it is copied there after the run has written it, and read from there.
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
"""A scheme has two letters or more (one is a drive); `Path` removes the second slash."""


def url(path: str | Path) -> str | None:
    """Returns the address in a path; None for a local path.

    Args:
        path: A path, or an address such as gs://bucket/folder.
    """
    match = _URL.fullmatch(str(path))
    if not match or match["scheme"] == "file":
        return None
    return f"{match['scheme']}://{match['place'].rstrip('/')}"


def refuse_remote(root: str | Path) -> None:
    """Raises UserError if the place of a run folder is an object store."""
    if address := url(root):
        raise UserError(f"{address} cannot hold a run folder: its ledger must be locked and on "
                        "disk before noise is drawn, which an object store does not guarantee. "
                        f"Name a folder on a disk with {option('out')}; "
                        f"{option('release_to', address)} copies the finished release there")


def require_local(out: Path) -> None:
    """Raises UserError if the place of a file or folder is an object store."""
    if address := url(out):
        raise UserError(f"{address} is not on this machine; write to a disk, then copy it there")


def check_destination(address: str) -> None:
    """Refuses an address to which a release cannot be copied, before anything is spent.

    Args:
        address: As for `copy`.

    Raises:
        UserError: It is not an address, a package is missing, the address cannot be reached, or the
            folder contains something other than a release.
    """
    if url(address) is None:
        raise UserError(f"{option('release_to', address)} is not an address such as "
                        "gs://BUCKET/FOLDER or s3://BUCKET/FOLDER; for a folder on this machine "
                        f"use {option('out')}")
    system, folder = _opened(address)
    with _reported(address):
        names = {Path(name).name for name in system.find(folder)}
    if names and "privacy.json" not in names:
        raise UserError(f"{address} contains other files ({', '.join(sorted(names)[:3])}); name "
                        f"another {option('release_to')}")


def copy(folder: Path, address: str) -> None:
    """Copies a release to an address; config.json, which has the digests of the others, comes last.

    Args:
        address: Its destination; existing files there are replaced.

    Raises:
        UserError: It cannot be written.
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
    """Yields a local folder with the content: the path, or a temporary copy within the context.

    Args:
        path: A path, or the address of a release.

    Raises:
        UserError: It cannot be read.
    """
    address = url(path)
    if address is None:
        yield Path(path)
        return
    system, there = _opened(address)
    with tempfile.TemporaryDirectory() as folder:
        with _reported(address):
            if not system.isfile(f"{there}/config.json"):
                raise UserError(f"{address} does not contain a release: config.json is missing")
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
    """Converts errors of a store's package to a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each package has different errors
        raise UserError(f"{url(address)} cannot be used ({type(error).__name__}: "
                        f"{one_line(error, 200)}); check the address and "
                        "your access to it") from error
