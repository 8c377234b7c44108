"""Files by which the project is found, cited, opened elsewhere and released agree with each other."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

nbformat = pytest.importorskip("nbformat", reason="notebooks are read by nbformat")
jupytext = pytest.importorskip("jupytext", reason="lessons are read by jupytext")

from tools import address, colab_tour  # noqa: E402

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
MOST_BYTES = 3_000_000
"""of a moving picture"""


def test_every_file_names_the_address_that_is_set() -> None:
    assert address.disagreeing() == []
    assert (ROOT / address.COLAB).exists() == bool(address.address())


def test_another_address_is_written_to_every_file_and_to_nothing_else(tmp_path: Path) -> None:
    for name in address.WRITTEN:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    address.write("somebody/dtfm-lab", tmp_path)
    assert address.address(tmp_path) == "somebody/dtfm-lab"
    assert address.disagreeing(tmp_path) == []
    assert all("somebody/dtfm-lab" in (tmp_path / name).read_text() for name in address.WRITTEN)
    assert tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"]
    address.write(address.address(), tmp_path)
    assert all((tmp_path / name).read_bytes() == (ROOT / name).read_bytes() for name in address.WRITTEN)
    with pytest.raises(ValueError, match="is not an address; wanted OWNER/dtfm_lab"):
        address.write("somewhere", tmp_path)


@pytest.mark.skipif(bool(address.address()), reason="an address is set")
def test_without_an_address_no_page_has_a_link_that_needs_one() -> None:
    for name in address.WRITTEN:
        assert not re.search(r"OWNER|mybinder\.org/v2|colab-badge|github\.com/\S*/dtfm", (ROOT / name).read_text()), (
            name
        )


def test_the_citation_has_what_its_format_asks_for() -> None:
    """The fields that version 1.2.0 of the format requires, of the work and of what it refers to."""
    assert CITATION["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(CITATION)
    assert all({"type", "title", "authors"} <= set(each) for each in CITATION["references"])
    assert (CITATION["version"], CITATION["license"]) == (PROJECT["version"], PROJECT["license"])
    assert CITATION.get("repository-code") == PROJECT.get("urls", {}).get("Repository")


def test_binder_installs_the_lab_and_opens_a_lesson_that_is_there() -> None:
    environment = yaml.safe_load((ROOT / "binder" / "environment.yml").read_text())
    needed = {re.split(r"[<>=]", wanted)[0] for wanted in PROJECT["optional-dependencies"]["train"]}
    assert {name.removesuffix("-cpu").replace("pytorch", "torch") for name in environment["dependencies"]} >= needed
    for script in ("postBuild", "start"):
        path = ROOT / "binder" / script
        assert path.stat().st_mode & 0o111, f"{script} cannot be executed"
        assert subprocess.run(["bash", "-n", path], timeout=120).returncode == 0
    started = subprocess.run(
        [ROOT / "binder" / "start", "echo", "jupyter"], capture_output=True, text=True, timeout=120, check=True
    )
    assert started.stdout == "jupyter --LabApp.default_url=/lab/tree/notebooks/00_tour.ipynb\n"
    assert (ROOT / "notebooks" / "00_tour.ipynb").exists()


def test_the_notebook_for_colab_is_the_tour_with_a_cell_that_installs(tmp_path: Path) -> None:
    colab_tour.write_colab("somebody/dtfm_lab", tmp_path / "colab" / "tour.ipynb")
    kept = nbformat.read(tmp_path / "colab" / "tour.ipynb", nbformat.NO_CONVERT)
    lesson = jupytext.read(colab_tour.TOUR)
    assert [cell.source for cell in kept.cells[1:]] == [cell.source for cell in lesson.cells]
    install, rest = kept.cells[0].source.split("\n\n", 1)
    assert '"dtfm_lab @ git+https://github.com/somebody/dtfm_lab"' in install
    extras = PROJECT["optional-dependencies"]
    assert {"anywidget>=0.9.13", "plotly>=6", "safetensors>=0.4"} <= {*extras["lab"], *extras["train"]}
    assert all(f'"{wanted}"' in install for wanted in ("anywidget>=0.9.13", "plotly>=6", "safetensors>=0.4"))
    ast.parse(rest)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_pictures_of_the_first_page_are_there_and_small(theme: str) -> None:
    still, moving = (ROOT / "tools" / "pictures" / f"lab-{theme}.{kind}" for kind in ("png", "webp"))
    assert still.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"ANIM" in moving.read_bytes()[:200]
    assert still.stat().st_size < 200_000
    assert moving.stat().st_size < MOST_BYTES
    assert f"tools/pictures/lab-{theme}.webp" in (ROOT / "README.md").read_text()
