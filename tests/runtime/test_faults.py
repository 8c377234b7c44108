"""Whatever process dies, the user gets one line and no process is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import psutil
import pytest
from run_helpers import left_behind, small_plan, until

from dtfm_lab.domain.errors import RunError, UnknownName
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.client.run import Run


def under_way(n_stages: int = 2, n_replicas: int = 2, **options: object) -> Run:
    """A run that has some iterations behind it and many before it."""
    run = start(small_plan(n_stages, n_replicas), iterations=10_000, **options)
    until(lambda: len(run.losses) >= 2 or not run.running)
    return run


def assert_stopped(run: Run) -> None:
    """By the user, with no process left."""
    assert left_behind(run.pid) == []
    until(lambda: not run.running)
    assert run.status == "stopped"


def test_a_killed_worker_that_nobody_can_replace_ends_the_run_in_one_line_that_names_it() -> None:
    run = under_way(n_replicas=1)
    run.kill("device-1")
    with pytest.raises(RunError, match=r"^worker device-1 \(stage 1, replica 0\) was killed by SIGKILL in iteration"):
        run.wait()
    assert run.status == "failed"
    assert left_behind(run.pid) == []


def test_stop_keeps_whole_iterations_leaves_nothing_and_a_run_that_is_over_takes_no_commands() -> None:
    run = under_way()
    with pytest.raises(UnknownName, match="no device of this run named 'device-9'"):
        run.kill("device-9")
    run.stop()
    with pytest.raises(RunError, match=r"the run is over \(stopped\) after \d+ iterations; wanted 10000"):
        run.wait_for(10_000)
    assert_stopped(run)
    trace = run.trace()
    assert trace.n_iterations == len(run.losses) >= 2
    with pytest.raises(RunError, match="the run is over"):
        run.kill("device-1")


@pytest.mark.parametrize("whose", ["workers", "coordinator"])
def test_stop_ends_also_what_stands_still(whose: str) -> None:
    run = under_way()
    coordinator = psutil.Process(run.pid)
    for process in coordinator.children() if whose == "workers" else [coordinator]:
        process.suspend()
    run.stop()
    assert_stopped(run)


def test_stop_ends_a_run_that_is_about_to_replace_a_worker() -> None:
    run = under_way()
    run.kill("device-2")
    until(lambda: "device-2" in run.conditions)
    run.stop()
    assert_stopped(run)


def test_a_worker_that_stands_still_does_not_outlive_the_process_that_leads_it() -> None:
    run = under_way()
    for worker in psutil.Process(run.pid).children():
        worker.suspend()
    os.kill(run.pid, signal.SIGKILL)
    with pytest.raises(RunError, match="was killed by SIGKILL"):
        run.wait()
    assert left_behind(run.pid) == []


def test_workers_go_when_the_kernel_dies_though_they_and_the_coordinator_stand_still() -> None:
    """``test_server`` holds it where the fork server does."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_faults import under_way\n"
        "run = under_way(); print(run.pid, flush=True); run.wait()"
    )
    folder = os.path.dirname(__file__)
    kernel = subprocess.Popen([sys.executable, "-c", script, folder], stdout=subprocess.PIPE, text=True)
    assert kernel.stdout is not None
    group = int(kernel.stdout.readline())
    coordinator, (server,) = psutil.Process(group), psutil.Process(kernel.pid).children()
    stopped = [coordinator, *coordinator.children()]
    for process in stopped:
        process.suspend()
    kernel.kill()
    kernel.wait()
    try:
        assert left_behind(group) == []
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
    assert left_behind(server.pid) == []


def test_ctrl_c_while_waiting_stops_the_run() -> None:
    run = start(small_plan(), iterations=10_000)

    def interrupt(event: dict[str, object]) -> None:
        if event["event"] == "iteration":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.wait(interrupt)
    assert left_behind(run.pid) == []


def test_a_run_that_is_stopped_while_it_starts_is_stopped_not_failed() -> None:
    run = start(small_plan(), iterations=10_000)
    run.stop()
    assert_stopped(run)
    assert run.error is None
