"""`--coordinator auto`: a run finds its processes as a batch system started them, and they meet."""

import os

import many_processes as processes
import pytest

from dpgen_jax.core import files, hosts
from dpgen_jax.core.errors import UserError

KNOWN = ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "KUBERNETES_SERVICE_HOST", "TPU_WORKER_HOSTNAMES",
         "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT")


@pytest.fixture
def nowhere(monkeypatch):
    """A machine without a batch system."""
    for name in KNOWN:
        monkeypatch.delenv(name, raising=False)


def step(process, count, port="61234"):
    """The variables that SLURM sets for a process of a step."""
    return {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": str(count),
            "SLURM_PROCID": str(process), "SLURM_LOCALID": "0", "JAX_COORDINATOR_PORT": port}


@pytest.mark.usefixtures("nowhere")
def test_slurm_says_who_a_process_is(monkeypatch):
    for name, value in step(2, 4).items():
        monkeypatch.setenv(name, value)
    assert hosts.place_in_batch_system(1) == ("localhost:61234", 4, 2)


@pytest.mark.usefixtures("nowhere")
def test_where_nothing_started_it_a_line_says_what_to_type():
    with pytest.raises(UserError, match="finds no SLURM step.*give --coordinator HOST:PORT"):
        hosts.place_in_batch_system(1)


@pytest.mark.usefixtures("nowhere")
def test_a_system_that_does_not_answer_is_a_line(monkeypatch):
    for name, value in step(0, 4).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_NTASKS", "many")
    with pytest.raises(UserError, match="does not say which process this is .*'many'"):
        hosts.place_in_batch_system(1)


def test_a_jax_that_does_not_tell_is_a_line(monkeypatch):
    import jax._src.clusters as clusters

    monkeypatch.delattr(clusters, "ClusterEnv")
    with pytest.raises(UserError, match="does not say which process this is .*ClusterEnv"):
        hosts.place_in_batch_system(1)


def test_processes_of_a_batch_system_meet_and_may_be_long_in_coming(monkeypatch):
    import jax

    met = []
    monkeypatch.setattr(hosts, "place_in_batch_system",
                        lambda seconds: hosts.BatchPlace("host0:1", 2, 1))
    monkeypatch.setattr(hosts.Team, "connections", ())
    monkeypatch.setenv(hosts.THREADS, "3")
    monkeypatch.setattr(type(jax.config), "jax_num_cpu_devices", 2)
    monkeypatch.setattr(hosts, "meet",
                        lambda *arguments: met.append(arguments) or hosts.Met([], 5))
    monkeypatch.setattr(jax.config, "update", lambda *_: None)

    def refused(*arguments, **_):
        raise ValueError(arguments)

    monkeypatch.setattr(jax.distributed, "initialize", refused)
    with pytest.raises(UserError, match=r"at --coordinator auto: .*host0:1"):
        hosts.start(hosts.Hosts("auto"), {"method": "dpgan", "seed": "3", "dataset": "idx:a"})
    (place, mine, seconds), = met
    assert (place, mine.process, mine.processes, seconds) == ("host0:1", 1, 2, 300)
    assert mine.options == {"method": "dpgan", "seed": "3"} and mine.threads == 3
    assert os.environ[hosts.THREADS] == "5"


@pytest.mark.parametrize(("variables", "devices", "threads"), [
    ({}, 1, 6), ({"NPROC": "3"}, 1, 3), ({"NPROC": "3", "PJRT_NPROC": "4"}, 1, 4), ({}, 8, 8),
    ({"XLA_FLAGS": "--xla_force_host_platform_device_count=7"}, -1, 7),
    ({"XLA_FLAGS": "--xla_force_host_platform_device_count=7"}, 1, 6)])
def test_the_threads_of_a_process_are_its_cores_or_its_devices(monkeypatch, variables, devices,
                                                              threads):
    import jax

    for name in ("NPROC", "PJRT_NPROC", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(files, "cores", lambda: 6)
    monkeypatch.setattr(type(jax.config), "jax_num_cpu_devices", devices)
    assert hosts.threads() == threads


TALK = """
from dpgen_jax.core import hosts
hosts.start(hosts.Hosts("auto"), {{"method": "{method}"}})
with hosts.alive():
    print("gathered", hosts.gather(hosts.Team.index), hosts.count(), hosts.machines())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("second", "codes", "line"), [
    ("dpgan", [0, 0], "gathered [0, 1] 2 1"),
    ("datalens", [1, 1], "process 1 was started with another method than process 0")])
def test_two_processes_of_a_step_meet_or_are_told_why_not(tmp_path, second, codes, line):
    port = processes.coordinator().split(":")[1]
    commands = [["-c", TALK.format(method=method)] for method in ("dpgan", second)]
    # With as many devices as they have: they talk by one of each.
    started = processes.spawn(commands, 1, tmp_path, change=lambda i: {
        **step(i, 2, port), "JAX_NUM_CPU_DEVICES": str(1 + i)})
    ended, words = processes.finish(started, tmp_path)
    assert ended == codes and words.count(line) == 2, words
