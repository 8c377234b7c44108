"""The panel that names suspects, lists residuals and refits, on an event loop like the kernel's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from loops import send, until

from dtfm_lab import lab
from dtfm_lab.compare import Comparison
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.comparing import ComparePanel
from dtfm_lab.widgets.comparing.findings import tables
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.views.residuals import ResidualsView


def measured_elsewhere(plan: Plan) -> Trace:
    """What the plan would have measured with its first link at half the bandwidth."""
    a, b = plan.stages[0][0], plan.stages[1][0]
    topology = plan.topology
    half = topology.bandwidth_bytes_per_s[topology.index(a), topology.index(b)] / 2
    ran = lab.simulate(replace(plan, topology=topology.with_link(a, b, bandwidth_bytes_per_s=half)), "gpipe")
    traced = replace(ran.context.plan, topology_fingerprint=topology.fingerprint)
    context = replace(ran.context, source="measured", plan=traced)
    return replace(ran, context=context)


def bench_and_panel(plan_again: Callable[[], None] = lambda: None) -> tuple[LabState, ComparePanel, Plan]:
    plan = lab.evaluate("lecture-hall", "tiny", stages=[[0, 2], [4, 6], [1, 3], [5, 7]])
    lab_state = LabState()
    lab_state.plan = plan
    return lab_state, ComparePanel(lab_state, plan_again, w.HTML()), plan


def compared(plan: Plan) -> Comparison:
    return lab.compare(lab.simulate(plan, "gpipe"), measured_elsewhere(plan))


async def test_the_suspect_is_named_and_nothing_is_said_without_a_measurement() -> None:
    lab_state, panel, plan = bench_and_panel()
    assert "nothing measured yet" in panel.tiles.value
    assert panel.refit.disabled
    assert panel.refit.tooltip == "Nothing measured yet: press Run first"
    lab_state.comparison = comparison = compared(plan)
    await until(lambda: panel.residuals.tables != [])
    first = comparison.suspects.iloc[0]
    arrow = first["name"].replace("->", "→")
    assert comparison.error_text.startswith("+")
    assert lab_state.note_of("compare") == comparison.headline
    assert f"link {arrow}: messages take 2.0 times the predicted, " in comparison.headline
    assert f"first {arrow}" in panel.tiles.value or f"one suspect: {arrow}" in panel.tiles.value
    assert "no device stands out" in panel.tiles.value
    for table in panel.residuals.tables:
        sizes = [abs(row["error_s"]) for row in table["rows"]]
        assert sizes == sorted(sizes, reverse=True)
    assert first["name"] in {row["id"] for row in panel.residuals.shown["rows"] if row["suspect"]}
    assert first["sentence"] in panel.summary.value
    assert {" -> ".join(names) for names in lab_state.suspects} == set(comparison.suspects["name"])
    await until(lambda: panel.refitting.is_useful)
    lab_state.comparison = None
    assert (panel.residuals.tables, lab_state.note_of("compare"), lab_state.suspects) == ([], "", ())


async def test_while_something_is_secretly_slow_nothing_names_it() -> None:
    lab_state, panel, plan = bench_and_panel()
    lab_state.is_mystery = True
    lab_state.comparison = comparison = compared(plan)
    await until(lambda: panel.residuals.tables != [])
    names = [row["label"] for row in panel.residuals.shown["rows"]]
    assert names == sorted(names)
    assert not any(row["suspect"] for table in panel.residuals.tables for row in table["rows"])
    culprit = comparison.suspects.iloc[0]["name"].replace("->", "→")
    assert culprit not in panel.tiles.value + panel.summary.value + lab_state.note_of("compare")
    assert lab_state.suspects == ()
    assert panel.refit.disabled
    assert "secretly slow" in panel.refit.tooltip
    lab_state.is_mystery = False
    assert culprit in lab_state.note_of("compare")
    assert panel.residuals.shown["rows"][0]["suspect"]
    await until(lambda: not panel.refit.disabled)


async def test_a_row_of_the_residuals_selects_what_it_is_of_and_follows_what_is_selected() -> None:
    lab_state, panel, plan = bench_and_panel()
    lab_state.comparison = compared(plan)
    await until(lambda: panel.residuals.tables != [])
    link = panel.residuals.shown["rows"][0]["id"]
    send(panel.residuals, {"kind": "choose", "id": link})
    assert lab_state.selected_link == tuple(link.split(" -> "))
    assert panel.residuals.selected == [link]
    panel.residuals.table = "stages"
    send(panel.residuals, {"kind": "choose", "id": "1"})
    assert (lab_state.selected_stage, lab_state.selected_link) == (1, ())
    assert set(lab_state.selected) == set(plan.device_names[1])
    assert panel.residuals.selected == ["1"]
    panel.residuals.table = "devices"
    assert set(panel.residuals.selected) == set(plan.device_names[1])


def test_residuals_are_the_comparisons_and_messages_of_a_slowed_link_are_twice_as_long() -> None:
    plan = bench_and_panel()[2]
    comparison = compared(plan)
    found = {table["key"]: {row["id"]: row for row in table["rows"]} for table in tables(comparison)}
    assert found["links"].keys() == set(comparison.links.index)
    for name, row in found["links"].items():
        assert row["error_s"] == pytest.approx(comparison.links.at[name, "error_s"], abs=1e-12)
        assert row["hue"] in ("forward", "backward", "averaging")
    for stage, row in found["stages"].items():
        assert row["predicted_s"] == pytest.approx(comparison.stages.at[int(stage), "predicted_s"])
    every = [row for rows in found.values() for row in rows.values()]
    assert any(row["low_s"] is None for row in every), "unknown where one measurement is all there is"
    assert all((row["low_s"] is None) == (row["high_s"] is None) for row in every)
    known = [row for row in every if row["low_s"] is not None]
    assert all(row["low_s"] - 1e-12 <= row["error_s"] <= row["high_s"] + 1e-12 for row in known)
    a, b = (plan.device_names[stage][0] for stage in (0, 1))
    slowed = {f"{a} -> {b}", f"{b} -> {a}"}
    assert [found["links"][name]["relative"] for name in slowed] == pytest.approx([1.0, 1.0])
    assert {row["error_s"] for name, row in found["links"].items() if name not in slowed} == {0.0}


async def test_a_refit_shows_the_new_error_and_its_network_can_be_used() -> None:
    again = []
    lab_state, panel, plan = bench_and_panel(lambda: again.append(1))
    lab_state.topology = plan.topology
    assert panel.refit.disabled
    lab_state.comparison = compared(plan)
    assert not panel.refit.disabled
    await until(lambda: panel.refitting.found is not None and not panel.refit.disabled)
    assert "0.0 % as fitted" in panel.refitting.table.value
    assert ", bandwidth</td>" in panel.refitting.table.value
    refitting = panel.refitting
    assert (refitting.use.disabled, refitting.again.layout.display) == (False, "none")
    panel.refitting.apply()
    a, b = (plan.topology.index(plan.device_names[stage][0]) for stage in (0, 1))
    drawn, fitted = plan.topology.bandwidth_bytes_per_s[a, b], lab_state.topology.bandwidth_bytes_per_s[a, b]
    assert fitted == pytest.approx(drawn / 2)
    assert refitting.again.layout.display == ""
    refitting.again.click()
    assert again == [1]
    lab_state.comparison = None
    assert (refitting.table.value, refitting.found, panel.refit.disabled) == ("", None, True)


async def test_a_refit_is_of_the_plan_that_ran_and_leaves_later_edits() -> None:
    lab_state, panel, plan = bench_and_panel()
    edited = plan.topology.with_link(*plan.stages[0], latency_s=0.5)
    lab_state.topology, lab_state.ran = edited, plan
    lab_state.plan = lab.evaluate(edited, plan.job, stages=[[2, 0], [4, 6], [1, 3], [5, 7]])
    lab_state.comparison = compared(plan)
    panel.refit.click()
    await until(lambda: panel.refitting.found is not None)
    panel.refitting.use.click()
    a, b = (plan.topology.index(plan.device_names[stage][0]) for stage in (0, 1))
    half = plan.topology.bandwidth_bytes_per_s[a, b] / 2
    assert lab_state.topology.bandwidth_bytes_per_s[a, b] == pytest.approx(half)
    others = np.ones((8, 8), dtype=bool)
    others[a, b] = others[b, a] = False
    for what in ("latency_s", "bandwidth_bytes_per_s"):
        now, then = getattr(lab_state.topology, what), getattr(edited, what)
        assert (now == then)[others].all(), "what the fit found as it was drawn stays to the bit"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"choices": {"microbatch": 7}}, "run again"),  # which the job does not allow
        ({"stages": [[2, 0], [4, 6], [1, 3], [5, 7]]}, "wanted the same"),  # another plan ran
    ],
)
async def test_a_refit_without_its_plan_is_one_line(change, said) -> None:
    lab_state, panel, plan = bench_and_panel()
    lab_state.choices = change.get("choices", {})
    if "stages" in change:
        lab_state.plan = lab.evaluate(plan.topology, plan.job, stages=change["stages"])
    lab_state.comparison = compared(plan)
    panel.refit.click()
    await until(lambda: said in panel.refitting.note.value)
    assert "dtfm-warning" in panel.refitting.note.value
    assert not panel.refit.disabled


async def test_where_every_link_is_as_drawn_there_is_no_network_to_use() -> None:
    lab_state, panel, plan = bench_and_panel()
    ran = lab.simulate(plan, "gpipe")
    traced = replace(ran.context.plan, topology_fingerprint=plan.topology.fingerprint)
    context = replace(ran.context, source="measured", plan=traced)
    lab_state.comparison = lab.compare(ran, replace(ran, context=context))
    panel.refit.click()
    await until(lambda: panel.refitting.found is not None and not panel.refit.disabled)
    assert panel.refitting.use.disabled
    assert "Every link is as drawn" in panel.refitting.use.tooltip
    assert "every link is as drawn" in panel.refitting.note.value
    assert not panel.refitting.is_useful


def test_the_first_of_many_rows_is_told_in_a_line() -> None:
    row = {"predicted_s": 1.0, "measured_s": 2.0, "error_s": 1.0, "low_s": None, "high_s": None, "relative": 1.0}
    rows = [row | {"id": f"<{i}>", "label": f"<{i}>", "selects": True} for i in range(200)]
    view = ResidualsView(tables=[{"key": "links", "name": "Links", "noun": "link", "count": 992, "rows": rows}])
    assert view.alt_text() == "Residuals, largest error first, Links: <0> +1 s (+100.0 %)"
