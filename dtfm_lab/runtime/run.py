"""A real run as the kernel sees it: watch it, stop it, get its Trace. Torch is in the workers only."""

from __future__ import annotations

import asyncio
import contextlib
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
from typing import Any

from dtfm_lab.domain.errors import RunError
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import ComputeTime, RunContext, Span, Trace
from dtfm_lab.runtime.spec import RunSpec
from dtfm_lab.simulation.observed import with_waits
from dtfm_lab.simulation.simulate import what_runs

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
        self.stretched = 0
        self._stop_wanted = False
        self.error: str | None = None
        self.profile: tuple[ComputeTime, ...] = ()
        self.parameter_digests: dict[tuple[int, int], str] = {}
        """(position in the pipeline, replica) -> SHA-256 of the parameters that this device has trained"""
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
        with contextlib.suppress(BrokenPipeError):  # it died at once; the reader says how
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
        return with_waits(Trace.from_spans(self.context(), spans), self.spec.plan, self.spec.built)

    def context(self) -> RunContext:
        """What is known by now: after the profile event enough to predict what is being measured."""
        plan, spec = self.spec.plan, self.spec
        return RunContext(
            source="measured",
            clock=spec.clock,  # type: ignore[arg-type]  # checked by start()
            schedule=spec.schedule,
            links="real" if spec.clock == "real" else "emulated",
            **what_runs(plan, spec.built),
            time_scale=self.time_scale,
            stretched=self.stretched,
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
        self._stop_wanted = True
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
        with contextlib.suppress(BrokenPipeError, ValueError):
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
        if last is None and self._stop_wanted:
            last = {"event": "stopped"}
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
                    self.stretched = event["stretched"]
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
