"""The lab without a browser: buttons pressed in Python, on an event loop like the kernel's."""

from __future__ import annotations

import base64
import re
import tempfile
import threading
from typing import Any

import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab import simulation
from dtfm_lab.domain.errors import LabError
from dtfm_lab.widgets.schedule import choices
from dtfm_lab.widgets.schedule.choices import schedule_row


async def test_seven_devices_are_offered_shapes_that_a_batch_of_sixteen_allows() -> None:
    the_lab = lab.Lab("lecture-hall")
    document = the_lab.network_panel.editor.document
    the_lab.network_panel.editor.document = document | {"devices": document["devices"][:7]}
    offered = [shape for _, shape in the_lab.plan_panel.job_controls.shape.options]
    assert (7, 1) in offered
    assert (1, 7) not in offered, "16 sequences do not divide among 7 replicas"


async def planned(network: str, **job) -> lab.Lab:
    """A lab with a plan and its prediction."""
    topology = lab.load_topology(network)
    the_lab = lab.Lab(topology, lab.load_job("tiny" if network == "lecture-hall" else "dtfm-gpt3-xl", **job))
    the_lab.plan_panel.real.seconds.value = 0.2
    the_lab.plan_panel.real.start.click()
    await until(lambda: the_lab.predicted is not None)
    return the_lab


def test_a_plan_is_opened_as_it_is_with_its_network_and_job() -> None:
    plan = lab.plan("lecture-hall", "tiny", steps=1)
    the_lab = lab.Lab(plan, autosave=False)
    assert the_lab.plan is plan
    assert not the_lab.lab_state.plan_is_stale
    for given, wanted in (
        ((plan, "tiny"), "which has its own; wanted one"),
        ((3,), "network or plan is 3; wanted a T"),
    ):
        with pytest.raises(LabError, match=wanted):
            lab.Lab(*given, autosave=False)


async def test_of_many_choices_in_a_row_the_last_is_shown_and_few_are_computed() -> None:
    the_lab = await planned("lecture-hall")
    shown = []
    the_lab.lab_state.observe(lambda change: shown.append(change["new"].context), "predicted")
    for every in range(2, 40):
        the_lab.schedule_panel.choices.by_option["synchronise_every"].value = every
    await until(lambda: bool(shown) and shown[-1].synchronise_every == 39)
    assert len(shown) <= 2


async def test_the_choices_begin_with_the_jobs_own_and_follow_it() -> None:
    the_lab = lab.Lab("lecture-hall", lab.load_job("tiny", synchronisation="ring", compression="fp16"))
    choices = the_lab.schedule_panel.choices
    assert (choices.by_option["synchronisation"].value, choices.by_option["compression"].value) == ("ring", "fp16")
    the_lab.plan_panel.job_controls.batch.value = 32
    choices.by_option["synchronisation"].value = "central"
    the_lab.plan_panel.job_controls.batch.value = 16
    assert choices.by_option["synchronisation"].value == "central", "another batch leaves what is tried out"


async def test_choices_that_a_job_leaves_open_are_its_plans_own() -> None:
    opened = dict.fromkeys(("sharding", "synchronisation", "overlap"))
    the_lab = await planned("lecture-hall", **opened, n_stages=1, n_replicas=8)
    choices, plan = the_lab.schedule_panel.choices, the_lab.plan
    assert set(opened) <= set(plan.left_open)
    assert None not in {choices.by_option[name].value for name in opened}
    for name in opened:
        choices.by_option[name].value = None
    assert the_lab.lab_state.chosen_plan is plan
    assert not the_lab.lab_state.is_chosen_otherwise


async def test_a_schedule_that_cannot_be_is_said_and_nothing_else_is_shown_for_it() -> None:
    the_lab = await planned("lecture-hall", n_stages=8, n_replicas=1)
    panel = the_lab.schedule_panel
    panel.schedule.value = "interleaved-1f1b"  # 8 blocks do not make 16 stages
    await until(lambda: the_lab.predicted is None)
    assert (the_lab.lab_state.step, panel.chart.start) == ("schedule", b"")
    assert "stages" in the_lab.lab_state.message
    panel.schedule.value = "1f1b"
    await until(lambda: the_lab.predicted is not None)
    assert the_lab.lab_state.message == ""


async def test_all_schedules_are_compared_and_one_is_chosen_from_the_table() -> None:
    the_lab = await planned("lecture-hall", n_stages=8, n_replicas=1)
    comparing = the_lab.schedule_panel.comparing
    comparing.button.click()
    await until(lambda: comparing.table.caption.startswith("same plan"))
    rows = {row["name"]: row for row in comparing.table.rows}
    assert set(rows) == set(simulation.schedules)
    own = the_lab.plan.job.schedule_name
    assert rows[own]["iteration_s"] == the_lab.predicted.iteration_s == the_lab.plan.iteration_s
    assert "problem" in rows["interleaved-1f1b"]
    assert rows["1f1b"]["fits"]
    assert " of 16 GiB on " in rows["1f1b"]["memory"]
    assert 0 < rows["1f1b"]["bubble"] < 1
    comparing.table.chosen = "1f1b"
    assert the_lab.schedule_panel.schedule.value == "1f1b"
    await until(lambda: the_lab.predicted.context.schedule == "1f1b")
    assert not comparing.table.stale
    the_lab.schedule_panel.choices.by_option["compression"].value = "int8"
    assert comparing.table.stale


async def test_a_comparison_is_stopped_and_keeps_what_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    the_lab = await planned("lecture-hall")
    computed, stopped = [], threading.Event()

    def row_until_stopped(*arguments: Any) -> dict[str, Any]:
        if computed:
            stopped.wait()
        computed.append(arguments)
        return schedule_row(*arguments)

    monkeypatch.setattr(choices, "schedule_row", row_until_stopped)
    comparing = the_lab.schedule_panel.comparing
    comparing.button.click()
    await until(lambda: any("iteration_s" in row for row in comparing.table.rows))
    comparing.button.click()
    stopped.set()
    await until(lambda: not comparing.running)
    assert comparing.table.caption == f"stopped after 1 of {len(list(simulation.schedules))}"
    assert len(comparing.table.rows) == 1
    assert comparing.button.description == "Compare schedules"


async def test_a_choice_that_real_runs_cannot_play_is_refused_in_one_line_until_it_is_taken_back() -> None:
    the_lab = await planned("lecture-hall")
    choices = the_lab.schedule_panel.choices
    before = the_lab.predicted
    choices.queueing.value = "nics"
    await until(lambda: the_lab.predicted is not before)
    the_lab.run_panel.clock.value = "paced"
    the_lab.run_panel.start.click()
    assert the_lab.lab_state.step == "run"
    assert the_lab.lab_state.message.startswith(
        "queueing is nics on the paced clock; wanted the virtual clock, or pairs"
    )
    assert the_lab.run_panel.run is None
    before = the_lab.predicted
    choices.queueing.value = "pairs"
    await until(lambda: the_lab.predicted is not before)
    assert the_lab.lab_state.message == ""


async def test_a_killed_worker_that_nobody_can_replace_is_told_and_the_lab_can_run_again() -> None:
    pytest.importorskip("torch")
    the_lab = await planned("lecture-hall", n_stages=8, n_replicas=1)
    the_lab.run_panel.iterations.value = 5_000
    the_lab.run_panel.start.click()
    await until(lambda: len(the_lab.run_panel.run.losses) > 0)
    the_lab.run_panel.run.kill("grace")
    await until(lambda: the_lab.lab_state.message != "")
    assert the_lab.lab_state.message.startswith("worker grace (stage")
    assert not the_lab.run_panel.start.disabled


async def test_a_cell_that_is_run_again_leaves_no_run_out_of_sight() -> None:
    pytest.importorskip("torch")
    first, second = lab.Lab("lecture-hall"), lab.Lab("lecture-hall")
    for the_lab in (first, second):
        the_lab.plan_panel.real.start.click()
        await until(lambda the_lab=the_lab: the_lab.predicted is not None)
        the_lab.run_panel.iterations.value = 5_000
        the_lab.run_panel.start.click()
        assert the_lab.run_panel.run.running
    await until(lambda: not first.run_panel.run.running)
    assert second.run_panel.run.running
    second.run_panel.stop.click()
    await until(lambda: not second.run_panel.run.running)


def test_the_menu_opens_a_network_as_the_gallery_does_and_leaves_a_job_that_was_chosen() -> None:
    the_lab, other = lab.Lab(autosave=False), lab.Lab(autosave=False)
    the_lab.network_panel.choose.value = "worldwide"
    other.open_network("worldwide")
    assert the_lab.job == other.job
    assert the_lab.network_pane.tabs.value == other.network_pane.tabs.value == "map"
    assert other.network_panel.choose.value == "worldwide", "the menu says what is drawn, whoever opened it"
    the_lab.plan_panel.job_controls.batch.value = 32
    the_lab.network_panel.choose.value = "regional"
    assert (the_lab.topology.name, the_lab.job.global_batch) == ("regional", 32)


async def test_files_are_saved_opened_and_refused_in_words() -> None:
    with tempfile.TemporaryDirectory() as folder:
        the_lab = lab.Lab("lecture-hall")
        panel = the_lab.network_panel
        panel.save.click()
        assert the_lab.lab_state.message == "no file name; wanted one such as network.yaml"
        panel.path.value = f"{folder}/mine.yaml"
        panel.save.click()
        await until(lambda: panel.editor.summary == f"saved as {folder}/mine.yaml")
        assert the_lab.lab_state.message == ""
        panel.choose.value = "raspberry-pi"
        panel.open.click()
        await until(lambda: panel.choose.value is None)
        assert the_lab.topology.fingerprint == lab.load_topology("lecture-hall").fingerprint
        panel.path.value = f"{folder}/other.yaml"
        panel.open.click()
        await until(lambda: the_lab.lab_state.message == f"{folder}/other.yaml: no such file")
        assert the_lab.lab_state.step == "network"
        assert len(the_lab.topology) == 8


def test_a_saved_notebook_shows_the_network_where_no_widget_state_was_saved() -> None:
    """What GitHub, nbviewer and nbconvert have: a picture, and a line for readers without any."""
    nbformat = pytest.importorskip("nbformat", reason="needs JupyterLab's nbconvert")
    nbconvert = pytest.importorskip("nbconvert", reason="needs JupyterLab's nbconvert")
    bundle = lab.Lab("lecture-hall", autosave=False)._repr_mimebundle_()
    assert bundle["text/plain"] == "dtfm_lab.Lab on lecture-hall (8 devices) with job small: run the cell to use it"
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert 'width="448"' in bundle["image/svg+xml"], "large enough for a page that gives it no size"
    assert "a blank canvas" in lab.Lab()._repr_mimebundle_()["text/plain"]
    output = nbformat.v4.new_output("display_data", data=bundle)
    cell = nbformat.v4.new_code_cell("lab.Lab('lecture-hall')", outputs=[output])
    page, _ = nbconvert.HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    pictures = re.findall(r'<img[^>]*src="data:image/svg\+xml;base64,([^"]+)', page)
    assert any("lecture-hall: 8 devices" in base64.b64decode(picture).decode() for picture in pictures)
