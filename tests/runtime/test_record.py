"""The record of a run's events: after a fault, after a resumption, with a held-out loss."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from run_helpers import small_plan, spec_of

import dtfm_lab as lab
from dtfm_lab.domain.errors import RunError
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.trace import Fault
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.record import RunRecord

PLAN = small_plan(2, 2)
PREDICTED = lab.simulate(PLAN, "1f1b")
FAULT = {
    "device": "device-2",
    "iteration": 4,
    "how": "was killed by SIGKILL",
    "state_from": "device-4",
    "lost_s": 0.625,
}


def recorded(*events: dict[str, Any], **fields: Any) -> RunRecord:
    record = RunRecord(spec_of(PLAN, iterations=4, **fields))
    for event in events:
        record.absorb(event)
    return record


def whole(iteration: int, loss: float) -> list[dict[str, Any]]:
    """The events of an iteration that goes as predicted."""
    rows = [[iteration, s.replica, list(s.action), s.start_s, s.end_s] for s in PREDICTED.spans()]
    done = {"event": "iteration", "iteration": iteration, "loss": loss, "late_messages": 0, "overruns": 0}
    return [{"event": "spans", "rows": rows}, done]


def test_a_resumed_run_counts_from_what_its_checkpoint_holds() -> None:
    record = recorded(*whole(10, 3.0), *whole(11, 2.0), first_iteration=10)
    assert record.losses == [3.0, 2.0]
    assert record.last_whole == 11
    assert set(record.trace().iteration) == {10, 11}
    assert run_report.describe_progress(recorded(first_iteration=10)) == "loading torch, 0 of 4 workers"


def test_iterations_that_a_fault_made_void_count_once() -> None:
    half = whole(5, 0.0)[0] | {"rows": whole(5, 0.0)[0]["rows"][:7]}
    record = recorded(
        *whole(3, 5.0),
        {"event": "held_out", "iteration": 4, "loss": 4.5, "unigram_entropy": 3.2},
        {"event": "checkpoint", "iteration": 4, "folder": "four"},
        *whole(4, 4.0),
        {"event": "checkpoint", "iteration": 5, "folder": "five"},
        {"event": "held_out", "iteration": 5, "loss": 3.5, "unigram_entropy": 3.2},
        half,
        {"event": "lost", "device": "device-2", "iteration": 5, "how": "was killed by SIGKILL"},
        first_iteration=3,
    )
    assert record.conditions == {"device-2": "lost"}
    record.absorb({"event": "recovered", **FAULT})
    assert record.conditions == {"device-2": "back"}
    assert record.losses == [5.0]
    assert record.held_out == ((4, 4.5),)
    assert record.checkpoints == ((4, "four"),)
    assert record.spans_of(4) == record.spans_of(5) == []
    for event in whole(4, 4.25):
        record.absorb(event)
    trace = record.trace()
    assert trace.context.losses == (5.0, 4.25)
    assert len(trace) == 2 * len(PREDICTED)
    assert trace.context.faults == (Fault(4, "device-2", "was killed by SIGKILL", "device-4", 0.625),)
    assert run_report.describe_fault(trace.context.faults[0]) == (
        "device-2 was killed by SIGKILL in iteration 4; its state came from device-4; 625 ms"
    )


def test_an_iteration_that_is_repeated_after_connections_broke_counts_once() -> None:
    half = whole(4, 0.0)[0] | {"rows": whole(4, 0.0)[0]["rows"][:7]}
    again = {"event": "reconnected", "iteration": 4, "message": "connections broke and were made again"}
    record = recorded(*whole(3, 5.0), half, again, half, again, *whole(4, 4.0), first_iteration=3)
    trace = record.trace()
    assert len(trace) == 2 * len(PREDICTED)
    assert trace.context.losses == (5.0, 4.0)
    assert trace.context.faults == ()
    assert trace.context.notes == ("connections broke and were made again",) * 2


def test_a_fault_in_the_first_iteration_leaves_nothing() -> None:
    record = recorded(*whole(0, 5.0), {"event": "recovered", **FAULT, "iteration": 0})
    assert record.losses == []
    with pytest.raises(RunError, match="before its first iteration was whole"):
        record.trace()


def test_the_context_says_what_else_is_known() -> None:
    model = gpt(name="mini", n_layers=4, d_model=16, n_heads=2, seq_len=8, vocab_size=256)
    record = recorded(
        {"event": "held_out", "iteration": 1, "loss": 4.5, "unigram_entropy": 3.2},
        {"event": "checkpoint", "iteration": 1, "folder": "there/iteration-000001"},
        {"event": "text", "prompt": "It is", "text": " a \x1btruth\n"},
        {"event": "one of a later version"},
        stand_in=model,
    )
    context = record.context()
    assert (context.stand_in, context.held_out, context.unigram_entropy) == ("mini", ((1, 4.5),), 3.2)
    assert record.checkpoints == ((1, "there/iteration-000001"),)
    assert (record.prompt, record.text) == ("It is", " a \x1btruth\n")
    assert run_report.generated_text(record) == ("It is", " a �truth\n")
    assert (
        run_report.describe_reductions(record.spec)
        == "model mini is trained instead of small, messages are as long as the job's"
    )
    assert run_report.describe_losses(record) == "held-out loss 4.5000, unigram entropy 3.2000"


def test_busy_shares_are_those_of_the_trace() -> None:
    record = recorded(*whole(0, 5.0), *whole(1, 4.0))
    bubble = PREDICTED.bubble.set_index("device")
    expected = (bubble["busy_s"] / bubble["iteration_s"]).to_dict()
    assert record.busy() == pytest.approx(expected)


def test_a_run_in_html_has_a_row_a_device_and_no_markup_of_names() -> None:
    record = recorded(*whole(0, 5.0), {"event": "failed", "message": "a <b> worker"})
    html = run_report.html(record)
    assert html.count("<tr>") == 1 + 4
    assert "a &lt;b&gt; worker" in html
    texts = ("failed after 1 of 4 iterations", "loss 5.0000", *record.ranks)
    places = [html.index(text) for text in texts]
    assert all(before < after for before, after in pairwise(places))


def test_a_device_that_is_back_has_its_fault() -> None:
    """A view may look between any two lines of the thread that records."""
    record, seen = recorded(), list[int]()

    class Watched(dict[str, str]):
        def __setitem__(self, device: str, condition: str) -> None:
            seen.append(len(record.faults))
            super().__setitem__(device, condition)

    record.conditions = Watched()
    record.absorb({"event": "recovered", **FAULT})
    assert seen == [1]
