"""The README and the documentation: short enough, written from the results files, without a path,
a command or a flag that does not exist; and Sphinx builds all of it without a warning."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import results_page
from dpgen_jax import data, methods, train
from dpgen_jax.__main__ import COMMANDS
from dpgen_jax.run import lifecycle

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md",
                *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)])
FOLDERS = ("dpgen_jax", "tests", "benchmarks", "docs", "notebooks", ".ci")
COMMAND = re.compile(r"python -m ((?:dpgen_jax|benchmarks)(?:\.[a-z_]+)*)(?!\.?\w)")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code(text: str) -> list[str]:
    """Return the code that a page shows: each line of a block, and each span between backticks."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", rest)]
    return [line for block in blocks for line in block.splitlines()] + spans


@pytest.mark.parametrize("page, lines", [
    ("README.md", 90), ("CONTRIBUTING.md", 150), ("docs/results.md", 200),
    *((page.relative_to(ROOT), 100) for page in sorted((ROOT / "docs/how-to").glob("*.md")))])
def test_a_page_that_everybody_reads_is_short(page, lines):
    assert len((ROOT / page).read_text().splitlines()) <= lines


OLD_STYLE = re.compile(r"\bbeside\b|\balone\b|which is why|\bspeaks? of\b|\bleans? on\b")
"""Words of sentences that read as translated; CONTRIBUTING has better ones."""


def test_words_of_the_old_style_are_rare():
    """CONTRIBUTING quotes three of them, and records of the peers of tables have others."""
    found = {named(page): len(OLD_STYLE.findall(page.read_text())) for page in PAGES
             if named(page) not in ("CONTRIBUTING.md", "docs/tables.md")}
    assert sum(found.values()) < 10, found
    assert OLD_STYLE.search("small beside the noise")


@pytest.mark.parametrize("path, text", list(results_page.pages()),
                         ids=lambda value: value.name if isinstance(value, Path) else "")
def test_pages_with_figures_are_what_the_script_writes(path, text, monkeypatch):
    """They are made of the results alone: no records are read, and no run."""
    for module, name in ((data, "load"), (lifecycle, "run"), (lifecycle, "load")):
        monkeypatch.setattr(module, name, None)
    assert path.read_text() == text(), "run python -m benchmarks.results_page"


def test_the_readme_has_no_other_measured_figures():
    text = (ROOT / "README.md").read_text()
    outside = "".join(part.partition(results_page.END)[2] or part
                      for part in text.split(results_page.BEGIN))
    assert len(outside) < len(text)
    assert re.findall(r"\b0\.\d\d+", outside) == []


def test_every_results_file_is_linked_from_a_page():
    pages = "".join(path.read_text() for path in PAGES)
    # The tables of these name their presets, and the text their files by a pattern.
    by_pattern = ("gpate-", "gswgan-", "dpac-", "images-", "tables-")
    files = [path.stem for path in (ROOT / "benchmarks/results").glob("*.json")]
    assert [stem for stem in files
            if f"{stem}.json" not in pages and not stem.startswith(by_pattern)] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    local = [target.partition("#")[0] for target in targets if "://" not in target]
    # No folders: Sphinx finds no page and no file there.
    missing = [target for target in local if target and not (page.parent / target).is_file()]
    assert [target for target in missing if not target.startswith("api/")] == []  # made by a build


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_paths_that_are_named_exist(page):
    words = {word for line in code(page.read_text()) for word in line.split()}
    paths = [word.rstrip(".,;:") for word in words
             if re.fullmatch(r"[\w./-]+", word) and "/" in word and word.isascii()]
    ours = [path for path in paths if path.split("/")[0] in FOLDERS and "NAME" not in path]
    modules = [path for path in paths if path.endswith(".py") and path not in ours
               and "NAME" not in path]
    built = ("docs/_build", "docs/reference/api")
    assert [path for path in ours
            if not (ROOT / path).exists() and not path.startswith(built)] == []
    assert [path for path in modules if not (ROOT / "dpgen_jax" / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_that_are_named_exist(page):
    names = {name for line in code(page.read_text()) for name in COMMAND.findall(line)}
    programs = [f"{name}.__main__" if name == "dpgen_jax" else name for name in sorted(names)]
    assert [name for name in programs if importlib.util.find_spec(name) is None] == []


def test_flags_of_commands_exist():
    """A flag is written in the package, or is the name of a field with dashes."""
    source = "\n".join(path.read_text() for folder in ("dpgen_jax", "benchmarks")
                       for path in (ROOT / folder).rglob("*.py"))
    lines = [line for page in PAGES for line in code(page.read_text()) if COMMAND.search(line)]
    flags = {flag for line in lines for flag in re.findall(r"(?<=\s)--([a-z][\w-]*)", line)}
    flags -= {"rm", "gpus", "build-arg"}  # docker's, before the command that it runs
    fields = [flag.replace("-", "_") for flag in sorted(flags) if f"--{flag}" not in source]
    assert [field for field in fields if not re.search(rf"\b{field}\b", source)] == []


def test_every_command_is_in_the_reference_and_in_the_list_of_commands():
    commands = (ROOT / "docs/reference/commands.md").read_text()
    programs = {path.stem for path in (ROOT / "dpgen_jax").glob("*.py")} - {
        "__init__", "__main__", "version"}
    programs |= {path.parent.name for path in (ROOT / "dpgen_jax").glob("*/__main__.py")}
    assert programs == COMMANDS.keys()
    assert [name for name in programs if f"command-help}} dpgen_jax.{name}\n" not in commands] == []


def test_every_method_is_in_the_reference_and_explained():
    flags = (ROOT / "docs/reference/methods.md").read_text()
    explained = (ROOT / "docs/explanation/methods.md").read_text()
    assert [name for name in methods.NAMES if f"dpgen_jax.train {name}\n" not in flags] == []
    assert [name for name in methods.NAMES if f"`{name}`" not in explained] == []


@pytest.mark.parametrize("method", methods.NAMES)
def test_train_has_flags_for_every_method(method, capsys):
    """tyro fails where a field of a method's configuration has the name of another flag."""
    with pytest.raises(SystemExit) as stop:
        train.command([method, "--help-all"])
    assert not stop.value.code
    assert "--epsilon" in capsys.readouterr().out


@pytest.mark.long  # `.ci/run` builds it in any case
def test_the_documentation_builds_without_a_warning(tmp_path):
    pytest.importorskip("furo", reason="needs the extra docs")
    built = subprocess.run([sys.executable, "-m", "sphinx", "-W", "--keep-going", ROOT / "docs",
                            tmp_path / "html"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-3000:]
    index = (tmp_path / "html" / "index.html").read_text()
    assert "Share data you may not share" in index
