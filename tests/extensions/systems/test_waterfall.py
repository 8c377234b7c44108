"""A waterfall goes from one model to another by its switches: it begins, adds up and ends where the models do."""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.extensions.systems.api import Budget, Switch, outcome_of, strategies, waterfall

NETWORK = lab.load_topology("lecture-hall")
JOB = lab.load_job("tiny")
BUDGET = Budget(steps=1)
MEGATRON = strategies["megatron"]
OVERLAPPED, BLOCKING = MEGATRON(transport="overlapped"), MEGATRON(transport="blocking")
SWITCHES = [
    Switch(sentence="Messages of one grid overlap.", source="a question", strategy=OVERLAPPED),
    Switch(sentence="They block.", held={"transport": "blocking"}),
    Switch(sentence="The grid is chosen anew.", strategy=BLOCKING),
    Switch(sentence="Messages of a NIC queue.", budget=replace(BUDGET, queueing="nics")),
    Switch(sentence="The network is ten times slower.", topology=NETWORK.scaled(bandwidth=0.1)),
]


@pytest.fixture(scope="module")
def found() -> lab.systems.Waterfall:
    return waterfall(NETWORK, JOB, SWITCHES, BUDGET)


def test_it_begins_and_ends_where_the_models_do(found) -> None:
    assert found.start == outcome_of(OVERLAPPED, NETWORK, JOB, BUDGET).iteration_s
    slow = NETWORK.scaled(bandwidth=0.1)
    assert found.end == outcome_of(BLOCKING, slow, JOB, replace(BUDGET, queueing="nics")).iteration_s


def test_changes_add_up_and_ratios_multiply(found) -> None:
    table = found.to_frame()
    assert found.start + table["change_s"].sum() == pytest.approx(found.end)
    assert found.start * prod(table["ratio"].dropna()) == pytest.approx(found.end)
    assert table["change_s"].isna().tolist() == [True] + [False] * 4


def test_a_held_plan_is_the_same_plan_and_choosing_anew_is_no_slower(found) -> None:
    _, held, anew, *_ = found
    assert held.outcome.plan.rank_map == found.steps[0].outcome.plan.rank_map
    assert held.outcome.job.transport == "blocking"
    assert anew.iteration_s <= held.iteration_s
    assert held.outcome.trace.iteration_s == held.iteration_s


def test_against_another_system_it_counts_times() -> None:
    switches = [replace(SWITCHES[0], against=BLOCKING), SWITCHES[2]]
    found = waterfall(NETWORK, JOB, switches, BUDGET)
    assert found.in_times
    assert found.end == 1.0, "a system takes once its own time"
    assert found.start == pytest.approx(found.steps[0].iteration_s / found.steps[1].iteration_s)


@given(st.floats(0.1, 10), st.floats(1, 3))
@settings(max_examples=25)
def test_the_residue_leads_to_the_published_range(found, low, width) -> None:
    found = replace(found, published=(low, low * width))
    assert found.residue is not None
    nearest = min(max(found.end, low), low * width)
    assert found.end * found.residue == pytest.approx(nearest)
    assert (found.residue == 1.0) == (low * (1 - 1e-9) <= found.end <= low * width * (1 + 1e-9))


def test_a_system_without_a_plan_is_a_step_without_a_value() -> None:
    large = lab.load_job("llama-2-70b")
    switches = [SWITCHES[0], Switch(sentence="A model that fits nowhere.", job=large), SWITCHES[3]]
    found = waterfall(NETWORK, JOB, [*switches[:2], replace(SWITCHES[2], job=JOB)], BUDGET)
    assert [step.value is None for step in found] == [False, True, False]
    assert found.steps[1].outcome.reason
    assert found.steps[2].before is found.steps[0]
    assert found.to_dict()["steps"][1]["iteration_s"] is None
    assert "no plan" in lab.figures.alt_text(lab.figures.waterfall(found))


@pytest.mark.parametrize(
    ("switches", "published", "says"),
    [
        ([], None, "starts without a system"),
        ([SWITCHES[1]], None, "starts without a system"),
        (SWITCHES, 0, "published is"),
        (SWITCHES, (1, inf), "published is"),
        (SWITCHES, "3.8", "published is '3.8'; wanted a number above 0"),
    ],
)
def test_a_mistake_is_one_line(switches, published, says) -> None:
    with pytest.raises(lab.LabError, match=says):
        waterfall(NETWORK, JOB, switches, BUDGET, published=published)


@pytest.mark.parametrize(
    ("published", "says"), [(3.75268, "3.75 s"), ((3.8, 4.8), "3.8 to 4.8 s"), ((999.0, 12345.0), "999 to 12,345 s")]
)
def test_a_published_number_is_written_with_three_digits(published, says) -> None:
    found = waterfall(NETWORK, JOB, SWITCHES[:1], BUDGET, published=published)
    assert found.published_text == says
    assert f"published are {says}" in found.sentence
