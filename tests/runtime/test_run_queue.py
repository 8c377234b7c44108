"""The queue of a machine: so many runs at once, in the order in which they came, and nobody waits for the dead."""

import subprocess
import sys
import threading

import pytest
from run_helpers import small_plan, until

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.run_queue import Ticket, queue_folder, runs_at_once

HOLD = """
import sys, time
from pathlib import Path
from dtfm_lab.runtime.client.run_queue import Ticket
ticket = Ticket(Path(sys.argv[1]))
print(ticket.number, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def queue(monkeypatch, tmp_path):
    monkeypatch.setenv("DTFM_LAB_RUNS_AT_ONCE", "1")
    monkeypatch.setenv("DTFM_LAB_RUN_QUEUE", str(tmp_path / "queue"))
    return tmp_path / "queue"


def test_places_are_given_in_order_and_freed(queue):
    first, second, third = Ticket(queue), Ticket(queue), Ticket(queue)
    assert [each.n_before() for each in (first, second, third)] == [0, 1, 2]
    second.leave()
    assert third.n_before() == 1
    first.leave()
    assert third.n_before() == 0
    assert Ticket(queue).n_before() == 1


def test_nobody_waits_for_a_process_that_was_killed(queue):
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(queue)], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "1\n"
    mine = Ticket(queue)
    assert mine.n_before() == 1
    other.kill()
    other.wait()
    other.stdout.close()
    until(lambda: mine.n_before() == 0)
    mine.leave()
    assert [path.name for path in queue.iterdir()] == ["queue"], "tickets of the dead are removed"


def test_without_a_number_there_is_no_queue(monkeypatch, tmp_path):
    monkeypatch.delenv("DTFM_LAB_RUNS_AT_ONCE")
    assert runs_at_once() is None
    monkeypatch.delenv("DTFM_LAB_RUN_QUEUE")
    assert queue_folder().name == "dtfm-lab-runs"


@pytest.mark.parametrize("said", ["0", "some", "-1", "1.5"])
def test_a_number_that_is_none_is_refused(monkeypatch, said):
    monkeypatch.setenv("DTFM_LAB_RUNS_AT_ONCE", said)
    with pytest.raises(LabError, match=f"DTFM_LAB_RUNS_AT_ONCE is '{said}'; wanted a number of runs"):
        runs_at_once()


def test_a_folder_that_cannot_be_used_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match=r"the queue of runs in .*file/queue cannot be used"):
        Ticket(tmp_path / "file" / "queue")


@pytest.mark.slow
def test_a_second_run_waits_says_so_and_goes_when_the_first_has_ended(queue):
    before = Ticket(queue)
    run = lab.start(small_plan(), iterations=2)
    until(lambda: run.waits_for == (1, 1))
    assert run_report.describe_progress(run) == "waiting: 1 before you, this machine runs 1 at once"
    assert run.running
    before.leave()
    assert len(run.wait().context.losses) == 2
    assert run.waits_for == (0, 0)
    until(lambda: Ticket(queue).n_before() <= 1)  # its place is free when its processes are gone


@pytest.mark.slow
def test_who_waits_can_be_stopped_and_leaves_the_queue(queue):
    before = Ticket(queue)
    run = lab.start(small_plan(), iterations=2)
    until(lambda: run.waits_for == (1, 1))
    run.stop()
    until(lambda: run.status == "stopped")
    assert run.pid is None
    after = Ticket(queue)
    until(lambda: after.n_before() == 1)
    before.leave()
    assert after.n_before() == 0


@pytest.mark.slow
def test_two_runs_at_once_are_two(monkeypatch, queue):
    monkeypatch.setenv("DTFM_LAB_RUNS_AT_ONCE", "2")
    runs = [lab.start(small_plan(), iterations=1) for _ in range(3)]
    threads = [threading.Thread(target=run.wait) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(run.status == "done" for run in runs)
