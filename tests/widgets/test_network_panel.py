"""The network panel without a browser: one drawing, three views, and a lab_state that keeps what was valid."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from loops import send, until

import dtfm_lab as lab
from dtfm_lab.domain.network import Topology
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.network import document_conversion
from dtfm_lab.widgets.network.network_panel import NetworkPanel
from dtfm_lab.widgets.network.network_row import BLANK
from dtfm_lab.widgets.views.editor import TopologyEditor


def panel_of(network: str | Topology | None) -> NetworkPanel:
    return NetworkPanel(LabState(), lab.load_topology(network) if isinstance(network, str) else network)


def test_a_half_typed_value_leaves_the_network_in_force_and_says_what_is_wrong() -> None:
    panel = panel_of("lecture-hall")
    before = panel.lab_state.topology
    panel.editor.document = panel.editor.document | {"default": {"latency_ms": -5, "bandwidth_gbps": 0.1}}
    assert panel.lab_state.topology is before
    assert panel.editor.problem == (
        "all other pairs: latency_ms: input should be greater than or equal to 0; found -5. "
        "Until this is fixed, the lab keeps the last valid network."
    )
    panel.drawing.undo()
    assert panel.editor.problem == ""
    assert panel.editor.summary.startswith("8 devices, 56 directed links")
    assert "8 devices" in panel.editor.alt_text(), "for a reader without widgets"


def test_an_empty_canvas_is_no_network_and_no_mistake() -> None:
    panel = panel_of("lecture-hall")
    panel.choose.value = BLANK
    assert (panel.lab_state.topology, panel.editor.problem) == (None, "")
    panel.drawing.undo()
    assert panel.lab_state.topology is None, "what was opened before is another history"


def test_moving_devices_changes_no_link_and_keeps_their_places() -> None:
    panel = panel_of("volunteers")
    before = panel.lab_state.topology
    document = json.loads(json.dumps(panel.drawing.document))
    document["devices"][0] |= {"x": -3.0, "y": 4.0}
    panel.editor.document = document
    after = panel.lab_state.topology
    assert after.fingerprint == before.fingerprint
    assert after.devices[0].position == (-3.0, 4.0)


def test_only_the_view_that_is_shown_follows_the_drawing() -> None:
    panel = panel_of("worldwide")
    assert (panel.map, panel.matrix) == (None, None), "made when they are wanted"
    panel.shown.value = "map"
    assert (panel.editor.following, panel.map.following) == (False, True)
    panel.shown.value = "matrix"
    panel.drawing.document = panel.drawing.document | {"default": {"latency_ms": 5.0, "bandwidth_gbps": 3.0}}
    assert panel.map.document["default"]["latency_ms"] == 67
    assert panel.matrix.canvas.document == panel.drawing.document
    panel.shown.value = "canvas"
    assert panel.editor.document["default"]["latency_ms"] == 5
    assert [view.layout.display for view in (panel.editor, panel.map)] == ["", "none"]


def test_what_is_selected_is_selected_everywhere_as_far_as_it_is_drawn() -> None:
    panel = panel_of("lecture-hall")
    lab_state = panel.lab_state
    panel.editor.selected, panel.editor.selected_link = ["ada", "grace"], ["ada", "grace"]
    assert (lab_state.selected, lab_state.selected_link) == (("ada", "grace"), ("ada", "grace"))
    lab_state.selected, lab_state.selected_link = ("alan", "nobody"), ("john", "ada")
    assert (panel.editor.selected, panel.editor.selected_link) == (["alan"], ["john", "ada"])
    assert lab_state.selected == ("alan", "nobody"), "the lab's state keeps what another view knows"
    lab_state.selected_link = ("john", "nobody")
    assert panel.editor.selected_link == []


def test_the_placement_that_is_looked_at_is_marked_before_the_plan() -> None:
    panel = panel_of("lecture-hall")
    lab_state = panel.lab_state
    names = lab_state.topology.names
    job = lab.load_job("tiny", n_stages=4, n_replicas=2)
    lab_state.plan = lab.evaluate(lab_state.topology, job, stages=[[0, 1], [2, 3], [4, 5], [6, 7]])
    assert panel.editor.highlight["stages"][names[2]] == 1
    lab_state.shown_stages = {names[2]: 3}
    assert panel.editor.highlight == {"stages": {names[2]: 3}}
    lab_state.shown_stages = {}
    assert panel.editor.highlight["stages"][names[2]] == 1
    panel.editor.document = panel.editor.document | {"devices": panel.editor.document["devices"][:7]}
    assert panel.editor.highlight == {}, "a device of the plan is gone"


def test_pairs_are_filled_by_distance_where_that_is_chosen_and_the_rule_is_said() -> None:
    panel = panel_of("ten-cities")
    document = panel.drawing.document
    panel.drawing.document = document | {"between": document["between"][:3]}
    before = panel.lab_state.topology.fingerprint
    panel.fill.value = "distance"
    assert len(panel.editor.filled) == 45 - 3
    assert "42 set this way" in panel.note.value
    assert panel.lab_state.topology.fingerprint != before
    panel.drawing.undo()
    assert (panel.fill.value, panel.editor.filled, panel.note.value) == ("default", [], "")


def test_settings_bring_the_drawing_back_as_it_was() -> None:
    panel = panel_of("volunteers")
    panel.shown.value = "map"
    settings = json.loads(json.dumps(panel.settings()))
    other = panel_of(None)
    other.restore(settings)
    assert other.lab_state.topology.fingerprint == panel.lab_state.topology.fingerprint
    assert (other.shown.value, other.choose.value, other.drawing.can_undo) == ("map", None, False)
    other.restore(panel_of(None).settings())
    assert (other.lab_state.topology, other.shown.value) == (None, "canvas")


def test_settings_keep_measured_message_times() -> None:
    topology = Topology.from_matrices(np.full((2, 2), 7.0), np.full((2, 2), 0.3), names=["a", "b"])
    message_s = np.full((2, 2, 2), 0.5)
    timed = Topology(
        topology.devices,
        topology.latency_s,
        topology.bandwidth_bytes_per_s,
        message_bytes=np.array([1e3, 1e6]),
        message_s=message_s,
    )
    panel, other = panel_of(timed), panel_of(None)
    assert panel.lab_state.topology.fingerprint == timed.fingerprint
    other.restore(json.loads(json.dumps(panel.settings())))
    assert other.lab_state.topology.fingerprint == timed.fingerprint
    other.drawing.document = other.drawing.document | {"default": {"latency_ms": 1.0, "bandwidth_gbps": 0.3}}
    assert other.lab_state.topology.message_s is None
    assert "message times as measured" not in other.editor.summary


def test_a_file_that_is_dropped_is_opened_and_a_broken_one_is_one_line_that_leaves_the_drawing(tmp_path: Path) -> None:
    panel = panel_of("lecture-hall")
    data = lab.save(lab.load_topology("islands"), tmp_path / "mine.yaml").read_bytes()
    send(panel.editor, {"kind": "files", "names": ["mine.yaml"]}, [memoryview(data)])
    assert (len(panel.lab_state.topology), panel.choose.value) == (32, None)
    for name, text, says in (
        ("mine.txt", b"x", "mine.txt: ends in '.txt'; wanted a topology file"),
        ("../mine.yaml", b"a: [", "mine.yaml: line 2, column 1: broken YAML"),
        ("mine.json", b"{}", "mine.json: no key 'dtfm_topology'"),
        ("bad\0name.yaml", b"", "cannot be written: embedded null byte"),
    ):
        send(panel.editor, {"kind": "files", "names": [name]}, [memoryview(text)])
        assert says in panel.lab_state.message
        assert "/" not in panel.lab_state.message
        assert len(panel.lab_state.topology) == 32


def test_two_matrices_are_dropped_together(tmp_path: Path) -> None:
    lab.save(lab.load_topology("lecture-hall"), tmp_path / "hall.latency_ms.csv")
    names = ["hall.bandwidth_gbps.csv", "hall.latency_ms.csv"]
    panel = panel_of(None)
    panel.files.take([(name, (tmp_path / name).read_bytes()) for name in names])
    assert len(panel.lab_state.topology) == 8


def test_an_editor_alone_opens_what_is_dropped_on_it(tmp_path: Path) -> None:
    data = lab.save(lab.load_topology("islands"), tmp_path / "mine.yaml").read_bytes()
    editor = TopologyEditor()
    send(editor, {"kind": "files", "names": ["mine.yaml"]}, [memoryview(data)])
    assert (len(editor.document["devices"]), editor.gpus[0]) == (32, "A10")
    send(editor, {"kind": "files", "names": ["mine.yaml"]}, [memoryview(b"a: 1")])
    assert "no key 'dtfm_topology'" in editor.problem


async def test_a_large_file_is_read_and_written_while_the_page_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    large = Topology.from_matrices(rng.uniform(1, 90, (49, 49)), rng.uniform(1, 9, (49, 49)), name="large")
    panel = panel_of(large)
    sent: list[tuple[str, str]] = []
    panel.files.send_to_page = lambda name, text: sent.append((name, text))
    panel.files.download.click()
    assert panel.files.save.disabled
    assert panel.editor.summary == "writing large.yaml …"
    await until(lambda: bool(sent))
    assert not panel.files.save.disabled
    name, text = sent[0]
    other = panel_of(None)
    other.files.take([(name, text.encode())])
    assert other.editor.summary == "reading large.yaml …"
    await until(lambda: other.lab_state.topology is not None)
    assert other.lab_state.topology.fingerprint == large.fingerprint


def test_a_network_of_many_links_of_its_own_is_shown_the_way_to_the_matrix() -> None:
    rng = np.random.default_rng(0)
    panel = panel_of(Topology.from_matrices(rng.uniform(1, 90, (40, 40)), rng.uniform(1, 9, (40, 40))))
    assert "the matrix shows them all" in panel.note.value
    assert panel.shown.value == "canvas", "nobody switches but the person"
    assert panel_of("worldwide").note.value == ""


def test_a_network_that_another_panel_made_is_drawn_and_can_be_undone() -> None:
    panel = panel_of("lecture-hall")
    lab_state = panel.lab_state
    before = lab_state.topology
    lab_state.topology = faster = before.scaled(bandwidth=2.0)
    assert lab_state.topology.fingerprint == faster.fingerprint, "to the bit"
    assert document_conversion.topology_of(panel.drawing.document, faster).fingerprint == faster.fingerprint
    panel.drawing.undo()
    assert lab_state.topology.fingerprint == before.fingerprint
    panel.drawing.redo()
    assert lab_state.topology.fingerprint == faster.fingerprint


@pytest.mark.parametrize("order", [("outline", "selected"), ("selected", "outline")])
def test_a_device_that_a_page_renames_stays_selected(order: tuple[str, str]) -> None:
    panel = panel_of("lecture-hall")
    first, *others = panel.editor.outline["devices"]
    panel.editor.set_state({"selected": [first["name"]]})
    said = {"outline": panel.editor.outline | {"devices": [first | {"name": "eve"}, *others]}, "selected": ["eve"]}
    panel.editor.set_state({name: said[name] for name in order})
    assert panel.lab_state.selected == ("eve",)
    assert panel.editor.selected == panel.drawing.selected == ["eve"]


def test_what_is_no_longer_drawn_is_no_longer_selected() -> None:
    panel = panel_of("lecture-hall")
    lab_state = panel.lab_state
    panel.drawing.selected, panel.drawing.selected_link = ["ada", "grace"], ["ada", "grace"]
    document = panel.drawing.document
    panel.drawing.document = document | {"devices": [d for d in document["devices"] if d["name"] != "ada"]}
    assert panel.drawing.selected == ["grace"]
    assert lab_state.selected == ("grace",)
    assert panel.drawing.selected_link == []
