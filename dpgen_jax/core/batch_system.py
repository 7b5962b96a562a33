"""The place of this process among those of its run, as the system says that started them.

JAX asks SLURM, Open MPI, Kubernetes and TPU pods for it, but tells nobody: it begins at once,
before the processes have met (`core.meeting`).
"""

from __future__ import annotations

import os
from typing import NamedTuple

from dpgen_jax.core.errors import UserError, one_line


class Place(NamedTuple):
    """The place of a process in its run.

    Attributes:
        coordinator: HOST:PORT of process 0.
        processes: How many there are in all.
        process_id: The number of this one.
    """

    coordinator: str
    processes: int
    process_id: int


def place(seconds: int) -> Place | None:
    """Returns this process's place; None where this version of JAX does not tell.

    Args:
        seconds: How long a system may take to name the machine of process 0.

    Raises:
        UserError: No system started this process, or it does not answer.
    """
    try:  # JAX has no public form of it
        from jax._src.clusters import ClusterEnv

        detect = ClusterEnv.auto_detect_unset_distributed_params
    except (ImportError, AttributeError):
        return None
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    try:
        coordinator, processes, process_id, _ = detect(address, None, None, None, None, seconds)
    except TypeError:
        return None
    except Exception as error:  # of as many kinds as there are systems
        raise UserError("--coordinator auto: the batch system does not say which process this is "
                        f"({one_line(error, 200)}); give --coordinator HOST:PORT --processes N "
                        "--process-id I") from error
    if coordinator is None or processes is None or process_id is None:
        raise UserError("--coordinator auto finds no SLURM step, Open MPI, Kubernetes or TPU pod "
                        "that started this process; give --coordinator HOST:PORT --processes N "
                        "--process-id I")
    return Place(coordinator, processes, process_id)
