"""Every command line in a block of the README and the documentation, executed as it is written.

A line runs for real, on small data of the names that the pages use, unless its comment says what it
`needs` or `takes`: such a line is parsed by the program's own parser, and stops there; so do the
forms in the reference of commands. What is no program of this project (pip, docker, pytest, ...) is
looked at by a function of `PROGRAMS`. The example of a federation is typed by
tests/federated/test_federation_as_documented.py.
"""

import argparse
import contextlib
import io
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from test_packaging import setup_cfg

from dpgen_jax.cli import parser
from dpgen_jax.core import hosts

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(
    path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)])
ELSEWHERE = "docs/how-to/federation.md"
FIRST = ("--label outcome --out schema.yaml", "people.csv --schema schema.yaml --epsilon 1",
         "--out my-run")
"""Lines that make what other pages go on with."""
USAGE = "docs/reference/commands.md"  # whose lines are forms and no examples
FORMS = {"METHOD": "dpmerf", "D": "glyphs", "N": "2", "COMMAND": "train"}
OURS = re.compile(r"(?:python -m (?:dpgen_jax|benchmarks)|dpgen )")
MARK = re.compile(r"(?:^|\W)(?:needs|takes) ")


class Line:
    """A command line: its page, its text, and what its comment says."""

    def __init__(self, page: Path, text: str):
        self.page = str(page.relative_to(ROOT))
        # Usage is shown in columns: what stands behind it, and brackets, are not typed.
        command, _, comment = re.sub(r"(\S) {4,}(?=[a-z])", r"\1 # ", text).partition(" #")
        self.text = re.sub(r" \[.*\]", "", command).strip() if OURS.match(command) else (
            command.strip())
        if self.page == USAGE:
            self.text = " ".join(FORMS.get(word, word) for word in self.text.split())
        self.marked = self.page == USAGE or bool(MARK.search(comment))

    def __repr__(self):
        return f"{self.page}: {self.text}"


def lines() -> list[Line]:
    """The lines of all blocks without a language; those of a shell that go on are one."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"^ *```([^\n]*)\n(.*?)^ *```", page.read_text(),
                            re.MULTILINE | re.DOTALL)
        for block in (block for language, block in blocks if not language):
            for text in block.replace("\\\n", " ").split("\n"):
                if re.match(r" *(?:dpgen|python|pip|docker|pytest|cd|sha256sum) ", text):
                    found.append(Line(page, text.strip()))
    return [line for line in found if line.page != ELSEWHERE]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the data that the pages name."""
    root, rng = tmp_path_factory.mktemp("typed"), np.random.default_rng(0)
    for label, name in enumerate(("benign", "malignant")):
        (root / "scans" / name).mkdir(parents=True)
        for i in range(40):
            pixels = rng.integers(0, 60, (28, 28)) + 150 * label * (np.arange(28) < 14)
            Image.fromarray(pixels.astype(np.uint8)).save(root / "scans" / name / f"{i}.png")
    header = "patient,age,pay,sex,ward,outcome"
    wards = "surgery", "medicine"
    rows = [f"{i // 3},{age},{1000 + 9 * (i % 240)},{'fm'[i % 2]},{wards[age % 2]},"
            f"{'readmitted' if age > 60 else 'home'}"
            for i, age in enumerate(rng.integers(20, 90, 3000))]
    (root / "visits.csv").write_text("\n".join([header, *rows]) + "\n")
    (root / "people.csv").write_text(
        "\n".join(text.partition(",")[2] for text in [header, *rows]) + "\n")
    return root


def declare(schema: Path) -> None:
    """Do what a person does with a draft: declare what is public, and take it off the list."""
    text = re.sub(r"^read_from_data:\n(?: .*\n)*", "", schema.read_text(), flags=re.MULTILINE)
    schema.write_text(text)


def keep_private(schema: Path) -> None:
    """Do what a person does who would rather buy the bounds of a column."""
    schema.write_text(re.sub(r"min: \S+(.*\n +)max: \S+", r"min: private\1max: private",
                             schema.read_text(), count=1))


class Parsed(Exception):
    """The program's parser took the arguments."""


def stopping(parse):
    def parsed(*args, **options):
        parse(*args, **options)
        raise Parsed

    return parsed


def execute(words: list[str]) -> None:
    """`python -m MODULE WORDS` in this process; fails unless it ends well."""
    module = "dpgen_jax.__main__" if words[0] == "dpgen" else words[2]
    rest = words[1:] if words[0] == "dpgen" else words[3:]
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), \
            contextlib.redirect_stderr(said):
        patch.setattr(sys, "argv", [module, *rest])
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as stop:
            assert not stop.code, f"{shlex.join(words)}: {stop.code} {said.getvalue()[-1500:]}"


def parse(words: list[str]) -> None:
    """As `execute`, up to the moment in which all arguments are parsed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "parse", stopping(parser.parse))
        patch.setattr(jax.distributed, "initialize", stopping(lambda *_, **__: None))
        patch.setattr(hosts, "meet", stopping(lambda *_: None))
        for name in ("parse_args", "parse_known_args"):
            patch.setattr(argparse.ArgumentParser, name,
                          stopping(getattr(argparse.ArgumentParser, name)))
        with pytest.raises(Parsed):
            execute(words)


def pip(text: str) -> None:
    """An installation is not repeated here: it names extras that setup.cfg has."""
    named = re.findall(r"\.\[([a-z,]+)\]", text)
    extras = setup_cfg()["options.extras_require"]
    assert all(extra in extras for group in named for extra in group.split(","))


def pytest_marks(text: str) -> None:
    """Tests are not run by a test: its marks are those that setup.cfg declares, its files exist."""
    declared = setup_cfg()["tool:pytest"]["markers"]
    words = shlex.split(text.rpartition("&& ")[2])[1:]
    marks = [word for word in " ".join(words).split() if word.isalpha() and word not in
             ("m", "and", "not")]
    assert all(f"{mark}:" in declared for mark in marks)
    assert all((ROOT / word).exists() for word in words if word.endswith(".py"))


def docker(text: str) -> None:
    """Containers are built elsewhere: the arguments of a build are those of the Dockerfile."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert all(f"ARG {name}" in dockerfile for name in re.findall(r"--build-arg (\w+)=", text))


def code(text: str) -> None:
    """Lines of Python that need what is not here are compiled."""
    compile(shlex.split(text)[2], text, "exec")


PROGRAMS = {"pip ": pip, "pytest": pytest_marks, "docker ": docker, "python -c": code,
            "sha256sum": lambda text: None}


@pytest.mark.slow
def test_every_line_without_a_mark_runs(place, monkeypatch):
    monkeypatch.chdir(place)
    typed, refused, page = set(), [], ""
    for line in sorted(lines(), key=lambda line: not any(text in line.text for text in FIRST)):
        if line.marked or line.text in typed:
            continue
        typed.add(line.text)
        if line.page != page:  # whose reader has no files of another page
            page = line.page
            for path in place.glob("*.csv"):
                path.unlink() if path.stem in ("synthetic", "some", "old") else None
        if "--schema-epsilon" in line.text:
            keep_private(place / "schema.yaml")
        try:
            if OURS.match(line.text):
                execute(shlex.split(line.text))
            else:
                subprocess.run(["bash", "-ec", line.text.replace("python ", f"{sys.executable} ")],
                               check=True, capture_output=True, timeout=1800)
        except (AssertionError, subprocess.CalledProcessError) as error:
            refused.append(f"{line}: {error} {getattr(error, 'stderr', b'')[-500:]}")
        if draft := re.search(r"\.schema .*--label .*--out (\w+\.yaml)", line.text):
            declare(place / draft[1])
        if "train --dataset people.csv --schema" in line.text:
            made = sorted((place / "runs").glob("*"), key=lambda run: run.stat().st_mtime)
            (place / "RUN").symlink_to(*made[-1:])
    assert refused == [], "\n\n".join(refused)
    assert {"my-run", "RUN", "DIR", "synthetic.npz"} <= {path.name for path in place.iterdir()}
    assert len(typed) > 15, "the pages have other blocks: nothing was typed"


@pytest.mark.slow
def test_every_line_with_a_mark_is_understood(place, monkeypatch):
    monkeypatch.chdir(place)
    if not (place / "RUN").exists():  # nothing is read of it
        (place / "RUN").mkdir()
    refused, parsed = [], 0
    for line in lines():
        if not line.marked:
            continue
        try:
            if OURS.match(line.text):
                parse(shlex.split(line.text))
                parsed += 1
            else:
                next(check for start, check in PROGRAMS.items()
                     if line.text.startswith(start))(line.text)
        except (AssertionError, StopIteration, pytest.fail.Exception, SyntaxError) as error:
            refused.append(f"{line}: {error}")
    assert refused == [] and parsed > 15, "\n\n".join(refused)


def test_a_line_is_run_or_says_why_not():
    """Those that install, build and test are marked too: nothing is left out in silence."""
    plain = [line for line in lines() if not line.marked]
    assert [line for line in plain if line.text.startswith(("pip", "docker", "pytest"))] == []
    assert [line for line in plain if "validation.npz" in line.text] == [], "needs MNIST"
    assert any(line.text.startswith("python -m dpgen_jax.train") for line in plain)
