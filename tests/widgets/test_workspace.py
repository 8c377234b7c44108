"""The whole lab saved and put back: on the same lab, and on another one."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.files.workspaces import PICTURE, load_workspace, save_workspace, state_from_link
from dtfm_lab.widgets.controls import Panel
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.shell.workspace import Workspace, restore_state, state_of


def filled_state() -> LabState:
    lab_state = LabState()
    lab_state.topology = lab.load_topology("lecture-hall").with_link("ada", "grace", latency_s=0.07, one_way=True)
    lab_state.job = lab.load_job("tiny")
    lab_state.plan = lab.plan(lab_state.topology, lab_state.job, steps=3)
    lab_state.schedule, lab_state.queueing, lab_state.choices = "1f1b", "nics", {"compression": "int8"}
    lab_state.predicted = lab.simulate(lab_state.chosen_plan, "1f1b", queueing="nics")
    return lab_state


class SettingsPanel(Panel):
    """A panel that is nothing but its settings."""

    def __init__(self, **saved: object) -> None:
        self.saved = saved

    def settings(self) -> dict:
        return self.saved

    def restore(self, settings: dict) -> None:
        self.saved = settings


async def test_a_measurement_is_compared_anew(tmp_path: Path) -> None:
    lab_state = filled_state()
    lab_state.measured = lab.simulate(
        lab_state.chosen_plan, "1f1b", queueing="nics"
    )  # stands in for a run: rows like any
    path = save_workspace(state_of(lab_state, {}), tmp_path / "lab.json")
    other = LabState()
    restore_state(load_workspace(path), other, {})
    await until(lambda: other.comparison is not None)
    assert other.comparison.iteration_error == 0
    assert other.ran.placement.devices.tolist() == lab_state.plan.placement.devices.tolist()
    assert other.plan.cost.total_s == lab_state.plan.cost.total_s
    assert other.predicted.context == lab_state.predicted.context
    restore_state(load_workspace(save_workspace(state_of(LabState(), {}), tmp_path / "blank.json")), other, {})
    assert (other.topology, other.plan, other.predicted, other.measured, other.comparison) == (None,) * 5


async def test_the_file_row_saves_restores_and_says_what_came_of_it(tmp_path: Path) -> None:
    lab_state = filled_state()
    row = Workspace(lab_state, {})
    row.path.value = str(tmp_path / "mine")
    row.save.click()
    await until(lambda: "saved as" in row.status.value and not row.save.disabled)
    assert "download" in row.status.value
    path = tmp_path / "mine.json"
    assert json.loads(path.read_text())["dtfm_workspace"] == 1

    other = LabState()
    row = Workspace(other, {})
    row.path.value = str(path)
    row.restore.click()
    await until(lambda: "restored lecture-hall, its plan" in row.status.value)
    assert other.plan.cost.total_s == lab_state.plan.cost.total_s

    other.plan = None
    sent = {"name": "sent.json", "content": memoryview(path.read_bytes()), "size": 1, "type": ""}
    row.upload.value = (sent | {"last_modified": datetime.now(UTC)},)
    await until(lambda: "from sent.json" in row.status.value)
    assert other.plan is not None
    await until(lambda: row.upload.value == ())


async def test_the_plan_is_written_as_a_page_beside_the_file(tmp_path: Path) -> None:
    row = Workspace(LabState(), {})
    row.path.value = str(tmp_path / "mine.json")
    row.page.click()
    await until(lambda: "no plan yet to make a page of" in row.status.value)
    row = Workspace(filled_state(), {})
    row.path.value = str(tmp_path / "mine.json")
    row.page.click()
    await until(lambda: "saved as" in row.status.value and not row.page.disabled)
    assert "download" in row.status.value
    assert (tmp_path / "mine.html").read_text().startswith("<!doctype html>")


async def test_a_link_opens_the_same_plan_and_tab_and_may_be_pasted_as_a_file() -> None:
    lab_state, copied = filled_state(), []
    lab_state.pane = "groups"
    panels = {"groups": SettingsPanel(), "run": SettingsPanel(folder="/home/ada")}
    row = Workspace(lab_state, panels, lambda told: copied.extend([told["link"], told["address"]]), site="")
    row.link.click()
    await until(lambda: bool(copied) and not row.link.disabled)
    assert copied[1] == ""
    assert PICTURE not in copied[0]
    row.show_copied(False)
    assert copied[0] in row.status.value
    row.show_copied(True)
    assert f"copied a link of {len(copied[0]):,} characters" in row.status.value
    assert "Anyone who has dtfm_lab can open it: dtfm-lab open LINK. In a browser it asks for" in row.status.value

    other, panel = LabState(), SettingsPanel(folder="/home/bob")
    row = Workspace(other, {"groups": SettingsPanel(), "run": panel})
    row.path.value = f"https://anywhere.example/lab{copied[0]}"
    row.restore.click()
    await until(lambda: "opened lecture-hall, its plan from a link" in row.status.value)
    assert other.topology.fingerprint == lab_state.topology.fingerprint
    assert other.plan.rank_map == lab_state.plan.rank_map
    assert (other.job, other.pane, other.schedule) == (lab_state.job, "groups", "1f1b")
    assert panel.saved == {"folder": "/home/bob"}, "a link names no files of whoever made it"


async def test_with_a_site_a_link_opens_there_for_anyone_and_shows_the_iteration() -> None:
    lab_state, copied = filled_state(), []
    site = "https://ada.example/dtfm_lab/"
    row = Workspace(lab_state, {}, lambda told: copied.extend([told["link"], told["address"]]), site=site)
    row.link.click()
    await until(lambda: bool(copied) and not row.link.disabled)
    assert copied[1] == "https://ada.example/dtfm_lab/lab/open.html"
    assert PICTURE in copied[0]
    assert state_from_link("".join(reversed(copied))).plan.rank_map == lab_state.plan.rank_map
    row.show_copied(True)
    assert "Anyone can open it in a browser, without login: it shows the plan and its predicted" in row.status.value
    row.show_copied(False)
    assert copied[1] + copied[0] in row.status.value


async def test_what_cannot_be_read_is_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    lab_state = filled_state()
    row = Workspace(lab_state, {})
    for path, said in ((tmp_path / "none.json", "none.json: no such file"), ("", "wanted one such as lab.json")):
        row.path.value = str(path)
        row.restore.click()
        await until(lambda said=said: said in row.status.value)
        assert lab_state.plan is not None
    row.path.value = str(tmp_path / "no-folder" / "lab.json")
    row.save.click()
    await until(lambda: "cannot be written" in row.status.value)
    await until(lambda: not row.save.disabled)


async def test_a_lab_comes_back_with_all_its_panels(tmp_path: Path) -> None:
    one = lab.Lab("lecture-hall", autosave=False, live=False)
    one.show_pane("what-if")
    one.lab_state.plan = lab.plan(one.topology, one.job, steps=3)
    await until(lambda: one.predicted is not None and one.what_if_panel.last is not None)
    one.what_if_panel.controls.by_name["bandwidth"].value = 0.5
    one.network_panel.drawing.selected = ["ada"]
    state = state_of(one.lab_state, one.panels)
    path = save_workspace(state, tmp_path / "lab.json")

    other = lab.Lab("volunteers", autosave=False)
    other.show_pane("what-if")
    other.lab_state.plan = lab.plan(other.topology, other.job, seconds=0.2)
    other.replanning.switch.value = True  # which must not take the restored network for an edit
    restore_state(load_workspace(path), other.lab_state, other.panels)
    await until(lambda: other.what_if_panel.last is not None)
    await asyncio.sleep(0.5)  # whatever a panel begins by itself
    again = state_of(other.lab_state, other.panels)
    assert again.topology.fingerprint == state.topology.fingerprint
    assert again.job == state.job
    assert again.plan.rank_map == state.plan.rank_map
    assert again.predicted.end_s.tobytes() == state.predicted.end_s.tobytes()
    assert (again.schedule, again.queueing, again.choices) == (state.schedule, state.queueing, state.choices)
    for name, settings in state.settings.items():
        assert json.loads(json.dumps(again.settings[name])) == json.loads(json.dumps(settings)), name


async def test_nothing_is_restored_into_a_search_or_a_run(tmp_path: Path) -> None:
    save_workspace(state_of(filled_state(), {}), tmp_path / "lab.json")
    lab_state = LabState()
    row = Workspace(lab_state, {})
    row.path.value = str(tmp_path / "lab")  # the ending goes without saying, as when it was saved
    for step, said in (("plan", "a search is in progress"), ("run", "a run is in progress")):
        lab_state.set_busy(step, True)
        row.restore.click()
        await until(lambda said=said: said in row.status.value)
        assert lab_state.topology is None
        lab_state.set_busy(step, False)
    row.restore.click()
    await until(lambda: lab_state.plan is not None)


class FailingPanel(SettingsPanel):
    def restore(self, settings: dict) -> None:
        raise TypeError("unhashable type: 'list'")


async def test_settings_that_a_panel_cannot_take_cost_nothing_else(tmp_path: Path) -> None:
    state = state_of(filled_state(), {"network": SettingsPanel(view=["x"]), "run": SettingsPanel(clock="paced")})
    path, lab_state, run = save_workspace(state, tmp_path / "lab.json"), LabState(), SettingsPanel()
    restore_state(load_workspace(path), lab_state, {"network": FailingPanel(), "run": run})
    assert lab_state.plan is not None
    assert run.saved == {"clock": "paced"}


async def test_what_nobody_can_show_leaves_the_lab_as_it_was(tmp_path: Path) -> None:
    lab_state = filled_state()
    before = lab_state.plan

    def refuse(change: dict) -> None:
        if change["new"] == "zb-h1":
            raise RuntimeError("cannot draw that")

    state = state_of(lab_state, {})
    lab_state.observe(refuse, "schedule")
    with pytest.raises(LabError, match="so nothing was changed: cannot draw that"):
        restore_state(state.model_copy(update={"schedule": "zb-h1", "plan": None}), lab_state, {})
    assert (lab_state.plan, lab_state.schedule) == (before, "1f1b")
    assert lab_state.predicted is state.predicted


async def test_a_schedule_that_is_unknown_here_is_one_line_in_its_place(tmp_path: Path) -> None:
    one = lab.Lab("lecture-hall", autosave=False, live=False)
    one.show_pane("what-if")
    one.lab_state.plan = lab.plan(one.topology, one.job, steps=1)
    unknown_schedule = state_of(one.lab_state, {}).model_copy(update={"schedule": "mine", "predicted": None})
    restore_state(unknown_schedule, one.lab_state, one.panels)
    await until(lambda: "no pipeline schedule named 'mine'" in one.lab_state.message)
    await until(lambda: "no pipeline schedule named" in one.what_if_panel.problem.value)
    one.what_if_panel.controls.by_name["schedule"].value = "1f1b"
    await until(lambda: one.what_if_panel.last is not None)
    one.lab_state.schedule = "gpipe"
    await until(lambda: one.predicted is not None)


async def test_a_drawing_that_is_not_valid_yet_and_a_pin_are_kept_as_well(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dtfm_lab.widgets.shell.autosave.DELAY_S", 0.02)
        patch.setattr("dtfm_lab.widgets.workbench.autosave_path", lambda: tmp_path / "lab.json")
        one = lab.Lab("lecture-hall", live=False)
        one.show_pane("what-if")
        one.lab_state.plan = lab.plan(one.topology, one.job, steps=1)
        await until(lambda: one.what_if_panel.last is not None)
        one.what_if_panel.pin.click()
        drawing = one.network_panel.drawing
        drawing.document = drawing.document | {"default": {"latency_ms": -1.0, "bandwidth_gbps": 0.1}}

        def kept() -> dict:
            path = tmp_path / "lab.json"
            return load_workspace(path).settings if path.exists() else {"network": {}, "what_if": {}}

        await until(lambda: kept()["network"].get("document", {}).get("default", {}).get("latency_ms") == -1.0)
        assert len(kept()["what_if"]["pins"]) == 1
