"""A damaged checkpoint gives way to the one before it, in a run and in one that resumes; losses that are no numbers are
said."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from run_helpers import left_behind, small_plan, until
from workers_as_threads import train

import dtfm_lab as lab
from dtfm_lab.cli import terminal
from dtfm_lab.domain.errors import FileError, RunError
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.protocol.checkpoint_folders import META, TENSORS, describe, newest_whole

PLAN = small_plan(n_replicas=1)


def header(content: bytes) -> bytes:
    return b"\xff" * 16 + content[16:]


def body(content: bytes) -> bytes:
    """A number becomes NaN, and the length stays."""
    return content[:-800] + b"\xff" * 800


def one_bit(content: bytes) -> bytes:
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def nothing(content: bytes) -> bytes:
    return b""


def other_losses(content: bytes) -> bytes:
    """Of a description: it is still JSON."""
    return content.replace(b'"iteration": 8', b'"iteration": 7').replace(b'"seed": 0', b'"seed": 1')


DAMAGES = [
    *((TENSORS, damage) for damage in (header, body, one_bit, half, nothing)),
    *((META, damage) for damage in (half, nothing, other_losses)),
]
named = pytest.mark.parametrize(("files", "damage"), DAMAGES, ids=lambda value: getattr(value, "__name__", value))


def damaged(folder: Path, files: str, damage: Callable[[bytes], bytes]) -> None:
    """Every such file of a checkpoint."""
    for path in folder.glob(files):
        path.write_bytes(damage(path.read_bytes()))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of iterations 4 and 8."""
    folder = tmp_path_factory.mktemp("kept")
    lab.run(PLAN, "1f1b", iterations=8, checkpoint_folder=folder, checkpoint_every=4)
    return folder


@named
def test_a_run_that_resumes_takes_the_one_before_and_says_so(
    kept: Path, tmp_path: Path, files: str, damage: Callable[[bytes], bytes]
) -> None:
    for path in kept.rglob("*-*/*"):
        (copy := tmp_path / path.relative_to(kept)).parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    damaged(tmp_path / "iteration-000008", files, damage)
    found, notes = newest_whole(tmp_path)
    assert found.iteration == 4
    assert len(notes) == 1
    assert notes[0].endswith("; iteration-000004 is used instead")
    assert "iteration-000008" in notes[0]
    with pytest.raises(FileError, match="iteration-000008"):
        describe(tmp_path / "iteration-000008")


def test_what_a_resumed_run_says_is_in_its_notes(kept: Path, tmp_path: Path) -> None:
    for path in kept.rglob("*-*/*"):
        (copy := tmp_path / path.relative_to(kept)).parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    damaged(tmp_path / "iteration-000008", TENSORS, body)
    measured = lab.run(PLAN, "1f1b", iterations=2, resume_from=tmp_path)
    assert list(measured.context.losses) == train(PLAN, "1f1b", 6).losses[4:]
    (note,) = measured.context.notes
    assert "stage-0.safetensors is damaged: its SHA-256 is not the one that was written" in note
    assert note.endswith("; iteration-000004 is used instead")
    damaged(tmp_path / "iteration-000004", TENSORS, body)
    with pytest.raises(FileError, match=r"holds no whole checkpoint \(.*is damaged"):
        lab.run(PLAN, "1f1b", iterations=2, resume_from=tmp_path)


def killed_with_damaged(folder: Path, n: int, files: str, damage: Callable[[bytes], bytes]) -> Run:
    """A run whose worker was killed when the newest ``n`` checkpoints were damaged: all stand still meanwhile."""
    run = start(PLAN, "1f1b", iterations=10_000, checkpoint_folder=folder, checkpoint_every=4)
    until(lambda: len(run.checkpoints) >= 3 or not run.running)
    workers = psutil.Process(run.pid).children()
    for worker in workers:
        worker.suspend()
    for path in sorted(folder.glob("iteration-*"))[-n:]:
        damaged(path, files, damage)
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):  # the run has seen what lies there, and stopped it
            worker.kill()
    return run


@pytest.mark.parametrize(("files", "damage"), [(TENSORS, header), (TENSORS, body), (TENSORS, half), (META, nothing)])
def test_a_run_goes_back_past_a_damaged_one_and_says_so(
    tmp_path: Path, files: str, damage: Callable[[bytes], bytes]
) -> None:
    run = killed_with_damaged(tmp_path / "kept", 1, files, damage)
    until(lambda: len(run.faults) >= 2 or not run.running)
    assert run.running, run.error
    begun = run.faults[-1].iteration
    run.wait_for(begun + 6)
    run.stop()
    until(lambda: not run.running)
    assert left_behind(run.pid) == []
    assert begun % 4 == 0
    assert all(fault.state_from == f"checkpoint of iteration {begun}" for fault in run.faults)
    assert len(run.notes) == 1
    assert run.notes[0].endswith(f"; the state after {begun} iterations is used instead")
    assert list(run.losses) == train(PLAN, "1f1b", len(run.losses)).losses
    assert run.trace().n_iterations == len(run.losses)
    assert describe(tmp_path / "kept").iteration > begun, "it is written again"


def test_where_all_are_damaged_the_run_ends_in_one_line_that_says_why(tmp_path: Path) -> None:
    run = killed_with_damaged(tmp_path / "kept", 2, TENSORS, body)
    with pytest.raises(
        RunError, match=r"no other replica holds stage \d; wanted .*; checkpoint .* is damaged: its SHA"
    ):
        run.wait()
    assert len(run.notes) == 2


def test_a_checkpoint_of_an_earlier_version_has_no_digests_and_is_read(kept: Path, tmp_path: Path) -> None:
    newest = describe(kept).folder
    for path in newest.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    description = json.loads((tmp_path / META).read_text())
    del description["sha256"]
    (tmp_path / META).write_text(json.dumps(description))
    assert describe(tmp_path).iteration == 8


def test_losses_that_are_no_numbers_are_said_when_they_come_and_at_the_end() -> None:
    told: list[str] = []
    run = start(small_plan(dtype="fp32"), iterations=12, learning_rate=1e30)
    trace = run.wait(lambda event: told.append(terminal.run_line(run, event)))
    lost = [i for i, loss in enumerate(run.losses) if not math.isfinite(loss)]
    assert lost
    assert any(note.startswith(f"the loss of iteration {lost[0]} is ") for note in run.notes)
    assert run.notes[-1].startswith(f"{len(lost)} of 12 losses ")
    assert f"the first that of iteration {lost[0]}: the training diverged" in run.notes[-1]
    assert trace.context.notes == run.notes
    said = [line for line in told if line.startswith("warning: ")]
    assert said == [f"warning: {note}" for note in run.notes]
    assert told.index(said[0]) < told.index(f"iteration {lost[0]}: loss {run.losses[lost[0]]:.4f}")


def test_losses_that_are_numbers_are_not_said() -> None:
    assert lab.run(PLAN, iterations=2).context.notes == ()
