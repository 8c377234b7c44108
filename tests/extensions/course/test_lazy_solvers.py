"""What needs no thought wins no mission: one call of the planner, the lesson's own cell, a neighbour's numbers."""

import inspect

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.extensions.course.api import missions

THOUGHT = {
    *("spot-under-32", "a-cut-of-your-own", "cities-win", "make-it-compute-bound", "mystery-link-measured"),
    *("survive-a-kill", "predicted-within-5", "best-upgrade", "who-works-most", "how-often-to-write"),
    *("capstone-plan", "capstone-run"),
}
"""Missions that fell to one call, and now ask for a reason that is computed."""


def a_call(name: str, given):
    """What one call, or the lesson's own cell, returns."""
    match name:
        case "spot-under-32":
            return lab.plan("spot", "dtfm-gpt3-xl", objective="communication", seed=0, steps=5)
        case "a-cut-of-your-own":
            return lab.plan(given.network, given.job, seed=0, steps=2)
        case "cities-win":
            return lab.plan(given.cities, lab.load_job("gpt3-xl", global_batch=4096), seed=0, steps=1)
        case "make-it-compute-bound":
            return lab.with_job(given.plan, global_batch=64)
        case "best-upgrade":
            gains = lab.explain(given.plan).sensitivity(factor=2)
            links = gains[(gains["of"] == "link") & (gains["what"] == "bandwidth")]
            return links.sort_values("change_s").iloc[0]["name"].split(" - ")
        case "who-works-most":
            rows = lab.simulate(given.plan).bubble
            return rows.device[rows.busy_s.idxmax()]
        case "how-often-to-write":
            return (2 * given.writes_s * given.hours.mean_between_losses_s) ** 0.5
        case "capstone-plan":
            return lab.plan("lecture-hall", "tiny", seed=0, steps=1)
        case _:  # those that are won by a real run: a prediction is as far as a call goes
            plan = given.plan if hasattr(given, "plan") else lab.plan("lecture-hall", "tiny", seed=0, steps=1)
            return [lab.simulate(plan), lab.simulate(plan)]


@pytest.mark.parametrize("name", sorted(THOUGHT))
def test_one_call_wins_nothing(name, own_progress):
    mission = missions[name]
    answer = a_call(name, lab.missions.given(name))
    listed = list(answer) if isinstance(answer, list) else [answer]
    for lazy in (
        answer,
        listed,
        [*listed, 0],
        [*listed, 1],
        [*listed, 100.0],
        [*listed, float("nan")],
        [*listed, answer],
    ):
        verdict = mission.verdict(lazy, "ada")
        assert not verdict, f"{lazy!r:.80} won: {verdict.reason}"


@pytest.mark.parametrize("name", sorted(THOUGHT))
def test_a_mission_that_needs_thought_ends_in_a_number_with_known_mistakes(name):
    mission = missions[name]
    assert mission.reason is not None
    assert "Hand in `[" in " ".join(mission.task.split())
    assert len(inspect.signature(mission.reason).parameters) == 2


@pytest.mark.parametrize("name", ["keep-it-home", "spread-the-replicas"])
def test_the_planner_alone_does_not_place_for_another_aim(name, own_progress):
    given = lab.missions.given(name)
    for objective in ("iteration", "communication"):
        job: Job = given.job
        plan = lab.plan(given.network, job, objective=objective, seed=0, steps=2)
        assert not missions[name].verdict(plan, "ada"), f"{objective} wins {name}"
