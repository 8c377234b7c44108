"""A step in a process of its own: the child writes figures as lines of a file, the parent reads them as they come."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Self

from figures import Figure, NotRun, Setting, Step
from report import StepRecord, shown

POLL_S = 0.2
ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Of a step: torch asks the driver's library whether there is a GPU, so that a step takes no memory of it before it
computes there itself."""
GRACE_S = 20.0
"""For a step that was asked to stop, to end its own processes."""


def measure_here(step: Step, folder: Path, rehearses: bool) -> int:
    """Run a step in this process and write what it finds to its file; returns the exit status."""
    with _lines_of(step, folder).open("w", encoding="utf-8") as file:

        def write(line: dict[str, object]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        try:
            if reason := _check_gpu(rehearses):
                raise NotRun(reason)
            if rehearses:
                _compute_with_one_thread()
            for figure in step.measure(Setting(rehearses=rehearses, folder=folder)):
                write({"figure": asdict(figure)})
        except NotRun as why:
            write({"not_run": str(why)})
        except Exception as error:
            import traceback

            traceback.print_exc()
            write({"failed": f"{type(error).__name__}: {error}".splitlines()[0]})
            return 1
    return 0


def _check_gpu(rehearses: bool) -> str:
    """Why no step can run on a GPU here, in one line; empty where it can, or none is needed."""
    if rehearses:
        return ""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be loaded: {error}"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA; wanted a CUDA build"
    return "" if torch.cuda.is_available() else f"torch {torch.__version__} sees no GPU"


def _compute_with_one_thread() -> None:
    """So that a rehearsal beside other work does not wait for its own threads."""
    import torch

    torch.set_num_threads(1)


class Interruption:
    """Notes Ctrl-C and requests to end while it is entered, so that none falls between a process's start and end."""

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> Self:
        self._before = {which: signal.signal(which, self._note) for which in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for which, handler in self._before.items():
            signal.signal(which, handler)

    def _note(self, *_: object) -> None:
        self.came = True


def run_step(step: Step, folder: Path, rehearses: bool, limit_s: float, interruption: Interruption) -> StepRecord:
    """Run a step in a process for at most so long or until interrupted, and print its figures as they come."""
    lines, log = _lines_of(step, folder), _lines_of(step, folder).with_suffix(".log")
    lines.parent.mkdir(exist_ok=True)
    lines.unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__).parent), "--here", "--steps", step.name, "--folder", str(folder)]
    began_s = time.monotonic()
    record = StepRecord()
    with log.open("w") as output:
        child = subprocess.Popen(
            [*command, "--rehearse"] if rehearses else command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | ENVIRONMENT,
        )
        try:
            while child.poll() is None and time.monotonic() - began_s < limit_s and not interruption.came:
                time.sleep(POLL_S)
                _read(lines, record, rehearses)
            late = child.poll() is None
        finally:
            _end(child)
    _read(lines, record, rehearses)
    record.seconds = round(time.monotonic() - began_s, 1)
    if late and interruption.came:
        record.state, record.reason = "not run", "interrupted"
    elif late:
        record.state, record.reason = "failed", f"not done after {limit_s / 60:.1f} minutes; {log.name} has its output"
    elif child.returncode and not record.reason:
        record.state, record.reason = "failed", f"ended with status {child.returncode}; {log.name} has its output"
    elif not record.reason:
        record.state = "done"
    return record


def _read(lines: Path, record: StepRecord, rehearsed: bool) -> None:
    """Take in what the child has written since; a line that is not whole yet waits."""
    text = lines.read_text(encoding="utf-8") if lines.exists() else ""
    whole = text.split("\n")[:-1]
    for line in map(json.loads, whole[record.lines_read :]):
        record.lines_read += 1
        if "figure" in line:
            figure = Figure(**line["figure"])
            record.figures.append(figure)
            print(f"    {shown(figure, rehearsed)}", flush=True)
        elif "not_run" in line:
            record.state, record.reason = "not run", line["not_run"]
        else:
            record.state, record.reason = "failed", line["failed"]


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask a step that still runs to stop, as Ctrl-C does, so that its workers end; then end its whole session."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # also what the step left in its session
    child.wait()


def _lines_of(step: Step, folder: Path) -> Path:
    return folder / "steps" / f"{step.name}.jsonl"
