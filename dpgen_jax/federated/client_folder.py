"""The folder of a client: which federation, client and records it belongs to, and its ledger."""

from __future__ import annotations

import hmac
import logging
import math
import os
import secrets
from pathlib import Path

import numpy as np

from dpgen_jax.accountant import calibrate
from dpgen_jax.accountant.ledger import Ledger, begun, read
from dpgen_jax.accountant.witness import Witness
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.core.config import Budget
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Private, Records, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.federated.messages import Terms
from dpgen_jax.private import records as sealing
from dpgen_jax.run import noise_digests, opening
from dpgen_jax.run.folder import RunFolder, read_json, write_json

log = logging.getLogger(__name__)


def memory_path(files: RunFolder) -> Path:
    """Returns where the client keeps its memory.

    Args:
        files: The client's folder.
    """
    return files.private / "memory.safetensors"


def check(terms: Terms, data: Dataset, budget: Budget) -> None:
    """Checks that a client can join with its records and its budget.

    Args:
        terms: The terms of the federation.
        data: The client's records.
        budget: The client's own budget.

    Raises:
        UserError: For records of another schema, none at all, a schema that was bought, or a budget
            that cannot be promised.
    """
    if data.spec != terms.spec:
        raise UserError(f"the records are {data.spec}, the federation's are {terms.spec}")
    if data.bought:
        raise UserError("the schema was bought at the level of single records, which does not cover"
                        " a client; declare the bounds of the columns instead")
    if not len(data.y_train):
        raise UserError("this client holds no records: leave it out of the federation")
    if not budget.epsilon > 0:
        raise UserError(f"epsilon must be above 0, got {budget.epsilon}; for example epsilon=8.0")
    if math.isfinite(budget.epsilon):
        calibrate.check_budget(budget.epsilon, budget.delta)


def open_folder(root: Path, public: Json) -> RunFolder:
    """Makes the client's folder, or opens the one that it began.

    Args:
        root: The folder.
        public: The content of its config.json.

    Returns:
        The folder.

    Raises:
        UserError: For the folder of another client, or of another federation.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chmod(root, 0o700)  # mkdir leaves a folder that was there as open as it was
    if not (root / "config.json").is_file():
        return opening.create(root, public)
    client = read_json(root / "config.json").get("client")
    if client != public["client"]:
        raise UserError(f"{root} is the folder of client {client}, not of client "
                        f"{public['client']}; give each client a folder of its own")
    return opening.reopen(root, public)


def recognise(files: RunFolder, records: Private[Records]) -> None:
    """Keeps a keyed fingerprint of the records, or compares them with it.

    Other records are another client, whose critic has learnt nothing and whose budget is whole.

    Args:
        files: The client's folder.
        records: The client's records.

    Raises:
        UserError: For other records than those that the folder was started with.
    """
    if not files.identity.exists():
        key = secrets.token_bytes(32)
        write_json(files.identity, {"key": key.hex(), "fingerprint": sealing.fingerprint(
            records, key)}, mode=0o600)
    identity = read_json(files.identity)
    try:
        same = hmac.compare_digest(sealing.fingerprint(records, bytes.fromhex(identity["key"])),
                                   identity["fingerprint"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{files.identity} is damaged: bring back the file that belongs to this "
                        "folder") from None
    if not same:
        raise UserError(f"the records are not those that {files.root} was started with; other "
                        "records need another folder, and one whose owners are the same adds its "
                        "epsilon to this one's")


def keep_digests(files: RunFolder, answered: int, bits: np.ndarray) -> None:
    """Keeps a digest of the bits of an answer's noise, by which an audit finds what is used twice.

    Where that fails it is logged: an answer is as private without.

    Args:
        files: The client's folder.
        answered: How many participations were charged before this one.
        bits: uint32 of `client_bits_shape`.
    """
    try:
        key = bytes.fromhex(read_json(files.identity)["key"])
        noise_digests.append(files.noise_digests, key, answered, [bits[None]])
    except OSError as error:
        log.warning("writing %s: %s", files.noise_digests, error)


def open_ledger(files: RunFolder, mechanism: LocalMechanism, budget: Budget, terms: Terms,
                witness: Witness) -> Ledger:
    """Opens the client's ledger, or creates it before anything was answered.

    Args:
        files: The client's folder.
        mechanism: The mechanism of the federation.
        budget: The client's own budget.
        terms: The terms of the federation.
        witness: Remembers the ledger outside of the folder.

    Returns:
        The open ledger; to be closed.

    Raises:
        UserError: For the ledger of another folder.
    """
    run = files.run_id()
    if begun(files.ledger) or memory_path(files).exists():
        if read(files.ledger)[0].get("run") != run:
            raise UserError(f"{files.ledger} is the ledger of another folder than {files.root}; "
                            "bring back the file that belongs to it")
        return Ledger.open(files.ledger, witness)
    files.ledger.unlink(missing_ok=True)  # a header that a crash tore
    return Ledger.create(files.ledger, {
        "epsilon": float(budget.epsilon), "delta": budget.delta, "config_hash": terms.digest,
        "relation": mechanism.relation, "unit": mechanism.unit, "run": run}, witness)
