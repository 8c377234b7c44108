"""A run of a night: the client's memory stays as it is, and nothing that it recorded is lost."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_helpers import small_plan, spec_of

import dtfm_lab as lab
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import Span, Trace
from dtfm_lab.runtime.client import preload, spill_buffer
from dtfm_lab.runtime.client.record import RunRecord
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.client.spill_buffer import SpillBuffer
from dtfm_lab.simulation.measured_predecessors import with_predecessors

PLAN = small_plan(2, 2)
SPANS = lab.simulate(PLAN, "1f1b").spans()
LOSS_BYTES = 100
"""What an iteration may leave in memory: its loss, a number in a list that grows ahead of its needs."""

FRAMES = 4
"""Calls between the client and what allocates for it."""
CLIENT = os.path.join("runtime", "client")

Event = dict[str, Any]


def iteration(number: int) -> list[Event]:
    """The events of one iteration; each takes a little longer than the one before."""
    slower = 1 + number / 100
    rows = [[number, s.replica, list(s.action), s.start_s * slower, s.end_s * slower] for s in SPANS]
    done = {"event": "iteration", "iteration": number, "loss": 5 - number / 1000, "late_messages": 0, "overruns": 0}
    return [{"event": "spans", "rows": rows[:60]}, {"event": "spans", "rows": rows[60:]}, done]


def spans_of(events: list[Event]) -> list[Span]:
    rows = [row for event in events if event["event"] == "spans" for row in event["rows"]]
    return [Span(i, r, Action(a[0], Kind(a[1]), *a[2:]), s, e) for i, r, a, s, e in rows]


def recorded_run(monkeypatch: pytest.MonkeyPatch, events: Callable[[], Iterator[Event]]) -> Run:
    """A run whose process says these events."""

    class Recorded:
        pid = returncode = 0
        errors = io.StringIO()

        def send(self, line: str) -> None:
            """Nobody reads it."""

        def lines(self) -> Iterator[str]:
            return (json.dumps(event) + "\n" for event in events())

    monkeypatch.setattr(preload, "start_run_process", Recorded)
    return Run(spec_of(PLAN, iterations=400))


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_buffer, "MOST_IN_MEMORY", 1 << 12)


def held_bytes() -> int:
    """What the client has allocated and holds; threads that other tests left behind allocate as they like."""
    gc.collect()
    ours = tracemalloc.Filter(True, f"*{CLIENT}*", all_frames=True)
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([ours]).traces)


@pytest.mark.usefixtures("small_memory")
def test_the_memory_of_the_client_grows_by_the_losses_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def events() -> Iterator[Event]:
        for number in range(60):
            if number in (20, 59):
                held.append(held_bytes())
            yield from iteration(number)
        yield {"event": "done"}

    tracemalloc.start(FRAMES)
    try:
        run = recorded_run(monkeypatch, events)
        trace = run.wait()
    finally:
        tracemalloc.stop()
    assert held[1] - held[0] < (59 - 20) * LOSS_BYTES + 20_000  # one iteration's spans are 90,000 bytes
    assert trace.n_iterations == len(run.losses) == 60


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("ends", [True, False])
def test_the_trace_is_that_of_all_spans(ends: bool) -> None:
    events = [event for number in range(20) for event in iteration(number)]
    record = RunRecord(spec_of(PLAN, iterations=30))
    for event in [*events, iteration(20)[0], *([{"event": "stopped"}] if ends else [])]:
        record.absorb(event)
    found = record.trace()
    wanted = with_predecessors(Trace.from_spans(record.context(), spans_of(events)), PLAN, record.spec.built)
    assert found.actions == wanted.actions
    for column in (*Span._fields, "after"):
        np.testing.assert_array_equal(getattr(found, column), getattr(wanted, column))
    assert found.iteration_s == wanted.iteration_s
    assert record.trace().spans() == found.spans()
    assert len(record.spans_of(record.last_whole)) == len(SPANS)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("again", [0, 3, 10, 15])
def test_a_run_that_goes_back_repeats_what_it_had_written(again: int) -> None:
    record = RunRecord(spec_of(PLAN, iterations=30))
    lost = {"event": "recovered", "device": "device-2", "how": "hung up", "state_from": "a checkpoint", "lost_s": 1.0}
    before, after = (range(15), range(again, 18))
    for event in [
        *(event for number in before for event in iteration(number)),
        lost | {"iteration": again},
        *(event for number in after for event in iteration(number)),
    ]:
        record.absorb(event)
    assert (
        record.trace().spans()
        == Trace.from_spans(
            record.context(), spans_of([event for number in range(18) for event in iteration(number)])
        ).spans()
    )


@pytest.mark.usefixtures("small_memory")
def test_who_listens_late_hears_all(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [*(event for number in range(30) for event in iteration(number)), {"event": "done"}]
    run = recorded_run(monkeypatch, lambda: iter(said))
    run.wait()

    async def heard() -> list[Event]:
        return [event async for event in run.events()]

    assert asyncio.run(heard()) == said
    told: list[Event] = []
    run.wait(told.append)
    assert told == said


@given(st.lists(st.one_of(st.binary(max_size=300), st.floats(0, 1))))
@settings(max_examples=25)
def test_a_spilled_buffer_holds_what_was_appended(steps: list[bytes | float]) -> None:
    buffer, wanted = SpillBuffer(), b""
    buffer._spill_at = spill_at = 100
    for step in steps:
        if isinstance(step, float):
            wanted = wanted[: int(step * len(wanted))]
            buffer.cut(len(wanted))
        else:
            wanted += step
            buffer.append(step)
            buffer._spill_at = spill_at
        assert len(buffer) == len(wanted)
        assert buffer.read(len(wanted) // 3, 50) == wanted[len(wanted) // 3 :][:50]
    assert buffer.read(0, len(wanted)) == wanted == bytes(buffer.view())


def test_a_full_disk_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill_buffer.tempfile, "TemporaryFile", full)
    monkeypatch.setattr(spill_buffer, "MOST_IN_MEMORY", 100)
    buffer = SpillBuffer()
    for number in range(100):
        buffer.append(bytes([number]) * 20)
    assert bytes(buffer.view()) == b"".join(bytes([number]) * 20 for number in range(100))
