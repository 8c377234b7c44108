"""What Binder does with this repository, step by step in an empty environment, and the tour run in it.

conda is replaced by pip: the packages of binder/environment.yml are installed from the package index. What follows is
what Binder runs: binder/postBuild in a copy of the committed files, then binder/start.

    python -m tools.try_image
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import yaml

from tools.environments import Environment

ROOT = Path(__file__).parents[1]
ON_THE_INDEX = {"pytorch-cpu": "torch"}
"""Names on the package index, where conda-forge has others."""
NOT_INSTALLED = ("python", "pip")
TOUR = """
import nbclient, nbformat
book = nbformat.read("notebooks/00_tour.ipynb", 4)
nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": "notebooks"}}).execute()
print(sum(cell.cell_type == "code" for cell in book.cells), "cells of the tour ran")
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dtfm-image-") as name:
        copy = Path(name) / "repository"
        copy.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", copy], input=archive.stdout, check=True)
        image = Environment(Path(name) / "image")
        listed = yaml.safe_load((copy / "binder" / "environment.yml").read_text())["dependencies"]
        wanted = [ON_THE_INDEX.get(each, each) for each in listed if each.split("=")[0] not in NOT_INSTALLED]
        image.pip("install", *wanted, "--constraint", copy / "constraints.txt", cwd=copy)
        print("environment.yml:", *wanted)
        image.run(["bash", "binder/postBuild"], copy)
        print("postBuild: done")
        print("start:", image.run(["bash", "binder/start", "jupyter", "lab", "--version"], copy).strip())
        print(image.run([image.binaries / "dtfm-lab", "doctor"], copy).strip())
        print(image.python(TOUR, copy).strip())


if __name__ == "__main__":
    main()
