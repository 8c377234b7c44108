"""Two runs in one checkpoint folder, and a folder that fills up, vanishes or may not be written to any more."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_helpers import small_plan, until
from workers_as_threads import train

from dtfm_lab.domain.errors import FileError, RunError
from dtfm_lab.files import load_trace, save_trace
from dtfm_lab.runtime.client.launch import prepare, start
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.protocol import checkpoint_folders, locks
from dtfm_lab.runtime.protocol.checkpoint_folders import describe, latest
from dtfm_lab.runtime.protocol.locks import FolderLock, check_unlocked
from dtfm_lab.runtime.protocol.run_options import RunOptions

STARTED: list[Run] = []


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    """A test that fails leaves no run behind, which would keep the machine busy."""
    yield
    while STARTED:
        STARTED.pop().stop()


def under_way(folder: Path, iterations: int = 10_000, **options: object) -> Run:
    """A run that has written a checkpoint and has many before it."""
    run = start(small_plan(), iterations=iterations, checkpoint_folder=folder, checkpoint_every=2, **options)
    STARTED.append(run)
    until(lambda: bool(run.checkpoints) or not run.running)
    return run


def test_two_that_start_at_the_same_moment_end_as_one_run_and_one_line_and_a_killed_run_leaves_no_lock(
    tmp_path: Path,
) -> None:
    """Both have passed the check of the process that starts them; the coordinators find out."""
    options = {"iterations": 10_000, "checkpoint_folder": os.fspath(tmp_path), "checkpoint_every": 1}
    specs = [prepare(small_plan(), None, RunOptions(**options)) for _ in range(2)]
    runs = [Run(spec) for spec in specs]
    until(lambda: any(not run.running for run in runs) and any(run.checkpoints for run in runs))
    (over,) = [run for run in runs if not run.running]
    (other,) = [run for run in runs if run is not over]
    says = f"checkpoint_folder {tmp_path}: another run writes to it; wanted another folder, or its end"
    assert over.error == says
    with pytest.raises(FileError, match=re.escape(says)):
        start(small_plan(), iterations=2, checkpoint_folder=tmp_path, checkpoint_every=1)
    assert other.pid is not None
    os.killpg(other.pid, 9)
    with pytest.raises(RunError):
        other.wait()
    before = describe(tmp_path).iteration
    start(small_plan(), iterations=1, resume_from=tmp_path, checkpoint_folder=tmp_path, checkpoint_every=1).wait()
    assert describe(tmp_path).iteration == before + 1


def test_where_the_file_system_does_not_lock_the_run_goes_on_and_says_so(tmp_path: Path, monkeypatch) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    lock = FolderLock(tmp_path)
    lock.hold()
    assert lock.unsupported == "its file system does not lock (Operation not supported)"
    check_unlocked(tmp_path)


@contextlib.contextmanager
def small_disk(folder: Path, n_bytes: int) -> Iterator[Path]:
    """A file system of so many bytes in memory; the test is skipped where none can be mounted."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "none", folder], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_ends_no_training_and_the_checkpoint_is_tried_again(tmp_path: Path) -> None:
    """Before, the worker whose file did not fit failed, and the run with it."""
    # Two checkpoints of 1.6 MB are kept while a third is written.
    with small_disk(tmp_path / "disk", 6 << 20) as disk:
        run = under_way(disk / "kept")
        before = describe(disk / "kept").iteration
        with contextlib.suppress(OSError), (disk / "other").open("wb") as file:
            while True:
                file.write(b"x" * (1 << 14))
                file.flush()
        until(lambda: bool(run.notes) or not run.running)
        assert run.running, run.error
        assert run.notes[0].startswith("no checkpoint after iteration ")
        assert "training continues: " in run.notes[0]
        assert "No space left on device" in run.notes[0]
        assert "\n" not in run.notes[0]
        whole = latest(disk / "kept")
        assert whole is not None
        assert whole.iteration >= before
        (disk / "other").unlink()
        written = len(run.checkpoints)
        until(lambda: len(run.checkpoints) > written or not run.running)
        assert run.running, run.error
        run.stop()
        trace = run.trace()
        assert trace.context.notes == run.notes
        assert load_trace(save_trace(trace, tmp_path / "trace.json")).context.notes == run.notes
        describe(disk / "kept")
    assert run.losses[:8] == train(run.spec.plan, run.spec.schedule, 8).losses[: len(run.losses)]


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    run = under_way(folder)
    shutil.rmtree(folder, ignore_errors=True)
    written = len(run.checkpoints)
    until(lambda: len(run.checkpoints) > written + 1 or not run.running)
    assert run.running, run.error
    run.stop()
    assert latest(folder) is not None


def test_whoever_takes_the_lock_of_a_folder_that_was_made_anew_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    first, second = FolderLock(folder), FolderLock(folder)
    first.hold()
    with pytest.raises(FileError, match="another run writes to it"):
        second.hold()
    with pytest.raises(FileError, match="another run writes to it"):
        check_unlocked(folder)
    shutil.rmtree(folder)
    second.hold()
    with pytest.raises(FileError, match="another run writes to it"):
        check_unlocked(folder)
    first.release()
    second.release()
    check_unlocked(folder)


def test_the_newest_checkpoint_is_found_though_a_run_replaces_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = under_way(tmp_path, iterations=6)
    run.wait()
    kept = latest(tmp_path)
    assert kept is not None
    listed = iter([[tmp_path / "iteration-000002"]])  # which the run has removed since
    now = checkpoint_folders._sorted
    monkeypatch.setattr(checkpoint_folders, "_sorted", lambda parent: next(listed, None) or now(parent))
    assert latest(tmp_path) == kept
    assert latest(tmp_path / "nothing") is None
