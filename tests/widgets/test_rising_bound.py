"""The bound of a shown plan goes on rising beside the kernel's loop, and leaves nothing behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from loops import on_a_loop, until

import dtfm_lab as lab

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.planning.iteration.incremental_bound import rising_bounds
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner import rising_bound as module
from dtfm_lab.widgets.planner.rising_bound import BackgroundBound
from dtfm_lab.widgets.shell.bar import bar_numbers


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REST_S", 0.01)
    monkeypatch.setattr(module, "FRAME_S", 0.01)


def a_lab_state() -> LabState:
    topology = lab.load_topology("lecture-hall").subset(range(3))
    job = lab.load_job("tiny", n_stages=None, n_replicas=None)
    found = lab.plan(topology, job, objective="iteration", steps=2, seed=0)
    assert found.iteration_s is not None
    for _ in rising_bounds(topology, job, found.iteration_s):
        pass  # compiles the kernels, which takes longer on a fresh machine than a bound may rise in vain
    plan = replace(found, iteration_lower_bound_s=0.1 * found.iteration_s)
    return LabState(topology=topology, job=job, plan=plan)


@on_a_loop
async def test_the_bar_says_how_far_the_bound_has_risen_since_the_plan_was_found():
    state = a_lab_state()
    rising = BackgroundBound(state)
    before = state.plan.speed_up_left
    state.set_busy("plan", True)
    assert not rising.rises  # what is searched for has the processor to itself
    state.set_busy("plan", False)
    await until(lambda: state.bound_s > 0.1 * state.plan.iteration_s)
    assert state.bound_s <= state.plan.iteration_s
    note = next(number["note"] for number in bar_numbers(state, None) if number["label"].startswith("Iteration"))
    assert f"at most {before:.2f}" not in note
    rising.end()
    assert not rising.rises


@pytest.mark.parametrize("what", ["plan", "run", "edit"])
@on_a_loop
async def test_whatever_else_is_asked_ends_it_and_its_thread(what, monkeypatch):
    began, closed = threading.Event(), threading.Event()

    def endless(*_: object, **__: object) -> Iterator[float]:
        try:
            began.set()
            while True:
                time.sleep(1e-3)
                yield 0.0
        finally:
            closed.set()

    monkeypatch.setattr(module, "rising_bounds", endless)
    state = a_lab_state()
    rising = BackgroundBound(state)
    state.set_busy("what-if", True)
    await until(began.is_set)
    if what == "edit":
        state.topology = state.topology.scaled(bandwidth=0.5)
    else:
        state.set_busy(what, True)
        assert not rising.rises
    await until(closed.is_set)
    assert state.bound_s == 0


@on_a_loop
async def test_a_placement_of_one_s_own_and_a_plan_for_the_communication_have_no_bound_that_rises():
    state = a_lab_state()
    rising = BackgroundBound(state)
    own = replace(state.plan, iteration_lower_bound_s=None)
    for plan in (own, replace(state.plan, objective="communication")):
        state.plan = plan
        assert not rising.rises
