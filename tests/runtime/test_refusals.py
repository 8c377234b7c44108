"""What cannot be run is said before anything starts."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from run_helpers import even_plan, small_plan

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, LabError, MissingExtra, ScheduleError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.runtime.client import run_checks
from dtfm_lab.runtime.client.launch import prepare, start
from dtfm_lab.runtime.protocol.gradient_shards import AVERAGED
from dtfm_lab.runtime.protocol.run_options import RunOptions, RunSpec


def test_torch_missing_comes_with_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'dtfm_lab\[train\]'"):
        start(even_plan())


def test_a_job_of_message_sizes_only() -> None:
    topology = Topology.from_matrices([[0, 1], [1, 0]], [[1, 1], [1, 1]])
    plan = lab.evaluate(topology, lab.Job.from_bytes(2, 1, 1e6, 1e6), stages=[[0], [1]])
    with pytest.raises(JobError, match="holds message sizes only"):
        start(plan)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("clock", "vitual", "no clock named 'vitual'; did you mean 'virtual'"),
        ("schedule", "gpip", "no pipeline schedule named 'gpip'"),
        ("iterations", 0, "iterations is 0; wanted a whole number from 1 to"),
        ("time_scale", 0, r"^time_scale is 0; wanted more than 0 wall seconds a second$"),
        ("time_scale", float("nan"), "time_scale is nan; wanted more than 0"),
        ("text", "/nowhere.txt", "no such file"),
        ("iterations", 2.5, "iterations is 2.5; wanted a whole number from 1"),
        ("iterations", True, "iterations is True; wanted a whole number"),
        ("seed", -1, "seed is -1; wanted a whole number from 0"),
        ("evaluate_every", "often", "evaluate_every is 'often'; wanted a whole number from 0"),
        ("sample_bytes", -1, "sample_bytes is -1; wanted a whole number from 0"),
        ("checkpoint_every", 2, "checkpoint_every is 2 without a checkpoint_folder; wanted both"),
        ("learning_rate", 0, "learning_rate is 0; wanted more than 0"),
        ("text", 3, "text is 3; wanted a path"),
        ("resume_from", "/nowhere", "checkpoint /nowhere: no such folder"),
        ("checkpoint_folder", __file__, "is a file; wanted a folder, or a name that is free"),
        ("queueing", "nic", "no queueing named 'nic'; did you mean 'nics'"),
        ("runs_on", "tpu", "no runs_on named 'tpu'"),
        ("workers", 0, "workers is 0; wanted a whole number from 1"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_option_out_of_range(option: str, value: object, says: str) -> None:
    with pytest.raises(LabError, match=says):
        start(even_plan(), **{option: value})


def test_numbers_of_numpy_are_numbers() -> None:
    options = RunOptions(clock="paced", iterations=np.int32(1), time_scale=np.float32(2))
    spec = prepare(even_plan(2, 1, global_batch=4), None, options)
    assert (spec.iterations, spec.time_scale) == (1, 2.0)
    assert RunSpec.from_line(spec.to_line()).to_line() == spec.to_line()


def test_a_schedule_that_waits_for_itself() -> None:
    crossed = Schedule.from_orders("crossed", ["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"])
    with pytest.raises(ScheduleError, match="wait"):
        start(even_plan(2, 1, global_batch=4), crossed)


def test_a_way_to_average_that_workers_do_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checks, "AVERAGED", tuple(name for name in AVERAGED if name != "ring"))
    with pytest.raises(JobError, match="synchronisation is ring, which can be simulated; real runs know sharded,"):
        start(even_plan(synchronisation="ring"))


@pytest.mark.parametrize("rarely", [{"synchronise_every": 2}, {"sharding": "zero-1"}])
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"synchronisation": "ring"}, "ring synchronisation (every 2 iterations|with sharding zero-1) would round"),
        ({"gradient_compression": "int8"}, "int8 messages (every 2 iterations|with sharding zero-1) would round"),
    ],
)
def test_what_would_drive_the_ends_of_a_tied_embedding_apart(fields, says, rarely) -> None:
    with pytest.raises(JobError, match=says):
        start(small_plan(tied=True, **fields, **rarely))
