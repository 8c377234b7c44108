"""Work on a thread of its own: its result, its error, and its CPU time while it runs."""

from __future__ import annotations

import threading
import time

import pytest

from dtfm_lab.planning.background_tasks import Errands


def busy_until(heard: threading.Event) -> str:
    while not heard.is_set():
        sum(range(1000))
    return "done"


def test_an_errand_hands_out_its_result():
    errand = Errands().run(lambda: 41 + 1)
    assert errand.wait(10)
    assert errand.result == 42


def test_an_errand_raises_what_its_work_raised():
    def fail() -> None:
        raise ValueError("no")

    errand = Errands().run(fail)
    errand.join()
    with pytest.raises(ValueError, match="no"):
        _ = errand.result


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="no clocks of other threads here")
def test_cpu_time_counts_while_it_runs_and_stays_when_it_is_done():
    errands, heard = Errands(), threading.Event()
    errand = errands.run(lambda: busy_until(heard))
    while errands.cpu_s < 0.02:
        assert not errand.wait(0.005)
    seen_s = errands.cpu_s
    heard.set()
    errand.join()
    ended_s = errands.cpu_s
    assert ended_s >= seen_s
    other = errands.run(lambda: None)
    other.join()
    assert errands.cpu_s >= ended_s, "what is over still counts"


def test_waiting_costs_no_cpu_time():
    errands, heard = Errands(), threading.Event()
    errand = errands.run(lambda: heard.wait(10))
    assert not errand.wait(0.2)
    heard.set()
    errand.join()
    assert errands.cpu_s < 0.1
