"""Tests of extensions import the helpers of each other's tests, and of the core's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOMS = "figures", "files", "lab", "planning", "planning/iteration", "runtime", "widgets"
FOLDERS = [*sorted(HERE.iterdir()), *(HERE.parent / name for name in ROOMS)]
sys.path += [str(path) for path in FOLDERS if path.is_dir()]


@pytest.fixture(autouse=True)
def brief_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labs of these tests look for a better plan for moments only."""
    if (replanning := sys.modules.get("dtfm_lab.widgets.planner.replanning")) is not None:
        monkeypatch.setattr(replanning, "BUDGETS_S", (replanning.BUDGETS_S[0], 0.1, 0.3))
        monkeypatch.setattr(replanning, "RESTS_S", (0.02, 0.04))
