"""Fixtures of the planning tests."""

from __future__ import annotations

from importlib import import_module

import pytest

from dtfm_lab.domain.registry import Registry
from dtfm_lab.planning import Planner, planners


@pytest.fixture
def registered_planners(monkeypatch: pytest.MonkeyPatch) -> Registry[Planner]:
    """A registry that a test may add planners to, which searches use until the test is over."""
    own = Registry("planner", entries=dict(planners))
    for module in ("search", "objectives"):
        monkeypatch.setattr(import_module(f"dtfm_lab.planning.{module}"), "planners", own)
    return own
