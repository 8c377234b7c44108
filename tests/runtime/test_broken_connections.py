"""Connections that break though no worker is lost: what is measured has each action once, and no loss differs."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import torch
from broken_sockets import shut_between
from run_helpers import left_behind, small_plan, until
from test_recovery import assert_as_undisturbed

from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.worker.transport import PeerListener, Transport


def broken(run: Run, times: int) -> Run:
    """A run that is over, after sockets between its workers were shut so often, each time in another iteration."""
    for _ in range(times):
        run.wait_for(len(run.losses) + 2)
        n_notes = len(run.notes)
        assert shut_between(psutil.Process(run.pid).children()) == 1
        until(lambda n=n_notes: len(run.notes) > n or not run.running)
    run.wait_for(len(run.losses) + 2)
    run.stop()
    until(lambda: not run.running)
    assert left_behind(run.pid) == []
    return run


@pytest.mark.parametrize(
    ("clock", "fields"),
    [
        ("virtual", {}),
        ("virtual", {"schedule": "interleaved-1f1b", "synchronisation": "ring"}),
        ("virtual", {"synchronise_every": 3}),
        ("paced", {}),
        ("real", {"transport": "blocking"}),
    ],
)
def test_sockets_that_are_shut_between_workers_cost_no_measurement(clock: str, fields: dict[str, object]) -> None:
    run = broken(start(small_plan(**fields), iterations=10_000, clock=clock), times=2)
    assert run.error is None
    assert_as_undisturbed(run)
    assert run.faults == ()
    assert len(run.notes) == 2
    assert all(note.startswith("connections between workers broke in iteration ") for note in run.notes)
    assert run.trace().context.notes == run.notes


def test_where_messages_are_replayed_a_shut_socket_costs_nothing_either() -> None:
    run = broken(start(small_plan(), iterations=10_000, queueing="nics"), times=1)
    assert_as_undisturbed(run)


def test_a_worker_that_is_killed_after_a_shut_socket_is_replaced_as_ever() -> None:
    run = start(small_plan(), iterations=10_000)
    run.wait_for(2)
    shut_between(psutil.Process(run.pid).children())
    run.kill("device-1")
    until(lambda: bool(run.faults) or not run.running)
    run = broken(run, times=1)
    assert_as_undisturbed(run)
    assert [fault.device for fault in run.faults] == ["device-1"]


IMPATIENT = """
from dtfm_lab.runtime.protocol.channels import Channel
Channel.lose_when_silent.__defaults__ = (6.0,)
"""
"""Every Python of the run does so at its start: connections end when nothing was acknowledged for 6 s, not for 30 s."""
OUTAGE = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from dtfm_lab.runtime.protocol.channels import Channel
assert Channel.lose_when_silent.__defaults__ == (6.0,), "so it is in the workers, which import the same"
from run_helpers import small_plan, until
from test_recovery import assert_as_undisturbed
from dtfm_lab.runtime.client.launch import start
run = start(small_plan(), iterations=10_000)
run.wait_for(3)
subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
time.sleep(float(sys.argv[2]))
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
until(lambda: bool(run.notes) or not run.running)
run.wait_for(len(run.losses) + 3)
run.stop()
until(lambda: not run.running)
assert_as_undisturbed(run)
print(run.status, run.faults, run.notes)
"""


@pytest.mark.slow
def test_an_outage_that_outlasts_the_connections_costs_an_iteration_again_and_no_measurement(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    name = f"dtfm-{os.getpid()}-lo"
    try:
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs root and ip: {error}")
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True, timeout=30)
        inside = ["ip", "netns", "exec", name, sys.executable, "-c", OUTAGE, os.path.dirname(__file__), "9"]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=600, env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("stopped () ('connections between workers broke in iteration ")
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, timeout=30)


class Held:
    """Wires that finish a send when a test lets them."""

    def __init__(self) -> None:
        self.sending, self.may_finish = threading.Event(), threading.Event()

    def open(self, connection: socket.socket, secret: str, pair: tuple[int, int], *, sends: bool) -> Held:
        return self

    def send(self, header: bytes, buffer: object) -> None:
        self.sending.set()
        assert self.may_finish.wait(60)

    def receive(self, n_bytes: int) -> None:
        raise AssertionError("nothing is sent")

    def abort(self) -> None:
        pass


def test_a_message_whose_last_byte_leaves_after_all_was_abandoned_is_not_told_as_sent() -> None:
    """Its iteration is repeated by then, and would have the span twice."""
    listener, target = (PeerListener("127.0.0.1", "of this test") for _ in range(2))
    held, told = Held(), queue.SimpleQueue[object]()
    before = threading.active_count()
    transport = Transport(listener, "of this test", 1, 0, [], {1: target.address}, carrier=held)
    transport.wait_connected()
    transport.send(1, 0, Action(0, Kind.RECV_F, 0), torch.zeros(4), on_sent=told.put)
    assert held.sending.wait(60)
    transport.abort()
    held.may_finish.set()
    until(lambda: threading.active_count() <= before)
    assert told.empty()
