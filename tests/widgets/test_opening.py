"""A network is opened as if it were the first, with a job that is worth its devices, and a bound that says of what."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import topology_names
from dtfm_lab.lab.plans import opening_job
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.job_controls import OPEN_SCHEDULE, OPEN_SHAPE, JobControls
from dtfm_lab.widgets.planner.short_searches import Replanned, gain_words
from dtfm_lab.widgets.shell.bar import bar_numbers
from dtfm_lab.widgets.shell.headline import headline


def network_of(gpu: str, n: int) -> Topology:
    ones = np.ones((n, n))
    return Topology.from_matrices(ones, ones, gpu=gpu, name="own")


@pytest.mark.parametrize("name", topology_names())
def test_a_bundled_network_opens_with_a_job_that_no_device_of_it_trains_in_a_moment(name) -> None:
    topology = lab.load_topology(name)
    job = opening_job(topology)
    fastest = max(device.peak_flop_per_s for device in topology.devices)
    assert 6 * job.modelled().parameters * job.tokens > 0.01 * fastest


@pytest.mark.parametrize(("gpu", "name"), [("RTX 4090", "qwen2.5-7b"), ("V100", "gpt3-xl"), ("laptop", "small")])
def test_own_fast_devices_open_with_a_model_too_large_for_one(gpu, name) -> None:
    assert opening_job(network_of(gpu, 8)).name == name


def test_at_home_opens_with_a_job_that_needs_all_its_machines() -> None:
    topology = lab.load_topology("at-home")
    job = opening_job(topology)
    assert None in (job.n_stages, job.n_replicas), "the planner chooses"
    assert lab.plan(topology, job, steps=1).idle_devices == ()


async def opened(names: list[str]) -> lab.Lab:
    """Return the lab that has opened these networks, one after the other, with the first plan of the last."""
    the_lab = lab.Lab(names[0], autosave=False)
    for name in names[1:]:
        await until(lambda: the_lab.plan is not None)
        the_lab.open_network(name)
        assert the_lab.plan is None, "no number of another network is shown"
        assert the_lab.bar.view.numbers == [] or the_lab.lab_state.plan is None
    await until(lambda: the_lab.plan is not None)
    the_lab.replanning.switch.value = False
    return the_lab


def empty_words(the_lab: lab.Lab) -> set[str]:
    """What the panes say in place of a plan."""
    panes = the_lab.schedule_panel.chart.empty_words, the_lab.groups_panel.groups.hint
    searched, worth = the_lab.plan_panel.real.population.hint, the_lab.worth_panel.rows.caption
    title, what_if = the_lab.network_pane.inspector.facts["title"], the_lab.what_if_panel.chart.empty_words
    return {*panes, searched, worth, title, what_if, headline(the_lab.lab_state, None, None, "").lead}


async def test_no_pane_asks_for_a_plan_while_the_first_is_searched_for() -> None:
    the_lab = lab.Lab("raspberry-pi", autosave=False)
    await asyncio.sleep(0)
    assert empty_words(the_lab) == {"Planning…"}
    await until(lambda: the_lab.plan is not None)
    assert not the_lab.lab_state.is_planning
    the_lab.replanning.switch.value = False


async def test_a_lab_that_does_not_plan_by_itself_asks_for_a_press_on_plan() -> None:
    the_lab = lab.Lab("raspberry-pi", autosave=False, live=False)
    assert not any("Planning" in words for words in empty_words(the_lab))
    assert headline(the_lab.lab_state, None, None, "")[:2] == ("No plan yet.", "Press Plan.")


async def test_no_pane_asks_for_a_press_on_plan_after_it() -> None:
    the_lab = lab.Lab("raspberry-pi", autosave=False, live=False)
    the_lab.plan_panel.real.seconds.value = 60
    the_lab.plan_panel.redo()
    await until(lambda: empty_words(the_lab) == {"Planning…"})
    the_lab.plan_panel.end()
    await until(lambda: "plan" not in the_lab.lab_state.busy)
    assert not the_lab.lab_state.is_planning


async def test_the_order_of_opening_changes_no_job_and_no_start_of_a_search() -> None:
    first, later = await opened(["lecture-hall"]), await opened(["worldwide", "lecture-hall"])
    assert first.job == later.job
    assert first.plan.placement.devices.shape == later.plan.placement.devices.shape


def test_a_network_opened_over_another_offers_the_jobs_own_shape() -> None:
    state = LabState(topology=lab.load_topology("worldwide"))
    controls = JobControls(state, opening_job(state.topology))
    controls.shape.value = (16, 4)
    hall = lab.load_topology("lecture-hall")
    controls.take(opening_job(hall))
    state.topology = hall
    assert controls.shape.value == (4, 2)
    controls.shape.value = (8, 1)
    state.topology = hall.with_link(0, 1, bandwidth_gbps=0.5)
    assert controls.shape.value == (8, 1), "an edit keeps what was chosen"
    controls.take(opening_job(hall))
    assert controls.shape.value == (4, 2), "opened again"


def test_another_job_keeps_what_was_left_to_the_planner() -> None:
    state = LabState(topology=lab.load_topology("lecture-hall"))
    controls = JobControls(state, lab.load_job("small"))
    controls.shape.value, controls.microbatch.value, controls.schedule.value = OPEN_SHAPE, 0, OPEN_SCHEDULE
    controls.job.value = "tiny"
    assert (state.job.name, state.job.n_stages, state.job.microbatch) == ("tiny", None, None)


def test_a_bound_says_of_which_plans_it_is_or_is_not_shown() -> None:
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("small").with_fields(n_stages=4, n_replicas=2)
    plan = lab.plan(topology, job, steps=1)
    state = LabState(topology=topology, job=job, plan=plan)
    left = 1.2
    state.plan = replace(plan, iteration_lower_bound_s=plan.iteration_s / left)
    assert bar_numbers(state, None)[0]["short"].endswith("the best in 4 x 2")
    state.plan = replace(plan, iteration_lower_bound_s=plan.iteration_s)
    assert bar_numbers(state, None)[0]["short"] == "none faster in 4 x 2"
    state.plan = replace(plan, iteration_lower_bound_s=plan.iteration_s, left_open=None)
    assert "faster" not in bar_numbers(state, None)[0]["short"], "nobody knows of which plans"
    assert "that its search allowed" in bar_numbers(state, None)[0]["note"].replace("no plan", "any plan")


def test_a_better_plan_that_comes_later_is_announced() -> None:
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("small").with_fields(n_stages=4, n_replicas=2)
    plan = lab.plan(topology, job, steps=1)
    slower = replace(plan, iteration_s=plan.iteration_s * 1.25)
    words = gain_words(slower, plan)
    assert words == "A longer search found a plan that is 20 % faster"
    assert gain_words(plan, plan) == gain_words(plan, slower) == ""
    state = LabState(topology=topology, job=job, plan=plan)
    assert headline(state, None, Replanned(plan, gain=words), "Messages are slow.") == (
        f"{words}.",
        "Messages are slow.",
        "",
    )
    assert headline(state, None, Replanned(slower, gain=words), "Messages are slow.").lead == "Messages are slow."
