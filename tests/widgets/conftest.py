"""Coroutines are tests, on a loop like the kernel's; labs of these tests look for a better plan for moments only."""

from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction

import pytest

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.planner import replanning


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, with the fixtures that it names, on an event loop of its own."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.fixture(autouse=True)
def brief_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replanning, "BUDGETS_S", (replanning.BUDGETS_S[0], 0.1, 0.3))
    monkeypatch.setattr(replanning, "RESTS_S", (0.02, 0.04))
