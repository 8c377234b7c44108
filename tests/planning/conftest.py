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
    monkeypatch.setattr(import_module("dtfm_lab.planning.search"), "planners", own)
    return own
