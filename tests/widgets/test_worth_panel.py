"""What a better link or device would save: the list, the inspector, and What if of one link."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.units import format_s
from dtfm_lab.simulation.sensitivity import gains
from dtfm_lab.widgets.network.document_conversion import document_of, topology_of
from dtfm_lab.widgets.shell.selection import fields_of, with_field
from dtfm_lab.widgets.what_if import worth_panel
from dtfm_lab.widgets.what_if.setting import WhatIfSetting
from dtfm_lab.widgets.what_if.worth import rows_of, savings


@cache
def plan() -> lab.Plan:
    """Two pipelines of two stages over two regions."""
    job = lab.load_job("small", n_stages=4, n_replicas=2)
    return lab.evaluate("lecture-hall", job, stages=np.arange(8).reshape(4, 2).tolist())


def test_the_list_has_the_largest_saving_first_and_nothing_that_saves_nothing() -> None:
    found = list(gains(plan(), factor=2.0))
    rows = rows_of(found)
    saved = sorted((-gain.change_s for gain in found if gain.change_s < 0), reverse=True)
    assert [row["saves"] for row in rows] == [format_s(seconds) for seconds in saved[: len(rows)]]
    assert rows[0]["length"] == 1
    assert all(set(row["devices"]) <= set(plan().topology.names) for row in rows)
    assert all(len(row["devices"]) in (1, 2) for row in rows)


def test_a_links_saving_is_that_of_the_iteration_on_the_faster_link() -> None:
    of_link = next(
        gain for gain in gains(plan(), factor=2.0, what="bandwidth") if gain.of == "link" and gain.change < 0
    )
    a, b = of_link.name.split(" - ")
    topology = plan().topology
    before = topology.bandwidth_bytes_per_s[topology.at(a), topology.at(b)]
    faster = plan().changed(topology=topology.with_link(a, b, bandwidth_bytes_per_s=2 * before))
    saved_s = lab.simulate(plan()).iteration_s - lab.simulate(faster).iteration_s
    schedule = plan().job.schedule_name
    if topology.devices[topology.at(a)].region == topology.devices[topology.at(b)].region:
        assert savings(plan(), schedule, plan().queueing, (a, b))[0][1].startswith(f"saves {format_s(saved_s)}")
    assert -of_link.change_s == pytest.approx(saved_s)


def test_a_what_if_of_one_link_changes_that_link_both_ways_and_no_other() -> None:
    base = WhatIfSetting.of(plan(), plan().job.schedule_name, plan().queueing)
    a, b = plan().topology.names[:2]
    setting = WhatIfSetting(base.with_values(bandwidth=0.5, latency=2.0).items, (a, b))
    before, after = plan().topology, setting.on(plan()).topology
    changed = np.argwhere(before.bandwidth_bytes_per_s != after.bandwidth_bytes_per_s).tolist()
    assert changed == [[0, 1], [1, 0]]
    assert after.latency_s[0, 1] == 2 * before.latency_s[0, 1]
    assert setting.describe_changes(base) == f"bandwidth × 0.5 of {a} – {b}, latency × 2 of {a} – {b}"


def test_what_if_turns_the_selected_link_and_says_so_until_there_is_one() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    the_lab.lab_state.plan = plan()
    panel = the_lab.what_if_panel
    panel.scope.value = "one"
    assert panel.controls.link is None
    assert "Select a link" in panel.controls.sliders.sliders[0]["why_not"]
    ends = plan().topology.names[:2]
    the_lab.lab_state.selected_link = ends
    panel.controls.by_name["bandwidth"].value = 0.5
    assert panel.setting.link == ends
    panel.scope.value = "all"
    assert panel.setting.link == ()


@pytest.mark.parametrize(("key", "text", "kept"), [("price_per_hour", "2.5", 2.5), ("uplink_gbps", "0.02", 0.02)])
def test_a_field_of_the_inspector_edits_the_device_and_an_empty_one_takes_it_away(
    key: str, text: str, kept: float
) -> None:
    document = document_of(plan().topology)
    name = plan().topology.names[0]
    edited = with_field(document, name, key, text)
    assert next(one for one in edited["devices"] if one["name"] == name)[key] == kept
    assert {field["key"]: field["value"] for field in fields_of(edited, name)}[key] == text
    assert topology_of(edited).fingerprint != topology_of(document).fingerprint
    assert with_field(edited, name, key, " ") == document


@pytest.mark.parametrize("text", ["fast", "-1", "nan", "inf", "1e999"])
@pytest.mark.parametrize("key", ["price_per_hour", "uplink_gbps"])
def test_an_impossible_number_is_refused_in_one_line(key: str, text: str) -> None:
    with pytest.raises(TopologyError, match="wanted a number"):
        with_field(document_of(plan().topology), plan().topology.names[0], key, text)


async def test_the_inspector_says_what_a_better_link_saves_and_why_a_device_is_there() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    state, inspector = the_lab.lab_state, the_lab.network_pane.inspector
    state.job = plan().job
    state.plan = plan()
    await until(lambda: not state.plan_is_stale)
    state.selected_link = plan().topology.names[:2]
    await until(lambda: any("bandwidth" in row[0] for row in inspector.facts["rows"]))
    state.selected_link, state.selected = (), plan().topology.names[:1]
    await until(lambda: any("as fast" in row[0] for row in inspector.facts["rows"]))
    inspector.received({"kind": "edit", "key": "why"}, [])
    await until(lambda: any(row[0] == "why here" for row in inspector.facts["rows"]))
    inspector.received({"kind": "edit", "key": "uplink_gbps", "text": "none"}, [])
    assert "wanted a number of Gbit/s above 0" in state.message


async def test_the_page_worth_lists_and_selects() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    the_lab.lab_state.job = plan().job
    the_lab.lab_state.plan = plan()
    the_lab.show_pane("worth")
    view = the_lab.worth_panel.rows
    await until(lambda: bool(view.rows) and "worth" not in the_lab.lab_state.busy)
    row = next(row for row in view.rows if len(row["devices"]) == 2)
    view.received({"kind": "select", "devices": row["devices"]}, [])
    assert list(the_lab.lab_state.selected_link) == row["devices"]
    view.received({"kind": "select", "devices": ["nobody"]}, [])
    assert list(the_lab.lab_state.selected_link) == row["devices"]


async def test_changes_in_one_turn_simulate_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[lab.Plan] = []
    monkeypatch.setattr(worth_panel, "gains", lambda of, *rest, **named: asked.append(of) or gains(of, *rest, **named))
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    the_lab.lab_state.job = plan().job
    the_lab.show_pane("worth")
    the_lab.lab_state.plan = plan()
    for is_planning in (True, False):
        the_lab.lab_state.is_planning = is_planning
    await until(lambda: bool(the_lab.worth_panel.rows.rows) and "worth" not in the_lab.lab_state.busy)
    assert asked == [plan()]
