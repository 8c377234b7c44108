"""The frame around the panes: numbers, headline, next action, inspector, tabs; each says only what holds."""

from __future__ import annotations

import contextvars
from types import SimpleNamespace

import ipywidgets as w
import numpy as np
import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.trace import Fault
from dtfm_lab.widgets import quiet
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.network.document_conversion import document_of, topology_of
from dtfm_lab.widgets.network.links import with_link
from dtfm_lab.widgets.planner.edits import EditHistory
from dtfm_lab.widgets.quiet import untold
from dtfm_lab.widgets.running.run_progress import story_of
from dtfm_lab.widgets.shell.bar import bar_numbers, format_count, gap_words, next_action
from dtfm_lab.widgets.shell.headline import headline, reason_of
from dtfm_lab.widgets.shell.inspection import inspect
from dtfm_lab.widgets.views.groups import layers_of


def a_state(network: str = "lecture-hall", **options) -> LabState:
    """A planned state without a screen."""
    topology = lab.load_topology(network)
    job = lab.load_job("small" if network == "lecture-hall" else "dtfm-gpt3-xl")
    plan = lab.plan(topology, job, seed=0, steps=2, **options)
    return LabState(topology=topology, job=job, plan=plan)


def test_a_gap_is_the_cost_over_its_bound() -> None:
    plan = a_state(objective="communication").plan
    times = plan.cost.total_s / plan.lower_bound_s
    words = gap_words(plan)
    best = f"the best of {plan.job.n_stages} x {plan.job.n_replicas}"
    assert words == (f"proved {best}" if times < 1.0005 else f"at most {times:.2f} × {best}"), (
        "another shape may cost less"
    )


@pytest.mark.parametrize(("number", "words"), [(0.5, "0.5"), (871.4, "871"), (10_540, "10.5k"), (1.24e6, "1.24M")])
def test_counts_are_short(number: float, words: str) -> None:
    assert format_count(number) == words


def test_the_headline_says_what_is_worth_most() -> None:
    state = LabState()
    assert headline(state, None, None, "").lead == "No network yet."
    state = a_state()
    reason = reason_of(state.plan)
    assert reason
    said = headline(state, None, None, reason)
    assert f"{said.lead} {said.rest}".startswith(reason[:20])
    state.pane = "what-if"
    state.set_note("what-if", "Bandwidth x 0.5: 12.5 → 22.9 s. Averaging follows it.")
    assert headline(state, None, None, reason).lead == "Bandwidth x 0.5:"
    state.report_error("run", "no such file")
    said = headline(state, None, None, reason)
    assert (said.kind, said.rest) == ("error", "no such file")


def test_edits_of_one_drag_are_laid_against_what_was_before_the_drag() -> None:
    state, clock = a_state("worldwide"), [0.0]
    history = EditHistory(state, lambda: clock[0])
    state.predicted = lab.simulate(state.plan)
    first = state.topology
    for step in range(1, 4):
        clock[0] += 0.1
        state.topology = first.with_link(0, 9, bandwidth_gbps=0.1 / step)
        state.plan = lab.evaluate(state.topology, state.plan.job, stages=state.plan.stages)
    assert history.before.topology is first
    clock[0] += 60
    last = state.topology
    state.topology = first.with_link(0, 9, bandwidth_gbps=2)
    assert history.before.topology is last


def test_two_drags_are_two_edits_though_the_first_one_ended_with_a_move() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    state, drawing, history = the_lab.lab_state, the_lab.network_panel.drawing, the_lab.replanning.history
    history._now_s = iter(range(0, 1000, 60)).__next__  # a minute between any two moves
    first = state.topology
    for pair, gbps in ((("ada", "edsger"), 0.01), (("ada", "alan"), 0.02)):
        state.plan = lab.plan(state.topology, state.job, seed=0, steps=1)
        began = state.topology
        drawing.gesture("begin")
        for share in (2, 1):
            drawing.document = with_link(drawing.document, pair, gbps * share, 8.0)
        drawing.gesture("end")
        assert history.before.topology is began
    assert history.before.topology is not first


def test_where_another_number_is_searched_for_the_headline_tells_the_bars_too() -> None:
    state, clock = a_state("worldwide"), [0.0]
    history = EditHistory(state, lambda: clock[0])
    state.predicted = lab.simulate(state.plan)
    assert state.plan.objective == "communication"
    clock[0] += 60
    state.topology = state.topology.with_link("Seoul-0", "Ireland-0", bandwidth_gbps=0.005)
    state.plan = lab.evaluate(state.topology, state.plan.job, stages=state.plan.stages)
    state.predicted = lab.simulate(state.plan)
    number = bar_numbers(state, history.before)[0]
    assert number["was"]
    told = f"; the iteration, which is not the objective, {number['was']} → {number['value']}."
    assert headline(state, history.before, None, "").lead.endswith(told)


def test_an_edit_that_follows_the_opening_of_a_network_at_once_is_told() -> None:
    state, clock = a_state("worldwide"), [0.0]
    history = EditHistory(state, lambda: clock[0])
    opened = lab.load_topology("lecture-hall")
    state.topology, state.job = opened, lab.load_job("small")
    assert history.before is None
    state.plan = lab.plan(opened, state.job, seed=0, steps=1)
    clock[0] += 0.1
    state.topology = opened.with_link(0, 5, bandwidth_gbps=0.01)
    assert history.before is not None
    assert history.before.topology is opened


def test_the_next_action_leads_through_the_story() -> None:
    state = LabState()
    assert next_action(state).name == "open"
    state.topology = lab.load_topology("lecture-hall")
    assert next_action(state).why_not, "no job"
    state.job = lab.load_job("small")
    assert next_action(state).name == "plan"
    state.plan = lab.plan(state.topology, state.job, seed=0, steps=1)
    assert next_action(state).name == "run"
    state.set_busy("run", working=True)
    assert next_action(state).name == "stop-run"
    state.set_busy("run", working=False)
    state.set_busy("plan", working=True)
    assert next_action(state).name == "stop-plan"


def test_the_sum_of_a_single_stage_names_no_hops() -> None:
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("tiny", n_stages=1, n_replicas=8)
    plan = lab.evaluate(topology, job, stages=[list(range(8))])
    total = inspect(LabState(topology=topology, job=job, plan=plan))["total"]
    assert [words for _, words in total] == ["communication cost =", "slowest averaging"]


def test_the_inspector_follows_the_selection() -> None:
    state = a_state("worldwide")
    device = state.plan.stages[3][2]
    state.selected = (device,)
    facts = inspect(state)
    assert (facts["kind"], facts["title"], facts["stage"]) == ("device", device, 3)
    assert {row[0] for row in facts["rows"]} == {"averages with", "receives from", "sends to", "speed"}
    other = state.plan.stages[4][2]
    state.selected_link = (device, other)
    facts = inspect(state)
    at = state.topology.index(device), state.topology.index(other)
    assert facts["gbps"] == pytest.approx(float(state.topology.bandwidth_bytes_per_s[at]) * 8 / 1e9)
    assert "hop" in facts["rows"][0][1] or "averages" in facts["rows"][0][1]
    state.selected_link, state.selected, state.selected_stage = (), (), 5
    assert inspect(state)["title"] == "Stage 5"
    document = document_of(state.topology)
    state.topology = topology_of(document | {"devices": document["devices"][:-1]})
    assert inspect(state)["title"] == "Stage 5", "the plan before stays until there is another"
    state.selected_stage = -1
    assert (inspect(state)["kind"], inspect(state)["title"]) == ("pipeline", "One pipeline of the previous plan")
    state.topology = None
    assert inspect(state)["kind"] == "empty"


def test_every_block_of_the_model_is_in_one_stage() -> None:
    plan = a_state().plan
    numbers = [word for words in layers_of(plan) for word in words.split() if word.isdigit()]
    assert int(numbers[0]) == 1
    assert int(numbers[-1]) == sum(plan.blocks_per_stage)


@pytest.mark.parametrize("ends", [(0, 1), (0, 20)])
def test_a_link_takes_the_numbers_of_its_sliders_where_the_drawing_has_them(ends) -> None:
    topology = lab.load_topology("worldwide")
    names = topology.names[ends[0]], topology.names[ends[1]]
    document = document_of(topology)
    after = topology_of(with_link(document, names, 0.25, 77.0))
    for a, b in (ends, ends[::-1]):
        assert float(after.bandwidth_bytes_per_s[a, b]) == pytest.approx(0.25e9 / 8)
        assert float(after.latency_s[a, b]) == pytest.approx(0.077)
    assert len(document["links"]) == len(with_link(document, names, 0.25, 77.0)["links"]), "no thousand lines more"


async def test_a_lab_opens_planned_and_predicted_on_its_best_view() -> None:
    the_lab = lab.Lab("worldwide", autosave=False)
    assert the_lab.network_panel.shown.value == "map"
    await until(lambda: the_lab.plan is not None and the_lab.predicted is not None)
    await until(lambda: the_lab.bar.view.numbers and the_lab.bar.view.action["name"] == "run")
    assert the_lab.legend.n_stages == the_lab.plan.job.n_stages
    the_lab.show_pane("groups")
    assert the_lab.panes.tabs.value == "groups"
    with pytest.raises(LabError, match="no pane named 'nowhere'"):
        the_lab.show_pane("nowhere")


async def test_two_results_can_be_seen_at_once() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    the_lab.show_pane("groups")
    assert the_lab.lab_state.shown_panes == ("groups",)
    the_lab.panes.split.value = True
    assert the_lab.lab_state.shown_panes == ("groups", "schedule")
    the_lab.plan_panel.mode.value = "Teaching"
    the_lab.show_pane("plan")
    the_lab.show_pane("run")
    assert the_lab.lab_state.shown_panes == ("run", "plan")
    await until(lambda: the_lab.plan_panel.teaching.view.frames)  # the lower half is the search, which has begun


def test_what_befell_a_device_is_told_until_the_run_ends() -> None:
    assert story_of(SimpleNamespace(faults=[], replans=())) == ""
    faults = [Fault(2, "barbara", "was killed by SIGKILL", "claude", 0.8), Fault(5, "ada", "stood still", "alan", 0.5)]
    story = story_of(SimpleNamespace(faults=faults[:1], replans=()))
    assert (
        story == "barbara was killed by SIGKILL in iteration 2: its copy took over in 800 ms, with the state of claude"
    )
    assert story_of(SimpleNamespace(faults=faults, replans=())).endswith("the state of alan; 1 earlier fault")
    state = a_state("worldwide")
    state.busy, state.run_progress = ("run",), "iteration 8 of 24"
    state.set_note("run", "recovering ada")
    state.run_story = story
    said = headline(state, None, None, "")
    assert said.lead == "barbara was killed by SIGKILL in iteration 2:"
    assert said.rest.endswith("The run: iteration 8 of 24; recovering ada.")
    assert bar_numbers(state, None)[-1]["note"] == "iteration 8 of 24"
    assert said.kind == "busy"


async def test_suspected_links_and_devices_are_marked_on_the_network_until_an_edit() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    state, panel = the_lab.lab_state, the_lab.network_panel
    state.plan = lab.evaluate(state.topology, state.job, stages=np.arange(8).reshape(4, 2).tolist())
    state.measured = lab.simulate(state.plan, state.schedule)
    state.suspects = (("ada", "alan"), ("edsger",))
    assert panel.canvas.highlight["suspects"] == [["ada", "alan"], ["edsger"]]
    state.topology = state.topology.with_link("ada", "alan", bandwidth_gbps=0.01)
    assert "suspects" not in panel.canvas.highlight


def test_the_page_is_told_of_a_pane_when_it_is_first_shown() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    assert the_lab.schedule_panel.view.comm is not None
    assert [one for one in inside(the_lab.groups_panel.view) if one.comm is not None] == []
    the_lab.show_pane("groups")
    assert [one for one in inside(the_lab.groups_panel.view) if one.comm is None] == []


def test_a_widget_is_kept_until_another_is_made_of_it_but_not_what_a_task_makes_later() -> None:
    with untold():
        kept, task = quiet.HTML("kept"), contextvars.copy_context()
    kept.value = "changed meanwhile"
    assert kept.comm is None
    assert task.run(quiet.HTML).comm is not None, "a task that was begun inside goes on outside"
    assert w.VBox([kept]).get_state()["children"] == [f"IPY_MODEL_{kept.comm.comm_id}"]


def test_widgets_of_other_packages_are_as_ipywidgets_makes_them() -> None:
    assert {w.Widget.open.__module__, w.Widget.model_id.fget.__module__} == {"ipywidgets.widgets.widget"}
    with untold():
        assert w.HTML("of another package").comm is not None


KEPT = [one for one in quiet.DeferredWidget.__subclasses__() if vars(quiet).get(one.__name__) is one]


@pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.__name__)
def test_a_widget_is_kept_with_all_that_it_is_made_of(kind) -> None:
    with untold():
        kept = kind(options=[1]) if kind.class_traits().keys() >= {"index", "options"} else kind()
        made_of = [kept, *(getattr(kept, name) for name in ("layout", "style") if kept.has_trait(name))]
    assert [one for one in made_of if one.comm is not None] == []
    assert kept.model_id
    assert kept._model_name == getattr(w, kind.__name__)._model_name.default_value


def test_every_box_of_rarer_controls_has_a_name_of_its_own() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    everything = [each for one in (the_lab, *(step.panel.view for step in the_lab.steps)) for each in inside(one)]
    found = {one for one in everything if "dtfm-more-button" in one._dom_classes}
    names = [one.description for one in found]
    assert len(names) > 8
    assert len(set(names)) == len(names), "several are on the screen at once"


def inside(box) -> list:
    return [box, *(each for child in getattr(box, "children", ()) for each in inside(child))]
