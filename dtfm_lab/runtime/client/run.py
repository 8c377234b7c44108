"""A real run as the kernel sees it: watch it, disturb it, stop it, get its Trace. Torch is in the workers only."""

from __future__ import annotations

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
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.trace import Trace
from dtfm_lab.runtime.client import preload, run_report
from dtfm_lab.runtime.client.record import LAST_EVENTS, Event, Record, slower
from dtfm_lab.runtime.protocol.run_spec import RunSpec

SLOWEST = 1000.0
"""times that a worker may be made slower"""
LAST_WORDS_S = 1.0
"""for what a dead process wrote to standard error to be read"""


class Run(Record):
    """A run that is going on: its events as they come, its losses, and its Trace at the end.

    Everything here may be called from a notebook cell or a callback; only ``wait`` and ``stop`` block, the latter
    two seconds at most.
    """

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec)
        self._stop_wanted = False
        self._events: list[Event] = []
        self._listeners: list[Callable[[Event], None]] = []
        self._changed = threading.Condition()
        self._stderr: deque[str] = deque(maxlen=60)
        self._leader = preload.lead()
        self._leader.send(spec.to_line())
        self._errors = threading.Thread(target=self._read_errors, daemon=True)
        self._errors.start()
        threading.Thread(target=self._read_events, daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The process that leads the workers; they all share its process group.

        None where it was stopped before it began; the first run of a kernel begins when torch is loaded.
        """
        return self._leader.wait_for_pid()

    async def events(self) -> AsyncIterator[Event]:
        """All events from the first, as they come; ends with done, failed or stopped."""
        arrived: asyncio.Queue[Event] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listen(event: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed, and nobody listens any more
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
        except BaseException:  # Ctrl-C, or what progress raised: nobody else may hold this run
            self.stop()
            raise

    def kill(self, device: str) -> None:
        """Kill the worker that stands for this device (SIGKILL), as a power cut would."""
        self._command(device, "kill")

    def pause(self, device: str) -> None:
        """Let this device stand still (SIGSTOP), as a host that no longer answers; ``resume`` lets it go on."""
        self._command(device, "pause")
        self.conditions[device] = "paused"

    def resume(self, device: str) -> None:
        self._command(device, "resume")
        if self.conditions.get(device) == "paused":
            del self.conditions[device]

    def slow(self, device: str, factor: float = 2.0) -> None:
        """Let this device compute so many times slower from its next computation on; 1: as before."""
        times = self.check_factor(factor)
        self._command(device, "slow", factor=times)
        self.slowdowns[device] = times
        self.conditions.pop(device, None)
        if said := slower(times):
            self.conditions[device] = said

    def rank_of(self, device: str) -> int:
        """Raises UnknownName where no worker stands for it."""
        if device not in (ranks := self.ranks):
            raise unknown("device of this run", device, ranks)
        return ranks[device]

    @staticmethod
    def check_factor(factor: float) -> float:
        """What ``slow`` takes, as a float."""
        times = as_number(factor)
        if times is None or not 1 <= times <= SLOWEST:
            raise LabError(f"factor is {shortened(factor)}; wanted 1 (as fast as before) to {SLOWEST:.0f} times slower")
        return times

    def stop(self) -> None:
        """End the run and every process of it, within two seconds."""
        self._stop_wanted = True
        self._leader.stop()

    def __repr__(self) -> str:
        return f"<Run {run_report.doing(self)}>"

    def _repr_html_(self) -> str:
        return run_report.html(self)

    def _command(self, device: str, command: str, **values: Any) -> None:
        rank = self.rank_of(device)
        if not self.running:
            raise RunError(f"the run is over ({self.status}); wanted a running one")
        self._leader.send(json.dumps({"command": command, "rank": rank, **values}) + "\n")

    def _read_events(self) -> None:
        """Take in what the crew says; its last word only when all its processes are gone."""
        last: Event | None = None
        for line in self._leader.lines():
            event = _event(line)
            if event is None:  # a library that prints
                self._stderr.append(line)
            elif last is not None:
                pass
            elif event["event"] in LAST_EVENTS:
                last = event
            else:
                try:
                    self._take(event)
                except (KeyError, TypeError, ValueError):
                    last = {
                        "event": "failed",
                        "message": f"the workers told what nobody understands: {line.strip()[:200]}",
                    }
                    self._leader.kill()
        if last is None:
            last = {"event": "stopped"} if self._stop_wanted else {"event": "failed", "message": self._last_words()}
        self._take(last)

    def _last_words(self) -> str:
        self._errors.join(LAST_WORDS_S)
        tail = next((line.strip() for line in reversed(self._stderr) if line.strip()), "it said nothing")
        code = self._leader.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended: {tail}"
        return f"the process that leads the workers {how}"

    def _read_errors(self) -> None:
        with self._leader.errors as lines:
            self._stderr.extend(lines)

    def _take(self, event: Event) -> None:
        with self._changed:
            self.absorb(event)
            self._events.append(event)
            for listen in self._listeners:
                listen(event)
            self._changed.notify_all()


def _event(line: str) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
