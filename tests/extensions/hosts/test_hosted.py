"""Workers of several hosts: the same losses as at home, one clock for all, and no strangers."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from host_helpers import Hosts, free_port
from run_helpers import small_plan, until
from workers_as_threads import train

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.extensions.hosts import hosted, remote_worker
from dtfm_lab.extensions.hosts import rendezvous as rendezvous_module
from dtfm_lab.extensions.hosts.export import export, spec_for
from dtfm_lab.extensions.hosts.hosted import MOST_IN_VAIN, HostAgent, main
from dtfm_lab.extensions.hosts.hosts import RunHost, load_run_folder
from dtfm_lab.extensions.hosts.remote_worker import MessageStream
from dtfm_lab.extensions.hosts.rendezvous import CoordinatorClock, Joined, Rendezvous, RunOver, join_run
from dtfm_lab.runtime.coordinator.worker_pool import RunFailed
from dtfm_lab.runtime.protocol.channels import Channel, Refused
from dtfm_lab.runtime.protocol.connections import Listener
from dtfm_lab.runtime.protocol.orders import Exit, Iterate, Leave
from dtfm_lab.runtime.worker import worker


@pytest.fixture(autouse=True)
def no_long_goodbyes(monkeypatch):
    """Those that take the place of workers here do not say that they exit."""
    monkeypatch.setattr(rendezvous_module, "LINGER_S", 0.3)


SECRET = "of this test"


def test_two_hosts_train_as_one_machine_does(tmp_path):
    """Contents go in clear by gloo; those of ``test_hosted_faults`` are encrypted."""
    plan = small_plan(2, 1)
    hosts = [RunHost(name=name, address="::1", workers=(rank,)) for rank, name in enumerate(("left", "right"))]
    folder = export(spec_for(plan, "1f1b", iterations=2, carrier="groups"), tmp_path / "run", hosts, port=free_port())
    started = Hosts(folder, tmp_path / "logs")
    try:
        started.start()
        assert started.wait() == [0, 0], started.said()
        assert [host.left_behind() for host in started] == [[], []]
    finally:
        started.end()
    measured = lab.load_trace(folder / "measured.json")
    assert measured.context.losses == tuple(train(plan, "1f1b", 2).losses)
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
            joined = knock(port, rank)
            self._orders[rank] = order = json.loads(joined.connection.recv_bytes())
            if "began_monotonic_s" in order:
                order["began_monotonic_s"] += joined.clock.offset_s()

    def orders(self) -> list[dict[str, float]]:
        for thread in self._threads:
            thread.join(60)
        return [order for _, order in sorted(self._orders.items())]


def folder_at(port: int, n_workers: int = 3, **changes: Any) -> Any:
    """The folder of a run whose coordinator listens there; what ``join_run`` and ``Rendezvous`` want of it."""
    spec = SimpleNamespace(
        secret=changes.pop("secret", SECRET),
        workers=[(rank, 0) for rank in range(n_workers)],
        device_name=lambda position, replica: ("ada", "barbara", "edsger")[position],
        checkpoint_folder=changes.pop("checkpoint_folder", None),
        **dict.fromkeys(("resume_from", "first_iteration", "iterations")),
    )
    return SimpleNamespace(
        **{"address": "127.0.0.1", "port": port, "spec": spec, "await_s": 60.0, "silent_s": 30.0, "certificates": None}
        | changes
    )


def rendezvous_at(port: int, n_workers: int, poll: Callable[[], None] = lambda: None, **changes: Any) -> Rendezvous:
    folder = folder_at(port, n_workers, **changes)
    return Rendezvous(folder, folder.spec, poll)


def test_workers_come_in_in_any_order_and_moments_are_told_by_their_own_clock():
    rendezvous = rendezvous_at(port := free_port(), 3)
    workers = Workers(port, [2, 0, 1])
    handles = [rendezvous.start(rank) for rank in range(3)]
    assert [handle.rank for handle in handles] == [0, 1, 2]
    moment_s = time.monotonic() + 700
    for handle in handles:
        handle.order(Iterate(iteration=0, began_monotonic_s=moment_s))
    found = [order["began_monotonic_s"] for order in workers.orders()]
    # one machine has one clock: what remains is the error of asking
    assert found == pytest.approx([moment_s] * 3, abs=2)
    rendezvous.finish(0, "")


class Echo:
    """The coordinator's end: a clock that is ``ahead_s`` ahead, ``way_s`` away; two of three answers take longer.

    Time passes only here, so that a busy machine adds nothing.
    """

    def __init__(self, ahead_s: float, way_s: float, slow_s: float) -> None:
        self._ahead_s, self._way_s, self._slow_s, self._asked, self._now_s = ahead_s, way_s, slow_s, 0, 77.0

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        threading.Event().wait()  # nobody asks anew

    def send_bytes(self, question: bytes) -> None:
        self._asked += 1
        self._now_s += self._way_s

    def recv_bytes(self) -> bytes:
        answer = repr(self._now_s + self._ahead_s).encode()
        self._now_s += self._way_s + (self._slow_s if self._asked % 3 else 0)
        return answer


def test_the_answer_that_comes_back_soonest_tells_the_time(monkeypatch):
    monkeypatch.setattr(rendezvous_module, "time", echo := Echo(ahead_s=5000.0, way_s=0.25, slow_s=2.0))
    clock = CoordinatorClock(echo)
    assert clock.offset_s() == pytest.approx(-5000, abs=1e-9)
    assert clock.round_trip_s == pytest.approx(0.5)


def test_who_does_not_know_the_secret_gets_no_order():
    rendezvous = rendezvous_at(port := free_port(), 1)
    with pytest.raises(Refused):
        join_run(folder_at(port, secret="guessed"), 0, "")
    silent = socket.create_connection(("127.0.0.1", port))
    workers = Workers(port, [0])
    rendezvous.start(0).order(Exit())
    assert workers.orders() == [{"do": "exit", "status": 0, "why": ""}]
    silent.close()
    rendezvous.finish(0, "")


def test_workers_that_do_not_come_are_named():
    looks: list[int] = []
    rendezvous = rendezvous_at(port := free_port(), 3, await_s=1.0, poll=lambda: looks.append(1))
    workers = Workers(port, [1])
    until(lambda: rendezvous._missing() == [0, 2])
    with pytest.raises(RunFailed, match=r"^ada, edsger did not come within 1 s; wanted run\.sh on every host$"):
        rendezvous.start(0)
    assert looks
    threading.Thread(target=rendezvous.finish, args=(1, "so it is over"), daemon=True).start()
    assert workers.orders() == [{"do": "exit", "status": 1, "why": "so it is over"}]


def test_a_stopped_run_does_not_wait_for_workers():
    class Stopped(Exception): ...

    def look() -> None:
        raise Stopped

    rendezvous = rendezvous_at(free_port(), 1, poll=look)
    with pytest.raises(Stopped):
        rendezvous.start(0)


def knock(port: int, rank: int = 0) -> Joined:
    return join_run(folder_at(port), rank, "")


def says(joined: Joined) -> None:
    joined.connection.send_bytes(b'{"event": "alive", "works": false}')


def test_a_second_process_for_a_rank_whose_worker_lives_is_turned_away():
    rendezvous = rendezvous_at(port := free_port(), 1)
    first = knock(port)
    handle = rendezvous.start(0)
    second = knock(port)
    until(lambda: handle.knocked_s() is not None)

    def refused() -> bool:
        says(first)
        handle.receive()
        assert not handle.is_stuck()
        return handle.knocked_s() is None

    until(refused)
    assert json.loads(second.connection.recv_bytes())["why"] == (
        "worker ada already runs, at 127.0.0.1; wanted one process for it"
    )
    handle.order(Leave())
    assert json.loads(first.connection.recv_bytes()) == {"do": "leave"}


def test_a_silent_worker_is_waited_for_and_replaced_at_once_when_another_process_knocks(monkeypatch):
    monkeypatch.setattr(remote_worker, "SILENT_S", 0.3)
    rendezvous = rendezvous_at(port := free_port(), 1)
    first = knock(port)
    handle = rendezvous.start(0)
    until(lambda: handle.is_silent)
    assert not handle.is_stuck()
    assert handle.why_gone() is None
    second = knock(port)
    until(handle.is_stuck)
    handle.end()
    rendezvous.start(0).order(Leave())
    assert json.loads(second.connection.recv_bytes(10)) == {"do": "leave"}
    assert first is not second


def test_a_lost_worker_that_nobody_replaces_fails_the_run_in_one_line():
    rendezvous = rendezvous_at(port := free_port(), 1, await_s=1.0)
    joined = knock(port)
    handle = rendezvous.start(0)
    joined.connection.close()
    until(lambda: not handle.receive() and handle.why_gone() == "hung up")
    with pytest.raises(RunFailed, match=r"^ada did not come back within 1 s; wanted run\.sh on every host$"):
        rendezvous.start(0)


def test_who_comes_when_the_run_has_ended_is_told_how():
    rendezvous = rendezvous_at(port := free_port(), 1)
    threading.Thread(target=rendezvous.finish, args=(0, ""), daemon=True).start()
    with pytest.raises(RunOver) as over:
        knock(port)
    assert over.value.status == 0


def test_a_checkpoint_folder_that_is_not_the_first_hosts_is_refused(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    rendezvous = rendezvous_at(port := free_port(), 1, checkpoint_folder=str(tmp_path / "mine"))
    (tmp_path / "mine").rename(tmp_path / "of the first host")
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(rendezvous_module, "APPEAR_S", 0.1)
    rendezvous._spec.checkpoint_folder = str(tmp_path / "of the first host")
    (tmp_path / "of the first host").rename(tmp_path / "mounted elsewhere")
    os.symlink(tmp_path / "mounted elsewhere", tmp_path / "of the first host")
    real_token = rendezvous_module._token_in

    @contextlib.contextmanager
    def as_it_is_called_on_the_other_host(folder):
        with real_token(folder) as shared:
            yield shared | {"folder": str(tmp_path / "mine")}

    monkeypatch.setattr(rendezvous_module, "_token_in", as_it_is_called_on_the_other_host)
    complaint = "checkpoint_folder .*mine on host b is not the first host's; wanted a shared folder"
    with pytest.raises(LabError, match=complaint):
        join_run(folder_at(port), 0, "b")
    with pytest.raises(RunFailed, match=complaint):
        rendezvous.start(0)
    assert list((tmp_path / "mounted elsewhere").iterdir()) == []


def test_a_worker_without_a_coordinator_says_so():
    with pytest.raises(ConnectionError, match=r"could not be reached for 0\.\d* s"):
        join_run(folder_at(free_port(), await_s=0.3), 0, "")


def test_a_coordinator_that_is_lost_while_it_lets_a_worker_in_is_not_the_runs_end():
    def admit(channel: Channel) -> None:
        if channel.receive(5).get("purpose") != "clock":
            return channel.close()
        stream = MessageStream(channel.raw())
        while stream.recv_bytes():
            stream.send_bytes(b"0.0")

    listener = Listener("127.0.0.1", 0, SECRET, admit)
    with pytest.raises(EOFError, match="closed the connection"):
        join_run(folder_at(listener.address[1]), 0, "")
    listener.close()


def test_a_worker_exits_as_ordered_though_the_coordinator_does_not_hear_it_any_more(tmp_path, monkeypatch):
    hosts = [RunHost(name="one", address="127.0.0.1", workers=(0, 1))]
    folder = load_run_folder(export(spec_for(small_plan(2, 1)), tmp_path / "run", hosts))
    near, far = socket.socketpair()
    far.close()
    joined = Joined(MessageStream(near), "127.0.0.1", SimpleNamespace(offset_s=lambda: 0.0), {})
    monkeypatch.setattr(hosted, "join_run", lambda *_, **__: joined)
    exits = []
    monkeypatch.setattr(worker, "main", lambda *_, host: exits.append(host.on_exit(Exit(status=3, why="x"))))
    notes: list[dict[str, object]] = []
    with pytest.raises(AssertionError, match="exits its process"):
        hosted.run_worker(folder, "one", 0, lambda **note: notes.append(note))
    assert exits == [3]
    assert notes == [{"joined": 0}, {"end": [3, "x"]}]


def agent_of(folder: Path, host: str = "one") -> HostAgent:
    hosts = [RunHost(name="one", address="127.0.0.1", workers=(0, 1))]
    return HostAgent(load_run_folder(export(spec_for(small_plan(2, 1)), folder / "run", hosts)), host)


def test_processes_that_end_before_they_have_joined_are_started_again_five_times(tmp_path, monkeypatch, capsys):
    agent = agent_of(tmp_path)
    started: list[int] = []
    monkeypatch.setattr(agent, "_start", started.append)
    for _ in range(3):
        agent._start_again(0)
    agent._note(joined=0)
    agent._take_notes()
    for _ in range(MOST_IN_VAIN + 1):
        assert agent._end is None
        agent._start_again(0)
    assert started == [0] * (3 + MOST_IN_VAIN)
    assert agent._end == (
        1,
        f"a process was restarted {MOST_IN_VAIN} times and ended each time before it joined the run",
    )
    assert "worker 0 ended and is restarted" in capsys.readouterr().err


def test_the_first_note_of_the_end_counts(tmp_path):
    agent = agent_of(tmp_path)
    agent._take_notes()
    assert agent._end is None
    agent._note(joined=1)
    agent._note(end=[1, "why"])
    agent._note(end=[0, ""])
    agent._take_notes()
    assert agent._end == (1, "why")


def test_a_host_that_is_not_in_the_folder_is_refused(tmp_path):
    with pytest.raises(LabError, match="no host named two in run; wanted one of one"):
        agent_of(tmp_path, "two")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "wanted RUN_FOLDER --host NAME, as dtfm-lab export writes it"),
        (["nowhere", "--host", "a"], "nowhere/run.json: no such file"),
        (["nowhere"], "wanted RUN_FOLDER --host NAME"),
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
