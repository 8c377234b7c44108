"""Start a real run from a kernel that never loads torch, watch it, stop it, and get its Trace."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import psutil

from dtfm_lab.domain.errors import JobError, LabError, MissingExtra, RunError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import Clock, ComputeTime, RunContext, Span, Trace
from dtfm_lab.runtime.spec import RunSpec
from dtfm_lab.simulation.schedules import schedules

RUN_CLOCKS = tuple(name for name in get_args(Clock) if name != "model")
RUN_DTYPES = ("fp32", "fp64")
MOST_WORKERS = 32
BYTES_PER_WORKER = 400e6
"""resident memory of a worker before its stage: torch itself, mostly"""
STOP_PATIENCE_S = 2.0
LAST_EVENTS = ("done", "failed", "stopped")

Event = dict[str, Any]


class Run:
    """A run that is going on: its events as they come, its losses, and its Trace at the end.

    Everything here may be called from a notebook cell or a callback; only ``wait`` blocks.
    """

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.status = "starting"
        """starting, profiling, running, then done, failed or stopped"""
        self.losses: list[float] = []
        self.late_messages = self.overruns = 0
        self.time_scale = 1.0
        self.error: str | None = None
        self.profile: tuple[ComputeTime, ...] = ()
        self.parameter_digests: dict[tuple[int, int], str] = {}
        """(stage, replica) -> SHA-256 of the trained parameters"""
        self._spans: dict[int, list[Span]] = defaultdict(list)
        self._torch = ""
        self._events: list[Event] = []
        self._listeners: list[Callable[[Event], None]] = []
        self._changed = threading.Condition()
        self._stderr: deque[str] = deque(maxlen=60)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dtfm_lab.runtime.crew"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Jupyter interrupts its whole process group
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdin is not None
        self._process.stdin.write(spec.to_line())
        self._process.stdin.flush()
        threading.Thread(target=self._read_errors, daemon=True).start()
        threading.Thread(target=self._read_events, daemon=True).start()

    @property
    def pid(self) -> int:
        """The process that leads the workers; they all share its process group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        return self.status not in LAST_EVENTS

    async def events(self) -> AsyncIterator[Event]:
        """All events from the first, as they come; ends with done, failed or stopped."""
        arrived: asyncio.Queue[Event] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listen(event: Event) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, event)

        with self._changed:
            for event in self._events:
                arrived.put_nowait(event)
            self._listeners.append(listen)
        try:
            while True:
                event = await arrived.get()
                yield event
                if event["event"] in LAST_EVENTS:
                    return
        finally:
            with self._changed:
                self._listeners.remove(listen)

    def wait(self, progress: Callable[[Event], None] | None = None) -> Trace:
        """Block until the end and return the measured Trace; Ctrl-C stops the run.

        Raises RunError when the run failed or was stopped before its first iteration was whole.
        """
        seen = 0
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda seen=seen: len(self._events) > seen, timeout=0.5)
                    new = self._events[seen:]
                seen += len(new)
                for event in new:
                    if progress is not None:
                        progress(event)
                    if event["event"] in LAST_EVENTS:
                        return self.trace()
        except KeyboardInterrupt:
            self.stop()
            raise

    def trace(self) -> Trace:
        """What was measured so far, whole iterations only."""
        if self.error is not None:
            raise RunError(self.error)
        with self._changed:
            n_whole = len(self.losses)
            spans = [span for i in range(n_whole) for span in self._spans[i]]
        if not spans:
            raise RunError("the run was stopped before its first iteration was whole")
        return Trace.from_spans(self.context(), spans)

    def context(self) -> RunContext:
        """What is known by now: after the profile event enough to predict what is being measured."""
        plan, spec = self.spec.plan, self.spec
        return RunContext(
            source="measured",
            clock=spec.clock,  # type: ignore[arg-type]  # checked by start()
            schedule=spec.schedule,
            links="real" if spec.clock == "real" else "emulated",
            devices=tuple(tuple(stage) for stage in plan.stages),
            topology=plan.topology.name,
            topology_fingerprint=plan.topology.fingerprint,
            job=plan.job.name,
            n_microbatches=plan.job.n_microbatches,
            time_scale=self.time_scale,
            profile=self.profile,
            losses=tuple(self.losses),
            late_messages=self.late_messages,
            overruns=self.overruns,
            versions={
                "dtfm_lab": version("dtfm_lab"),
                "python": platform.python_version(),
                "torch": self._torch,
            },
        )

    def spans_of(self, iteration: int) -> list[Span]:
        """What has been measured of one iteration, whole or not."""
        with self._changed:
            return list(self._spans.get(iteration, []))

    def kill(self, device: str) -> None:
        """Kill the worker that stands for this device (SIGKILL), as a power cut would."""
        names = {self.spec.device_name(s, r): self.spec.rank(s, r) for s, r in self.spec.workers}
        if device not in names:
            raise unknown("device of this run", device, names)
        self._command(command="kill", rank=names[device])

    def stop(self) -> None:
        """End the run and every process of it, within two seconds."""
        if self._process.poll() is None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it may have died in the meantime
                self._process.stdin.close()
            try:
                self._process.wait(STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def _command(self, **order: Any) -> None:
        if not self.running or self._process.stdin is None:
            raise RunError(f"the run is over ({self.status}); wanted a running one")
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _read_events(self) -> None:
        """Absorb what the crew says; its last word only when all its processes are gone."""
        assert self._process.stdout is not None
        last: Event | None = None
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] in LAST_EVENTS:
                last = event
            else:
                self._absorb(event)
        self._process.wait()
        if last is not None:
            self._absorb(last)
        else:
            tail = next((line.strip() for line in reversed(self._stderr) if line.strip()), None)
            code = self._process.returncode
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended: {tail or 'it said nothing'}"
            self._absorb({"event": "failed", "message": f"the process that leads the workers {how}"})

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._stderr.extend(self._process.stderr)

    def _absorb(self, event: Event) -> None:
        with self._changed:
            match event["event"]:
                case "ready":
                    self.status, self._torch = "profiling", event["torch"]
                case "profile":
                    self.status, self.time_scale = "running", event["time_scale"]
                    self.profile = tuple(ComputeTime(s, r, Kind(k), t) for s, r, k, t in event["rows"])
                case "spans":
                    for iteration, replica, action, start_s, end_s in event["rows"]:
                        stage, kind, microbatch, peer = action
                        span = Span(iteration, replica, Action(stage, Kind(kind), microbatch, peer), start_s, end_s)
                        self._spans[iteration].append(span)
                case "iteration":
                    self.losses.append(event["loss"])
                    self.late_messages, self.overruns = event["late_messages"], event["overruns"]
                case "parameters":
                    self.parameter_digests[event["stage"], event["replica"]] = event["sha256"]
                case "failed":
                    self.error = event["message"]
            if event["event"] in LAST_EVENTS:
                self.status = event["event"]
            self._events.append(event)
            for listen in self._listeners:
                listen(event)
            self._changed.notify_all()


def start(
    plan: Plan,
    schedule: str | None = None,
    *,
    iterations: int = 5,
    clock: str = "virtual",
    seed: int = 0,
    text: str | os.PathLike[str] | None = None,
    parameters_folder: str | os.PathLike[str] | None = None,
    time_scale: float | None = None,
) -> Run:
    """Start one torch worker per stage and replica on this machine's CPU.

    Raises
    ------
    MissingExtra
        torch is not installed.
    UnknownName, JobError
        An unknown schedule or clock; a job that cannot be run here (too many workers, no model, dtype).
    """
    if clock not in RUN_CLOCKS:
        raise unknown("clock", clock, RUN_CLOCKS)
    spec = RunSpec(
        plan=plan,
        schedule=schedule or plan.job.schedule,
        iterations=iterations,
        clock=clock,
        seed=seed,
        text=None if text is None else os.fspath(Path(text).resolve()),
        parameters_folder=None if parameters_folder is None else os.fspath(Path(parameters_folder).resolve()),
        time_scale=time_scale,
    )
    _check(spec)
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("real runs need torch, which is not installed: pip install 'dtfm_lab[train]'")
    return Run(spec)


def _check(spec: RunSpec) -> None:
    job = spec.plan.job
    model = job.modelled()
    schedules[spec.schedule]
    if spec.iterations < 1:
        raise LabError(f"iterations is {spec.iterations}; wanted 1 or more")
    if spec.time_scale is not None and not spec.time_scale > 0:
        raise LabError(f"time_scale is {spec.time_scale}; wanted more than 0 wall seconds a second")
    if job.dtype not in RUN_DTYPES:
        raise JobError(f"job {job.name}: dtype is {job.dtype}; workers on a CPU run {' or '.join(RUN_DTYPES)}")
    if model.tied:
        raise JobError(f"job {job.name}: model {model.name} ties its embeddings; wanted an untied one")
    if job.n_tasklets > MOST_WORKERS:
        raise JobError(
            f"{job.n_stages} stages x {job.n_replicas} replicas need {job.n_tasklets} workers on this machine; "
            f"wanted at most {MOST_WORKERS}"
        )
    each = 8 if job.dtype == "fp64" else 4
    copies = 5  # parameters, gradients, two optimiser states, and one more for the profile and messages
    needed = job.n_tasklets * BYTES_PER_WORKER * 0.2 + copies * each * model.parameters * job.n_replicas
    if needed > (available := psutil.virtual_memory().available):
        raise JobError(
            f"job {job.name} needs some {needed / 2**30:.1f} GiB on this machine, {available / 2**30:.1f} are free; "
            f"wanted a smaller model or fewer replicas"
        )
    for what, path in (("text", spec.text), ("parameters_folder", spec.parameters_folder)):
        if path is not None and not Path(path).exists():
            raise LabError(f"{what} {path}: no such file or folder")
    if spec.text is not None and (size := Path(spec.text).stat().st_size) <= model.seq_len:
        raise LabError(f"text {spec.text} has {size} bytes; wanted more than {model.seq_len}, one sequence")
