"""Facts about the package that stand in several places agree in all of them: versions, bounds,
commands and the files of a wheel. Nothing here uses the network."""

import configparser
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from dpgen_jax.version import __version__

ROOT = Path(__file__).resolve().parents[2]


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def requirements() -> list[Requirement]:
    """All packages that the package and its extras name, in setup.cfg."""
    setup = setup_cfg()
    lists = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    return [Requirement(line) for text in lists for line in text.split("\n") if line.strip()]


def lower_bound(requirement: Requirement) -> str:
    bounds = [part.version for part in requirement.specifier if part.operator == ">="]
    assert len(bounds) == 1, f"{requirement} in setup.cfg has no lower bound"
    return bounds[0]


def read_yaml(path: str) -> dict:
    return yaml.safe_load((ROOT / path).read_text())


def first_command() -> str:
    return subprocess.run([ROOT / ".ci/first_command"], check=True, capture_output=True,
                          text=True).stdout.strip()


def test_the_oldest_versions_are_the_lower_bounds_of_setup_cfg():
    expected = {f"{r.name.lower()}=={lower_bound(r)}" for r in requirements()}
    printed = subprocess.run([sys.executable, ROOT / ".ci/oldest"], check=True,
                             capture_output=True, text=True).stdout.split()
    assert sorted(printed) == sorted(expected)
    # Two bounds for one package could not be installed together.
    names = [pin.split("==")[0] for pin in expected]
    assert sorted(set(names)) == sorted(names)


def test_what_colab_has_installed_stays_but_for_what_is_named():
    pins = ("jax==0.7.2\njax-cuda12-plugin==0.7.2\nnumpy==2.0.2\nml_dtypes==0.5.4\nflax==0.11.2\n"
            "torch==2.11.0+cu128\nx @ https://example.org/x.whl\n# a comment\n")
    kept = subprocess.run([sys.executable, ROOT / ".ci/colab"], input=pins, check=True, text=True,
                          capture_output=True).stdout
    assert kept.split() == ["numpy==2.0.2", "ml_dtypes==0.5.4"]


def test_the_citation_names_the_version():
    citation = read_yaml("CITATION.cff")
    assert citation["version"] == __version__
    assert citation["license"] == setup_cfg()["metadata"]["license"]
    assert all(paper["title"] and paper["authors"] and paper["year"]
               for paper in citation["references"])


def test_the_hosted_checks_run_every_python_of_the_classifiers():
    jobs = read_yaml(".github/workflows/ci.yml")["jobs"]
    rows = jobs["tests"]["strategy"]["matrix"]["include"]
    on_linux = {row["python"] for row in rows if row["os"].startswith("ubuntu")}
    classifiers = setup_cfg()["metadata"]["classifiers"]
    named = set(re.findall(r"Python :: (3\.\d+)", classifiers))
    assert on_linux == named
    assert {row["os"].partition("-")[0] for row in rows} == {"ubuntu", "macos", "windows"}
    oldest = min(named, key=lambda version: int(version.split(".")[1]))
    assert setup_cfg()["options"]["python_requires"] == f">={oldest}"
    [setup_python] = [step["with"]["python-version"] for step in jobs["oldest"]["steps"]
                      if "setup-python" in step.get("uses", "")]
    assert setup_python == oldest


def test_the_hosted_checks_run_the_commands_of_the_readme():
    rows = read_yaml(".github/workflows/ci.yml")["jobs"]["tests"]["strategy"]["matrix"]["include"]
    readme = (ROOT / "README.md").read_text()
    commands = {row["command"] for row in rows}
    assert "bash .ci/run" in commands
    for command in commands - {"bash .ci/run"}:
        assert f"\n{command}" in readme


def test_the_hosted_checks_run_the_tests_marked_long():
    steps = read_yaml(".github/workflows/ci.yml")["jobs"]["long"]["steps"]
    assert steps[-1]["run"] == "pytest -m long"


def test_the_container_runs_the_first_command_of_the_readme():
    lines = (ROOT / "Dockerfile").read_text().split("\n")
    [command] = [json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")]
    assert " ".join(command) == first_command()
    users = [line for line in lines if line.startswith("USER ")]
    assert users == ["USER dpgen"]


def test_what_the_container_is_built_from_is_sent_to_its_builder():
    sent = set((ROOT / ".dockerignore").read_text().split("\n"))
    copied = [line.split()[1:-1] for line in (ROOT / "Dockerfile").read_text().split("\n")
              if line.startswith("COPY ") and "--from=" not in line]
    for path in sum(copied, []):
        assert (ROOT / path).exists() and f"!{path}" in sent


@pytest.mark.parametrize("package, patterns", setup_cfg()["options.package_data"].items())
def test_package_data_exists(package, patterns):
    folder = ROOT / package.replace(".", "/")
    for pattern in re.split(r"[\n,]", patterns.strip()):
        assert list(folder.glob(pattern.strip())), f"{package}: no file {pattern}"


def test_every_file_of_the_package_is_code_or_package_data():
    """A file that setup.cfg does not name would be missing from the wheel."""
    shipped = {path for package, patterns in setup_cfg()["options.package_data"].items()
               for pattern in re.split(r"[\n,]", patterns.strip())
               for path in (ROOT / package.replace(".", "/")).glob(pattern.strip())}
    present = {path for path in (ROOT / "dpgen_jax").rglob("*")
               if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert present - shipped == set()


def test_issue_forms_are_whole():
    """GitHub shows no form with a field that has neither a label nor, as markdown has, a value."""
    for path in sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")):
        if path.name == "config.yml":
            continue
        form = yaml.safe_load(path.read_text())
        assert form["name"] and form["description"]
        ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
        assert len(set(ids)) == len(ids)
        for field in form["body"]:
            assert field["attributes"].get("value" if field["type"] == "markdown" else "label")
