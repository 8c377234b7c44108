"""Run one function over many tasks, in this process and others or on any executor, and keep results as they arrive.

This process starts alone. If it measures that the remaining tasks take long, it moves them to other processes, which
are loky's. If the caller gives an executor, its workers compute instead. Kept results are not computed again, so an
interrupted sweep continues where it stopped. ``received`` shows rows as they arrive, and keeps them if the user stops.
"""

from __future__ import annotations

import hashlib
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_type_hints

import numpy as np

from dtfm_lab.domain.errors import FileError, LabError, RunError
from dtfm_lab.domain.network import Topology, as_number, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation.executors import Executor, InProcessExecutor, TaskLost, results_of

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T")
Done = Callable[[int, Any], None]

WORTHWHILE_S = 6.0
"""Minimum seconds of remaining work for which other processes are started. They take two seconds to start. On two cores
the break-even is at about 3.5 s."""
ENVIRONMENT = {"LOKY_MAX_MEMORY_LEAK_SIZE": "4e9"}
"""Environment of worker processes. The value is the growth in bytes above which loky replaces a process, because it
seems to leak memory. Our caches grow by hundreds of MB."""
PARENT_CHECK_S = 0.5
"""Seconds between two checks by a worker process whether its parent still runs."""


ROUNDED = 1e-6
"""Maximum rounding error of a share in a row: a share of 0 may be this much below 0."""
LARGEST_COUNT = 2**53
"""Maximum whole number in a row. Up to this number, a 64-bit float is exact."""


class StoredRows(Protocol):
    """Rows of plain values by key, such as ``files.sweep_rows.SweepRows``."""

    def __contains__(self, key: str) -> bool: ...
    def __getitem__(self, key: str) -> Mapping[str, Any]: ...
    def where(self, key: str) -> str:
        """Return the place from which a row was read, for error messages."""

    def keep(self, key: str, row: Mapping[str, Any]) -> None:
        """Store a row under its key."""


def results(
    function: Callable[..., T],
    tasks: Sequence[tuple[Any, ...]],
    *,
    executor: Executor | None,
    named: Callable[[int], str],
    kept: StoredRows | None,
    to_row: Callable[[T], Mapping[str, Any]],
    of_row: Callable[[Mapping[str, Any]], T],
) -> Iterator[T | TaskLost]:
    """Yield the results of a module-level function for each task, in the order of the tasks.

    Kept results are returned as they are. All others are computed and then kept. A task whose worker was lost is not
    kept, so the next sweep tries it again. ``named`` returns the words for a task in errors, given its number. Other
    processes end with the iterator, even if it is closed early. They also end with this process, even if it is killed.
    Raises RunError if one of them is lost, and FileError for a kept row that is malformed.
    """
    keys = [] if kept is None else [fingerprint(function.__name__, *task) for task in tasks]
    known = {}
    for number, key in enumerate(keys):
        if kept is not None and key in kept:
            try:
                known[number] = of_row(kept[key])
            except LabError as error:
                raise FileError(f"{kept.where(key)}: {error}") from None
    missing = [number for number in range(len(tasks)) if number not in known]

    def done(position: int, result: Any) -> None:
        if kept is not None:
            kept.keep(keys[missing[position]], to_row(result))

    left = [tasks[number] for number in missing]
    if executor is None or isinstance(executor, InProcessExecutor):
        computed: Iterator[T | TaskLost] = _computed(
            function, left, 1 if executor is not None else usable_cores(), done
        )
    else:
        computed = results_of(executor, function, left, named=lambda position: named(missing[position]), done=done)
    for number in range(len(tasks)):
        yield known[number] if number in known else next(computed)


def _computed(
    function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], most_processes: int, done: Done
) -> Iterator[T]:
    n_processes = min(most_processes, len(tasks))
    spent_s = 0.0
    for n_done, task in enumerate(tasks, start=1):
        started_s = time.perf_counter()
        result = function(*task)
        spent_s += time.perf_counter() - started_s
        if n_done == 1:
            spent_s = 0.0  # not counted: the first task also loads what all tasks need
        done(n_done - 1, result)
        yield result
        if n_processes > 1 and spent_s / max(n_done - 1, 1) * (len(tasks) - n_done) > WORTHWHILE_S:
            yield from _in_processes(function, tasks, n_done, n_processes, done)
            return


def _in_processes(
    function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], first: int, n_processes: int, done: Done
) -> Iterator[T]:
    """Yield the results of the tasks from index ``first`` on, computed in ``n_processes`` processes."""
    from loky import ProcessPoolExecutor  # 0.1 s, and most calls do not need it

    pool = ProcessPoolExecutor(n_processes, initializer=_initialise, initargs=(os.getpid(),), env=ENVIRONMENT)
    try:
        for result in results_of(pool, function, tasks[first:], done=lambda number, found: done(first + number, found)):
            if isinstance(result, TaskLost):
                raise RunError(
                    f"one of {n_processes} worker processes died, perhaps out of memory; wanted fewer, such as "
                    "executor='loky:1'"
                )
            yield result
    finally:
        pool.shutdown(kill_workers=True)


def _initialise(parent: int) -> None:
    """Make a worker process ignore interrupts, which its parent handles, and exit when its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: int) -> None:
    """Exit once this process has another parent than ``parent``. A parent that was killed sends no signal, so this is
    polled."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fingerprint(*values: object) -> str:
    """Return a hash of the values and of the lab's version, as hex digits. It is the same in every process.

    For a plan, it covers the network, job, placement and queueing, but not the duration of the search.
    """
    digest = hashlib.sha256(version("dtfm_lab").encode())
    for value in values:
        _add(digest, value)
    return digest.hexdigest()[:32]


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, Plan):
        value = (value.topology, value.job, value.placement.devices, value.queueing)
    if isinstance(value, Topology):
        value = ("Topology", value.fingerprint)
    value = value.item() if isinstance(value, np.generic) else value
    # the name of the type keeps 1, 1.0 and "1" apart
    digest.update(f"{type(value).__name__}(".encode())
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            _add(digest, each.name)
            _add(digest, getattr(value, each.name))
    elif isinstance(value, Mapping):
        # equal mappings may be filled in another order
        for key in sorted(value, key=str):
            _add(digest, key)
            _add(digest, value[key])
    elif isinstance(value, list | tuple):
        for each in value:
            _add(digest, each)
    else:
        digest.update(repr(value).encode())
    digest.update(b")")


def plain(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass of numbers as JSON values. NaN becomes null."""
    return {what: _plain(number) for what, number in asdict(value).items()}


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and math.isnan(value) else value


def of_plain(kind: type[T], row: object) -> T:
    """Return the dataclass that ``plain`` made into a row. Raises LabError if the row does not hold its fields."""
    if not isinstance(row, Mapping):
        raise LabError(f"found {shortened(row)}; wanted a mapping of results")
    of_kind = fields(kind)  # type: ignore[arg-type]  # T is a dataclass
    kinds, with_default = get_type_hints(kind), {each.name for each in of_kind if each.default is not MISSING}
    for what in sorted(map(str, row.keys() ^ kinds.keys())):
        if what not in with_default:
            raise LabError(f"{'lacks' if what in kinds else 'knows no'} {shortened(what)}; wanted {', '.join(kinds)}")
    return kind(**{what: _number(what, value, kinds[what]) for what, value in row.items()})


def _number(what: str, value: object, kind: type) -> Any:
    """Return a value that ``plain`` wrote as a ``kind``; NaN for null. Raises LabError for an impossible value, which
    ``what`` names."""
    if kind is float and value is None:
        return math.nan
    if kind is str:
        if isinstance(value, str):
            return value
        raise LabError(f"{what} is {shortened(value)}; wanted text")
    if kind is bool or isinstance(value, bool):
        if kind is bool and isinstance(value, bool):
            return value
        raise LabError(f"{what} is {shortened(value)}; wanted {'true or false' if kind is bool else 'a number'}")
    number = as_number(value) if isinstance(value, int | float) else None
    too_large = kind is int and (not isinstance(value, int) or value > LARGEST_COUNT)
    if number is None or number < -ROUNDED or too_large:
        wanted = "a whole number, 0 or more" if kind is int else "a number, 0 or more, or null"
        raise LabError(f"{what} is {shortened(value)}; wanted {wanted}")
    return value if kind is int else number


def received(rows: Iterator[T], progress: Callable[[T], object] | None, newest: int | None = None) -> deque[T]:
    """Return all rows, or only the last ``newest``. Calls ``progress`` with each row as it arrives. Ctrl-C returns the
    rows so far; without any, it is raised.

    The stream is closed at the end, before the executor that its rows come from.
    """
    kept: deque[T] = deque(maxlen=newest)
    try:
        for row in rows:
            kept.append(row)
            if progress is not None:
                progress(row)
    except KeyboardInterrupt:
        if not kept:
            raise
    finally:
        if isinstance(rows, Generator):
            rows.close()
    return kept


def table_of(
    rows: Iterator[T], table: Callable[[Iterable[T]], DataFrame], progress: Callable[[T], object] | None
) -> DataFrame:
    """Return the table of all rows, see ``received``."""
    return table(received(rows, progress))
