"""Other operating systems: nothing that only POSIX has is needed, and what stands in for it keeps
its promises. What Windows does differently is switched on by hand here; hosted checks run on it."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dpgen_jax
from dpgen_jax.accountant import ledger
from dpgen_jax.accountant.journal import Journal
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core import files as core_files
from dpgen_jax.core.errors import UserError

PACKAGE = Path(dpgen_jax.__file__).parent
HEADER = {"epsilon": 1.0, "delta": 1e-5}
# Missing on Windows, or wherever wheels of the package are.
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty", "array_record"}
NAMES = {"fork", "forkpty", "getuid", "geteuid", "getgid", "getloadavg", "getpgid", "killpg",
         "mkfifo", "pread", "pwrite", "register_at_fork", "sched_getaffinity", "setsid", "statvfs",
         "sysconf", "uname", "chown", "fchown", "fchmod", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC",
         "AF_UNIX", "SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "alarm", "setitimer"}
GUARDED = {("accountant/ledger.py", "pwrite"), ("core/files.py", "sched_getaffinity"),
           ("core/files.py", "sysconf"), ("federated/wire.py", "AF_UNIX")}


@pytest.fixture(params=[False, True], ids=["the file itself", "a file beside it"])
def beside(request, monkeypatch):
    monkeypatch.setattr(ledger, "BESIDE", request.param)
    return request.param


def test_the_package_needs_nothing_that_one_system_alone_has():
    needed = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            names |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
            used = {name.partition(".")[0] for name in names} & MODULES
            if isinstance(node, ast.Attribute) and node.attr in NAMES:
                used.add(node.attr)
            needed |= {(path.relative_to(PACKAGE).as_posix(), name) for name in used}
    assert needed == GUARDED


def imported_without(names, what):
    code = f"""import sys
sys.modules.update(dict.fromkeys({sorted(names)!r}))
import importlib, warnings
warnings.simplefilter("ignore")  # filelock says what is missing
for name in {what!r}:
    importlib.import_module(name)"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=1800)


def test_the_accountant_is_imported_without_fcntl():
    done = imported_without(MODULES, ["dpgen_jax", "dpgen_jax.accountant.journal"])
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_module_is_imported_without_what_only_posix_has():
    optional = ("__init__", "__main__", "flower_client", "flower_server")
    done = imported_without(MODULES, [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.stem not in optional])
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_second_opening_is_refused_until_the_first_is_closed(tmp_path, beside):
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, HEADER):
        with pytest.raises(UserError, match="another process"):
            Ledger.open(path)
        assert len(ledger.read(path)) == 1  # reading needs no lock
    Ledger.open(path).close()
    assert (tmp_path / "ledger.jsonl.lock").exists() == beside


def test_the_journal_knows_which_run_is_in_use(tmp_path, beside):
    journal = Journal(tmp_path / "state")
    witness = journal.witness("a" * 32, "records", True, tmp_path)

    def in_use():
        return [run.in_use for run in journal.on("records")]

    with Ledger.create(tmp_path / "ledger.jsonl", HEADER, witness), journal.locked():
        assert in_use() == [True]
        copy = shutil.copy(tmp_path / "ledger.jsonl", tmp_path / "copy.jsonl")
        other = journal.witness("a" * 32, "records", True, tmp_path)
        with pytest.raises(UserError, match="another process is using this run"):
            Ledger.open(copy, other)
    assert in_use() == [False]


@pytest.mark.slow
@pytest.mark.skipif(core_files.WINDOWS, reason="kills a process as POSIX does")
def test_a_lock_ends_with_its_process_however_that_ends(tmp_path, beside):
    path = tmp_path / "ledger.jsonl"
    Ledger.create(path, HEADER).close()
    code = f"""import time
from dpgen_jax.accountant import ledger
from dpgen_jax.accountant.ledger import Ledger
ledger.BESIDE = {beside}
held = Ledger.open({str(path)!r})
print("held", flush=True)
time.sleep(1800)"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another process"):
            Ledger.open(path)
        child.kill()
        child.wait(timeout=1800)
    Ledger.open(path).close()


def test_no_lock_is_no_ledger(tmp_path, monkeypatch):
    """A run stops where the file system has no locks: no weaker kind takes their place."""
    def unsupported(descriptor, blocking):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(ledger.filelock, "lock_descriptor", unsupported)
    with pytest.raises(UserError, match="cannot be locked .*local disk"):
        Ledger.create(tmp_path / "ledger.jsonl", HEADER)
    assert not (tmp_path / "ledger.jsonl").exists()


def test_lines_are_whole_where_a_file_has_one_position(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "pwrite", raising=False)
    descriptor = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    ledger.write_at(descriptor, b"abcdef", 0)
    ledger.write_at(descriptor, b"XY", 2)
    os.close(descriptor)
    assert (tmp_path / "a").read_bytes() == b"abXYef"


def test_where_names_cannot_be_made_durable_a_run_says_so(tmp_path, monkeypatch):
    assert bool(core_files.shortfall()) == core_files.WINDOWS
    monkeypatch.setattr(core_files, "WINDOWS", True)
    monkeypatch.setattr(core_files, "WINDOWS", True)
    monkeypatch.setattr(os, "open", None)  # Windows opens no folder
    core_files.sync(tmp_path)
    assert "who may read a run folder" in core_files.shortfall()
    assert "\n" not in core_files.shortfall()


GB = 2**30


@pytest.mark.parametrize(("groups", "files", "expected"), [
    ("0::/", {"memory.max": f"{4 * GB}\n"}, 4),
    ("0::/", {"memory.max": "max\n"}, 100),
    # The limit of a job lies above the step in it.
    ("0::/slurm/job_7/step_0", {"slurm/job_7/memory.max": f"{6 * GB}\n",
                                "slurm/job_7/step_0/memory.max": "max\n"}, 6),
    ("0::/slurm/job_7", {"slurm/job_7/memory.max": f"{6 * GB}", "memory.max": f"{5 * GB}"}, 5),
    # A container sees its own group at the top, whatever the host calls it.
    ("0::/docker/abc", {"memory.max": f"{3 * GB}\n"}, 3),
    ("9:cpu,cpuacct:/a\n4:memory:/a/b\n0::/", {"memory/a/memory.limit_in_bytes": f"{2 * GB}\n"}, 2),
    ("4:memory:/", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 100),
    ("4:memory:/", {"memory.max": f"{GB}\n"}, 100),
    # What is no limit: none in version 1, and one under which no process could run.
    ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "-1\n"}, 100),
    ("0::/a", {"a/memory.max": "0\n", "memory.max": f"{3 * GB}\n"}, 3),
    ("0::/a", {"a/memory.max": "nan\n"}, 100),
    ("\n1:cpu\n0::/a:b", {"a:b/memory.max": f"{2 * GB}\n"}, 2),
    # Names of groups are bytes.
    ("0::/j\udce9\x85b", {"j\udce9\x85b/memory.max": f"{2 * GB}\n"}, 2),
    (None, {}, 100)])
def test_the_memory_is_that_of_a_container_or_job(tmp_path, monkeypatch, groups, files, expected):
    monkeypatch.setattr(core_files, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(core_files, "OF_THIS_PROCESS", tmp_path / "cgroup")
    monkeypatch.setattr(core_files, "_physical_bytes", lambda: 100.0 * GB)
    if groups is not None:
        (tmp_path / "cgroup").write_bytes(os.fsencode(groups + "\n"))
    for name, content in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(content)
    assert core_files.machine_bytes() == expected * GB
