"""Work on a thread of its own: its result, its error, and its CPU time while it runs."""

from __future__ import annotations

import threading
import time

import pytest

from dtfm_lab.planning.background_tasks import BackgroundTasks


def busy_until(heard: threading.Event) -> str:
    while not heard.is_set():
        sum(range(1000))
    return "done"


def test_a_task_hands_out_its_result():
    task = BackgroundTasks().run(lambda: 41 + 1)
    assert task.wait(120)
    assert task.result == 42


def test_a_task_raises_what_its_work_raised():
    def fail() -> None:
        raise ValueError("no")

    task = BackgroundTasks().run(fail)
    task.join()
    with pytest.raises(ValueError, match="no"):
        _ = task.result


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="no clocks of other threads here")
def test_cpu_time_counts_while_it_runs_and_stays_when_it_is_done():
    background_tasks, heard = BackgroundTasks(), threading.Event()
    task = background_tasks.run(lambda: busy_until(heard))
    while background_tasks.cpu_s < 0.02:
        assert not task.wait(0.005)
    seen_s = background_tasks.cpu_s
    heard.set()
    task.join()
    ended_s = background_tasks.cpu_s
    assert ended_s >= seen_s
    other = background_tasks.run(lambda: None)
    other.join()
    assert background_tasks.cpu_s >= ended_s, "what is over still counts"


def test_waiting_costs_no_cpu_time():
    background_tasks, heard = BackgroundTasks(), threading.Event()
    task = background_tasks.run(lambda: heard.wait(120))
    began_s = time.monotonic()
    assert not task.wait(0.5)
    heard.set()
    task.join()
    assert background_tasks.cpu_s < (time.monotonic() - began_s) / 2
