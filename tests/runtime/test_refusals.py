"""What cannot be run is said before anything starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from run_helpers import even_plan

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, LabError, MissingExtra, UnknownName
from dtfm_lab.domain.model import ModelSpec, gpt
from dtfm_lab.domain.topology import Topology
from dtfm_lab.runtime.launch import start

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
    ("gpt2-small", "model gpt2-small ties its embeddings; wanted an untied one"),
    (gpt(**SMALL, d_ff=9), "has other layers than the GPT that workers build; wanted biases everywhere, an MLP of 4 x"),
    (gpt(**SMALL, n_positions=9), "as many learned positions as seq_len, 8"),
]


@pytest.mark.parametrize(("model", "says"), UNBUILT, ids=["llama", "tied", "narrow", "more positions"])
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


@pytest.mark.parametrize("name", ["zb-h1", "interleaved-1f1b"])
def test_a_schedule_that_only_the_simulator_plays(name: str) -> None:
    with pytest.raises(JobError, match=f"schedule {name} splits backwards or gives a device several stages"):
        start(even_plan(), name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("synchronisation", "ring"),
        ("synchronise_every", 4),
        ("compression", "fp16"),
        ("gradient_compression", "int8"),
        ("recompute", True),
    ],
)
def test_a_choice_that_only_the_simulator_knows(field: str, value: object) -> None:
    with pytest.raises(JobError, match=rf"job tiny: {field} is {value}, which can be simulated; real runs play"):
        start(even_plan(**{field: value}))
