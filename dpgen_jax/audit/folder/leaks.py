"""The secrets of a folder: who may read them, and whether its release gives any away."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from dpgen_jax.accountant import journal
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder.reading import Folder
from dpgen_jax.audit.folder.unpacking import parts
from dpgen_jax.core.platforms import WINDOWS

MAY_HOLD = {"privacy.json", "statement.html", "README.txt", "README.md", "config.json",
            "generator.safetensors", "samples.png", "samples.csv", "marginals.png"}
"""The files that training puts into a release"""
ABSOLUTE = re.compile(
    rb"(?:file://|(?<![\w.:/-]))(?:/(?:home|root|Users|tmp|var|mnt|media|data|work|workspace|opt|srv"
    rb"|private|scratch|gpfs|lustre|nfs|net|etc|proc|content|kaggle|Volumes|storage|nas|shares?"
    rb"|shared|projects?|export|groups?|users|cluster|beegfs|ceph|dbfs|teamspace|datasets?)"
    rb"/(?:[\w.-]{1,2}/)?[\w.-]{3,}|[A-Za-z]:\\{1,2}(?:Users|Documents and Settings)\\)")
IN_TEXTS = re.compile(rb"(?<!\w)[A-Za-z]:\\{1,2}[\w. -]+\\|\\\\[\w.-]+\\[\w.$-]+\\")
"""Drives and shares of Windows, which a few million numbers hold somewhere by chance"""
COMMON = {"root", "user", "users", "admin", "ubuntu", "debian", "runner", "jovyan", "guest",
          "test", "nobody", "localhost", "local", "host", "default", "data", "home"}
"""Names of users and hosts that are words of their own, and are not searched for"""
Word = tuple[str, bytes]
"""The name of a secret, and its bytes"""
SHORT = 6
"""Bytes below which a word is searched for in texts alone: numbers hold it by chance"""
WORDS = bytes([9, 10, 13, *range(32, 127)])
"""Bytes of texts"""


def kept_private(folder: Folder, findings: Findings) -> None:
    """Checks that nobody but its owner can read what is private.

    Args:
        folder: The folder of a run or a client.
        findings: Where findings are added.
    """
    private = folder.files.private
    if not private.is_dir():
        findings.found("private/ is there, and for its owner alone", False,
                       "it is missing: the run cannot be checked further, nor gone on with")
        return
    if WINDOWS:
        findings.add("private/ and the ledger are for their owner alone", Verdict.UNCHECKED,
                     "on Windows the folder in which the run lies decides who may read it")
        return
    # What lies in an unfinished checkpoint, which others cannot enter, gets its mode at the end.
    there = [Path(at, name) for at, folders, files in os.walk(private)
             for name in (*folders, *files)]  # which passes over what goes meanwhile
    inside = {path for path in there
              if any(parent.name.endswith(".unfinished") for parent in path.parents)}
    files = _modes([folder.files.ledger, private, *{*there} - inside])
    wrong = [f"{path.relative_to(folder.root)} has mode {stat.S_IMODE(file.st_mode):04o}"
             for path, file in files
             if file.st_mode & 0o077 and not stat.S_ISLNK(file.st_mode)][:3]
    owner = private.stat().st_uid
    wrong += [f"{path.relative_to(folder.root)} is another's, or a link" for path, file in files
              if stat.S_ISLNK(file.st_mode) or file.st_uid != owner][:3]
    findings.found("private/ and the ledger are for their owner alone", not wrong, "; ".join(wrong)
                   or "modes 0700 and 0600 throughout" + bool(inside) * (
                       ", but within an unfinished checkpoint, which has 0700"))


def _modes(paths: list[Path]) -> list[tuple[Path, os.stat_result]]:
    """The modes of files, but for those that went meanwhile, as old checkpoints do."""
    files = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            files.append((path, path.lstat()))
    return files


def release_alone(folder: Folder, findings: Findings, further: list[Word]) -> None:
    """Searches the release for what it may not hold.

    Args:
        folder: The folder, with a release.
        findings: Where findings are added.
        further: What else is searched for, as names of subjects.
    """
    names = sorted(folder.release.rglob("*"))
    known = (MAY_HOLD | {"audit"}) if not folder.whole else MAY_HOLD
    odd = [str(path.relative_to(folder.release)) for path in names
           if path.is_symlink() or str(path.relative_to(folder.release)) not in known]
    findings.found("the release holds the files of a release alone", not odd, (
        f"{', '.join(odd[:5])}: nothing that training puts there") if odd else
        f"{len(names)} files")
    words, skipped = _secrets(folder)
    hits, looked = [], 0
    for path in names:
        if path.is_file() and not path.is_symlink():
            for name, data in parts(path):
                looked += len(data)
                hits += [f"{name} holds {what}" for what in _found(data, [*words, *further])]
    kinds = ", ".join(dict.fromkeys(what + " (in texts)" * (len(word) < SHORT)
                                    for what, word in [*words, *further]))
    findings.found("the release holds no key, path, name or record", not hits, "; ".join(
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
    """Keys and names that no release may hold, and a remark on those that are too common."""
    words: list[Word] = [("the folder's own path", str(folder.root.resolve()).encode())]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        identity = json.loads(folder.files.identity.read_text())
        for name in ("partition_key", "key", "fingerprint"):
            if secret := identity.get(name):
                what = f"the {name.replace('_', ' ')} of private/"
                words += [(what, secret.encode()), (what, bytes.fromhex(secret))]
    with contextlib.suppress(OSError, ValueError):
        secret = (journal.place() / "key").read_text().strip()
        words += [("the journal's key", secret.encode()),
                  ("the journal's key", bytes.fromhex(secret))]
    dataset = str(folder.config.get("dataset") or "")
    typed = [word.partition("=")[2] or word for word in folder.config.get("typed") or []]
    words += [("the path of the data", word.rpartition(":")[2].encode()) for word in typed
              if word.rpartition(":")[2].startswith("/")]
    names = {"the user's name": _user(), "the host's name": socket.gethostname(),
             "the home folder": os.path.expanduser("~")}
    public = json.dumps([folder.config.get("spec"), dataset]).lower()
    common = [what for what, name in names.items()
              if len(name) < 4 or name.strip("/").lower() in COMMON or name.lower() in public]
    words += [(what, name.encode()) for what, name in names.items() if what not in common]
    return words, f" ({' and '.join(common)}: too common a word to search for)" * bool(common)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""

