"""The virtual clock is a function of CPU seconds: what workers measured can be played again, on other links, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from run_helpers import small_plan

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Action, Lane
from dtfm_lab.domain.trace import Span, Trace
from dtfm_lab.runtime.client.launch import prepare, start
from dtfm_lab.runtime.coordinator.calibration import Row, replay
from dtfm_lab.runtime.protocol.run_options import RunOptions, RunSpec


@pytest.fixture(scope="module")
def ran() -> tuple[RunSpec, Trace]:
    """Split backwards, a tied embedding, peers in turn, and every second iteration without synchronisation."""
    plan = small_plan(3, 2, tied=True, synchronise_every=2, global_batch=12)
    run = start(plan, "zb-h1", iterations=2)
    return run.spec, run.wait()


def rows_of(trace: Trace, iteration: int) -> list[Row]:
    return [[s.iteration, s.replica, list(s.action), *s[3:]] for s in trace.spans() if s.iteration == iteration]


def spans(rows: list[Row]) -> dict[tuple, tuple[float, float]]:
    return {(replica, tuple(action)): (start_s, end_s) for _, replica, action, start_s, end_s in rows}


@pytest.mark.parametrize("iteration", [0, 1])
def test_on_pairs_a_replay_is_what_workers_reported(ran: tuple[RunSpec, Trace], iteration: int) -> None:
    spec, measured = ran
    reported = rows_of(measured, iteration)
    again = replay(spec, iteration, reported)
    assert {row[0] for row in again} == {iteration}
    before, after = spans(reported), spans(again)
    assert before.keys() == after.keys()
    assert np.array([after[key] for key in before]) == pytest.approx(np.array(list(before.values())), abs=1e-9)


def test_on_nics_messages_to_one_device_come_in_one_at_a_time_and_computations_take_as_long(
    ran: tuple[RunSpec, Trace],
) -> None:
    spec, measured = ran
    reported = rows_of(measured, 1)
    again = replay(replace(spec, queueing="nics"), 1, reported)
    trace = Trace.from_spans(
        replace(measured.context, queueing="nics"), (Span(i, r, Action(*a), s, e) for i, r, a, s, e in again)
    )
    rows = trace.to_frame()
    for lane in (Lane.SEND, Lane.RECEIVE):
        for _, messages in rows[rows["lane"] == lane.value].groupby("device"):
            ordered = messages.sort_values("start_s")
            assert (ordered["start_s"].to_numpy()[1:] >= ordered["end_s"].to_numpy()[:-1] - 1e-12).all()
    before, after = spans(reported), spans(again)
    for (replica, action), (start_s, end_s) in after.items():
        if Action(*action).lane is Lane.COMPUTE:
            was = before[replica, action]
            assert end_s - start_s == pytest.approx(was[1] - was[0], abs=1e-9)
    assert trace.iteration_s >= max(end_s for _, end_s in before.values()) - 1e-9, "nobody gains by waiting for a NIC"


@pytest.mark.parametrize("clock", ["paced", "real"])
def test_nics_on_a_clock_that_cannot_wait_are_refused(clock: str) -> None:
    with pytest.raises(LabError, match=f"nics on the {clock} clock; wanted the virtual clock, or pairs"):
        start(small_plan(), clock=clock, queueing="nics")


def test_a_run_on_nics_is_measured_and_predicted_on_nics() -> None:
    plan = small_plan(3, 2, synchronisation="sharded-at-once", global_batch=12)
    measured = lab.run(plan, "1f1b", iterations=2, queueing="nics")
    assert measured.context.queueing == "nics"
    received = measured.to_frame().query("lane == 'receive'")
    for _, messages in received.groupby(["iteration", "device"]):
        ordered = messages.sort_values("start_s")
        assert (ordered["start_s"].to_numpy()[1:] >= ordered["end_s"].to_numpy()[:-1] - 1e-12).all()
    predicted = lab.simulate(plan, like=measured)
    assert predicted.context.queueing == "nics"
    assert len(lab.compare(predicted, measured).rows) == len(measured)


def on_shared_nics(plan: Plan) -> Plan:
    """The plan with its devices on two hosts, in turn."""
    devices = tuple(replace(d, host=f"host {i % 2}") for i, d in enumerate(plan.topology.devices))
    return plan.changed(topology=replace(plan.topology, devices=devices))


def test_in_a_run_on_hosts_that_share_a_nic_messages_leave_a_host_one_at_a_time() -> None:
    plan = on_shared_nics(small_plan(2, 2, global_batch=12))
    measured = start(plan, "1f1b", iterations=2).wait()
    assert measured.context.nics
    assert lab.simulate(plan, like=measured).context.nics == measured.context.nics
    rows = measured.to_frame()
    host = {device.name: device.host for device in plan.topology.devices}
    apart = rows["link"].map(lambda link: len({host[end] for end in link.split(" -> ") if end}) == 2)
    leaving = rows[apart & (rows["lane"] == Lane.SEND.value)]
    assert len(leaving)
    for _, messages in leaving.groupby(["iteration", leaving["device"].map(host)]):
        ordered = messages.sort_values("start_s")
        assert (ordered["start_s"].to_numpy()[1:] >= ordered["end_s"].to_numpy()[:-1] - 1e-12).all()


def test_hosts_that_share_a_nic_are_refused_on_the_paced_clock() -> None:
    plan = on_shared_nics(small_plan(2, 2, global_batch=12))
    with pytest.raises(LabError, match="share the NIC"):
        prepare(plan, "1f1b", RunOptions(clock="paced"))
    for clock in ("virtual", "real"):
        prepare(plan, "1f1b", RunOptions(clock=clock))
