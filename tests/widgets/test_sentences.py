"""Every number on the screen is the one of its noun after any choice, and no sentence outlives what it speaks of."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_range, format_s, format_share, signed_share
from dtfm_lab.figures.measures import format_count
from dtfm_lab.runtime.client.launch import Secret
from dtfm_lab.widgets.lab_state import shown_prediction
from dtfm_lab.widgets.planner import replanning
from dtfm_lab.widgets.planner.edits import effect
from dtfm_lab.widgets.views.groups import layers_of
from dtfm_lab.widgets.what_if.answer import PARTS

ACTS = ("schedule", "option", "queueing", "link", "undo", "what-if", "take over", "pane", "bound", "stage", "batch")
BOTTLENECKS = {
    "Computing": ("compute",),
    "Messages": ("latency", "bandwidth", "queue"),
    "Averaging the gradients of replicas": ("synchronisation",),
}


@pytest.fixture(autouse=True)
def nobody_looks_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """A better plan that a longer search finds meanwhile would end what is said of the run."""
    monkeypatch.setattr(replanning, "BUDGETS_S", replanning.BUDGETS_S[:1])
    monkeypatch.setattr(replanning, "RESTS_S", ())


async def settled(the_lab: lab.Lab) -> None:
    """Wait until all that was asked for is answered."""
    state, asked = the_lab.lab_state, the_lab.what_if_panel._asked

    def at_rest() -> bool:
        if state.plan is None or state.plan_is_stale or the_lab.replanning.is_answering:
            return False
        if the_lab.bar.refreshing.is_due or the_lab.schedule_panel.is_predicting or asked.is_running:
            return False
        waits = asked.waits and state.pane == "what-if"
        return bool(state.message) or (shown_prediction(state) is not None and not waits)

    await until(at_rest)


async def opened() -> lab.Lab:
    """A lab that has planned."""
    the_lab = lab.Lab("lecture-hall", autosave=False)
    await settled(the_lab)
    return the_lab


def act(the_lab: lab.Lab, rng: np.random.Generator, what: str) -> None:
    """Do something at random, as a reader would."""
    state, choices, what_if = the_lab.lab_state, the_lab.schedule_panel.choices, the_lab.what_if_panel
    names = the_lab.topology.names
    match what:
        case "schedule":
            state.schedule = str(rng.choice(["gpipe", "1f1b", "zb-h1"]))
        case "option":
            options = [control for control in choices.by_option.values() if hasattr(control, "options")]
            control = options[rng.integers(len(options))]
            control.index = int(rng.integers(len(control.options)))
        case "queueing":
            choices.queueing.index = int(rng.integers(2))
        case "link":
            ends = [names[i] for i in rng.choice(len(names), 2, replace=False)]
            for phase in ("begin", "move", "end"):
                moved = {"kind": "link", "ends": ends, "gbps": float(rng.choice([0.05, 0.4, 3])), "ms": 9.0}
                the_lab.network_pane.inspector.received(moved | {"phase": phase}, [])
        case "undo":
            the_lab.bar.view.received({"kind": "press", "name": "undo"}, [])
        case "what-if":
            the_lab.show_pane("what-if")
            name = str(rng.choice(["bandwidth", "latency", "global_batch"]))
            control = what_if.controls.by_name[name]
            if name == "global_batch":
                control.index = int(rng.integers(len(control.options)))
            else:
                control.value = float(rng.choice([0.2, 0.5, 1, 2, 6]))
        case "take over":
            what_if.use.click()
        case "pane":
            the_lab.show_pane(str(rng.choice(["plan", "groups", "schedule", "what-if", "run", "compare"])))
        case "bound":
            if the_lab.plan.iteration_s:
                state.bound_s = the_lab.plan.iteration_s / float(rng.choice([1.01, 1.2]))
        case "stage":
            state.selected, state.selected_stage = (), int(rng.integers(-1, the_lab.plan.job.n_stages))
        case "batch":
            the_lab.plan_panel.job_controls.batch.value = int(rng.choice([8, 16, 32]))


def check_numbers(the_lab: lab.Lab) -> None:
    """Compare all that is shown of the plan, by what it means, with what the public functions say."""
    state, plan = the_lab.lab_state, the_lab.plan
    trace = lab.simulate(state.chosen_plan, state.schedule, queueing=state.queueing)
    bar, chart = the_lab.bar.view, the_lab.schedule_panel.chart
    tabs = {tab["name"]: tab["words"] for tab in the_lab.panes.tabs.tabs}
    leads = bar.numbers[0]
    assert leads["label"] == f"Iteration, {trace.context.basis.word}"
    iteration = {
        "bar": leads["value"],
        "chart": re.search(r"predicted ([\d.,]+ \S+?),? ", chart.caption)[1],
        "tab": re.fullmatch(r"predicted (.+) under \S+", tabs["schedule"])[1],
    }
    assert set(iteration.values()) == {format_s(trace.iteration_s)}, iteration
    assert leads["note"].startswith(f"{format_range(*trace.interval())} · ")
    rates = {number["label"]: number["value"] for number in bar.numbers}
    assert rates["Throughput"] == f"{format_count(trace.metrics['tokens_per_s'])} tokens/s"
    assert f"{trace.metrics['tokens_per_s']:,.0f} tokens/s" in chart.caption
    busy = float((trace.bubble["busy_s"] / trace.bubble["iteration_s"]).mean())
    path = trace.critical_summary().query("by == 'what' and name == 'compute'")["share"].sum()
    computing = sum(each["share"] for each in chart.shares if each["name"].endswith("computing"))
    assert computing == pytest.approx(path, abs=0.01), "as in the sentence on what binds"
    assert sum(each["share"] for each in chart.shares) == pytest.approx(1, abs=0.03)
    every = trace.context.synchronise_every
    assert f"MFU {format_share(trace.metrics['mfu'])}" in chart.caption
    assert (" %, chiefly " in chart.caption) == (busy < 1)
    assert (f"on average over {every:,} iterations (shown: one that " in chart.caption) == (every > 1)

    faster, note = state.bounded_plan.speed_up_words, re.sub("<.*?>", "", the_lab.plan_panel.note.value)
    for said in (note, tabs["plan"]):
        assert said.count("faster") + said.count("is loose") == bool(faster) == (bool(faster) and faster in said)
    if trace.iteration_s == pytest.approx(plan.iteration_s):
        assert not faster or faster.split(" times")[0] in leads["note"]
    else:
        assert f"{format_s(plan.iteration_s)} under {plan.job.schedule_name} as planned" in leads["note"]

    cost = format_s(plan.cost.total_s)
    travels, hidden = trace.travel
    assert re.search(rf"communication cost (\S+ \S+ → )?{re.escape(cost)}", leads["under"][0])
    assert leads["under"][0].endswith(f"{format_s(travels)}, {format_s(hidden)} of it while it computes")
    assert f"communication cost {cost}" in note
    otherwise = state.chosen_plan.job != plan.job
    assert (f"{cost} as planned" in leads["under"][0]) == otherwise, "it is of the plan's own job"
    facts, layers = the_lab.network_pane.inspector.facts, layers_of(plan)
    if facts["kind"] == "pipeline":
        assert facts["total"][0][0] == cost
        assert [stage["layers"] for stage in facts["stages"]] == layers
    elif facts["kind"] == "stage":
        assert facts["hint"] == layers[facts["stage"]]
    if state.shows("groups"):
        assert [group["layers"] for group in the_lab.groups_panel.groups.groups] == layers
    check_headline(the_lab, trace)


def check_headline(the_lab: lab.Lab, trace: Trace) -> None:
    """Hold the sentence over the panes against the bar, the trace and the setting that is asked about."""
    state, said = the_lab.lab_state, the_lab.bar.view.headline
    told = f"{said['lead']} {said['rest']}"
    asked = the_lab.what_if_panel
    if state.pane == "what-if" and state.note_of("what-if"):
        check_answer(the_lab, state.note_of("what-if"), trace)
        assert told.rstrip() == state.note_of("what-if")
    elif match := re.match(r"(.+) (?:is|are) the bottleneck: (\d+) ?% of the critical path", told):
        critical = trace.critical_summary()
        shares = critical[critical["by"] == "what"].set_index("name")["share"]
        of_class = sum(share for name, share in shares.items() if name in BOTTLENECKS[match[1]])
        assert match[2] == f"{100 * of_class:.0f}"
    elif match := re.search(r": (.+) → (.+)\.$", said["lead"]):
        assert (match[1], match[2]) == (the_lab.bar.view.numbers[0]["was"], the_lab.bar.view.numbers[0]["value"])
    assert state.pane != "what-if" or asked.last is None or "replanned" not in told


def check_answer(the_lab: lab.Lab, note: str, base: Trace) -> None:
    """Simulate the setting and hold every number of the answer against that."""
    panel = the_lab.what_if_panel
    setting = panel.setting
    now = lab.simulate(setting.on(the_lab.plan), **setting.simulated_with)
    change = f": {format_s(base.iteration_s)} → {format_s(now.iteration_s)}. "
    same = f": {format_s(base.iteration_s)} as before. "
    assert change in note or (same in note and now.iteration_s == pytest.approx(base.iteration_s, rel=1e-3))
    assert f"{format_s(now.iteration_s)} per iteration" in panel.numbers.value
    assert f"<b>{format_s(now.iteration_s)}</b>" in panel.numbers.value, "as the bar writes it"
    columns = {words: "busy_s" if cause == "computing" else f"{cause}_s" for cause, words in PARTS.items()}
    for words, percent in re.findall(rf"({'|'.join(columns)}) is (\d+) % of a device's time", note):
        whole_s = float(now.bubble["iteration_s"].sum())
        assert percent == f"{100 * float(now.bubble[columns[words]].sum()) / whole_s:.0f}"


@pytest.mark.parametrize("seed", range(3))
async def test_one_quantity_has_one_value_after_any_choice(seed: int) -> None:
    the_lab, rng = await opened(), np.random.default_rng(seed)
    for what in rng.permutation([*ACTS, *ACTS]):
        act(the_lab, rng, str(what))
        await settled(the_lab)
        if not the_lab.lab_state.message:
            check_numbers(the_lab)
        else:  # the line says why that cannot be
            for control in the_lab.schedule_panel.choices.by_option.values():
                if hasattr(control, "options"):
                    control.index = 0
            the_lab.lab_state.schedule, the_lab.lab_state.message = "gpipe", ""
            await settled(the_lab)


async def measured(the_lab: lab.Lab) -> None:
    """Set what a run of the lab's plan measures where its first link has half the bandwidth."""
    state, plan = the_lab.lab_state, the_lab.lab_state.shown_plan
    a, b = plan.stages[0][0], plan.stages[1][0]
    topology = plan.topology
    half = topology.bandwidth_bytes_per_s[topology.index(a), topology.index(b)] / 2
    ran = lab.simulate(plan.changed(topology=topology.with_link(a, b, bandwidth_bytes_per_s=half)))
    traced = replace(ran.context.plan, topology_fingerprint=topology.fingerprint)
    of_run = {"source": "measured", "links": "emulated", "plan": traced}
    state.measured, state.ran = replace(ran, context=replace(ran.context, **of_run)), plan
    state.comparison = lab.compare(lab.simulate(plan), state.measured)
    await until(lambda: the_lab.compare_panel.residuals.tables != [] and "compare" not in state.busy)


def bar_of(the_lab: lab.Lab) -> dict[str, Any]:
    the_lab.bar.refresh()
    return {number["label"]: number for number in the_lab.bar.view.numbers}


async def test_what_is_said_of_a_run_ends_with_the_plan_that_ran_and_comes_back_with_it() -> None:
    the_lab = await opened()
    await measured(the_lab)
    state, comparison = the_lab.lab_state, the_lab.comparison
    run_s = format_s(state.measured.iteration_s)
    error = signed_share(comparison.iteration_error)
    assert (bar_of(the_lab)["Measured"]["value"], bar_of(the_lab)["Measured"]["note"]) == (run_s, error)
    assert the_lab.compare_panel.residuals.table == "devices", "links are modelled: what was measured comes first"
    for pane in ("run", "compare"):
        the_lab.show_pane(pane)
        bar_of(the_lab)
        said = the_lab.bar.view.headline
        assert f"{said['lead']} {said['rest']}".startswith(comparison.headline[:20]), pane
    await until(lambda: the_lab.compare_panel.refitting.is_useful)
    the_lab.compare_panel.refitting.apply()
    note = the_lab.compare_panel.refitting.note
    assert "The fitted links are drawn, but the plan is for the previous network: plan again." in note.value
    await settled(the_lab)
    assert "The fitted links are drawn." in note.value
    for pane in ("run", "compare"):
        the_lab.show_pane(pane)
        assert bar_of(the_lab)["Measured"]["note"] == "before the last edit"
        assert "Gbit/s" in the_lab.bar.view.headline["lead"], "the edit is what is told"
    the_lab.bar.view.received({"kind": "press", "name": "undo"}, [])
    await settled(the_lab)
    assert "fitted links are drawn" not in note.value
    assert bar_of(the_lab)["Measured"]["note"] == error
    predicted_s = comparison.predicted.iteration_s
    assert bar_of(the_lab)["Iteration, guessed"]["value"] == format_s(predicted_s), "the error is of this number"


async def test_a_mystery_that_is_solved_leaves_what_was_measured() -> None:
    the_lab = await opened()
    await measured(the_lab)
    state, guessing = the_lab.lab_state, the_lab.run_panel.guessing
    guessing.begin(Secret("device", the_lab.topology.names[0], 3.0))
    the_lab.show_pane("compare")
    state.selected = (the_lab.topology.names[0],)
    guessing.name.click()
    answer = (
        f"Mystery: yes, it is {the_lab.topology.names[0]}, whose computations take 3 times as long, found on try 1."
    )
    for pane in ("run", "compare"):
        the_lab.show_pane(pane)
        assert bar_of(the_lab)["Measured"]["value"] == format_s(state.measured.iteration_s)
        said = the_lab.bar.view.headline
        assert f"{said['lead']} {said['rest']}" == answer
    act(the_lab, np.random.default_rng(0), "link")
    await settled(the_lab)
    bar_of(the_lab)
    assert "Mystery" not in the_lab.bar.view.headline["lead"]


async def test_what_was_planned_anew_is_forgotten_with_the_plan_that_it_is_laid_against() -> None:
    the_lab = await opened()
    panel = the_lab.what_if_panel
    the_lab.show_pane("what-if")
    panel.controls.by_name["bandwidth"].value = 0.2
    await until(lambda: panel.anew is not None)
    assert "replanned" in panel.numbers.value
    plan = the_lab.plan
    the_lab.lab_state.plan = replace(plan)
    assert panel.anew is None
    assert the_lab.lab_state.note_of("what-if") == ""


async def test_while_another_plan_is_on_the_picture_nothing_is_said_of_the_labs_own() -> None:
    the_lab = await opened()
    state, inspector = the_lab.lab_state, the_lab.network_pane.inspector
    stages = {name: s for s, names in enumerate(reversed(the_lab.plan.stages)) for name in names}
    state.shown_stages = stages
    assert inspector.facts["kind"] == "empty"
    name = next(iter(stages))
    state.selected = (name,)
    assert (inspector.facts["stage"], [row[0] for row in inspector.facts["rows"]]) == (stages[name], ["speed"])
    state.shown_stages = {}
    assert inspector.facts["stage"] == next(s for s, names in enumerate(the_lab.plan.stages) if name in names)


async def test_a_schedule_that_is_chosen_after_an_edit_is_no_doing_of_the_edit() -> None:
    the_lab = await opened()
    state, bar = the_lab.lab_state, the_lab.bar.view
    act(the_lab, np.random.default_rng(0), "link")
    await settled(the_lab)
    link, own, planned_s = bar.headline["lead"].split(":")[0], state.schedule, state.predicted.iteration_s
    assert "Gbit/s" in link
    state.schedule = "gpipe" if own != "gpipe" else "1f1b"
    await settled(the_lab)
    told = effect(planned_s, state.predicted.iteration_s, "iteration")
    assert bar.headline["lead"] == f"Schedule {own} → {state.schedule}: {told}."
    assert bar.numbers[0]["was"] in ("", told.split(" → ")[0])
    the_lab.schedule_panel.choices.queueing.index = 1
    await settled(the_lab)
    assert bar.headline["lead"].startswith("Queueing "), "each choice by its own name"


async def test_all_fields_of_a_job_that_were_changed_at_once_are_named() -> None:
    the_lab = await opened()
    controls = the_lab.plan_panel.job_controls
    controls.batch.value, controls.schedule.value = 32, "gpipe"
    await settled(the_lab)
    assert the_lab.bar.view.headline["lead"].startswith("Batch 16 → 32, schedule planner's choice → gpipe: ")
    state, what_if = the_lab.lab_state, the_lab.what_if_panel
    the_lab.show_pane("what-if")
    batches = what_if.controls.by_name["global_batch"]
    batches.index = (batches.index + 1) % len(batches.options)
    await settled(the_lab)
    what_if.use.click()
    the_lab.show_pane("schedule")
    await settled(the_lab)
    assert state.shown_plan.job.global_batch != 32
    told = the_lab.bar.view.headline["lead"]
    assert told.startswith(f"Batch 32 → {state.shown_plan.job.global_batch}"), "what follows from it is left out"


async def test_where_nothing_can_be_planned_no_number_of_the_plan_before_stands() -> None:
    the_lab = await opened()
    bar, inspector = the_lab.bar.view, the_lab.network_pane.inspector
    before = inspector.facts["title"]
    controls = the_lab.plan_panel.job_controls
    for batch, said in ((7, "7 sequences"), (0, "global_batch is 0; wanted"), (-16, "global_batch is -16; wanted")):
        controls.batch.value = batch
        await until(lambda said=said: bar.headline["kind"] == "error" and said in bar.headline["rest"])
        assert controls.batch.value == batch, "what was typed stays, to be corrected"
        assert bar.numbers == []
        assert inspector.facts["title"] == "One pipeline of the previous plan"
    controls.batch.value = 16
    await settled(the_lab)
    assert bar.numbers[0]["label"] == "Iteration, guessed"
    assert inspector.facts["title"] == before
