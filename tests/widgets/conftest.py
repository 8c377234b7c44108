"""Labs of these tests look for a better plan for moments only, once an edit has its answer."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def brief_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    replanning = pytest.importorskip("dtfm_lab.widgets.planner.replanning", reason="needs the lab extra")
    monkeypatch.setattr(replanning, "BUDGETS_S", (replanning.BUDGETS_S[0], 0.1, 0.3))
    monkeypatch.setattr(replanning, "RESTS_S", (0.02, 0.04))
