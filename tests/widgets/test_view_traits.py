"""The types against which the views' JavaScript is checked are those of the traits that Python declares."""

import sys
from pathlib import Path

import traitlets

from dtfm_lab.widgets.views.view import View

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import view_traits  # noqa: E402


def test_the_types_are_those_of_the_traits() -> None:
    hint = "run python tools/view_traits.py, then make lint: it says which JavaScript still uses the old names"
    assert view_traits.PATH.read_text(encoding="utf-8") == view_traits.text(), hint


def test_every_folder_with_a_page_has_a_class_with_its_traits() -> None:
    pages = {folder.parent.name for pattern in view_traits.FOLDERS for folder in ROOT.glob(f"{pattern}/*/view.js")}
    assert pages == {cls._esm._path.stem for cls in view_traits.view_classes()}  # type: ignore[attr-defined]


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
