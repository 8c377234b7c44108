"""The headline's handle: what limits a plan is on its critical path, and its saving is the simulator's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_share
from dtfm_lab.planning.explain.iteration_analysis import analysed
from dtfm_lab.simulation import simulate
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.shell.bar import handle_in
from dtfm_lab.widgets.shell.headline import headline
from dtfm_lab.widgets.what_if import binding
from dtfm_lab.widgets.what_if.binding import binding_of, candidates, ends_of, link_words
from dtfm_lab.widgets.what_if.worth import savings


def four(gbps: float = 1.0, slow_gbps: float | None = None, peak: float = 1.0) -> Topology:
    """Four devices alike, but for the link between the second and the third and the speed of the third."""
    rates = np.full((4, 4), gbps)
    if slow_gbps is not None:
        rates[1, 2] = rates[2, 1] = slow_gbps
    network = Topology.from_matrices(np.full((4, 4), 0.01), rates, gpu="T4", name="four")
    devices = list(network.devices)
    devices[2] = replace(devices[2], peak_flop_per_s=devices[2].peak_flop_per_s * peak)
    return replace(network, devices=tuple(devices))


def in_a_row(network: Topology, **fields: object) -> Plan:
    job = lab.load_job("small", n_stages=4, n_replicas=1, global_batch=8, **fields)
    return lab.evaluate(network, job, stages=[[name] for name in network.names])


def test_a_slow_link_is_named_with_what_twice_its_bandwidth_saves() -> None:
    network = four(slow_gbps=0.02)
    plan = in_a_row(network)
    found = binding_of(plan)
    assert set(found.devices) == {network.names[1], network.names[2]}
    assert found.handle == "this 0.02 Gbit/s link"
    before_s = simulate(plan).iteration_s
    faster_s = simulate(plan.changed(topology=four(slow_gbps=0.04))).iteration_s
    assert found.saves == pytest.approx(1 - faster_s / before_s, rel=1e-6)
    assert f"would save {format_share(found.saves)} of the iteration" in found.words
    assert "Pull it faster" in found.words


def test_a_slow_device_is_named_when_computing_binds() -> None:
    plan = in_a_row(four(gbps=1e4, peak=0.05))
    found, name = binding_of(plan), plan.topology.names[2]
    assert found.devices == (name,)
    assert found.words.startswith("Computing takes ")
    assert f"most of it on {found.handle}" in found.words
    assert found.handle == f"{name} (T4)"
    faster_s = simulate(plan.changed(topology=four(gbps=1e4, peak=0.1))).iteration_s
    assert found.saves == pytest.approx(1 - faster_s / simulate(plan).iteration_s, rel=1e-6)


@pytest.mark.parametrize("network", [four(slow_gbps=0.02), four(gbps=1e4, peak=0.05), four()])
def test_the_inspector_says_the_same_saving(network: Topology) -> None:
    plan = in_a_row(network)
    found = binding_of(plan)
    said = savings(plan, plan.job.schedule_name, plan.queueing, found.devices)
    if found.saves >= binding.WORTH_SAYING:
        assert any(text.endswith(f", {format_share(found.saves)}") for _, text in said)


def test_what_saves_nothing_alone_is_named_without_a_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "WORTH_SAYING", 1.0)
    plan = in_a_row(four(peak=0.05))
    found = binding_of(plan)
    assert found.saves == 0.0
    assert found.handle in found.words
    assert "next to nothing" in found.words
    assert not found.helps
    monkeypatch.setattr(binding, "MOST_DEVICES", 3)
    assert "save" not in binding_of(plan).words, "nothing was simulated, so nothing is said of it"
    assert binding_of(plan).helps


def test_candidates_are_those_of_the_critical_path_and_links_of_two_regions_are_one() -> None:
    topology = lab.load_topology("lecture-hall")
    job = lab.load_job("small", n_stages=4, n_replicas=2)
    plan = lab.evaluate(
        topology, job, stages=[["ada", "edsger"], ["grace", "alan"], ["barbara", "john"], ["katherine", "claude"]]
    )
    analysis = analysed(plan)
    links = candidates(analysis, "link")
    assert sum(one.seconds for one in links) == pytest.approx(sum(part.seconds for part in analysis.parts("link")))
    regions = [frozenset(topology.devices[topology.index(name)].region for name in one.devices) for one in links]
    assert regions.count(frozenset({"front", "back"})) <= 1


def test_names_with_arrows_are_told_apart() -> None:
    network = four()
    names = ["a", "a -> b", "b", "c"]
    renamed = replace(network, devices=tuple(replace(d, name=n) for d, n in zip(network.devices, names, strict=True)))
    assert ends_of("a -> b -> c", renamed) == ("a -> b", "c")
    assert ends_of("a -> nobody", renamed) == ()


def test_the_slower_way_of_a_link_is_told() -> None:
    network = four().with_link(1, 2, bandwidth_gbps=0.5)
    ends = (network.names[2], network.names[1])
    assert link_words(network, ends, "bandwidth") == "this 0.5 Gbit/s link"


async def test_a_lab_marks_what_binds_and_a_press_of_the_handle_selects_it() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False)
    await until(lambda: bool(the_lab.bar.view.headline.get("handle")))
    said, state = the_lab.bar.view.headline, the_lab.lab_state
    handle = said["handle"]
    # a longer search may have ended meanwhile: the headline then begins with what it gained
    assert handle["text"] in said["lead"] + said["rest"]
    assert tuple(handle["devices"]) == state.binding
    assert the_lab.network_panel.canvas.highlight["binds"] == handle["devices"]
    the_lab.bar.view.received({"kind": "press", "name": "handle"}, [])
    assert {*state.selected, *state.selected_link} == {*handle["devices"]}
    assert the_lab.network_pane.inspector.facts["kind"] in ("link", "device")
    the_lab.replanning.switch.value = False
    state.plan = None
    await until(lambda: not state.binding)
    assert "binds" not in the_lab.network_panel.canvas.highlight


def test_a_sentence_without_its_link_has_no_handle() -> None:
    said = headline(LabState(), None, None, "")
    assert handle_in(said, "this 1 Gbit/s link", ("a", "b")) == {}
