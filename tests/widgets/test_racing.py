"""What a watcher of a search on a thread is shown, and how it ends; a race is fair, ends, and is told as it stands."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from loops import until
from plan_widgets import JOB, irregular

import dtfm_lab as lab
from dtfm_lab.planning import PlanStep, planners
from dtfm_lab.planning.background_tasks import BackgroundTasks
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner import race_panel as racing
from dtfm_lab.widgets.planner.race_panel import TURN_S, RacePanel, race
from dtfm_lab.widgets.planner.search_mode import BackgroundSearch

STEP_S = 0.004
"""what every step takes by the clock of ``step_clock``"""


@pytest.fixture
def step_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of every planner takes as long, however busy the machine is; no turn is over before its time."""
    readings = itertools.count()
    clock = SimpleNamespace(thread_time=lambda: next(readings) * STEP_S, monotonic=lambda: 0.0)
    monkeypatch.setattr(racing, "time", clock)
    monkeypatch.setattr(BackgroundTasks, "cpu_s", property(lambda self: 0.0))


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    for planner in planners:
        list(lab.search("volunteers", planner=planner, seconds=0.1))


def test_at_any_moment_all_have_used_the_same_cpu_time(step_clock):
    used, looks = dict.fromkeys(("evolutionary", "dtfm", "random"), 0.0), 0
    for step in race(irregular(), JOB, list(used), seed=0, cpu_s=0.3):
        used[step.planner] = step.seconds
        if max(used.values()) < 0.3:
            assert max(used.values()) - min(used.values()) <= TURN_S + STEP_S
            looks += 1
    assert looks > 10
    assert all(0.3 <= used_s < 0.3 + TURN_S + STEP_S for used_s in used.values())


def test_cpu_time_is_what_is_counted():
    began_s = time.process_time()
    used_s = {step.planner: step.seconds for step in race(irregular(), JOB, ["dtfm", "random"], seed=0, cpu_s=0.3)}
    assert all(seconds >= 0.3 for seconds in used_s.values())
    assert sum(used_s.values()) <= time.process_time() - began_s


def test_a_proven_best_leaves_early_and_the_rest_go_on():
    topology, job = lab.load_topology("spot"), lab.load_job("dtfm-gpt3-xl")
    last = {step.planner: step for step in race(topology, job, ["evolutionary", "dtfm"], seed=0, cpu_s=2.0)}
    assert last["evolutionary"].best_s == pytest.approx(31.634, abs=1e-3)
    assert last["evolutionary"].gap == pytest.approx(0, abs=1e-9)
    assert last["dtfm"].best_s > 37
    assert last["evolutionary"].seconds < 2.0 <= last["dtfm"].seconds


def test_each_search_is_the_one_it_would_be_alone():
    raced = [
        (step.generation, step.best_s)
        for step in itertools.islice(race(irregular(), JOB, ["random", "dtfm"], seed=3, cpu_s=0.3), 50)
        if step.planner == "dtfm"
    ]
    alone = {}
    for step in lab.search(irregular(), JOB, planner="dtfm", seed=3, steps=raced[-1][0] + 2):
        alone.setdefault(step.generation, set()).add(step.best_s)
    assert all(best_s in alone[generation] for generation, best_s in raced)


def a_panel() -> tuple[LabState, RacePanel]:
    lab_state = LabState(topology=irregular(), job=JOB)
    panel = RacePanel(lab_state, lambda: panel.update_buttons())
    return lab_state, panel


async def test_the_leaders_plan_is_taken_over_by_its_button():
    lab_state, panel = a_panel()
    panel.seconds.value = 0.3
    panel.start.click()
    assert panel.start.disabled
    assert panel.take.disabled
    await until(lambda: panel.search is None)
    assert lab_state.plan is None, "nobody has chosen yet"
    assert lab_state.shown_stages == {}
    assert set(panel.curve.points) == set(panel.chosen) == set(panel.standings.newest)
    assert panel.table.value.count("<tr") == 1 + len(panel.chosen)
    winner = panel.standings.leader
    assert winner.best_s == min(step.best_s for step in panel.standings.newest.values()) >= panel.standings.bound_s
    assert re.match(r"over after \d+\.\d s of processor time each", panel.curve.caption), "a step may outlast its time"
    assert winner.planner in panel.curve.caption
    panel.take.click()
    await until(lambda: lab_state.plan is not None)
    assert lab_state.plan.cost.total_s == pytest.approx(winner.best_s)
    assert lab_state.plan.planner == winner.planner


def test_nothing_races_without_a_network_or_without_planners():
    lab_state = LabState()
    panel = RacePanel(lab_state, lambda: None)
    assert panel.start.disabled
    lab_state.topology, lab_state.job = irregular(), JOB
    panel.update_buttons()
    assert not panel.start.disabled
    for box in panel.planners.values():
        box.value = False
    assert panel.start.disabled


def wait_until(holds: Callable[[], bool], patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def a_step() -> PlanStep:
    return next(lab.search("lecture-hall", "tiny", planner="random", steps=1))


@pytest.mark.parametrize(
    ("n", "changes", "seen"),
    [
        pytest.param(
            5_000,
            lambda i: {"best_s": 9.0 - (i >= 700), "bound_s": 1.0 + (i >= 4_000)},
            [("random", 0), ("random", 700), ("random", 4_000), ("random", 4_999)],
            id="its improvements and its newest",
        ),
        pytest.param(
            3_000,
            lambda i: {"best_s": 9.0 - (i >= 700), "bound_s": 1.0, "planner": "ab"[i % 2]},
            [("a", 0), ("b", 1), ("a", 700), ("b", 701), ("a", 2_998), ("b", 2_999)],
            id="each planner's",
        ),
        pytest.param(
            1_000,
            lambda i: {"best_s": 9.0, "bound_s": 1.0, "median_s": None if i % 10 else 9.5},
            [("random", 0), ("random", 999)],
            id="with the newest median",
        ),
    ],
)
def test_of_thousands_of_steps_are_kept(a_step: PlanStep, n: int, changes: Callable, seen: list) -> None:
    search = BackgroundSearch(replace(a_step, generation=i, **changes(i)) for i in range(n))
    wait_until(lambda: not search.running)
    kept = search.drain()
    assert [(step.planner, step.generation) for step in kept] == seen
    assert [step.best_s for step in kept] == [changes(i)["best_s"] for _, i in seen]
    if "median_s" in changes(0):
        assert {step.median_s for step in kept} == {9.5}, "also where the newest step is a look without one"
    assert search.drain() == []


def test_looks_between_the_steps_lose_nothing_and_keep_the_order(a_step: PlanStep) -> None:
    def steps() -> Iterator[PlanStep]:
        for i in range(5_000):
            yield replace(a_step, generation=i, best_s=9.0 - i // 100)

    search, seen = BackgroundSearch(steps()), []
    while search.running:
        seen += search.drain()
    seen += search.drain()
    generations = [step.generation for step in seen]
    assert generations == sorted(set(generations))
    assert set(range(0, 5_000, 100)) <= set(generations)
    assert generations[-1] == 4_999


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
    wait_until(lambda: not search.running)
    assert closed == [True]


def test_an_error_comes_after_the_steps_before_it(a_step: PlanStep) -> None:
    def steps() -> Iterator[PlanStep]:
        yield a_step
        raise lab.LabError("no more")

    search = BackgroundSearch(steps())
    wait_until(lambda: not search.running)
    assert search.drain() == [a_step]
    with pytest.raises(lab.LabError, match="no more"):
        search.drain()
    assert search.drain() == []
