"""The answers of docs/exam.md, each computed from a closed form or by the library."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.simulation.schedules import schedules

PAGE = (Path(__file__).parents[2] / "docs" / "exam.md").read_text()
TEXT = {int(number): text for number, text in re.findall(r"\*\*(\d+)\.\*\*(.*?)</details>", PAGE, re.DOTALL)}


def answer(number):
    return " ".join(TEXT[number].split("<summary>Answer</summary>")[1].split())


def even(n, latency_ms, gbps):
    return lab.Topology.from_matrices(np.full((n, n), float(latency_ms)), np.full((n, n), float(gbps)), gpu="V100")


def pipeline_s(schedule, slow=1.0):
    """Seconds of four stages and eight micro-batches on links that cost nothing; the second stage is slower."""
    job = lab.load_job("tiny", n_stages=4, n_replicas=1, global_batch=8, microbatch=1)
    plan = lab.evaluate(even(4, 1e-9, 1e9), job, stages=[[0], [1], [2], [3]])
    times = [
        ComputeTime(stage, 0, kind, seconds * (slow if stage == 1 else 1))
        for stage in range(4)
        for kind, seconds in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, 2.0), (Kind.STEP, 0.0))
    ]
    return lab.simulate(plan, schedule, profile=times).iteration_s


def most_held(schedule):
    """Most micro-batches whose activations the first stage holds at once."""
    held = most = 0
    for action in schedules[schedule](4, 8).programs[0]:
        held += {Kind.FORWARD: 1, Kind.BACKWARD: -1}.get(action.kind, 0)
        most = max(most, held)
    return most


def placed():
    job = lab.Job.from_bytes(4, 4, 400e6, 50e6)
    return lab.evaluate(even(16, 10, 1), job, stages=np.arange(16).reshape(4, 4).tolist()).cost


def groups(n, size):
    return math.factorial(n) / (math.factorial(size) ** (n // size) * math.factorial(n // size))


def half_and_half():
    latency_ms, gbps = lab.load_topology("worldwide").to_matrices()
    where = "Oregon-0", "Virginia-0"
    assert (latency_ms.loc[where], gbps.loc[where]) == (67, 0.79), "the question's own numbers"
    return [f"{latency_ms.loc[where] / 1e3 * gbps.loc[where] * 1e9 / 8 / 1e6:.2f} MB"]


def ring():
    rounds = 2 * (8 - 1)
    return [f"{rounds * (0.05 + 1e9 / 8 / 125e6):.1f} s", f"{rounds * 0.05:.1f} s are latency"]


def bubble():
    assert 1 - 24 / pipeline_s("gpipe") == pytest.approx(3 / 11, rel=1e-6)
    return [f"{3 / 11:.1%}".replace("%", " %")]


def one_forward_one_backward():
    assert pipeline_s("1f1b") == pytest.approx(pipeline_s("gpipe"))
    return ["Equally long", f"GPipe holds {most_held('gpipe')}, 1F1B holds {most_held('1f1b')}"]


def straggler():
    before, after = pipeline_s("gpipe"), pipeline_s("gpipe", slow=2)
    return [f"From {before:.0f} s to {after:.0f} s, {after / before:.2f} times", f"{8 * 3 * 2} s"]


ANSWERS = {
    1: half_and_half,
    2: ring,
    3: bubble,
    4: one_forward_one_backward,
    5: lambda: [f"{placed().data_parallel_s:.2f} s"],
    6: lambda: [f"{placed().pipeline_s:.2f} s", f"{placed().total_s:.2f} s"],
    7: lambda: [f"{groups(8, 2):.0f}.", f"{groups(64, 8):.1e}"],
    8: lambda: [f"{(40 - 32) / 40:.0%}".replace("%", " %"), f"{40 / 32:.2f} times"],
    9: straggler,
    10: lambda: [f"{16 * 1.3:.1f} GB", f"{16 * 1.3 / 4:.1f} GB"],
    11: lambda: [f"{15 / (3 + 12 / 10):.2f} times", f"{15 / 3:.0f} times"],
    12: lambda: [f"{(0.1 + 4e6 / 125e6) / (0.1 + 1e6 / 125e6):.2f} times"],
}


@pytest.mark.parametrize("number", ANSWERS)
def test_the_page_has_the_answer(number):
    for said in ANSWERS[number]():
        assert said in answer(number), f"question {number}: computed {said!r}; the page says {answer(number)!r}"


def test_every_question_has_an_answer_that_is_computed_or_is_an_essay():
    assert [number for number in TEXT if number not in ANSWERS and "(Essay)" not in TEXT[number]] == []
