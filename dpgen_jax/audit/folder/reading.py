"""Reads the parts of a folder as far as possible, and changes nothing."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpgen_jax import methods
from dpgen_jax.accountant import ledger
from dpgen_jax.accountant.ledger import Account, Record
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core.config import from_json
from dpgen_jax.core.errors import one_line
from dpgen_jax.core.files import Json
from dpgen_jax.core.request import Request
from dpgen_jax.core.run_folder import FEDERATION, RunFolder, read_json
from dpgen_jax.core.types import UserError
from dpgen_jax.release import contents


@dataclasses.dataclass(frozen=True)
class Book:
    """A ledger, read without its lock.

    Attributes:
        records: The records of its complete lines.
        hashes: Their hashes.
        tail: The bytes of a torn last line.
        account: The totals, including what a resume would charge for the torn line.
    """

    records: list[Record]
    hashes: list[str]
    tail: bytes
    account: Account

    def contains(self, head: str, lines: int) -> bool:
        """Whether the first `lines` lines end in the hash `head`."""
        return 0 < lines <= len(self.hashes) and self.hashes[lines - 1] == head

    def earlier(self) -> list[Book]:
        """Returns the ledger as it was before each resume, the last first."""
        books: list[Book] = []
        account = Account()
        for i, record in enumerate(self.records):
            if record["kind"] == "open":
                books.append(Book(self.records[:i], self.hashes[:i], b"", account))
                account = account.after(record)
            else:
                account.apply(record)
        return books[::-1]


@dataclasses.dataclass(frozen=True)
class Folder:
    """A run folder, the folder of a client, or a separate release; parts are read on demand.

    Reading a part that is missing, damaged or not of this version raises a UserError.

    Attributes:
        root: The folder.
        whole: True for the folder of a run or a client, False for a separate release.
        stated: The request of a run of an earlier version, which its config.json does not contain.
    """

    root: Path
    whole: bool
    stated: Request | None = None

    @functools.cached_property
    def request(self) -> Request:
        """The request of the run; empty if it is not stored."""
        value = self.config.get("request")
        return self.stated or Request() if value is None else Request.from_json(value, "request")

    @property
    def files(self) -> RunFolder:
        """The names of its files."""
        return RunFolder(self.root)

    @property
    def release(self) -> Path:
        """The folder of the release, which need not exist."""
        return self.files.release if self.whole else self.root

    @functools.cached_property
    def config(self) -> Json:
        """config.json of the run, or of the release if there is no run."""
        path = self.root / "config.json"
        return read_json(path) if self.waiting else contents.described(path)

    @functools.cached_property
    def waiting(self) -> bool:
        """Whether the run is, or ended, between a purchase and its training."""
        return self.whole and self.files.waiting

    @functools.cached_property
    def in_use(self) -> bool:
        """Whether another process has the ledger's lock, so the run is in progress."""
        path = self.files.ledger
        try:
            with path.open("rb") as file:
                ledger.give_up_lock(ledger.hold_lock(path, file.fileno(), create=False),
                                    file.fileno())
        except FileNotFoundError:  # no lock was ever taken
            return False
        except OSError:  # locked, or not known
            return True
        return False

    def later(self) -> Folder:
        """Returns the folder to read again if a run in progress has written more since.

        A run charges first: everything read earlier is charged in a ledger that is read now.
        """
        return dataclasses.replace(self) if self.in_use else self

    @functools.cached_property
    def book(self) -> Book:
        """The ledger."""
        data = ledger.read_ledger(self.files.ledger)
        records, hashes, tail, account = ledger.replay_lines(self.files.ledger, data)
        if tail and self.in_use:  # it is being written, and allows nothing before it is whole
            tail = b""
        if tail:
            account = account.after(ledger.torn_line(tail, account))
        return Book(records, hashes, tail, account)

    @functools.cached_property
    def statement(self) -> Json:
        """privacy.json."""
        path = self.release / "privacy.json"
        return contents.statement(read_json(path), str(path))

    @functools.cached_property
    def method_config(self) -> Any:
        """The method's configuration, of config.json."""
        module = methods.get(self.config["method"])
        return from_json(module.Config, self.config["config"], "config")

    @functools.cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism, rebuilt from config.json."""
        module = methods.get(self.config["method"])
        made: Mechanism = module.mechanism(self.method_config, contents.spec(self.config["spec"]))
        return made

    @property
    def of_client(self) -> bool:
        """Whether it is the folder of one client of a federation."""
        return "client" in self.config

    @property
    def of_server(self) -> bool:
        """Whether it is the folder of the server of a federation."""
        return self.config.get("dataset") == FEDERATION and not self.of_client

    @property
    def version(self) -> str:
        """The version of the package that made it; empty if unknown."""
        said = (self.config.get("versions", {}).get("dpgen_jax") if self.whole
                else self.config.get("package_version"))
        return str(said or "")

    @property
    def released(self) -> bool:
        """Whether there is a release with its statement."""
        return (self.release / "privacy.json").is_file()


def opened(root: Path, stated: Request | None = None) -> Folder:
    """Recognises the kind of a folder; `stated` is as in `Folder`.

    Raises:
        UserError: It is neither a run nor a release.
    """
    names = {path.name for path in root.iterdir()} if root.is_dir() else set()
    if names & {"ledger.jsonl", "private"} or ("release" in names and "config.json" in names):
        return Folder(root, whole=True, stated=stated)
    if names & {"privacy.json", "generator.safetensors"}:
        return Folder(root, whole=False)
    raise UserError(f"{root} is neither a run nor a release: it has no ledger.jsonl and no "
                    "privacy.json; name the folder of a run")


def attempt(read: Callable[[], Any]) -> str:
    """Returns why a part cannot be read, in one line; empty if it can."""
    try:
        read()
    except (UserError, *ledger.DAMAGE, OSError) as error:
        return one_line(error)
    return ""
