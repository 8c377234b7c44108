"""Large networks are drawn by host; what is drawn is the network that was opened."""

import json

import numpy as np
import pytest

from dtfm_lab import Lab, lab
from dtfm_lab.domain.network import Topology
from dtfm_lab.widgets.lab_state import LabState, planned_as
from dtfm_lab.widgets.network.document_conversion import document_of, topology_of
from dtfm_lab.widgets.network.drawn_hosts import MOST_DRAWN, DrawnHosts
from dtfm_lab.widgets.network.network_panel import NetworkPanel
from dtfm_lab.widgets.shell.inspection import inspect


def cluster(n_hosts: int, per_host: int = 8) -> Topology:
    """Hosts of equal GPUs, with faster links inside."""
    host = np.repeat(np.arange(n_hosts), per_host)
    inside = host[:, None] == host[None, :]
    return Topology.from_matrices(
        np.where(inside, 0.01, 0.05),
        np.where(inside, 3600.0, 100.0),
        names=[f"gpu-{i}" for i in range(len(host))],
        hosts=[f"host-{h}" for h in host],
        regions=["east"] * len(host),
        gpu="H100",
    )


LARGE = cluster(MOST_DRAWN // 8 + 1)


def test_a_large_network_has_an_entry_a_host_and_no_line_a_link():
    document = document_of(LARGE)
    assert [one["name"] for one in document["devices"]] == [f"host-{i}" for i in range(MOST_DRAWN // 8 + 1)]
    assert document["devices"][1]["members"] == [f"gpu-{i}" for i in range(8, 16)]
    assert not document["links"]


@pytest.mark.parametrize("n_hosts", [2, MOST_DRAWN // 8 + 1, 100])
def test_what_is_drawn_is_the_network(n_hosts):
    topology = cluster(n_hosts)
    assert topology_of(document_of(topology)).fingerprint == topology.fingerprint


def test_hosts_whose_links_differ_are_drawn_device_by_device():
    uneven = LARGE.with_link(0, 9, latency_ms=7.0)
    document = document_of(uneven)
    assert len(document["devices"]) == len(uneven)
    assert topology_of(document).fingerprint == uneven.fingerprint


def test_a_link_of_a_host_is_one_of_all_its_devices():
    document = document_of(LARGE)
    line = {"source": "host-0", "target": "host-1", "latency_ms": 9.0, "bandwidth_gbps": 1.0, "one_way": False}
    edited = topology_of(document | {"links": [line]})
    assert (edited.latency_s[:8, 8:16] == 9e-3).all()
    assert (edited.latency_s[8:16, :8] == 9e-3).all()
    assert (edited.latency_s[:8, 16:] < 1e-3).all()


def test_a_copied_host_has_devices_of_its_own():
    document = document_of(LARGE)
    copy = document["devices"][0] | {"name": "spare"}
    grown = topology_of(document | {"devices": [*document["devices"], copy]})
    assert len(grown) == len(LARGE) + 8
    assert grown.devices[-1].host == "spare"


def test_the_matrix_of_a_large_network_is_of_hosts():
    state = LabState()
    panel = NetworkPanel(state, LARGE)
    panel.shown.value = "matrix"
    matrix = panel.matrix.canvas
    assert len(matrix.names) == MOST_DRAWN // 8 + 1
    assert len(matrix.latency_ms) == 4 * len(matrix.names) ** 2


def test_a_selected_host_is_all_its_devices_and_back():
    state = LabState()
    panel = NetworkPanel(state, LARGE)
    panel.drawing.selected = ["host-1"]
    assert state.selected == tuple(f"gpu-{i}" for i in range(8, 16))
    assert inspect(state)["title"] == "host-1"
    assert inspect(state)["hint"] == "8 x H100"
    state.selected = ("gpu-17",)
    assert panel.drawing.selected == ["host-2"]


def test_a_device_inside_a_host_is_selected_alone():
    state = LabState()
    panel = NetworkPanel(state, LARGE)
    panel.drawing.selected, panel.drawing.selected_members = ["host-2"], ["gpu-17"]
    assert state.selected == ("gpu-17",)
    state.selected = ("gpu-3", *(f"gpu-{i}" for i in range(8, 16)))
    assert (panel.drawing.selected, panel.drawing.selected_members) == (["host-0", "host-1"], ["gpu-3"])
    # Another view selects another host as a whole, then the first one again.
    for host in ("host-1", "host-0"):
        panel.drawing.selected = [host]
        assert len(state.selected) == 8


def test_a_page_selects_a_device_of_another_host():
    state = LabState()
    panel = NetworkPanel(state, LARGE)
    for host, device in (("host-1", "gpu-9"), ("host-0", "gpu-3")):
        panel.editor.set_state({"selected": [host], "selected_members": [device]})
        assert state.selected == (device,)
    # A page that does not know of members selects a whole host.
    panel.editor.set_state({"selected": ["host-1"]})
    assert len(state.selected) == 8
    assert panel.editor.selected_members == panel.drawing.selected_members == []


def test_a_part_of_a_host_has_no_field_that_would_change_all_of_it():
    the_lab = Lab(LARGE, autosave=False, live=False)
    state, inspector, drawing = the_lab.lab_state, the_lab.network_pane.inspector, the_lab.network_panel.drawing
    state.selected = ("gpu-3",)
    assert inspector.facts["fields"] == []
    for selected, changed in ((("gpu-3",), []), (LARGE.names[8:16], ["host-1"])):
        state.selected = selected
        inspector.received({"kind": "edit", "key": "uplink_gbps", "text": "2.5"}, [])
        assert [one["name"] for one in drawing.document["devices"] if one.get("uplink_gbps")] == changed


def test_a_host_has_the_task_of_each_of_its_devices():
    hosts = DrawnHosts.of({"devices": [{"name": "a", "members": ["a0", "a1", "a2"]}, {"name": "b"}]})
    tasks = {"a1": [1, 0], "a0": [0, 0], "b": [1, 1]}
    marks = hosts.marks({"stages": {name: stage for name, (stage, _) in tasks.items()}, "tasks": tasks})
    assert marks["cells"] == {"a": [[0, 0], [1, 0], None]}
    assert marks["tasks"]["b"] == [1, 1]
    assert hosts.marks({"stages": {"a0": 1, "a2": 1}})["cells"] == {"a": [[1, 0], None, [1, 1]]}
    assert hosts.marks({"tasks": tasks, "absent": ["a0"]})["absent"] == ["a0"]
    assert hosts.marks({"tasks": tasks, "absent": ["a0", "a1", "a2"]})["absent"] == ["a0", "a1", "a2", "a"]


def test_what_limits_a_plan_inside_a_host_marks_the_host_and_its_devices():
    state = LabState()
    panel = NetworkPanel(state, LARGE)
    job = lab.load_job("small", n_stages=2, n_replicas=1, global_batch=8)
    state.plan = lab.evaluate(LARGE, job, stages=[["gpu-0"], ["gpu-1"]])
    state.binding = ("gpu-0", "gpu-1")
    marks = panel.editor.highlight
    assert (marks["binds"], marks["parts"]) == (["host-0"], ["gpu-0", "gpu-1"])
    assert marks["cells"]["host-0"][:3] == [[0, 0], [1, 0], None]
    state.binding = ("gpu-0", "gpu-9")
    assert panel.editor.highlight["binds"] == ["host-0", "host-1"]
    state.suspects = (("gpu-3",), ("gpu-4", "gpu-12"))
    assert panel.editor.highlight["suspects"] == [["host-0"], ["host-0", "host-1"], ["gpu-3"]]


def test_a_plan_with_tensor_parallelism_marks_the_hosts_that_serve():
    state = LabState()
    panel = NetworkPanel(state, LARGE)
    groups = LARGE.grouped(8)
    job = lab.load_job("gpt3-xl", n_stages=2, n_replicas=2, global_batch=8, microbatch=1, tensor_parallel=8)
    state.plan = plan = lab.evaluate(groups, job, stages=[[0, 1], [2, 3]])
    assert panel.editor.highlight["stages"] == {"host-0": 0, "host-1": 0, "host-2": 1, "host-3": 1}
    assert planned_as(plan, LARGE)["gpu-9"] == 1
    assert planned_as(plan, cluster(3)) is None
    state.binding = tuple(groups.names[1:2])
    assert panel.editor.highlight["binds"] == ["host-1"]
    state.selected = tuple(f"gpu-{i}" for i in range(8, 16))
    facts = inspect(state)
    assert facts["title"] == "host-1"
    assert facts["hint"].startswith("stage 0, pipeline 1")


def test_what_is_sent_of_a_large_network_grows_with_its_hosts():
    sizes = [len(json.dumps(document_of(cluster(n)))) for n in (40, 80)]
    assert sizes[1] < 2.2 * sizes[0]


def test_devices_that_no_host_stands_for_are_themselves():
    hosts = DrawnHosts.of({"devices": [{"name": "a", "members": ["a0", "a1"]}, {"name": "b"}]})
    assert hosts.devices(["a", "b"]) == ("a0", "a1", "b")
    assert hosts.entries(["a1", "a0", "b", "gone"]) == ["a", "b"]
    assert hosts.link(["a0", "a1"]) == []
    assert hosts.devices(["a", "b"], only=["a1"]) == ("a1", "b")
    assert hosts.parts(["a1", "b"]) == ["a1"]
    assert hosts.parts(["a0", "a1"]) == []
