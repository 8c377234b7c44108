"""What a watcher of a search on a thread is shown, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

import dtfm_lab as lab
from dtfm_lab.planning import PlanStep, planners

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.planner.search_mode import BackgroundSearch


def until(holds: Callable[[], bool], patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def a_step() -> PlanStep:
    return next(lab.search("lecture-hall", "tiny", planner="random", steps=1))


def levels(steps: list[PlanStep]) -> list[tuple[int, float, float]]:
    return [(step.generation, step.best_s, step.bound_s) for step in steps]


def test_of_thousands_of_steps_the_improvements_and_the_newest_are_kept(a_step: PlanStep) -> None:
    def steps() -> Iterator[PlanStep]:
        for i in range(20_000):
            yield replace(a_step, generation=i, best_s=9.0 - (i >= 700), bound_s=1.0 + (i >= 15_000))

    search = BackgroundSearch(steps())
    until(lambda: not search.running)
    assert levels(search.drain()) == [(0, 9.0, 1.0), (700, 8.0, 1.0), (15_000, 8.0, 2.0), (19_999, 8.0, 2.0)]
    assert search.drain() == []


def test_looks_between_the_steps_lose_nothing_and_keep_the_order(a_step: PlanStep) -> None:
    def steps() -> Iterator[PlanStep]:
        for i in range(20_000):
            yield replace(a_step, generation=i, best_s=9.0 - i // 100)

    search, seen = BackgroundSearch(steps()), []
    while search.running:
        seen += search.drain()
    seen += search.drain()
    generations = [step.generation for step in seen]
    assert generations == sorted(set(generations))
    assert set(range(0, 20_000, 100)) <= set(generations)
    assert generations[-1] == 19_999


def test_of_several_planners_each_has_its_improvements_and_its_newest(a_step: PlanStep) -> None:
    def steps() -> Iterator[PlanStep]:
        for i in range(3_000):
            yield replace(a_step, planner="ab"[i % 2], generation=i, best_s=9.0 - (i >= 700), bound_s=1.0)

    search = BackgroundSearch(steps())
    until(lambda: not search.running)
    seen = [(step.planner, step.generation) for step in search.drain()]
    assert seen == [("a", 0), ("b", 1), ("a", 700), ("b", 701), ("a", 2_998), ("b", 2_999)]


def test_a_median_is_seen_though_the_newest_step_is_a_look_without_one(a_step: PlanStep) -> None:
    def steps() -> Iterator[PlanStep]:
        for i in range(1_000):
            yield replace(a_step, generation=i, best_s=9.0, bound_s=1.0, median_s=None if i % 10 else 9.5)

    search = BackgroundSearch(steps())
    until(lambda: not search.running)
    assert [(step.generation, step.median_s) for step in search.drain()] == [(0, 9.5), (999, 9.5)]


def test_a_stopped_search_closes_its_stream(a_step: PlanStep) -> None:
    closed = []

    def steps() -> Iterator[PlanStep]:
        try:
            while True:
                yield a_step
        finally:
            closed.append(True)

    search = BackgroundSearch(steps())
    search.stop()
    until(lambda: not search.running)
    assert closed == [True]


def test_an_error_comes_after_the_steps_before_it(a_step: PlanStep) -> None:
    def steps() -> Iterator[PlanStep]:
        yield a_step
        raise lab.LabError("no more")

    search = BackgroundSearch(steps())
    until(lambda: not search.running)
    assert search.drain() == [a_step]
    with pytest.raises(lab.LabError, match="no more"):
        search.drain()
    assert search.drain() == []


@pytest.mark.parametrize("planner", list(planners))
def test_every_planner_shows_a_step_at_once_and_stops_when_told(planner: str) -> None:
    search = BackgroundSearch(lab.search("volunteers", planner=planner, seconds=600))
    until(lambda: bool(search.drain()))
    search.stop()
    until(lambda: not search.running)
