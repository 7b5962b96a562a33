"""Examples for batch systems: their commands are the program's, and go on where it stopped."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from dpgen_jax.cli import train_flags
from dpgen_jax.core.errors import BudgetExceeded, UserError
from dpgen_jax.run.progress import OUT_OF_TIME

CLUSTER = Path(__file__).parents[2] / "benchmarks/cluster"
PYTHON = """#!/usr/bin/env bash
echo "$@" >> "$PLACE/typed"
trap 'exit 143' TERM
[ -z "${LONG:-}" ] || for i in $(seq 600); do sleep 0.1; done
exit "$CODE"
"""
SCONTROL = """#!/usr/bin/env bash
echo "$@" >> "$PLACE/requeued"
"""


@pytest.fixture
def array(tmp_path):
    """Starts the SLURM array's script, with a `python` that ends with a code."""
    for name, text in (("python", PYTHON), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def start(code, **more):
        return subprocess.Popen(["bash", CLUSTER / "slurm_array.sh"], env=os.environ | {
            "PATH": f"{tmp_path}:{os.environ['PATH']}", "PLACE": str(tmp_path), "CODE": str(code),
            "RUNS": str(tmp_path / "runs"), "SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_JOB_ID": "7",
            **more})

    return start


def said(tmp_path, name):
    path = tmp_path / name
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(("code", "again"), [
    (0, False), (OUT_OF_TIME, True), (UserError.exit_code, False), (143, True),
    (BudgetExceeded.exit_code, False)])
def test_an_array_starts_itself_again_where_a_run_can_go_on(array, tmp_path, code, again):
    assert array(code).wait(60) == code
    assert said(tmp_path, "requeued") == ["requeue 7_2"] * again
    begun, = said(tmp_path, "typed")
    assert begun.startswith("-m dpgen_jax.train datalens")
    (tmp_path / "runs/datalens-2").mkdir(parents=True)
    (tmp_path / "runs/datalens-2/config.json").touch()
    array(code).wait(60)
    assert said(tmp_path, "typed")[1:] == [
        f"-m dpgen_jax.train --resume {tmp_path}/runs/datalens-2"]


def test_an_array_tells_its_run_that_time_is_over(array, tmp_path):
    script = array(0, LONG="1")
    end = time.monotonic() + 60
    while not said(tmp_path, "typed") and time.monotonic() < end:
        time.sleep(0.05)
    script.send_signal(signal.SIGTERM)
    assert script.wait(60) == 143
    assert said(tmp_path, "requeued") == ["requeue 7_2"]


@pytest.fixture
def job():
    return yaml.safe_load((CLUSTER / "kubernetes_job.yaml").read_text())


def test_a_job_is_one_by_the_schemas_of_kubernetes(job):
    """Strictly: a name that a schema does not know is refused, as by `kubectl apply`."""
    schemas = pytest.importorskip("kubernetes_validate", reason="needs the extra `kubernetes`")
    # 1.28 and before require onPodConditions of every rule, which their servers do not.
    versions = [version for version in schemas.utils.all_versions()
                if int(version.split(".")[1]) > 28]
    for version in versions:
        schemas.validate(job, version, strict=True)
    condition, = job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"]
    for faulty, why in (({"type": condition["type"]}, "'status' is a required"),
                        (condition | {"status": True}, "not of type 'string'"),
                        (condition | {"state": "True"}, "Additional properties")):
        job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"] = [faulty]
        with pytest.raises(schemas.ValidationError, match=why):
            schemas.validate(job, versions[0], strict=True)  # the oldest


def test_a_job_ends_for_what_a_person_must_mend(job):
    spec = job["spec"]
    codes = [rule["onExitCodes"]["values"] for rule in spec["podFailurePolicy"]["rules"]
             if rule["action"] == "FailJob"]
    assert codes == [[UserError.exit_code, BudgetExceeded.exit_code]]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # as a podFailurePolicy asks for
    container, = spec["template"]["spec"]["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    subprocess.run(["sh", "-n", "-c", container["args"][0]], check=True)


@pytest.mark.parametrize("name", ["slurm_array.sh", "kubernetes_job.yaml"])
def test_the_flags_are_those_of_the_program(name):
    text = re.sub(r'\$\{?\w+(:-[^}]*)?\}?', "x", (CLUSTER / name).read_text()).replace("\\\n", " ")
    first, = re.findall(r"(?:words=\(|dpgen_jax\.train )datalens ([^)\n]*)", text)
    train_flags.parse("datalens", shlex.split(first))
