"""Traces as versioned JSON with one list per column, their losses as CSV, and files for chrome://tracing and
ui.perfetto.dev.

In the Trace Event Format ("Trace Event Format", Google, catapult project) every device is a process, in stage order.
Every lane is a thread, every action an "X" event, and every message an arrow from "s" to "f". Events of one thread must
not overlap, so a lane with overlapping messages becomes several threads. Iterations follow each other.
"""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import FailFast, GetJsonSchemaHandler, ValidationError, WrapValidator
from pydantic_core import InitErrorDetails, PydanticCustomError

from dtfm_lab.domain.errors import FileError, LabError, TraceError
from dtfm_lab.domain.registry import FORMER_NAMES, current_name
from dtfm_lab.domain.schedule import PASSES, SYNCHRONISATION, Action, Kind, Lane
from dtfm_lab.domain.trace import RunContext, Trace, TracedPlan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.files.reading import Section, dump, parse, read_mapping, write_text

if TYPE_CHECKING:
    import pandas as pd

Event = dict[str, Any]

MESSAGE = "message"
CATEGORIES = {"pass": (*PASSES, Kind.PART), "synchronisation": SYNCHRONISATION, "step": (Kind.STEP,)}
"""Kinds of action by category. All others are messages between stages."""
LANES = tuple(Lane)
LONGEST_NS = 2.0**53
"""Longest trace: 104 days. Viewers count in nanoseconds, and beyond this a float cannot represent every one."""
COLUMNS = ("iteration", "replica", "action", "start_s", "end_s")
"""The columns that every trace has."""


PLANNED = {each.name for each in fields(TracedPlan)}
"""Keys of a context that belong to the plan. A file holds them next to the others."""

FORMER_KEYS = {"cards": "nics"}
"""Old name of a context key, in files of earlier versions -> its name now."""


def context_to_mapping(context: RunContext) -> dict[str, Any]:
    """Return the context in plain JSON types, in the form that files hold: the plan's fields next to the rest."""
    data: dict[str, Any] = dump(context)
    planned: dict[str, Any] = data.pop("plan")
    return data | planned


def _context_of(data: Any, read: Callable[[Any], RunContext]) -> RunContext:
    """Read what ``context_to_mapping`` wrote. Errors name the keys as the file has them."""
    if isinstance(data, Mapping):
        own = {FORMER_KEYS.get(key, key): value for key, value in data.items() if key not in PLANNED}
        if "queueing" in own:
            own["queueing"] = current_name("queueing", own["queueing"])
        if "links" in own:
            own["links"] = current_name("links of a trace", own["links"])
        # The file keeps the plan's fields at the same level as the others, as it did before they were one object.
        data = own | {"plan": {key: value for key, value in data.items() if key in PLANNED}}
    try:
        return read(data)
    except ValidationError as error:
        found = [
            InitErrorDetails(
                type=PydanticCustomError(each["type"], each["msg"].replace("{", "{{").replace("}", "}}")),
                loc=tuple(place for i, place in enumerate(each["loc"]) if i or place != "plan"),
                input=each["input"],
            )
            for each in error.errors(include_url=False)
        ]
        raise ValidationError.from_exception_data(error.title, found) from None


class _FlatSchema:
    """Makes the JSON schema of a context as files hold it: the plan's fields next to the others."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = dict(handler.resolve_ref_schema(handler(core)))
        properties = dict(schema["properties"])
        planned = handler.resolve_ref_schema(properties.pop("plan"))
        required = [*schema["required"], *planned["required"]]
        properties |= planned["properties"]
        links = properties["links"]
        former = [old for noun, old in FORMER_NAMES if noun == "links of a trace"]
        properties["links"] = links | {"enum": [*links["enum"], *former]}  # files of earlier versions are read
        return schema | {"properties": properties, "required": [key for key in required if key != "plan"]}


ContextOfFile = Annotated[RunContext, WrapValidator(_context_of), _FlatSchema()]


class TraceFile(Section):
    """The keys of a trace file. ``Trace`` documents the columns."""

    dtfm_trace: int
    iteration_s: float = 0.0
    """Seconds of an iteration (`Trace.iteration_s`), for people. It is not read back."""
    context: ContextOfFile
    actions: tuple[Action, ...]
    iteration: Annotated[list[int], FailFast()]
    replica: Annotated[list[int], FailFast()]
    action: Annotated[list[int], FailFast()]
    start_s: Annotated[list[float], FailFast()]
    end_s: Annotated[list[float], FailFast()]
    after: list[int] | None = None


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write a trace, all or nothing. Return the path."""
    columns = {name: getattr(trace, name) for name in (*COLUMNS, "after")}
    data = {"dtfm_trace": 1, "iteration_s": trace.iteration_s, "context": context_to_mapping(trace.context)}
    data["actions"] = [list(action) for action in trace.actions]
    data |= {name: None if column is None else column.tolist() for name, column in columns.items()}
    return write_text(path, json.dumps(data) + "\n")


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read the trace in a file. Raises FileError, in one line, if it holds no trace."""
    path = Path(path)
    return trace_from_mapping(read_mapping(path), where=path.name)


def trace_from_mapping(data: dict[str, Any], *, where: str) -> Trace:
    """Return the trace in a file's mapping. ``where`` names it in errors. Raises FileError, in one line, if there is
    none."""
    file = parse(TraceFile, data, where, version="dtfm_trace")
    try:
        arrays = {
            name: np.array(column, dtype=float if name.endswith("_s") else np.int64)
            for name in (*COLUMNS, "after")
            if (column := getattr(file, name)) is not None
        }
        return Trace(file.context, file.actions, **arrays)
    except (LabError, OverflowError) as error:
        raise FileError(f"{where}: {error}") from None


def losses(trace: Trace) -> pd.DataFrame:
    """Return one row per number of finished iterations: iteration, training_loss, held_out_loss, unigram_entropy.

    All three are in nats per byte, unless your own module has another loss. Both losses of a row belong to the same
    parameters: iteration i begins with the parameters after i iterations. So row 0 precedes any step, and a row after
    the last iteration has no training loss.
    Values that were not measured are NaN. Raises TraceError if nothing was trained.
    """
    import pandas as pd  # takes a while to load

    context = trace.context
    if not context.losses:
        raise TraceError("the trace holds no losses; wanted one of a real run")
    # the losses end with the trace's last iteration; a resumed run does not count from 0
    first = max(0, int(trace.iteration.max()) + 1 - len(context.losses))
    training = dict(enumerate(context.losses, start=first))
    held_out = dict(context.held_out)
    done = sorted(training.keys() | held_out.keys())
    columns = {
        "training_loss": pd.Series(training, dtype=float),
        "held_out_loss": pd.Series(held_out, dtype=float),
        "unigram_entropy": pd.Series(context.unigram_entropy, index=done, dtype=float),
    }
    return pd.DataFrame(columns, index=pd.Index(done, name="iteration")).reset_index()


def save_losses(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write ``losses`` as CSV with a header. Return the path."""
    return write_text(path, losses(trace).to_csv(index=False, lineterminator="\n"))


def save_chrome_trace(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write a file for chrome://tracing and ui.perfetto.dev. Raises TraceError for more than 104 days."""
    context = asdict(trace.context)
    context |= context.pop("plan")
    shown = {key: value for key, value in context.items() if key not in ("profile", "orders", "versions")}
    data = {
        "traceEvents": chrome_events(trace),
        "displayTimeUnit": "ms" if trace.iteration_s >= 1e-3 else "ns",
        "otherData": {
            "iteration_s": f"{trace.iteration_s:.9g}",
            **{key: value if isinstance(value, str) else json.dumps(value) for key, value in shown.items()},
            **context["versions"],
        },
    }
    # not escaped to ASCII, because Perfetto shows the escapes
    return write_text(path, json.dumps(data, allow_nan=False, ensure_ascii=False) + "\n")


def chrome_events(trace: Trace) -> list[Event]:
    """Return all events: the names of processes and threads, then the actions, then the arrows of the messages."""
    start_ns, end_ns = _nanoseconds(trace)
    process = _processes(trace)
    thread, threads = _threads(trace, process, start_ns, end_ns)
    ts, dur = _microseconds(start_ns), _microseconds(end_ns - start_ns)
    events = [*_process_names(trace), *_thread_names(threads)]
    described = [_described(action) for action in trace.actions]
    columns = (trace.action, process, thread, ts, dur, trace.iteration, trace.replica)
    for a, pid, tid, begin, length, iteration, replica in zip(*(c.tolist() for c in columns), strict=True):
        name, category, args = described[a]
        event = {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": begin, "dur": length}
        events.append(event | {"args": {**args, "replica": replica, "iteration": iteration}})
    for number, (sent, received) in enumerate(zip(*(rows.tolist() for rows in trace.message_rows()), strict=True)):
        for phase, row in (("s", sent), ("f", received)):
            event = {"ph": phase, "name": MESSAGE, "cat": MESSAGE, "id": number, "ts": float(ts[row])}
            # binds the arrow to the event in which it ends, not to the next one
            event |= {"pid": int(process[row]), "tid": int(thread[row])} | ({"bp": "e"} if phase == "f" else {})
            events.append(event)
    return events


def _nanoseconds(trace: Trace) -> tuple[IntArray, IntArray]:
    """Return the start and end of each row in whole nanoseconds. Rows that touch in seconds still touch.

    Each iteration begins where the previous one ended.
    """
    which = np.unique(trace.iteration, return_inverse=True)[1]
    began_s = np.concatenate([[0.0], np.cumsum(trace.iteration_ends_s)[:-1]])[which]
    first_s = min(float(trace.start_s.min()), 0.0)
    # an overflow becomes infinite, which is refused below
    with np.errstate(over="ignore"):
        start, end = ((began_s + column - first_s) * 1e9 for column in (trace.start_s, trace.end_s))
    if (longest := float(end.max())) > LONGEST_NS:
        raise TraceError(f"trace lasts {longest / 1e9:.3g} s; wanted at most {LONGEST_NS / 1e9:.3g} s to show it")
    return np.rint(start).astype(np.int64), np.rint(end).astype(np.int64)


def _microseconds(nanoseconds: IntArray) -> FloatArray:
    """Return microseconds, the format's unit, rounded so that viewers that multiply by 1000 and truncate recover the
    same nanoseconds."""
    microseconds: FloatArray = nanoseconds / 1e3
    short = (microseconds * 1e3).astype(np.int64) < nanoseconds
    microseconds[short] = np.nextafter(microseconds[short], np.inf)
    return microseconds


def _processes(trace: Trace) -> IntArray:
    """Return the number of each row's device, from 1. Viewers reserve 0 for the idle process."""
    devices = trace.context.devices
    position = np.array([action.stage % len(devices) for action in trace.actions])[trace.action]
    processes: IntArray = position * len(devices[0]) + trace.replica + 1
    return processes


def _threads(
    trace: Trace, process: IntArray, start_ns: IntArray, end_ns: IntArray
) -> tuple[IntArray, list[tuple[int, int, str]]]:
    """Return the thread of each row, and each thread's number, process and name.

    Threads are numbered after the processes, because viewers treat a thread with its process's number as the main
    thread.
    """
    lane = np.array([LANES.index(action.lane) for action in trace.actions])[trace.action]
    owner = process * len(LANES) + lane
    order = np.lexsort((end_ns, start_ns, owner))
    first = sum(len(group) for group in trace.context.devices) + 1
    thread = np.zeros(len(trace), dtype=np.int64)
    threads: list[tuple[int, int, str]] = []
    for rows in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1):
        sublane = _sublanes(start_ns[rows], end_ns[rows])
        name, n = LANES[lane[rows[0]]].value, int(sublane.max()) + 1
        tid, pid = first + len(threads), int(process[rows[0]])
        thread[rows] = tid + sublane
        threads += [(tid + i, pid, name if n == 1 else f"{name} {i + 1}") for i in range(n)]
    return thread, threads


def _sublanes(start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return the sublane of each interval: the first one that is free at its start. Intervals are sorted by start."""
    # The common case, for which the heap below would be slow.
    if (start_ns[1:] >= end_ns[:-1]).all():
        return np.zeros(len(start_ns), dtype=np.int64)
    sublane: list[int] = []
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    for start, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        chosen = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, chosen))
        sublane.append(chosen)
    return np.array(sublane)


def _described(action: Action) -> tuple[str, str, Event]:
    """Return an action's name, category and arguments. The name is the kind and the number of the micro-batch, round or
    part: ``F 3``."""
    kind, m = action.kind, action.microbatch
    category = next((name for name, kinds in CATEGORIES.items() if kind in kinds), MESSAGE)
    args: Event = {"action": str(action), "stage": action.stage}
    if m is not None:
        args["round" if kind in SYNCHRONISATION else "part" if kind is Kind.PART else "microbatch"] = m
    return (kind.value if m is None else f"{kind.value} {m}"), category, args


def _process_names(trace: Trace) -> Iterator[Event]:
    """Yield the name and the sort index of each device's process, in stage order. The name lists the stages that the
    device holds."""
    devices = trace.context.devices
    traced = {action.stage for action in trace.actions} | set(range(len(devices)))
    for position, group in enumerate(devices):
        held = sorted(stage for stage in traced if stage % len(devices) == position)
        for replica, name in enumerate(group):
            pid = position * len(group) + replica + 1
            title = f"stage{'s' if len(held) > 1 else ''} {', '.join(map(str, held))} · {name}"
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": title}}
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}


def _thread_names(threads: list[tuple[int, int, str]]) -> Iterator[Event]:
    for tid, pid, name in threads:
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
