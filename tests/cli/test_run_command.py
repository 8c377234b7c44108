"""``dtfm-lab run``: faults said in words, and what a terminal sees of a run."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from dtfm_lab import lab
from dtfm_lab.cli import terminal
from dtfm_lab.cli.runs import Disturbance, disturb, shape
from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime.client.record import RunRecord
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.simulation import build

PLAN = lab.evaluate(
    "lecture-hall", lab.load_job("tiny", n_stages=2, n_replicas=2), stages=[["ada", "alan"], ["grace", "john"]]
)


def spec(**fields: Any) -> RunSpec:
    orders = build(PLAN, "1f1b").orders
    return RunSpec(plan=PLAN, schedule="1f1b", orders=orders, iterations=4, clock="virtual", **fields)


class Disturbed(RunRecord):
    """A run that remembers what was done to it."""

    def __init__(self) -> None:
        super().__init__(spec(first_iteration=10))
        self.done: list[tuple[Any, ...]] = []

    def kill(self, device: str) -> None:
        self.done.append(("kill", device))

    def slow(self, device: str, factor: float = 2.0) -> None:
        self.done.append(("slow", device, factor))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("kill ada at 2", Disturbance("kill", "ada", 2)),
        ("  pause  Tokyo 3 at last at 12 ", Disturbance("pause", "Tokyo 3 at last", 12)),
        ("slow ada at 0 by 2.5", Disturbance("slow", "ada", 0, 2.5)),
        ("resume ada at 3", Disturbance("resume", "ada", 3)),
    ],
)
def test_faults_are_said_in_words(text: str, meant: Disturbance) -> None:
    assert Disturbance.read(text) == meant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kil ada at 2", "fault 'kil ada at 2' is not understood; wanted such as"),
        ("kill ada", "is not understood"),
        ("kill ada at -1", "is not understood"),
        ("kill ada at 2 by 3", "has a factor, which only slow takes"),
        ("slow ada at 2 by much", "has factor 'much'; wanted a number"),
    ],
)
def test_what_is_no_fault_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(LabError, match=says):
        Disturbance.read(text)


def test_a_fault_comes_once_when_its_iteration_begins() -> None:
    run = Disturbed()
    faults = [Disturbance("kill", "ada", 12), Disturbance("slow", "alan", 10), Disturbance("slow", "john", 13, 3.0)]
    disturb(run, faults, {"event": "profile"})
    assert run.done == [("slow", "alan", 2.0)]
    for iteration in (10, 11, 10, 11, 12):  # the fault lets two be done anew
        disturb(run, faults, {"event": "iteration", "iteration": iteration})
    assert run.done[1:] == [("kill", "ada"), ("slow", "john", 3.0)]


def drawn(run: RunRecord) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(terminal.run_picture(run))
    return capture.get()


def test_a_terminal_has_a_line_a_worker_with_its_condition() -> None:
    run = RunRecord(spec())
    run.absorb({"event": "lost", "device": "grace", "iteration": 0, "how": "was killed by SIGKILL"})
    run.conditions["john"] = "2 x slower"
    lines = [line.split() for line in drawn(run).splitlines()]
    by_device = {words[0]: words[1:] for words in lines if words and words[0] in run.ranks}
    assert {name: words[:2] for name, words in by_device.items()} == {
        "ada": ["0", "0"],
        "alan": ["0", "1"],
        "grace": ["1", "0"],
        "john": ["1", "1"],
    }
    assert by_device["grace"][2] == "lost"
    assert by_device["john"][2:5] == ["2", "x", "slower"]
    assert by_device["ada"][2] == "ok"


def test_elsewhere_an_iteration_a_loss_and_a_fault_are_a_line_each() -> None:
    run = RunRecord(spec())
    recovered = {"device": "grace", "iteration": 1, "how": "stood still", "state_from": "john", "lost_s": 1.0}
    told = []
    for event in (
        {"event": "iteration", "iteration": 0, "loss": 5.5, "late_messages": 0, "overruns": 0},
        {"event": "held_out", "iteration": 1, "loss": 5.25, "unigram_entropy": 3.25},
        {"event": "spans", "rows": []},
        {"event": "recovered", **recovered},
        {"event": "checkpoint", "iteration": 1, "folder": "there"},
    ):
        run.absorb(event)
        told.append(terminal.run_line(run, event))
    assert told == [
        "iteration 0: loss 5.5000",
        "after 1 iteration: loss 5.5000, held-out loss 5.2500, unigram entropy 3.2500",
        "",
        "grace stood still in iteration 1; its state came from john; 1 s",
        "checkpoint after 1 iteration in there",
    ]


@pytest.mark.parametrize(("text", "workers"), [("8", 8), ("4x2", (4, 2))])
def test_a_part_is_said_as_a_count_or_as_stages_and_pipelines(text: str, workers: object) -> None:
    assert shape(text) == workers
