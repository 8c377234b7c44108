"""Threads beside a search: what they return and cost, and the end of a search that another thread cancels."""

from __future__ import annotations

import threading
import time

import pytest

import dtfm_lab as lab
from dtfm_lab.planning import Cancellation, plan
from dtfm_lab.planning.background_tasks import BackgroundTasks, flag


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


def test_a_thread_hears_its_own_cancellation_and_no_other():
    one, other = Cancellation(), Cancellation()
    with one.heard():
        other.set()
        assert not flag()[0]
        one.set()
        assert flag()[0]
        found = []
        thread = threading.Thread(target=lambda: found.append(bool(flag()[0])))
        thread.start()
        thread.join()
        assert found == [False]
    assert not flag()[0]


def test_one_that_was_set_before_is_heard_at_once():
    cancellation = Cancellation()
    cancellation.set()
    with cancellation.heard():
        assert flag()[0]


def test_time_that_is_over_ends_loops_but_is_no_cancellation():
    cancellation, over = Cancellation(), threading.Event()
    with cancellation.heard() as end_after:
        end_after(0.0)
        while not flag()[0]:
            assert not over.wait(0.01)
        assert not cancellation.is_set()
    with cancellation.heard():
        assert not flag()[0]


def test_a_cancelled_annealing_makes_no_move():
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("gpt2-small")
    options = {"objective": "iteration", "seed": 0, "steps": 1, "improve_bound": False}
    cancellation = Cancellation()
    cancellation.set()
    with cancellation.heard():
        ended = plan(topology, job, **options)
    assert ended.iteration_s >= plan(topology, job, **options).iteration_s
    assert ended.placement.devices.size == len(set(ended.placement.devices.ravel().tolist()))
