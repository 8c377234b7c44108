"""The handle of a run in the process that started it: events, commands to workers, its end and its Trace."""

import asyncio
import contextlib
import json
import signal
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import counted
from dtfm_lab.runtime.client import preload, run_report
from dtfm_lab.runtime.client.record import LAST_EVENTS, Event, RunRecord, slower
from dtfm_lab.runtime.client.run_checks import following
from dtfm_lab.runtime.client.spill_buffer import SpillBuffer
from dtfm_lab.runtime.protocol.run_options import RunSpec

SLOWEST = 1000.0
"""Maximum factor by which a worker may be slowed."""
PATIENCE_S = 0.5
"""Maximum length of one wait, because waits without a limit cannot be interrupted on every system."""
READ_BYTES = 1 << 16
"""Bytes of events that are read at once, unless one is longer."""
READ_ERRORS_S = 1.0
"""Maximum wait for the end of what a dead process wrote to standard error."""


class Run(RunRecord):
    """A handle of a run: its events as they arrive, its losses, and its Trace at the end.

    Every method may be called from a notebook cell, and all except ``wait`` and ``wait_for`` from a callback. These two
    block. ``stop`` blocks for at most three seconds.
    """

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec)
        self._stop_requested = False
        self._devices = set(spec.plan.topology.names)
        """Names of all devices in the networks of all plans that this run has received."""
        self._events = SpillBuffer()
        """All events so far as lines of JSON."""
        self._listeners: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._stderr: deque[str] = deque(maxlen=60)
        self._process = preload.start_run_process()
        self._process.send(spec.to_line())
        self._errors = threading.Thread(target=self._read_errors, daemon=True)
        self._errors.start()
        # Events arrive as long as the process lives, so they need their own thread.
        threading.Thread(target=self._read_events, daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The id of the process that coordinates the workers. All of them are in its process group.

        Waits until that process has started: a kernel's first run starts when torch is loaded. None if the run was
        stopped before.
        """
        return self._process.wait_for_pid()

    async def events(self) -> AsyncIterator[Event]:
        """Yield all events from the first, as they arrive. The last one is done, failed or stopped."""
        arrived, loop, at = asyncio.Event(), asyncio.get_running_loop(), 0

        def listen() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(arrived.set)

        # Registered before the first look, so that no event is missed.
        with self._changed:
            self._listeners.append(listen)
        try:
            while True:
                arrived.clear()
                events, at = self._events_from(at)
                for event in events:
                    yield event
                    if event["event"] in LAST_EVENTS:
                        return
                if not events:
                    await arrived.wait()
        finally:
            with self._changed:
                self._listeners.remove(listen)

    def wait(self, progress: Callable[[Event], None] | None = None) -> Trace:
        """Block until the end and return the measured Trace. Ctrl-C stops the run.

        Raises RunError if the run failed, or was stopped before its first iteration was complete.
        """
        at = 0
        try:
            while progress is not None:
                events, at = self._events_from(at, patience_s=PATIENCE_S)
                for event in events:
                    progress(event)
                    if event["event"] in LAST_EVENTS:
                        return self.trace()
            with self._changed:
                while self.running:
                    self._changed.wait(PATIENCE_S)
            return self.trace()
        except BaseException:  # Ctrl-C, or an error in progress: the caller may have no other reference to the run
            self.stop()
            raise

    def wait_for(self, n_iterations: int) -> None:
        """Block until ``n_iterations`` of this run are done, for instance to kill a device after that.

        Raises LabError unless ``n_iterations`` is from 1 to the run's iterations, and RunError if the run ends earlier.
        """
        if n_iterations not in range(1, self.spec.iterations + 1):
            raise LabError(f"{shortened(n_iterations)} iterations to wait for; wanted 1 to {self.spec.iterations}")
        with self._changed:
            while len(self.losses) < n_iterations:
                if not self.running:
                    why = f"{self.status}: {self.error}" if self.error else self.status
                    raise RunError(
                        f"the run is over ({why}) after {counted(len(self.losses), 'iteration')}; wanted {n_iterations}"
                    )
                self._changed.wait(PATIENCE_S)

    def kill(self, device: str) -> None:
        """Kill the worker of this device (SIGKILL), as a power cut would."""
        self._command(device, "kill")

    def pause(self, device: str) -> None:
        """Stop the worker of this device (SIGSTOP), like a host that no longer answers, until ``resume``."""
        self._command(device, "pause")
        self.conditions[device] = "paused"

    def resume(self, device: str) -> None:
        """Continue the worker of a paused device (SIGCONT)."""
        self._command(device, "resume")
        if self.conditions.get(device) == "paused":
            del self.conditions[device]

    def slow(self, device: str, factor: float = 2.0) -> None:
        """Slow this device's computations by ``factor`` from the next one on. A factor of 1 restores its speed. Raises
        LabError for a factor out of range, UnknownName for a device without a worker, RunError if the run is over."""
        times = self.check_factor(factor)
        self._command(device, "slow", factor=times)
        self.slowdowns[device] = times
        self.conditions.pop(device, None)
        if condition := slower(times):
            self.conditions[device] = condition

    def leave(self, device: str) -> None:
        """Remove this device permanently: its worker is killed and not replaced, and the run waits for a new plan.

        See ``follow``. A device that the plan does not use may leave too. If a new plan that uses it was already sent,
        that plan is void. Raises UnknownName for a device in no plan of this run, RunError if the run is over.
        """
        if device not in self._devices:
            raise unknown("device of this run", device, self._devices)
        self._send(command="leave", device=device)

    def follow(self, plan: Plan, schedule: Any = None, *, pause_s: float = 0.0, from_checkpoint: bool = False) -> None:
        """Continue under another plan of the same model, from the newest state, after the current iteration.

        The live workers hand over their state. If a part of it is lost, or with ``from_checkpoint``, the newest
        checkpoint is read, and the iterations since then are repeated. Without a checkpoint, training starts again from
        the beginning. Workers whose devices are in both plans keep running. On the paced clock the switch takes at
        least ``pause_s`` seconds of the run, as moving the state over the links would. What was measured so far is in
        ``earlier``. With the same batch, losses are the same as in an undisturbed run.
        ``plan.changed(absent=["ada"])`` is the same plan without ada. The devices that hold ada's stage in other
        pipelines take over its micro-batches.

        Raises LabError, JobError or ScheduleError for a plan that this run cannot follow, RunError if the run is over.
        """
        seconds = as_number(pause_s)
        if seconds is None or not 0 <= seconds < float("inf"):
            raise LabError(f"pause_s is {shortened(pause_s)}; wanted seconds, 0 or more")
        spec = following(self.spec, plan, schedule)
        devices = [spec.device_name(*worker) for worker in spec.workers]
        self._devices |= set(plan.topology.names)
        self._send(
            command="follow", spec=spec.to_line(), devices=devices, pause_s=pause_s, from_checkpoint=from_checkpoint
        )

    def checkpoint_every(self, iterations: int, *, after_next: bool = False) -> None:
        """Write a checkpoint every ``iterations`` iterations from now on, counted from the newest checkpoint.

        0 writes one only after the last iteration. With ``after_next``, one is also written after the next iteration.
        Raises LabError if the run has no folder for checkpoints or the number is out of range, RunError if the run is
        over.
        """
        if self.spec.checkpoint_folder is None:
            raise LabError("checkpoint_folder was not given when the run began; wanted one, for checkpoints to go to")
        number = as_number(iterations)
        if number is None or number < 0 or number != int(number):
            raise LabError(f"iterations is {shortened(iterations)}; wanted a whole number, 0 or more")
        self._send(command="checkpoint_every", iterations=int(number), after_next=after_next)

    def rank_of(self, device: str) -> int:
        """Return the rank of the device's worker. Raises UnknownName for a device without a worker."""
        if device not in (ranks := self.ranks):
            raise unknown("device of this run", device, ranks)
        return ranks[device]

    @staticmethod
    def check_factor(factor: float) -> float:
        """Return the factor of ``slow`` as a float. Raises LabError if it is out of range."""
        times = as_number(factor)
        if times is None or not 1 <= times <= SLOWEST:
            raise LabError(f"factor is {shortened(factor)}; wanted 1 (as fast as before) to {SLOWEST:.0f} times slower")
        return times

    def stop(self) -> None:
        """End the run and all its processes within three seconds."""
        self._stop_requested = True
        self._process.stop()

    def __repr__(self) -> str:
        return f"<Run {run_report.describe_progress(self)}>"

    def _repr_html_(self) -> str:
        return run_report.html(self)

    def _command(self, device: str, command: str, **values: Any) -> None:
        self._send(command=command, rank=self.rank_of(device), **values)

    def _send(self, **command: Any) -> None:
        if not self.running:
            raise RunError(f"the run is over ({self.status}); wanted a running one")
        self._process.send(json.dumps(command) + "\n")

    def _events_from(self, at: int, patience_s: float = 0.0) -> tuple[list[Event], int]:
        """Return some events from a position in ``_events`` on, and the position after them.

        Return at least one event if there is one. Otherwise wait up to ``patience_s``.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > at, timeout=patience_s)
            length, lines = READ_BYTES, b""
            # A line may be longer than one read, so it reads more until a line is whole.
            while at + len(lines) < len(self._events) and not lines.endswith(b"\n"):
                lines = self._events.read(at, length)
                lines = lines[: lines.rfind(b"\n") + 1]
                length *= 2
        return [json.loads(line) for line in lines.splitlines()], at + len(lines)

    def _read_events(self) -> None:
        """Record all events of the run. The last event is recorded only when all its processes are gone."""
        last: Event | None = None
        for line in self._process.lines():
            event = _parse(line)
            if event is None:  # a library that prints
                self._stderr.append(line)
            elif last is not None:
                # After the last event there is nothing more to say.
                continue
            elif event["event"] in LAST_EVENTS:
                last = event
            else:
                try:
                    self._add(event)
                except (KeyError, TypeError, ValueError):
                    last = {
                        "event": "failed",
                        "message": f"the workers sent an event that is not understood: {line.strip()[:200]}",
                    }
                    self._process.kill()
        if last is None:
            last = {"event": "stopped"} if self._stop_requested else {"event": "failed", "message": self._why_ended()}
        self._add(last)

    def _why_ended(self) -> str:
        self._errors.join(READ_ERRORS_S)
        tail = next((line.strip() for line in reversed(self._stderr) if line.strip()), "it said nothing")
        code = self._process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended: {tail}"
        return f"the process that leads the workers {how}"

    def _read_errors(self) -> None:
        with self._process.errors as lines:
            self._stderr.extend(lines)

    def _add(self, event: Event) -> None:
        with self._changed:
            self.absorb(event)
            self._events.append(json.dumps(event).encode() + b"\n")
            for listen in self._listeners:
                listen()
            self._changed.notify_all()


def _parse(line: str) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
