"""What is carried about: the JavaScript of all canvases, and notebooks saved after a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbclient
import nbformat
from browser import Figure, LabInBrowser
from serving import REPOSITORY

SCRIPTS_KB, NOTEBOOK_KB = 900, 200
NOTEBOOK_PATIENCE_S = 300


def weights(browser: LabInBrowser) -> list[Figure]:
    """Notebooks run with the state of widgets left out, as they are saved; their figures are what weighs."""
    scripts = list((REPOSITORY / "dtfm_lab" / "widgets" / "static").glob("*.js"))
    total = sum(path.stat().st_size for path in scripts) / 1000
    figures = [Figure("JavaScript, minified", total, "KB", SCRIPTS_KB, note=f"{len(scripts)} canvases")]
    folder = browser.jupyter.folder / "weighed"
    shutil.copytree(REPOSITORY / "notebooks", folder)
    for path in sorted(folder.glob("*.ipynb")):
        figures.append(_saved(path))
    return figures


def _saved(path: Path) -> Figure:
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        book,
        timeout=NOTEBOOK_PATIENCE_S,
        kernel_name="python3",
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    nbformat.write(book, path)
    plotly = [
        len(nbformat.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=[output])])))
        for cell in book.cells
        for output in cell.get("outputs", [])
        if "application/vnd.plotly.v1+json" in output.get("data", {})
    ]
    note = (
        f"{len(plotly)} plotly figures: {sum(plotly) / 1000:.0f} KB, the heaviest {max(plotly, default=0) / 1000:.0f}"
    )
    return Figure(f"{path.stem}, saved after a run", path.stat().st_size / 1000, "KB", NOTEBOOK_KB, note=note)
