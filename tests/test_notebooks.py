"""Every notebook runs from top to bottom."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    names = {"custom_operators", "digits", "first_steps", "parity_and_profile", "semantic_search", "torch_to_page", "writing"}
    assert {p.stem for p in NOTEBOOKS} == names


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    shown = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [
        out for out in shown if out.output_type == "error" or (out.output_type == "stream" and out.name == "stderr" and out.text.strip())
    ]
    kinds = {kind for out in shown for kind in out.get("data", {})}
    if path.stem == "semantic_search":
        assert "image/png" in kinds
        answers = next(out.data["text/plain"] for out in shown if "(0." in out.get("data", {}).get("text/plain", ""))
        assert "bird" in answers.lower() or "fly" in answers.lower() or "migrat" in answers.lower(), answers
    if path.stem == "torch_to_page":
        page = path.with_name("shapes.html")
        assert '<script type="application/octet-stream" data-file="core.wasm"' in page.read_text("utf-8")
        page.unlink()
        path.with_name("shapes.onnx").unlink()
    if path.stem in ("digits", "parity_and_profile", "torch_to_page", "writing"):
        assert "application/vnd.jupyter.widget-view+json" in kinds
