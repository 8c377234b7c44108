"""Write tools/colab/tour.ipynb: the first lesson for Google Colab, with a first cell that installs the lab there.

``python -m tools.colab_tour`` writes it again for the address that is set; without one there is no such notebook.
"""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat

from tools.address import COLAB, address

ROOT = Path(__file__).parents[1]
TOUR = ROOT / "tools" / "lessons" / "00_tour.py"
INSTALL = """# Installs the lab from its repository, about a minute; Colab has torch, Jupyter and ipywidgets already.
%pip install -q "dtfm_lab @ git+https://github.com/OWNER/dtfm_lab" "anywidget>=0.9.13" "plotly>=6" "safetensors>=0.4"

from google.colab import output

output.enable_custom_widget_manager()  # the lab's views are widgets of its own"""


def colab_book(address: str) -> nbformat.NotebookNode:
    """The notebook, for a repository published as ``owner/name``; its cells are those of the lesson, after one."""
    lesson = jupytext.read(TOUR)
    install = nbformat.v4.new_code_cell(INSTALL.replace("OWNER/dtfm_lab", address))
    book = nbformat.v4.new_notebook(cells=[install, *lesson.cells])
    for number, cell in enumerate(book.cells):
        cell.id = f"cell-{number:02}"
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book.metadata = nbformat.from_dict({"kernelspec": python})
    return book


def write_colab(address: str, path: Path) -> None:
    """Write the notebook for this repository."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(colab_book(address)) + "\n", encoding="utf-8")


def main() -> None:
    """Write it for the address that is set, if one is."""
    if address():
        write_colab(address(), ROOT / COLAB)


if __name__ == "__main__":
    main()
