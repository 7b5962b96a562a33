"""The quickstart notebook runs from top to bottom, at toy size."""

from pathlib import Path

import nbclient
import nbformat

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "quickstart.ipynb"


def test_quickstart_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FAST", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=1800, kernel_name="python3",
                            resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = {cell["id"]: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    statement = next(out["data"]["text/plain"] for cell in outputs.values() for out in cell
                     if "'epsilon'" in out.get("data", {}).get("text/plain", ""))
    assert "'epsilon': 10.0" in statement and "os-entropy" in statement
    assert any("image/png" in out.get("data", {}) for cell in outputs.values() for out in cell)
    assert (tmp_path / "quickstart-release" / "generator.safetensors").exists()


def test_the_notebook_is_stored_without_outputs():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert not any(cell.get("outputs") for cell in cells)
