"""The record of a run: its events, added one by one, and the Trace that they form.

A run may continue overnight, so the record keeps only the spans of the newest iterations. Earlier ones go to a
``SpillBuffer``, from which the trace is built. Memory grows by only one loss per iteration.
"""

import platform
import threading
from bisect import bisect_left
from collections import defaultdict
from importlib.metadata import version
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import RunError
from dtfm_lab.domain.schedule import LANE, Action, Kind, Lane
from dtfm_lab.domain.trace import ComputeTime, Fault, RunContext, Span, Trace
from dtfm_lab.runtime.client.spill_buffer import SpillBuffer
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.simulation.measured_predecessors import with_predecessors
from dtfm_lab.simulation.simulate import shared_nics, traced_plan

MOST_NOTES = 20
"""Maximum number of notes in a record: the newest."""
MOST_CHECKPOINTS = 100
"""Maximum number of checkpoints in a record: the newest. On disk, a run keeps only two of its checkpoints."""
LAST_EVENTS = ("done", "failed", "stopped")
SHOWN = 2
"""Number of complete iterations whose spans stay in memory, for views that show the newest one while the next is
measured."""
ROW = np.dtype([(name, "f8" if name.endswith("_s") else "i8") for name in Span._fields])
"""Layout of a span in the spill buffer. ``action`` is an index into the record's table of actions."""

Event = dict[str, Any]


RECORDED = (
    *("time_scale", "stretched", "message_s", "profile", "late_messages", "overruns", "faults", "held_out"),
    *("unigram_entropy", "notes"),
)
"""Fields of a record that are copied to fields of the same name in the context of its trace."""


class RunRecord:
    """The record of one run. One thread adds events, and any thread may read it."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.status = "starting"
        """One of starting, profiling, running; at the end done, failed or stopped."""
        self.waits_for = 0
        """While this run waits in the queue, the number of runs that this machine allows at once; otherwise 0."""
        self.n_ready = 0
        """Number of workers that have started."""
        self.profiled = (0, 0)
        """Calibration iterations done, and their total, which may still change."""
        self.losses: list[float] = []
        """Mean training loss of each iteration, from ``spec.first_iteration`` on."""
        self.late_messages = self.overruns = 0
        self.time_scale = 1.0
        self.stretched = 0
        self.message_s = self.compute_spread = 0.0
        self.error: str | None = None
        self.profile: tuple[ComputeTime, ...] = ()
        self.parameter_digests: dict[tuple[int, int], str] = {}
        """(position in the pipeline, replica) -> SHA-256 of the parameters that this device has trained."""
        self.faults: tuple[Fault, ...] = ()
        """Each loss of a worker from which the run has recovered."""
        self.held_out: tuple[tuple[int, float], ...] = ()
        """(iterations done, mean loss on held-out text) of each evaluation."""
        self.unigram_entropy: float | None = None
        """Entropy of the held-out text in nats per byte if bytes were independent."""
        self.checkpoints: tuple[tuple[int, str], ...] = ()
        """(iterations done, folder) of the newest checkpoints written. Only the last two are still on disk."""
        self.notes: tuple[str, ...] = ()
        """The newest warnings, one sentence each, such as checkpoints that were not written."""
        self.text: str | None = None
        """Text that the trained model generated after ``prompt``; None if it has generated none so far."""
        self.prompt = ""
        self.conditions: dict[str, str] = {}
        """Device name -> lost, gone (it left permanently), back, paused or 2 x slower. Other devices are left out."""
        self.slowdowns: dict[str, float] = {}
        """Device name -> its slowdown factor. A worker that replaces a lost one is equally slow."""
        self.earlier: tuple[Trace, ...] = ()
        """Traces measured under each earlier plan, complete iterations only."""
        self.replans: tuple[Event, ...] = ()
        """Each switch to another plan: the next ``iteration``, the numbers of iterations ``undone`` and of workers
        ``kept`` and ``started``, and whether the state came ``from_checkpoint``. ``lost_s``, the wall seconds that the
        switch took, is added when it is complete."""
        self._since = spec.first_iteration
        """Number of the first iteration under this plan."""
        self._spans: dict[int, list[Span]] = defaultdict(list)
        """Spans by iteration. Complete iterations that no view shows any more are only in ``_rows``."""
        self._rows = SpillBuffer()
        """ROWs of the complete iterations before ``_next``, in order."""
        self._next = spec.first_iteration
        """Number of the first iteration that is not in ``_rows``."""
        self._actions: dict[Action, int] = {}
        self._torch = ""
        self._lock = threading.RLock()

    @property
    def running(self) -> bool:
        return self.status not in LAST_EVENTS

    @property
    def ranks(self) -> dict[str, int]:
        """Device name -> rank of its worker."""
        return {self.spec.device_name(s, r): self.spec.rank(s, r) for s, r in self.spec.workers}

    def spans_of(self, iteration: int) -> list[Span]:
        """Return the spans measured so far in one of the newest iterations; empty for earlier ones."""
        with self._lock:
            return list(self._spans.get(iteration, []))

    @property
    def last_whole(self) -> int:
        """Number of the last complete iteration; before there is one, the first iteration's number minus one."""
        return self.spec.first_iteration + len(self.losses) - 1

    def busy(self) -> dict[str, float]:
        """Return device name -> share of the last complete iteration that it spent computing. Empty before there is
        one."""
        with self._lock:
            spans = self._spans.get(self.last_whole, [])
            computing_s: dict[str, float] = dict.fromkeys(self.ranks, 0.0) if spans else {}
            for span in spans:
                if LANE[span.action.kind] is Lane.COMPUTE:
                    computing_s[self.spec.device_name(span.action.stage, span.replica)] += span.end_s - span.start_s
        whole_s = max((span.end_s for span in spans), default=0.0)
        return {name: seconds / whole_s if whole_s else 0.0 for name, seconds in computing_s.items()}

    def trace(self) -> Trace:
        """Return what was measured so far under the current plan, complete iterations only.

        Raises RunError if the run failed, or if there is no complete iteration.
        """
        # A failed run has no measurement to trust.
        if self.error is not None:
            raise RunError(self.error)
        with self._lock:
            context, whole = self.context(), self.last_whole + 1
            if not self.running:
                self._write_rows(whole)
            # a run that continues may repeat iterations, which changes the rows
            stored = self._rows.read(0, len(self._rows)) if self.running else self._rows.view()
            rows = np.frombuffer(stored, ROW)
            if newest := [self._rows_of(iteration) for iteration in range(self._next, whole)]:
                rows = np.concatenate([rows, *newest])
            actions = tuple(self._actions)
        if not len(rows):
            raise RunError("the run was stopped before its first iteration was whole")
        return self._trace_of(rows, actions, context)

    def context(self) -> RunContext:
        """Return the context so far. From the profile event on, it is enough to predict what is being measured."""
        plan, spec = self.spec.plan, self.spec
        return RunContext(
            source="measured",
            clock=spec.clock,  # type: ignore[arg-type]  # RunOptions has checked it
            schedule=spec.schedule,
            links="real" if spec.clock == "real" else "emulated",
            plan=traced_plan(plan, spec.built),
            queueing=spec.queueing,
            nics=shared_nics(plan, spec.links),
            rehearsed=spec.subplan,
            stand_in="" if spec.stand_in is None else spec.stand_in.name,
            runs_on=spec.runs_on,
            link_spread=self.compute_spread if spec.clock == "real" else 0.0,
            compute_spread=((self.compute_spread,) * plan.job.n_replicas,) * plan.job.n_stages,
            losses=tuple(self.losses[self._since - spec.first_iteration :]),
            versions={"dtfm_lab": version("dtfm_lab"), "python": platform.python_version(), "torch": self._torch},
            **{name: getattr(self, name) for name in RECORDED},
        )

    def absorb(self, event: Event) -> None:
        """Add one event. Unknown events change nothing."""
        with self._lock:
            match event["event"]:
                case "waiting":
                    self.waits_for = event["at_once"]
                case "listening":
                    self.waits_for, self.n_ready = 0, event["workers"]
                case "calibrating":
                    self.profiled = event["done"], event["total"]
                case "ready":
                    self.status, self._torch = "profiling", event["torch"]
                case "profile":
                    self.status, self.time_scale = "running", event["time_scale"]
                    self.stretched = event["stretched"]
                    self.message_s, self.compute_spread = event.get("message_s", 0.0), event.get("compute_spread", 0.0)
                    self.profile = tuple(ComputeTime(s, r, Kind(k), t) for s, r, k, t in event["rows"])
                case "spans":
                    for iteration, replica, action, start_s, end_s in event["rows"]:
                        stage, kind, microbatch, peer = action
                        span = Span(iteration, replica, Action(stage, Kind(kind), microbatch, peer), start_s, end_s)
                        self._spans[iteration].append(span)
                case "iteration":
                    self.losses.append(event["loss"])
                    self.late_messages, self.overruns = event["late_messages"], event["overruns"]
                    # Whole iterations beyond those that a view shows go to disk, or memory would fill up.
                    self._write_rows(self.last_whole + 1 - SHOWN)
                case "lost":
                    self.conditions[event["device"]] = "gone" if event.get("gone") else "lost"
                case "recovered":
                    self._go_back(event)
                case "reconnected":
                    self._take_back(event["iteration"])
                    self._note(event["message"])
                case "replanned":
                    self._begin_anew(event)
                case "resumed":
                    self.replans = (*self.replans[:-1], self.replans[-1] | {"lost_s": event["lost_s"]})
                case "held_out":
                    self.held_out += ((event["iteration"], event["loss"]),)
                    self.unigram_entropy = event["unigram_entropy"]
                case "checkpoint":
                    self.checkpoints = (*self.checkpoints, (event["iteration"], event["folder"]))[-MOST_CHECKPOINTS:]
                case "warning":
                    self._note(event["message"])
                case "text":
                    self.prompt, self.text = event.get("prompt", ""), event.get("text")
                case "parameters":
                    self.parameter_digests[event["stage"], event["replica"]] = event["sha256"]
                case "failed":
                    self.error = event["message"]
            if event["event"] in LAST_EVENTS:
                self.status = event["event"]

    def _note(self, sentence: str) -> None:
        self.notes = (*self.notes, sentence)[-MOST_NOTES:]

    def _begin_anew(self, event: Event) -> None:
        """Switch to another plan. What was measured under the previous one becomes a separate trace."""
        again = event["iteration"]
        self._take_back(again)
        if self.last_whole >= self._since and (rows := self._part()) is not None:
            # What an earlier plan measured stays, but as a separate trace.
            self.earlier += (rows,)
        self._spans.clear()
        self._rows, self._actions = SpillBuffer(), {}
        self._since = self._next = again
        self.spec, self.profile = RunSpec.from_line(event["spec"]), ()
        self.status, self.conditions = "profiling", {}
        self.replans += ({key: event[key] for key in ("iteration", "undone", "kept", "started", "from_checkpoint")},)

    def _part(self) -> Trace | None:
        """Return the trace of this plan's complete iterations so far; None if they have no spans."""
        self._write_rows(self.last_whole + 1)
        rows = np.frombuffer(self._rows.view(), ROW)
        return self._trace_of(rows, tuple(self._actions), self.context()) if len(rows) else None

    def _trace_of(self, rows: np.ndarray, actions: tuple[Action, ...], context: RunContext) -> Trace:
        columns = {name: rows[name] for name in Span._fields}
        return with_predecessors(Trace(context, actions, **columns), self.spec.plan, self.spec.built)

    def _go_back(self, event: Event) -> None:
        """Record a recovered fault, and remove the iterations that will be repeated."""
        again = event["iteration"]
        # The fault comes first. Views read both without the lock, and expect a fault for each device that is back.
        self.faults += (Fault(again, event["device"], event["how"], event["state_from"], event["lost_s"]),)
        self.conditions[event["device"]] = slower(self.slowdowns.get(event["device"], 1.0)) or "back"
        self._take_back(again)

    def _take_back(self, again: int) -> None:
        """Remove iteration ``again`` and all later ones, with their losses (also held-out ones), spans and
        checkpoints."""
        del self.losses[max(0, again - self.spec.first_iteration) :]
        for iteration in [i for i in self._spans if i >= again]:
            del self._spans[iteration]
        # Its rows are on disk already.
        if again < self._next:
            places = range(len(self._rows) // ROW.itemsize)
            self._rows.cut(bisect_left(places, again, key=self._iteration_at) * ROW.itemsize)
            self._next = again
        self.checkpoints = tuple((done, folder) for done, folder in self.checkpoints if done <= again)
        self.held_out = tuple((done, loss) for done, loss in self.held_out if done <= again)

    def _write_rows(self, end: int) -> None:
        """Write the iterations before ``end`` that are not yet written. Drop spans in memory that no view shows any
        more."""
        for iteration in range(self._next, end):
            self._rows.append(self._rows_of(iteration).tobytes())
            self._next = iteration + 1
        for iteration in [i for i in self._spans if i < min(self._next, self.last_whole + 1 - SHOWN)]:
            del self._spans[iteration]

    def _iteration_at(self, place: int) -> int:
        return int(np.frombuffer(self._rows.read(place * ROW.itemsize, ROW.itemsize), ROW)["iteration"][0])

    def _rows_of(self, iteration: int) -> np.ndarray:
        """Return the ROWs of an iteration, sorted by replica and start."""
        spans = sorted(self._spans.get(iteration, ()), key=lambda s: (s.replica, s.start_s, s.end_s, s.action))
        for span in spans:
            self._actions.setdefault(span.action, len(self._actions))
        return np.array([(i, r, self._actions[action], s, e) for i, r, action, s, e in spans], ROW)


def slower(times: float) -> str:
    """Return a label such as ``2 x slower``; empty for a factor of 1."""
    return f"{times:.3g} x slower" if times > 1 else ""
