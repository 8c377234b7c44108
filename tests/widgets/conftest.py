"""Labs of these tests look for a better plan for moments only."""

from __future__ import annotations

import pytest

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.planner import replanning


@pytest.fixture(autouse=True)
def brief_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replanning, "BUDGETS_S", (replanning.BUDGETS_S[0], 0.1, 0.3))
    monkeypatch.setattr(replanning, "RESTS_S", (0.02, 0.04))
