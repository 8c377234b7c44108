"""How much of the package one plan runs through: what somebody opens who follows it."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation.engine import start_compiling

MOST_MODULES = 40
"""As many files as somebody may have to open to follow one plan. There were 81."""
MOST_OF_A_SIMULATION = 25
"""The same of one prediction. There were 30."""


Result = TypeVar("Result")


def modules_visited(call: Callable[[], Result]) -> tuple[Result, set[str]]:
    """What this call returns, and the modules of the package of which it runs a function, compiled ones left out."""
    visited: set[str] = set()

    def note(frame: FrameType, event: str, _arg: Any) -> None:
        if event == "call" and (name := frame.f_globals.get("__name__", "")).startswith("dtfm_lab."):
            visited.add(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = call()
    finally:
        sys.setprofile(before)
    return result, visited


@pytest.fixture(scope="module")
def one_plan() -> tuple[Plan, set[str]]:
    """``plan("campus", "gpt3-xl", steps=1)``, and what it visits from the names of a network and a job to the plan."""
    start_compiling().wait()  # else small simulations run the loops that are compiled by then
    lab.plan("campus", "gpt3-xl", steps=1)  # compiles the search's kernels, or loads them
    return modules_visited(lambda: lab.plan("campus", "gpt3-xl", steps=1))


def test_one_plan_visits_at_most_forty_modules(one_plan: tuple[Plan, set[str]]):
    _, visited = one_plan
    assert len(visited) <= MOST_MODULES, "\n".join(sorted(visited))


def test_one_prediction_visits_at_most_twenty_five_modules(one_plan: tuple[Plan, set[str]]):
    plan, _ = one_plan
    lab.simulate(plan)
    _, visited = modules_visited(lambda: lab.simulate(plan))
    assert len(visited) <= MOST_OF_A_SIMULATION, "\n".join(sorted(visited))
