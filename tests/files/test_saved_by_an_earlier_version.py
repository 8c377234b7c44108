"""Files that version 0.1.0 saved are read as they were: tests/data/saved holds one of every kind."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab import files
from dtfm_lab.domain.trace import Fault, Trace
from dtfm_lab.files.workspaces import load_workspace
from dtfm_lab.runtime.protocol.checkpoint_folders import describe

SAVED = Path(__file__).parents[1] / "data" / "saved"
COST_S = 0.18289621333333334
STAGES = [[3, 0], [2, 1], [7, 4], [6, 5]]
PREDICTED_S, MEASURED_S = 0.2546407082666667, 0.19012678516666673
LOSSES = (5.593697249889374, 5.39699786901474)


def equal_traces(one: Trace, other: Trace) -> bool:
    columns = ("iteration", "replica", "action", "start_s", "end_s", "after")
    return one.actions == other.actions and all(np.array_equal(getattr(one, c), getattr(other, c)) for c in columns)


def test_a_topology_with_every_kind_of_line() -> None:
    topology = lab.load_topology(SAVED / "topology.yaml")
    # Earlier versions had no typical price for other names of a GPU, such as V100 16GB.
    assert [device.price_per_hour for device in topology.devices] == [1.99, 1.99, 0.4, 0.79, 0.0]
    unpriced = [replace(one, price_per_hour=0.0) if one.name == "grace" else one for one in topology.devices]
    assert replace(topology, devices=tuple(unpriced)).fingerprint == "498b7ffe890b"
    assert topology.names == ("Delft-0", "Delft-1", "ada", "grace", "alone")
    ada = topology.devices[2]
    assert (ada.region, ada.gpu, ada.price_per_hour, ada.position) == ("Oslo", "V100 16GB", 0.4, (59.9, 10.7))
    delft, grace, alone = 0, 3, 4
    gbps = topology.bandwidth_bytes_per_s * 8e-9
    assert gbps[delft, grace] == pytest.approx(1), "the line between the regions, which no NIC caps"
    assert gbps[grace, delft] == pytest.approx(0.2), "the other way, grace's uplink"
    assert topology.latency_s[[delft, grace, alone], [grace, delft, 2]] == pytest.approx([0.012, 0.014, 0.099])
    assert topology.message_s[2, grace] == pytest.approx([0.0003, 0.0025])


@pytest.mark.parametrize("ending", ["yaml", "json", "npz"])
def test_a_topology_in_a_format_that_holds_everything(ending: str) -> None:
    assert lab.load_topology(SAVED / f"two-towns.{ending}").fingerprint == "498b7ffe890b"


@pytest.mark.parametrize("ending", ["csv", "latency_ms.csv", "bandwidth_gbps.csv"])
def test_a_topology_in_a_format_that_holds_the_links(ending: str) -> None:
    whole, links = lab.load_topology(SAVED / "topology.yaml"), lab.load_topology(SAVED / f"two-towns.{ending}")
    apart = ~np.eye(len(whole), dtype=bool)
    assert links.names == whole.names
    assert links.latency_s[apart] == pytest.approx(whole.latency_s[apart])
    assert links.bandwidth_bytes_per_s[apart] == pytest.approx(whole.bandwidth_bytes_per_s[apart])


def test_a_job_with_blocks_of_its_own_and_sizes_in_bytes() -> None:
    job = lab.load_job(SAVED / "job.yaml")
    assert (job.n_stages, job.n_replicas, job.blocks_per_stage) == (4, 1, (1, 3, 2, 2))
    assert (job.gradient_bytes, job.given_hop_bytes) == (3e6, 250_000)
    assert (job.compression, job.recompute, job.model.name) == ("int8", True, "tiny")


def test_a_plan() -> None:
    plan = lab.load_plan(SAVED / "plan.json")
    assert plan.topology.fingerprint == lab.load_topology("lecture-hall").fingerprint == "fd226e68407a"
    assert (plan.cost.total_s, plan.lower_bound_s) == (COST_S, COST_S)
    assert plan.placement.devices.tolist() == STAGES
    assert plan.job == lab.load_job("tiny", schedule="gpipe")
    assert (plan.planner, plan.seed) == ("evolutionary", 0)


def test_a_plan_of_an_uneven_job_on_a_measured_network() -> None:
    plan = lab.load_plan(SAVED / "uneven-plan.json")
    assert plan.topology.fingerprint == "498b7ffe890b"
    assert plan.job.blocks_per_stage == (1, 3, 2, 2)
    assert plan.cost.total_s == 0.0329
    again = lab.evaluate(plan.topology, plan.job, stages=plan.placement.devices.tolist())
    assert again.cost.total_s == plan.cost.total_s


def test_a_prediction_is_what_is_predicted_today() -> None:
    trace = lab.load_trace(SAVED / "simulated.json")
    assert (len(trace), trace.iteration_s) == (208, PREDICTED_S)
    assert trace.context.plan.topology_fingerprint == "fd226e68407a"
    assert equal_traces(trace, lab.simulate(lab.load_plan(SAVED / "plan.json"), like=trace))


def test_a_measurement() -> None:
    trace = lab.load_trace(SAVED / "measured.json")
    assert (len(trace), trace.iteration_s) == (416, MEASURED_S)
    assert (trace.context.source, trace.context.clock, trace.context.schedule) == ("measured", "virtual", "1f1b")
    assert trace.context.losses == LOSSES
    assert trace.context.held_out == ((1, 5.397368967533112), (2, 5.053264021873474))
    predicted = lab.simulate(lab.load_plan(SAVED / "plan.json"), like=trace)
    assert len(lab.compare(predicted, trace).rows) == len(trace)


def test_a_measurement_of_a_part_that_survived_a_loss() -> None:
    context = lab.load_trace(SAVED / "part.json").context
    assert context.faults == (Fault(0, "ada", "was killed by SIGKILL", "grace", 0.25),)
    assert tuple(context.rehearsed) == ((0, 1), (0,), 4, 2)


@pytest.mark.parametrize("ending", ["txt", "csv"])
def test_a_schedule(ending: str) -> None:
    schedule = files.load_schedule(SAVED / f"schedule.{ending}")
    assert schedule.n_microbatches == 4
    assert schedule.orders == lab.load_trace(SAVED / "measured.json").context.plan.orders


def test_a_workspace() -> None:
    state = load_workspace(SAVED / "workspace.json")
    assert state.topology.fingerprint == state.plan.topology.fingerprint == "fd226e68407a"
    assert state.job == lab.load_job("tiny", schedule="gpipe")
    assert (state.plan.cost.total_s, state.predicted.iteration_s, state.measured.iteration_s) == (
        COST_S,
        PREDICTED_S,
        MEASURED_S,
    )
    assert equal_traces(state.predicted, lab.load_trace(SAVED / "simulated.json"))
    assert equal_traces(state.measured, lab.load_trace(SAVED / "measured.json"))
    assert (state.schedule, state.choices) == ("1f1b", {"compression": "int8", "recompute": True})
    assert state.settings == {"network": {"name": "drawn"}, "run": {"clock": "paced"}}


def test_a_checkpoint(tmp_path: Path) -> None:
    folder = shutil.copytree(SAVED / "checkpoint" / "iteration-000002", tmp_path / "iteration-000002")
    for name, n_bytes in (("0", 5257440), ("1", 4765328), ("2", 4765328), ("3", 5162424)):
        with (folder / f"stage-{name}.safetensors").open("wb") as tensors:
            tensors.truncate(n_bytes)  # a sparse file in the place of tensors, which are not read here
    checkpoint = describe(tmp_path)
    assert (checkpoint.iteration, checkpoint.seed, checkpoint.losses) == (2, 3, LOSSES)
    assert (checkpoint.job, checkpoint.folder) == (lab.load_job("tiny", schedule="gpipe"), folder)
