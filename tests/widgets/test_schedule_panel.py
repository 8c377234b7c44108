"""The schedule's panel pressed in Python, on an event loop like the kernel's."""

from __future__ import annotations

import threading
from dataclasses import replace
from unittest.mock import patch

import pytest
from loops import WAIT_S, until

from dtfm_lab import lab
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.schedule import predictions, schedule_panel
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction
from dtfm_lab.widgets.schedule.schedule_panel import SchedulePanel


async def shown(topology: str = "lecture-hall", **job) -> tuple[LabState, SchedulePanel]:
    """A lab_state with a plan, and a panel that has drawn its prediction."""
    lab_state = LabState(topology=lab.load_topology(topology))
    panel = SchedulePanel(lab_state)
    job = {"n_stages": 4, "n_replicas": 2} | job
    lab_state.plan = lab.plan(lab_state.topology, lab.load_job("tiny", **job), objective="communication", steps=1)
    await until(lambda: bool(panel.chart.start))
    return lab_state, panel


async def test_a_plan_that_was_foreseen_is_not_predicted_again() -> None:
    lab_state, panel = await shown()
    job = lab.load_job("tiny", n_stages=2, n_replicas=4)
    plan = lab.plan(lab_state.topology, job, objective="communication", steps=1)
    panel.foresee(plan)
    with patch.object(schedule_panel, "predicted", side_effect=AssertionError("predicted again")):
        lab_state.plan = plan
        await until(lambda: lab_state.predicted.context.devices == plan.device_names)
    assert lab_state.predicted.iteration_s == simulate(plan, lab_state.schedule).iteration_s
    assert not panel.chart.stale
    lab_state.schedule = "1f1b"  # what is chosen since is predicted anew
    await until(lambda: lab_state.predicted.context.schedule == "1f1b")


async def test_a_click_on_a_bar_selects_its_device_everywhere() -> None:
    lab_state, panel = await shown()
    name = panel.chart.devices[-1]
    panel.chart.selected = [name]
    assert lab_state.selected == (name,)
    lab_state.selected = ("somebody who is idle", panel.chart.devices[0])
    assert panel.chart.selected == [panel.chart.devices[0]]
    assert len(lab_state.selected) == 2, "what this view cannot show stays selected"


async def test_fields_that_others_try_out_are_kept_followed_and_predicted() -> None:
    lab_state, panel = await shown()
    lab_state.choices = lab_state.choices | {"microbatch": 1, "compression": "fp16"}
    expected = simulate(
        replace(lab_state.plan, job=replace(lab_state.plan.job, microbatch=1, compression="fp16")), "gpipe"
    )
    await until(lambda: lab_state.predicted.iteration_s == expected.iteration_s)
    assert panel.choices.by_option["compression"].value == "fp16"
    panel.choices.by_option["synchronise_every"].value = 2
    assert lab_state.choices["microbatch"] == 1
    assert "microbatch 1" in panel.choices.others.value
    lab_state.queueing = "nics"
    assert panel.choices.queueing.value == "nics"
    panel.choices.as_planned.click()
    assert "microbatch" not in lab_state.choices
    assert lab_state.choices["synchronise_every"] == 2


async def test_a_field_that_others_try_out_ends_where_the_job_itself_says_something_new() -> None:
    lab_state, _ = await shown()
    lab_state.choices = lab_state.choices | {"microbatch": 1, "global_batch": 32}
    lab_state.job = replace(lab_state.plan.job, microbatch=4)
    assert "microbatch" not in lab_state.choices
    assert lab_state.choices["global_batch"] == 32


async def test_a_prediction_that_takes_long_says_so_and_can_be_stopped() -> None:
    _, panel = await shown()
    played = predictions.simulate

    may_end = threading.Event()

    def slowly(*arguments, **options):
        assert may_end.wait(WAIT_S)
        return played(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictions, "simulate", slowly)
        panel.redo()
        await until(lambda: panel.chart.busy == "simulating gpipe …")
        assert panel.chart.stale
        may_end.set()
        await until(lambda: panel.chart.busy == "")
        assert not panel.chart.stale
        may_end.clear()
        panel.redo()
        await until(lambda: panel.simulate.description == "Stop")
        panel.simulate.click()
        await until(lambda: schedule_panel.STOPPED in panel.chart.empty_words)
        assert panel.simulate.description == "Predict again"
        may_end.set()


async def test_a_prediction_and_a_measurement_that_a_file_brings_are_drawn() -> None:
    lab_state, panel = await shown()
    brought = simulate(lab_state.plan, "1f1b")
    measured = replace(brought, after=None)
    with lab_state.hold_trait_notifications():
        lab_state.predicted, lab_state.measured = brought, measured
    await until(lambda: panel.chart.n_measured == len(panel.chart.predicted.start))
    assert lab_state.predicted is brought
    assert panel.chart.title == "One iteration under 1f1b"
    lab_state.plan = None
    assert (panel.chart.start, lab_state.predicted) == (b"", None)
    assert "No plan yet" in panel.chart.empty_words


async def test_an_edit_leaves_the_prediction_before_as_a_line_and_a_search_that_goes_on_does_not() -> None:
    lab_state, panel = await shown()
    assert panel.chart.ghost["start"] == b""
    first, panel._edited_at_s = lab_state.predicted, 0.0
    panel.choices.by_option["compression"].value = "int8"
    await until(lambda: lab_state.predicted is not first)
    assert panel.chart.ends[0]["at"] == pytest.approx(first.iteration_s)
    assert panel.chart.ends[0]["text"].startswith("was ")
    second, panel._edited_at_s = lab_state.predicted, 0.0
    panel.redo()
    await until(lambda: lab_state.predicted is not second)
    assert panel.chart.ends[0]["at"] == pytest.approx(first.iteration_s), "nothing was edited since"


async def test_a_prediction_from_a_profile_says_why_it_differs() -> None:
    lab_state, panel = await shown()
    assert "from FLOP" in panel.chart.caption
    assert lab_state.note_of("schedule") == ""
    profiled = replace(lab_state.predicted, context=replace(lab_state.predicted.context, clock="virtual"))
    panel.show(ChartedPrediction.of(lab_state.plan, profiled, " from the profile just taken"))
    assert "from the profile" in panel.chart.caption
    assert "no longer from FLOP" in lab_state.note_of("schedule")
    panel.redo()
    await until(lambda: "from FLOP again" in lab_state.note_of("schedule"))


async def test_the_schedule_fits_the_memory_unless_a_person_has_chosen_one() -> None:
    plan = lab.plan(lab.load_topology("worldwide"), lab.load_job("dtfm-gpt3-xl"), objective="communication", steps=1)
    assert plan.job.schedule is None
    lab_state = LabState(topology=plan.topology)
    panel = SchedulePanel(lab_state)
    lab_state.plan = plan
    await until(lambda: lab_state.predicted is not None)
    assert not memory(plan, plan.job.schedule_name).fits
    assert memory(plan, lab_state.schedule).fits
    assert lab_state.schedule == panel.schedule.value == lab_state.predicted.context.schedule
    assert f"under {lab_state.schedule} because {plan.job.schedule_name} lacks memory" in panel.chart.caption
    panel.schedule.value = plan.job.schedule_name
    await until(lambda: lab_state.predicted.context.schedule == plan.job.schedule_name)
    assert "GiB over" in panel.memory.value
    lab_state.plan = replace(plan)
    await until(lambda: not panel.is_predicting)
    assert lab_state.schedule == plan.job.schedule_name, "a person has chosen it"


async def test_the_plan_at_hand_answers_an_edit_before_the_search_does_and_is_drawn_once_where_it_stays() -> None:
    lab_state, panel = await shown()
    plan, drawn = lab_state.plan, []
    lab_state.job = plan.job
    panel.drawn.view.show = lambda *prediction: drawn.append(prediction[0])
    edited = lab_state.topology.with_link("ada", "alan", latency_s=0.2)
    at_hand = lab.evaluate(edited, plan.job, stages=plan.stages)
    show = panel.show_at_hand(at_hand)
    show()
    assert drawn == [], "the network has not been edited yet"
    lab_state.topology = edited
    show()
    assert [one.plan for one in drawn] == [at_hand]
    assert drawn[0].trace.iteration_s == simulate(at_hand, lab_state.schedule).iteration_s
    kept = replace(at_hand, planner="evolutionary")  # what the search says of it
    panel.foresee(kept)
    with patch.object(schedule_panel, "predicted", side_effect=AssertionError("predicted again")):
        lab_state.plan = kept
        await until(lambda: lab_state.predicted is drawn[0].trace)
    assert len(drawn) == 1
    lab_state.topology = lab_state.topology.with_link("ada", "alan", latency_s=0.4)
    on_it = lab.evaluate(lab_state.topology, plan.job, stages=plan.stages)
    panel.show_at_hand(on_it)()
    moved = lab.evaluate(lab_state.topology, plan.job, stages=plan.stages[::-1])
    panel.foresee(moved)
    lab_state.plan = moved
    await until(lambda: lab_state.predicted.context.devices == moved.device_names)
    assert [one.plan for one in drawn[1:]] == [on_it, moved]
    lab_state.topology = edited
    panel.show_at_hand(at_hand)()
    assert drawn[-1].plan is at_hand
    lab_state.topology = moved.topology  # the edit is undone before a search has answered
    await until(lambda: drawn[-1].plan is moved and lab_state.predicted is drawn[-1].trace)
    lab_state.choices = lab_state.choices | {"compression": "int8"}
    assert panel.show_at_hand(on_it) is None, "what is chosen is no choice of the plan's"
