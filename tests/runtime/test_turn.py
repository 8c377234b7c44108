"""So many runs at once on a machine; further ones wait, say so, and nobody waits for the dead."""

import fcntl
import os
from pathlib import Path

import pytest
from run_helpers import left_behind, small_plan, until

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.protocol.locks import await_turn
from dtfm_lab.runtime.protocol.processes import CommandReader

pytest.importorskip("fcntl")


@pytest.fixture(autouse=True)
def queue(monkeypatch, tmp_path):
    monkeypatch.setenv("DTFM_LAB_RUNS_AT_ONCE", "1")
    monkeypatch.setenv("DTFM_LAB_RUN_QUEUE", str(tmp_path / "queue"))
    return tmp_path / "queue"


@pytest.mark.parametrize("said", ["0", "some", "-1", "1.5"])
def test_a_number_that_is_none_is_refused(monkeypatch, said):
    monkeypatch.setenv("DTFM_LAB_RUNS_AT_ONCE", said)
    with pytest.raises(LabError, match=f"DTFM_LAB_RUNS_AT_ONCE is '{said}'; wanted a number of runs"):
        await_turn(CommandReader())


def test_a_folder_that_cannot_be_used_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DTFM_LAB_RUN_QUEUE", str(tmp_path / "file" / "queue"))
    with pytest.raises(LabError, match=r"the queue of runs in .*file/queue cannot be used"):
        await_turn(CommandReader())


@pytest.mark.slow
def test_a_run_waits_for_its_turn_says_so_and_can_be_stopped(queue):
    queue.mkdir()
    place = os.open(Path(queue) / "place-0", os.O_RDONLY | os.O_CREAT)
    fcntl.flock(place, fcntl.LOCK_EX)  # as another run
    waiting, stopped = (lab.start(small_plan(), iterations=2) for _ in range(2))
    until(lambda: (waiting.waits_for, stopped.waits_for) == (1, 1))
    assert run_report.describe_progress(waiting) == "waiting: this machine runs 1 at once"
    assert waiting.running
    stopped.stop()
    until(lambda: stopped.status == "stopped")
    assert left_behind(stopped.pid) == []
    os.close(place)
    assert len(waiting.wait().context.losses) == 2
    assert waiting.waits_for == 0
    with pytest.raises(RunError, match="before its first iteration"):
        stopped.trace()
    assert lab.run(small_plan(), iterations=1).n_iterations == 1, "its place is free again"
