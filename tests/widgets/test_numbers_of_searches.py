"""What the frontier and the tips of bars say is what the bar says of the same plan."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.domain.schedule import LANE, Lane
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.measures import format_dollars
from dtfm_lab.widgets.lab_state import shown_prediction
from dtfm_lab.widgets.views.gantt.bars import DISPLAYED, ROWS_PER_DEVICE

PRICED = "mixed-gpus"
GZIP = b"\x1f\x8b"


async def at_rest(the_lab: lab.Lab) -> None:
    """Wait until the plan on the screen is predicted and no search goes on."""
    state = the_lab.lab_state

    def is_done() -> bool:
        if state.plan is None or state.plan_is_stale or state.busy or the_lab.replanning.is_answering:
            return False
        return shown_prediction(state) is not None and not the_lab.schedule_panel.is_predicting

    await until(is_done)
    the_lab.bar.refresh()


def shown(the_lab: lab.Lab) -> dict[str, dict[str, str]]:
    return {number["label"].partition(",")[0]: number for number in the_lab.bar.view.numbers}


async def test_a_point_of_the_frontier_and_the_bar_say_one_thing_of_its_plan() -> None:
    the_lab = lab.Lab(PRICED, autosave=False)
    await at_rest(the_lab)
    the_lab.replanning.switch.value = False
    panel = the_lab.plan_panel.frontier
    panel.seconds.value, panel.searches.value = 0.5, 2
    the_lab.bar.view.received({"kind": "press", "name": shown(the_lab)["Price"]["ask"]["name"]}, [])
    assert (the_lab.lab_state.pane, the_lab.plan_panel.mode.value) == ("plan", "Frontier")
    await until(lambda: panel.search is None and panel.frontier is not None)
    view, frontier = panel.chart, panel.frontier
    for at, point in enumerate(view.points):
        view.received({"kind": "choose", "point": at}, [])
        await at_rest(the_lab)
        plan, numbers = the_lab.plan, shown(the_lab)
        assert (view.chosen, plan) == (at, frontier.plans[at])
        assert point["seconds"] == pytest.approx(lab.simulate(plan).iteration_s)
        assert numbers["Iteration"]["value"] == format_s(point["seconds"])
        assert numbers["Price"]["value"] == format_dollars(point["by_token"])
        assert point["words"].startswith(f"{plan.job.n_stages} x {plan.job.n_replicas}, ")
        below = np.interp(point["dollars"], *np.transpose(view.bounds))
        assert below <= point["seconds"] * (1 + 1e-9), "no plan beats the bound"
    told = set(re.findall(r"([\d.,]+ \S+) at \$([\d.,]+) an hour \(\$([\d.,]+) a billion tokens\)", view.caption))
    drawn = {(format_s(p["seconds"]), f"{p['dollars']:,.2f}", f"{p['by_token']:,.2f}") for p in view.points}
    assert told
    assert told <= drawn, "the sentence speaks of points that are drawn"
    assert view.alt_text().endswith(frontier.sentence)
    view.received({"kind": "choose", "point": len(view.points)}, [])
    assert the_lab.plan is plan
    said = view.caption
    the_lab.draw_network(lab.load_topology("lecture-hall"))
    assert view.caption == f"Before the last edit: {said}"
    view.received({"kind": "choose", "point": 0}, [])
    assert the_lab.plan is None or the_lab.plan.topology.name == "lecture-hall", "not a plan of the previous network"


@pytest.mark.parametrize("objective", ["communication", "iteration"])
async def test_what_the_race_says_of_its_leader_the_bar_says_of_the_plan_that_is_taken(objective: str) -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False)
    await at_rest(the_lab)
    the_lab.replanning.switch.value = False
    panel, race = the_lab.plan_panel, the_lab.plan_panel.race
    panel.objective_controls.objective.value = objective  # another objective is planned for at once
    await until(lambda: the_lab.plan.objective == objective and panel.real.search is None)
    race.seconds.value = 0.2
    race.start.click()
    await until(lambda: race.search is None and not race.take.disabled)
    leader = race.standings.leader
    told = re.search(r"with ([\d.,]+ \S+), ", race.curve.caption)[1]
    table = re.findall(r"<td>([\d.,]+ (?:ms|s))</td>\s*<td>–</td>", race.table.value)
    assert {told, *table} == {format_s(leader.best_s)}
    race.take.click()
    await until(lambda: the_lab.plan.placement is leader.plan.placement)
    await at_rest(the_lab)
    bar = shown(the_lab)["Iteration"]
    said = bar["under"][0] if objective == "communication" else bar["value"]
    assert told in said


async def test_a_bars_tip_is_of_the_trace_that_the_bar_leads_with() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False)
    await at_rest(the_lab)
    trace, chart = shown_prediction(the_lab.lab_state), the_lab.schedule_panel.chart
    bars, spans = chart.predicted, trace.to_frame()
    assert bars.end.max() == pytest.approx(trace.iteration_s)
    assert f"predicted {format_s(trace.iteration_s)} " in chart.caption
    after = np.frombuffer(gzip.decompress(chart.after) if chart.after[:2] == GZIP else chart.after, "<i4")
    assert len(after) == len(bars.start) > 0
    for at, (kind, device) in enumerate(
        (DISPLAYED[bars.kind[at]], chart.devices[bars.row[at]]) for at in range(len(after))
    ):
        own = spans[
            (spans["device"] == device) & (spans["kind"] == kind.value) & (spans["microbatch"] == bars.microbatch[at])
        ]
        assert (
            np.isclose(own[["start_s", "end_s"]], [bars.start[at], bars.end[at]], rtol=1e-5, atol=1e-7)
            .all(axis=1)
            .any()
        )
        assert bars.row[at] % ROWS_PER_DEVICE == (LANE[kind] is not Lane.COMPUTE)
        if after[at] >= 0:
            assert bars.end[after[at]] <= bars.start[at] + 1e-6, "what a bar is right after is over"
