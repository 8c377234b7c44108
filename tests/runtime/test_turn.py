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


def test_a_planted_link_is_refused_and_the_folder_that_it_leads_to_keeps_its_mode(monkeypatch, tmp_path):
    victim = tmp_path / "private"
    victim.mkdir(mode=0o700)
    monkeypatch.delenv("DTFM_LAB_RUN_QUEUE")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "dtfm-lab-runs").symlink_to(victim)
    with pytest.raises(LabError, match=r"the queue of runs in .*dtfm-lab-runs cannot be used: it is a link; wanted"):
        await_turn(CommandReader())
    assert victim.stat().st_mode & 0o7777 == 0o700
    assert list(victim.iterdir()) == []


def test_a_folder_that_was_there_keeps_its_mode_and_one_that_was_not_is_for_all(queue):
    queue.mkdir(mode=0o750)
    await_turn(CommandReader())
    assert queue.stat().st_mode & 0o7777 == 0o750
    (queue / "place-0").unlink()
    queue.rmdir()
    await_turn(CommandReader())
    assert queue.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("kind", ["a link", "a dangling link", "a pipe", "a folder"])
def test_what_is_planted_in_place_of_a_lock_is_refused_and_not_followed(queue, tmp_path, kind):
    queue.mkdir()
    place, target = queue / "place-0", tmp_path / "target"
    match kind:
        case "a pipe":
            os.mkfifo(place)
        case "a folder":
            place.mkdir()
        case _:
            place.symlink_to(target)
            if kind == "a link":
                target.touch()
    with pytest.raises(LabError, match=r"the queue of runs in .* cannot be used: "):
        await_turn(CommandReader())
    assert target.exists() == (kind == "a link")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to make a folder another user's")
@pytest.mark.parametrize(("mode", "usable"), [(0o755, False), (0o777, False), (0o1777, True)])
def test_another_users_folder_is_used_where_it_is_for_all(queue, mode, usable):
    queue.mkdir()
    os.chown(queue, 4711, 4711)
    queue.chmod(mode)
    if usable:
        await_turn(CommandReader())
    else:
        with pytest.raises(LabError, match=rf"it is of user 4711, and not for all \(mode {mode:o}\)"):
            await_turn(CommandReader())
    assert queue.stat().st_mode & 0o7777 == mode
