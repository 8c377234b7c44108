"""What cannot be run is said before anything starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from run_helpers import even_plan, small_plan

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, LabError, MissingExtra, ScheduleError, UnknownName
from dtfm_lab.domain.model import ModelSpec, gpt
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.topology import Topology
from dtfm_lab.runtime.launch import start
from dtfm_lab.runtime.pieces import CARRIES

SMALL = {"n_layers": 2, "d_model": 8, "n_heads": 2, "seq_len": 8, "vocab_size": 256, "tied": False}


def test_an_unknown_clock() -> None:
    with pytest.raises(UnknownName, match="no clock named 'vitual'; did you mean 'virtual'"):
        start(even_plan(), clock="vitual")


def test_an_unknown_schedule() -> None:
    with pytest.raises(UnknownName, match="no pipeline schedule named 'gpip'"):
        start(even_plan(), "gpip")


def test_torch_missing_comes_with_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'dtfm_lab\[train\]'"):
        start(even_plan())


def test_half_precision_on_a_cpu() -> None:
    with pytest.raises(JobError, match="dtype is fp16; workers on a CPU run fp32 or fp64"):
        start(even_plan(dtype="fp16"))


def test_more_workers_than_one_machine_carries() -> None:
    with pytest.raises(JobError, match="need 64 workers on this machine; wanted at most 32"):
        start(even_plan(8, 8, global_batch=64, microbatch=1))


def test_a_job_of_message_sizes_only() -> None:
    topology = Topology.from_matrices([[0, 1], [1, 0]], [[1, 1], [1, 1]])
    plan = lab.evaluate(topology, lab.Job.from_bytes(2, 1, 1e6, 1e6), stages=[[0], [1]])
    with pytest.raises(JobError, match="holds message sizes only"):
        start(plan)


UNBUILT = [
    ("llama-2-7b", "model llama-2-7b is of the llama family; real runs build gpt only"),
    (gpt(**SMALL, d_ff=9), "has other layers than the GPT that workers build; wanted biases everywhere, an MLP of 4 x"),
    (gpt(**SMALL, n_positions=9), "as many learned positions as seq_len, 8"),
]


@pytest.mark.parametrize(("model", "says"), UNBUILT, ids=["llama", "narrow", "more positions"])
def test_a_model_that_workers_would_build_otherwise(model: str | ModelSpec, says: str) -> None:
    with pytest.raises(JobError, match=says) as refused:
        start(even_plan(model=model))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("iterations", [0, -3])
def test_no_iterations(iterations: int) -> None:
    with pytest.raises(LabError, match=f"iterations is {iterations}; wanted a whole number from 1 to"):
        start(even_plan(), iterations=iterations)


def test_a_text_that_is_not_there_or_too_short(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no such file"):
        start(even_plan(), text=tmp_path / "none.txt")
    short = tmp_path / "short.txt"
    short.write_text("brief")
    with pytest.raises(LabError, match="has 5 bytes; wanted more than 64"):
        start(even_plan(), text=short)


@pytest.mark.parametrize("time_scale", [0, -1, float("nan"), float("inf"), "fast"])
def test_a_time_scale_that_is_none(time_scale: object) -> None:
    with pytest.raises(LabError, match=r"^time_scale is .*; wanted more than 0 wall seconds a second$"):
        start(even_plan(), clock="paced", time_scale=time_scale)


def test_a_model_larger_than_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = even_plan()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**20))
    with pytest.raises(JobError, match=r"needs some 0\.[1-9] GiB on this machine, 0\.0 are free; wanted a smaller"):
        start(plan)


def test_a_schedule_that_waits_for_itself() -> None:
    crossed = Schedule.from_orders("crossed", ["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"])
    with pytest.raises(ScheduleError, match="wait") as refused:
        start(even_plan(2, 1, global_batch=4), crossed)
    assert "\n" not in str(refused.value)


def test_a_way_to_average_that_workers_do_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CARRIES, "ring")
    with pytest.raises(JobError, match="synchronisation is ring, which can be simulated; real runs know sharded,"):
        start(even_plan(synchronisation="ring"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"synchronisation": "ring"}, "ring synchronisation every 2 iterations would round"),
        ({"gradient_compression": "int8"}, "int8 messages every 2 iterations would round"),
    ],
)
def test_local_updates_that_would_drive_the_ends_of_a_tied_embedding_apart(fields: dict[str, str], says: str) -> None:
    with pytest.raises(JobError, match=says):
        start(small_plan(tied=True, synchronise_every=2, **fields))
