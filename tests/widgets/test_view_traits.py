"""The types against which the views' JavaScript is checked are those of the traits that Python declares."""

import subprocess
import sys
from pathlib import Path

import traitlets

from dtfm_lab.widgets.views.view import View

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import view_traits  # noqa: E402

PAGES = "import view_traits; print(*sorted({cls._esm._path.stem for cls in view_traits.view_classes()}))"


def said_alone(*arguments: str) -> str:
    """Return what a fresh Python says: views that were made, and those of other tests, change what classes declare."""
    command = [sys.executable, *arguments]
    found = subprocess.run(command, cwd=ROOT / "tools", capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_the_types_are_those_of_the_traits() -> None:
    said_alone("view_traits.py", "--check")


def test_every_folder_with_a_page_has_a_class_with_its_traits() -> None:
    pages = {folder.parent.name for pattern in view_traits.FOLDERS for folder in ROOT.glob(f"{pattern}/*/view.js")}
    assert sorted(pages) == said_alone("-c", PAGES).split()


class _Sample(View):
    text = traitlets.Unicode("").tag(sync=True)
    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    step = traitlets.Enum(["a", "b"], "a").tag(sync=True)
    steps = traitlets.List(traitlets.Enum(["a", "b"])).tag(sync=True)
    least = traitlets.Float(None, allow_none=True).tag(sync=True)
    data = traitlets.Bytes(b"").tag(sync=True)
    cells = traitlets.List(traitlets.List(traitlets.Int())).tag(sync=True)
    unsent = traitlets.Int(0)


def test_traits_become_types() -> None:
    assert view_traits.traits_of(_Sample) == {
        "cells": "number[][]",
        "data": "Binary",
        "least": "number | null",
        "own_id": "string",
        "rows": "Dict[]",
        "step": '"a" | "b"',
        "steps": '("a" | "b")[]',
        "text": "string",
    }
