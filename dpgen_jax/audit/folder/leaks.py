"""The secrets of a folder: who may read them, and whether its release contains any."""

from __future__ import annotations

import contextlib
import getpass
import gzip
import io
import json
import os
import re
import socket
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from dpgen_jax.accountant import journal
from dpgen_jax.audit.findings import Findings
from dpgen_jax.audit.folder.reading import Folder
from dpgen_jax.core import files
from dpgen_jax.core.files import WINDOWS

MOST = 2**30
"""most bytes of one packed part that are read"""
SIGNATURE = b"\x89PNG\r\n\x1a\n"
PICTURE_CHUNKS = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"pHYs", b"tRNS", b"gAMA", b"sRGB", b"cHRM",
                  b"sBIT", b"bKGD"}
"""PNG chunks that contain only numbers"""


def unpacked_parts(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the bytes of a file, and of every part packed in it.

    Raises:
        UserError: It is not a regular file.
    """
    yield from _inside(path.name, files.read_bytes(path, MOST))


def _inside(name: str, data: bytes, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    yield name, data
    if depth == 4:
        return
    packed: Iterable[tuple[str, bytes]] = ()
    if data.startswith(b"PK\x03\x04"):
        packed = _of_zip(data)
    elif data.startswith(b"\x1f\x8b"):
        packed = [("unpacked", _bounded(data, gzip_wrapped=True))]
    elif data.startswith(SIGNATURE):
        packed = _of_png(data)
    elif name.endswith(".safetensors"):
        packed = [("header", data[8:8 + int.from_bytes(data[:8], "little")])]
    for part, inner in packed:
        yield from _inside(f"{name}, {part}", inner, depth + 1)


def _of_zip(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The members of a zip file (such as npz), their names and their comments."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile:
        return
    yield "comment", archive.comment
    for member in archive.infolist():
        yield f"comment on {member.filename[:60]}", member.comment + member.extra
        with contextlib.suppress(zipfile.BadZipFile, RuntimeError, NotImplementedError,
                                 zlib.error), archive.open(member) as file:
            yield member.filename[:60], file.read(MOST)


def _of_png(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The unpacked text chunks of a PNG, and what follows its end."""
    for kind, body in chunks(data):
        if kind in PICTURE_CHUNKS:
            continue
        yield f"{kind.decode('latin-1')} chunk", body
        if kind in (b"zTXt", b"iTXt", b"iCCP"):
            for at in (match.end() for match in re.finditer(b"\0+", body[:2000])):
                if unpacked := _bounded(body[at:]):
                    yield f"{kind.decode()} chunk, unpacked", unpacked


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the kind and the bytes of each chunk of a PNG; b"rest" is what follows them."""
    at = len(SIGNATURE)
    while at + 8 <= len(data):
        length, kind = int.from_bytes(data[at:at + 4], "big"), data[at + 4:at + 8]
        yield kind, data[at + 8:at + 8 + length]
        at += 12 + length
        if kind == b"IEND":
            break
    if at < len(data):
        yield b"rest", data[at:]


def _bounded(data: bytes, gzip_wrapped: bool = False) -> bytes:
    """Unpacks at most `MOST` bytes of a stream; returns nothing for anything else."""
    with contextlib.suppress(zlib.error, EOFError, OSError):
        if gzip_wrapped:
            return gzip.GzipFile(fileobj=io.BytesIO(data)).read(MOST)
        return zlib.decompressobj().decompress(data, MOST)
    return b""


MAY_HOLD = {"privacy.json", "statement.html", "README.txt", "README.md", "config.json",
            "generator.safetensors", "samples.png", "samples.csv", "marginals.png"}
"""The files that training puts into a release"""
ABSOLUTE = re.compile(
    rb"(?:file://|(?<![\w.:/-]))(?:/(?:home|root|Users|tmp|var|mnt|media|data|work|workspace|opt|srv"
    rb"|private|scratch|gpfs|lustre|nfs|net|etc|proc|content|kaggle|Volumes|storage|nas|shares?"
    rb"|shared|projects?|export|groups?|users|cluster|beegfs|ceph|dbfs|teamspace|datasets?)"
    rb"/(?:[\w.-]{1,2}/)?[\w.-]{3,}|[A-Za-z]:\\{1,2}(?:Users|Documents and Settings)\\)")
IN_TEXTS = re.compile(rb"(?<!\w)[A-Za-z]:\\{1,2}[\w. -]+\\|\\\\[\w.-]+\\[\w.$-]+\\")
"""Drives and shares of Windows, which a few million numbers contain by chance"""
COMMON = {"root", "user", "users", "admin", "ubuntu", "debian", "runner", "jovyan", "guest",
          "test", "nobody", "localhost", "local", "host", "default", "data", "home"}
"""Names of users and hosts that are common words, and are not searched for"""
Word = tuple[str, bytes]
"""The name of a secret, and its bytes"""
SHORT = 6
"""Shorter words are searched for in texts only, since numbers contain them by chance."""
WORDS = bytes([9, 10, 13, *range(32, 127)])
"""Bytes of texts"""


def kept_private(folder: Folder, findings: Findings) -> None:
    """Checks that only its owner can read what is private to a run or a client."""
    private = folder.files.private
    if not private.is_dir():
        findings.found("private/ is there, and only its owner can read it", False,
                       "it is missing: the run cannot be checked further, nor resumed")
        return
    if WINDOWS:
        findings.unchecked("only their owner can read private/ and the ledger", "on Windows the "
                           "parent folder of "
                           "the run decides "
                           "who may read it")
        return
    # Files of an unfinished checkpoint, which others cannot enter, get their modes at the end.
    there = [Path(at, name) for at, folders, files in os.walk(private)
             for name in (*folders, *files)]  # which skips what is removed meanwhile
    inside = {path for path in there
              if any(parent.name.endswith(".unfinished") for parent in path.parents)}
    owner, wrong = private.stat().st_uid, []
    for path in [folder.files.ledger, private, *{*there} - inside]:
        with contextlib.suppress(FileNotFoundError):  # an old checkpoint, removed meanwhile
            file, name = path.lstat(), path.relative_to(folder.root)
            if stat.S_ISLNK(file.st_mode) or file.st_uid != owner:
                wrong.append(f"{name} belongs to another user, or is a link")
            elif file.st_mode & 0o077:
                wrong.append(f"{name} has mode {stat.S_IMODE(file.st_mode):04o}")
    findings.found("only their owner can read private/ and the ledger", not wrong,
                   "; ".join(wrong[:6]) or "modes 0700 and 0600 throughout" + bool(inside) * (
                       ", but within an unfinished checkpoint, which has 0700"))


def release_alone(folder: Folder, findings: Findings, further: list[Word]) -> None:
    """Searches the release for what it must not contain, such as names of subjects (`further`)."""
    names = sorted(folder.release.rglob("*"))
    known = (MAY_HOLD | {"audit"}) if not folder.whole else MAY_HOLD
    odd = [str(path.relative_to(folder.release)) for path in names
           if path.is_symlink() or str(path.relative_to(folder.release)) not in known]
    findings.found("the release has only the files of a release", not odd, (
        f"{', '.join(odd[:5])}: nothing that training puts there") if odd else
        f"{len(names)} files")
    words, skipped = _secrets(folder)
    hits, looked = [], 0
    for path in names:
        if path.is_file() and not path.is_symlink():
            for name, data in unpacked_parts(path):
                looked += len(data)
                hits += [f"{name} contains {what}" for what in _found(data, [*words, *further])]
    kinds = ", ".join(dict.fromkeys(what + " (in texts)" * (len(word) < SHORT)
                                    for what, word in [*words, *further]))
    findings.found("the release contains no key, path, name or record", not hits, "; ".join(
        dict.fromkeys(hits)) or f"{looked:,} bytes, unpacked ones too, searched for absolute "
        f"paths of usual folders, {kinds}{skipped}")


def _found(data: bytes, words: list[Word]) -> Iterator[str]:
    """Yields the names of secrets that are in some bytes, and the path of a file."""
    text = len(data.translate(None, WORDS)) <= len(data) // 4
    for what, word in words:
        if word in data and (text or len(word) >= SHORT):
            yield what
    match = ABSOLUTE.search(data) or (IN_TEXTS.search(data) if text else None)
    if match:
        yield f"the path {match[0].decode('latin-1')!r}"


def _secrets(folder: Folder) -> tuple[list[Word], str]:
    """Keys and names that no release may contain, and a remark on those that are too common."""
    words: list[Word] = [("the folder's own path", str(folder.root.resolve()).encode())]
    keys: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        identity = json.loads(folder.files.identity.read_text())
        keys |= {f"the {name.replace('_', ' ')} of private/": identity[name]
                 for name in ("partition_key", "key", "fingerprint") if identity.get(name)}
    with contextlib.suppress(OSError):
        keys["the journal's key"] = (journal.place() / "key").read_text().strip()
    for what, secret in keys.items():
        with contextlib.suppress(ValueError, AttributeError, TypeError):  # a damaged file
            words += [(what, secret.encode()), (what, bytes.fromhex(secret))]
    dataset = str(folder.config.get("dataset") or "")
    stated = (folder.request.source, folder.request.release_to, *folder.request.data.values())
    words += [("the path of the data", text.rpartition(":")[2].encode()) for text in stated
              if isinstance(text, str) and text.rpartition(":")[2].startswith("/")]
    names = {"the host's name": socket.gethostname(), "the home folder": os.path.expanduser("~")}
    with contextlib.suppress(KeyError, OSError, ImportError):
        names = {"the user's name": getpass.getuser(), **names}
    public = json.dumps([folder.config.get("spec"), dataset]).lower()
    common = [what for what, name in names.items()
              if len(name) < 4 or name.strip("/").lower() in COMMON or name.lower() in public]
    words += [(what, name.encode()) for what, name in names.items() if what not in common]
    return words, f" ({' and '.join(common)}: too common a word to search for)" * bool(common)
