"""Workers that torchrun starts: the same losses as at home, one clock for all, and no strangers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest
from run_helpers import small_plan

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime.hosted import main, rank_of
from dtfm_lab.runtime.multihost.export import export, load_run_folder, spec_for
from dtfm_lab.runtime.multihost.hosts import Host
from dtfm_lab.runtime.multihost.rendezvous import (
    CoordinatorClock,
    Rendezvous,
    join_run,
    list_names,
)
from dtfm_lab.runtime.protocol.connections import Refused

SECRET = "of this test"


def free_port() -> int:
    """A port that is free now and whose next one is, below those that the system gives to connections of its own."""
    for port in random.SystemRandom().sample(range(12_000, 30_000, 2), 100):
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for each in (port, port + 1):
                held.enter_context(socket.create_server(("127.0.0.1", each)))
            return port
    raise AssertionError("no two free ports in 100 tries")


def what_was_said(process: subprocess.Popen[str]) -> str:
    """Everything that a process printed; one that does not end is ended, and what it printed still counts."""
    try:
        return process.communicate(timeout=180)[0]
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its workers then, which have the same pipe
        return process.communicate(timeout=60)[0]


@pytest.mark.skipif(shutil.which("torchrun", path=os.path.dirname(sys.executable)) is None, reason="needs torchrun")
def test_two_hosts_that_torchrun_starts_train_as_one_machine_does(tmp_path):
    plan = small_plan(2, 1)
    hosts = [Host(name=name, address="127.0.0.1", workers=(rank,)) for rank, name in enumerate(("left", "right"))]
    folder = export(spec_for(plan, "1f1b", iterations=2), tmp_path / "run", hosts, master_port=free_port())
    environment = os.environ | {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
    started = [subprocess.Popen(["sh", str(folder / "hosts" / h.name / "run.sh")], **pipes) for h in hosts]
    said = [what_was_said(process) for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    measured = lab.load_trace(folder / "measured.json")
    assert measured.context.losses == lab.run(plan, "1f1b", iterations=2).context.losses
    assert (measured.context.clock, measured.context.links) == ("real", "real")
    lab.compare(lab.simulate(plan, like=measured), measured)


class Workers:
    """Come in and wait for one order each."""

    def __init__(self, port: int, ranks: list[int]) -> None:
        self._orders: dict[int, dict[str, float]] = {}
        self._threads = [threading.Thread(target=self._work, args=(port, rank), daemon=True) for rank in ranks]
        for thread in self._threads:
            thread.start()

    def _work(self, port: int, rank: int) -> None:
        with contextlib.suppress(EOFError, OSError):
            connection, _, clock = join_run("127.0.0.1", port, SECRET, rank, wait_s=60)
            self._orders[rank] = order = json.loads(connection.recv_bytes())
            if "began_monotonic_s" in order:
                order["began_monotonic_s"] += clock.offset_s()

    def orders(self) -> list[dict[str, float]]:
        for thread in self._threads:
            thread.join(60)
        return [order for _, order in sorted(self._orders.items())]


def test_workers_come_in_in_any_order_and_moments_are_told_by_their_own_clock():
    rendezvous = Rendezvous("127.0.0.1", port := free_port(), SECRET, 3)
    workers = Workers(port, [2, 0, 1])
    connections = rendezvous.all_workers(lambda: None, wait_s=60)
    assert sorted(connections) == [0, 1, 2]
    moment_s = time.monotonic() + 700
    for connection in connections.values():
        connection.send_bytes(json.dumps({"began_monotonic_s": moment_s}).encode())
    found = [order["began_monotonic_s"] for order in workers.orders()]
    # one machine has one clock: what remains is the error of asking, half a round trip
    assert found == pytest.approx([moment_s] * 3, abs=2)
    rendezvous.close()


class Echo:
    """The crew's end: a clock that is ``ahead_s`` ahead, and answers that take their time one way, two of three long.

    Time passes only here, so that a busy machine adds nothing.
    """

    def __init__(self, ahead_s: float, slow_s: float) -> None:
        self._ahead_s, self._slow_s, self._asked, self._now_s = ahead_s, slow_s, 0, 77.0

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        threading.Event().wait()  # nobody asks anew

    def send_bytes(self, question: bytes) -> None:
        self._asked += 1

    def recv_bytes(self, longest: int) -> bytes:
        self._now_s += 0.001
        answer = repr(self._now_s + self._ahead_s).encode()
        self._now_s += self._slow_s if self._asked % 3 else 0.001
        return answer


def test_the_answer_that_comes_back_soonest_tells_the_time(monkeypatch):
    echo = Echo(ahead_s=5000.0, slow_s=0.02)
    monkeypatch.setattr("dtfm_lab.runtime.multihost.rendezvous.time", echo)
    clock = CoordinatorClock(echo)
    assert clock.offset_s() == pytest.approx(-5000, abs=1e-9)
    assert clock.round_trip_s == pytest.approx(0.002)
    clock.delay_s = 0.25
    assert clock.offset_s() == pytest.approx(-5000 + 0.25, abs=1e-9)


def test_who_does_not_know_the_secret_gets_no_order():
    rendezvous = Rendezvous("127.0.0.1", port := free_port(), SECRET, 1)
    with pytest.raises(Refused):
        join_run("127.0.0.1", port, "guessed", 0, wait_s=5)
    silent = socket.create_connection(("127.0.0.1", port))
    workers = Workers(port, [0])
    rendezvous.all_workers(lambda: None, wait_s=60)[0].send_bytes(b'{"do": "exit"}')
    assert workers.orders() == [{"do": "exit"}]
    silent.close()
    rendezvous.close()


def test_workers_that_do_not_come_are_named_by_rank():
    rendezvous = Rendezvous("127.0.0.1", port := free_port(), SECRET, 3)
    Workers(port, [1])
    looks: list[int] = []
    with pytest.raises(TimeoutError) as late:
        rendezvous.all_workers(lambda: looks.append(1), wait_s=1)
    assert late.value.args == ([0, 2],)
    assert looks
    assert list_names([0, 2], ["ada", "barbara", "edsger"].__getitem__) == "ada, edsger"
    assert list_names(range(6), str) == "0, 1, 2, 3 and 2 more"
    rendezvous.close()


def test_a_stopped_run_does_not_wait_for_workers():
    class Stopped(Exception): ...

    def look() -> None:
        raise Stopped

    rendezvous = Rendezvous("127.0.0.1", free_port(), SECRET, 1)
    with pytest.raises(Stopped):
        rendezvous.all_workers(look)
    rendezvous.close()


def test_a_worker_without_a_crew_says_so():
    with pytest.raises(ConnectionError, match=r"could not be reached for 0\.3 s"):
        join_run("127.0.0.1", free_port(), SECRET, 0, wait_s=0.3)


def test_processes_that_torchrun_did_not_start_as_the_folder_says_are_refused(tmp_path):
    plan = small_plan(2, 1)
    hosts = [Host(name="one", address="127.0.0.1", workers=(0, 1))]
    folder = load_run_folder(export(spec_for(plan), tmp_path / "run", hosts))
    assert rank_of(folder, {"RANK": "1", "WORLD_SIZE": "2"}) == 1
    with pytest.raises(LabError, match="RANK and WORLD_SIZE are not set; wanted torchrun to start this"):
        rank_of(folder, {})
    with pytest.raises(LabError, match="process 2 of 4 was started, but the run has 2 workers"):
        rank_of(folder, {"RANK": "2", "WORLD_SIZE": "4"})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "wanted one argument: a run folder, as dtfm-lab export writes it"),
        (["nowhere"], "nowhere/run.json: no such file"),
    ],
)
def test_mistakes_at_the_start_are_one_line(tmp_path, monkeypatch, capsys, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hosted", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert len(said.strip().splitlines()) == 1
