"""The exam's answers are closed forms, held to the library here for the printed numbers and for drawn ones."""

import re

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.extensions.course import exam
from dtfm_lab.simulation.schedules import schedules

EXAMS = {"printed": exam.PRINTED} | {each: exam.numbers_of(each) for each in ("one", "two", "three")}


@pytest.fixture(params=EXAMS.values(), ids=EXAMS)
def worked(request):
    return exam.worked(request.param)


def even(n, latency_ms, gbps):
    return lab.Topology.from_matrices(np.full((n, n), float(latency_ms)), np.full((n, n), float(gbps)), gpu="V100")


def pipeline_s(n_stages, n_microbatches, schedule, slow=1.0):
    """Seconds of a pipeline on links that cost nothing; its second stage is slower."""
    job = lab.load_job("tiny", n_stages=n_stages, n_replicas=1, global_batch=n_microbatches, microbatch=1)
    plan = lab.evaluate(even(n_stages, 1e-9, 1e9), job, stages=[[stage] for stage in range(n_stages)])
    times = [
        ComputeTime(stage, 0, kind, seconds * (slow if stage == 1 else 1))
        for stage in range(n_stages)
        for kind, seconds in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, 2.0), (Kind.STEP, 0.0))
    ]
    return lab.simulate(plan, schedule, profile=times).iteration_s


def most_held(n_stages, n_microbatches, schedule):
    """Most micro-batches whose activations the first stage holds at once."""
    held = most = 0
    for action in schedules[schedule](n_stages, n_microbatches).programs[0]:
        held += {Kind.FORWARD: 1, Kind.BACKWARD: -1}.get(action.kind, 0)
        most = max(most, held)
    return most


def test_the_link_of_question_1_is_that_of_the_network(worked):
    latency_ms, gbps = lab.load_topology("worldwide").to_matrices()
    where = f"{worked['here']}-0", f"{worked['there']}-0"
    assert latency_ms.loc[where] == pytest.approx(float(worked["latency_ms"]))
    assert gbps.loc[where] == pytest.approx(float(worked["gbps"]))
    assert worked["half_mb"] == pytest.approx(latency_ms.loc[where] / 1e3 * gbps.loc[where] * 1e3 / 8)


def test_the_bubble_the_schedules_and_the_straggler_are_those_of_the_simulator(worked):
    shape = worked["stages"], worked["microbatches"]
    gpipe_s = pipeline_s(*shape, "gpipe")
    assert gpipe_s == pytest.approx(worked["before_s"]) == pytest.approx(pipeline_s(*shape, "1f1b"))
    idle = float(worked["bubble"].removesuffix(" %")) / 100
    assert 1 - 3 * worked["microbatches"] / gpipe_s == pytest.approx(idle, abs=5e-4)
    assert pipeline_s(*shape, "gpipe", slow=2) == pytest.approx(worked["slow_s"])
    assert [most_held(*shape, name) for name in ("gpipe", "1f1b")] == [worked["microbatches"], worked["held"]]


def test_the_placement_costs_what_the_cost_model_says(worked):
    n_stages, n_replicas = worked["stages"], worked["group"]
    job = lab.Job.from_bytes(n_stages, n_replicas, worked["group_mb"] * 1e6, worked["hop_mb"] * 1e6)
    n = n_stages * n_replicas
    stages = np.arange(n).reshape(n_stages, n_replicas).tolist()
    cost = lab.evaluate(even(n, worked["hop_ms"], 1), job, stages=stages).cost
    assert cost.data_parallel_s == pytest.approx(worked["group_s"])
    assert cost.pipeline_s == pytest.approx(worked["path_s"])
    assert cost.total_s == pytest.approx(worked["placement_s"])


def test_groupings_are_counted_one_by_one(worked):
    assert worked["groupings"] == _groupings(worked["few"], worked["size"])


def _groupings(n, size):
    """Ways to give the first device its partners, times the ways to group the rest."""
    ways = 1
    while n > size:
        for k in range(1, size):
            ways = ways * (n - k) // k
        n -= size
    return ways


def test_an_answer_has_no_placeholder_and_no_unbounded_number(worked):
    for each in exam.questions(worked):
        assert not re.search(r"[{}]", each.asks + each.answer)
        assert not re.search(r"\d\.\d{5}|e[+-]0\d", each.answer), each.answer


def test_printed_numbers_give_the_known_answers():
    said = " ".join(each.answer for each in exam.questions(exam.PRINTED))
    for known in (
        "6.62 MB", "14.7 s, and 0.7 s of that", "27.3 %", "GPipe holds 8, 1F1B holds 4", "4.86 s", "2.46 s", "7.32 s",
        "105.", "20 %, and 1.25 times", "From 33 s to 57 s, 1.73 times", "20.8 GB", "5.2 GB", "3.57 times, at most 5",
        "1.22 times",
    ):  # fmt: skip
        assert known in said, known


def test_sheets_differ_and_only_the_key_has_answers():
    numbers = {name: exam.numbers_of(name) for name in ("ada", "b<b>")}
    sheets, key = exam.printed(numbers, answers=False), exam.printed(numbers, answers=True)
    assert sheets.count("<section>") == key.count("<section>") == 2
    assert "b&lt;b&gt;" in sheets
    assert 'class="answer"' in key
    assert 'class="answer"' not in sheets
    ada, other = sheets.split("<section>")[1:]
    assert ada.split("<ol>")[1] != other.split("<ol>")[1]
