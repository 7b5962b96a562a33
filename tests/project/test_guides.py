"""The notebooks that guide a newcomer: each runs from top to bottom at toy size, and is stored with
the outputs of a real run."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import matplotlib
import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
GUIDES = ("quickstart", "your_table", "your_images", "comparing", "federation", "privacy",
          "throughput")


def cells(name, kind="code"):
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def execute(name):
    """The values of the last lines of its cells; in this process, which has JAX already."""
    names, values = {"__name__": "notebook"}, []
    for cell in cells(name):
        tree = ast.parse(cell.source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{name}:{cell.id}", "exec"), names)
        if last is not None:
            values.append(eval(compile(ast.Expression(last.value), f"{name}:{cell.id}", "eval"),
                               names))
    return values, names


@pytest.mark.long
@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_runs_from_top_to_bottom(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FAST", "1")
    monkeypatch.chdir(tmp_path)
    before = matplotlib.get_backend()
    matplotlib.use("Agg")
    try:
        values, names = execute(name)
    finally:
        matplotlib.use(before)
    said = capsys.readouterr().out
    assert {
        "quickstart": lambda: values[-1] == sorted(p.name for p in Path("another-copy").iterdir()),
        "your_table": lambda: Path("run/evaluation/report.html").exists() and "lr" in said.lower(),
        "your_images": lambda: "samples.png" in values[-1],
        "comparing": lambda: 0 <= names["scores"].loc["mixture", "mean"] <= 1,
        "federation": lambda: values[-1]["unit"] == "record",
        "privacy": lambda: "claimed 9.24, proven 379" in said,
        "throughput": lambda: set(names["took"]) == set(names["TEACHERS"])}[name]()


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_is_stored_with_its_outputs_and_nothing_of_a_machine(name):
    code = cells(name)
    assert [cell.id for cell in code if cell.execution_count is None] == []
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs and not any(output.output_type == "error" for output in outputs)
    assert all(output.get("name") != "stderr" for output in outputs)  # where private lines go
    text = str(outputs)
    assert re.findall(r"/(?:root|home|tmp|work)/\S*", text) == []
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < 400_000
    assert "colab.research.google.com" in cells(name, "markdown")[0].source


def test_all_notebooks_install_alike():
    sources = {path.stem: next(cell.source for cell in cells(path.stem) if cell.id == "install")
               for path in NOTEBOOKS.glob("*.ipynb")}
    assert len(set(sources.values())) == 1, sources.keys()


@pytest.mark.parametrize(("program", "extras"), [("/usr/bin/nvidia-smi", "cuda,pandas"),
                                                 (None, "pandas")])
def test_on_colab_the_install_cell_installs_restarts_and_looks_for_the_gpu(
        program, extras, monkeypatch, capsys):
    source = next(cell.source for cell in cells("quickstart") if cell.id == "install")
    typed, killed = [], []
    monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace())
    monkeypatch.setattr(shutil, "which", lambda name: program)
    monkeypatch.setattr(subprocess, "run", lambda words, check: typed.append(words))
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu" if program else "cpu")
    with monkeypatch.context() as absent:
        absent.setattr("importlib.util.find_spec", lambda name: None)
        exec(source, {})
    assert [words[-1].partition(" @ ")[0] for words in typed] == [f"dpgen_jax[{extras}]"]
    assert killed == [(os.getpid(), 9)]
    exec(source, {})  # as it is after the restart
    assert len(typed) == 1 and "Cpu" in capsys.readouterr().out.title()
    if program:
        monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
        with pytest.raises(RuntimeError, match="JAX does not see it"):
            exec(source, {})
