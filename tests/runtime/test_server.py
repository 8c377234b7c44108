"""Torch is loaded once per kernel, in a fork server that ends with the kernel or after idle time."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from run_helpers import left_behind, small_plan, until

from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime.client import preload
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.client.run import Run

pytest.importorskip("torch", reason="runs need torch")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks runs from a server")


def long_run() -> Run:
    return start(small_plan(2, 1), iterations=10_000)


def short_run() -> Run:
    return start(small_plan(2, 1), iterations=1)


@pytest.fixture
def server() -> preload.ForkServer:
    """The kernel's, with torch loaded."""
    short_run().wait()
    living = preload.running_server()
    assert living is not None
    return living


def test_runs_are_forked_from_one_server_of_one_thread(server: preload.ForkServer) -> None:
    runs = [long_run(), long_run()]
    assert [psutil.Process(run.pid).ppid() for run in runs] == [server.process.pid] * 2
    assert psutil.Process(server.process.pid).num_threads() == 1
    assert preload.running_server() is server
    for run in runs:
        run.stop()
        assert left_behind(run.pid) == []
    until(lambda: psutil.Process(server.process.pid).children() == [])


def test_runs_started_from_several_threads_all_end_well(server: preload.ForkServer) -> None:
    with ThreadPoolExecutor(3) as pool:
        traces = list(pool.map(lambda _: short_run().wait(), range(3)))
    assert [trace.context.losses for trace in traces] == [traces[0].context.losses] * 3


def test_a_server_holds_no_descriptor_of_runs_that_are_over(server: preload.ForkServer) -> None:
    before = psutil.Process(server.process.pid).num_fds()
    for _ in range(3):
        short_run().wait()
    assert psutil.Process(server.process.pid).num_fds() == before


def test_a_run_goes_on_without_its_server_and_the_next_gets_another(server: preload.ForkServer) -> None:
    run = start(small_plan(2, 1), iterations=40)
    until(lambda: len(run.losses) >= 1)
    os.kill(server.process.pid, signal.SIGKILL)
    assert run.wait().n_iterations == 40
    assert left_behind(run.pid) == []
    short_run().wait()
    assert preload.running_server() is not server


def test_a_run_whose_server_dies_before_it_is_ready_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "_server", None)
    run = short_run()
    living = preload.running_server()
    assert living is not None
    os.kill(living.process.pid, signal.SIGKILL)
    assert run.wait().n_iterations == 1


def test_a_run_does_not_wait_for_a_server_that_gets_no_time_to_load_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "_server", None)
    preload.warm_up()
    ahead = preload.running_server()
    assert ahead is not None
    os.kill(ahead.process.pid, signal.SIGSTOP)  # as beside busy programs, at the lowest priority
    assert short_run().wait().n_iterations == 1
    assert not ahead.lives
    short_run().wait()
    assert preload.running_server() is not ahead


def test_a_run_that_is_stopped_before_torch_is_loaded_never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "_server", None)
    run = short_run()
    run.stop()
    until(lambda: not run.running)
    assert (run.status, run.error, run.pid) == ("stopped", None, None)
    other = preload.running_server()
    assert other is not None
    os.kill(other.process.pid, signal.SIGKILL)
    until(lambda: not other.lives)


def test_a_server_that_hangs_is_given_up(server: preload.ForkServer) -> None:
    os.kill(server.process.pid, signal.SIGSTOP)
    run = short_run()
    run.stop()
    until(lambda: not run.running)
    assert (run.status, run.pid) == ("stopped", None)
    until(lambda: not server.lives)


def test_a_kernel_with_a_thousand_open_files_has_a_server_too_and_an_idle_one_ends_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preload, "_server", None)
    monkeypatch.setenv(preload.IDLE_VARIABLE, "0.1")
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(least, min(most, 4096)), most))
    held = [os.dup(0) for _ in range(1100)]
    try:
        preload.warm_up()
        living = preload.running_server()
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
    assert living is not None
    until(lambda: living.process.poll() is not None)
    assert living.process.returncode == 0


def test_a_server_may_be_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "_server", None)
    monkeypatch.setenv(preload.IDLE_VARIABLE, "0")
    assert preload.running_server() is None
    run = long_run()
    assert run.pid is not None
    until(lambda: psutil.Process(run.pid).cmdline()[-2:] == ["-m", "dtfm_lab.runtime.worker.local_run"])
    run.stop()
    monkeypatch.setenv(preload.IDLE_VARIABLE, "long")
    with pytest.raises(LabError, match="DTFM_LAB_WARM_S is 'long'; wanted seconds from 0"):
        short_run()


def test_an_interrupt_of_the_kernel_reaches_no_run_and_its_death_all_though_a_fork_of_it_lives_on() -> None:
    """And though the server stands still, which is gone once it goes on."""
    script = (
        "import os, sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from test_server import long_run, preload, until\n"
        "run = long_run(); run.pid\n"
        "copy = os.fork()\n"
        "if not copy: os.setsid(); time.sleep(600)\n"
        "try: print(run.pid, preload._server.process.pid, copy, flush=True); time.sleep(600)\n"
        "except KeyboardInterrupt: n = len(run.losses); until(lambda: len(run.losses) >= n + 2)\n"
        "print(run.status, preload._server.lives, flush=True); time.sleep(600)"
    )
    folder = os.path.dirname(__file__)
    kernel = subprocess.Popen(
        [sys.executable, "-c", script, folder], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert kernel.stdout is not None
    group, server, copy = map(int, kernel.stdout.readline().split())
    try:
        os.killpg(kernel.pid, signal.SIGINT)  # as Jupyter does
        assert kernel.stdout.readline() == "running True\n"
        psutil.Process(server).suspend()
        kernel.kill()
        kernel.wait()
        assert left_behind(group) == []
        psutil.Process(server).resume()
        assert left_behind(server) == []
        assert psutil.pid_exists(copy)
    finally:
        os.kill(copy, signal.SIGKILL)
