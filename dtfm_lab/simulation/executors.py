"""Run tasks through an executor: any object with ``submit(function, *arguments)`` that returns a future.

Executors of ``concurrent.futures`` and loky, and Dask's Client, are such objects. A future has ``result``, ``cancel``
and ``done``. Only this module knows about futures. It compresses arguments, keeps a bounded number of tasks in flight,
retries a task whose worker is lost, and cancels tasks that are no longer needed. The command line names executors:
``here``, ``loky``, ``threads:8``, ``dask://host:8786``.
"""

import pickle
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures as concurrent
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Any, Generic, Protocol, TypeVar

from dtfm_lab.domain.errors import LabError, MissingExtra, RunError
from dtfm_lab.domain.network import shortened

T = TypeVar("T")

IN_FLIGHT = 3
"""Maximum number of tasks in flight per worker, if the executor says how many workers it has. A task is in flight from
its submission to its result."""
MOST_IN_FLIGHT = 1000
"""Maximum number of tasks in flight, if the executor does not say how many workers it has."""
POLL_S = 0.02
"""Seconds between two checks of futures that do not come from ``concurrent.futures``."""
TRIES = 2
"""Maximum number of times that a task is tried, the first included, if its workers are lost."""
LOSSES = ("KilledWorker", "CancelledError")
"""Names of Dask's errors that report a lost worker."""
UNPACKED = 32
"""Number of unpacked arguments that a worker caches. The plan of a sweep is sent with every task but unpacked only
once."""


class Executor(Protocol):
    """An object that calls functions elsewhere, such as in other processes or on other hosts."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Return the future of one call: an object with ``result``, ``cancel`` and ``done``."""


class InProcessExecutor:
    """Runs tasks in this process, one after the other, so that no other processes are started."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Make the call at once and return its finished future."""
        future: concurrent.Future[Any] = concurrent.Future()
        future.set_result(fn(*args))
        return future


@dataclass(frozen=True)
class TaskLost:
    """A task without a result because its worker was lost, and the reason in one line."""

    reason: str


@dataclass(frozen=True)
class _Raised:
    error: Exception


def results_of(
    executor: Executor,
    function: Callable[..., T],
    tasks: Sequence[tuple[Any, ...]],
    *,
    named: Callable[[int], str] = "task {}".format,
    done: Callable[[int, T], None] | None = None,
) -> Iterator[T | TaskLost]:
    """Yield the results of a module-level function for each task, in the order of the tasks.

    ``done`` is called with the number of a task and its result as soon as the result arrives. A task whose worker is
    lost is tried once more. If that worker is lost too, the task's result is a ``TaskLost``, and all other tasks
    continue. If the iterator is closed early, it cancels tasks that have not begun. The executor stays open. ``named``
    returns the words for a task in errors, given its number. Raises LabError for an object that is not an executor.
    Raises RunError if the executor cannot run anything, if a task cannot be sent, or if the function raises anything
    but a LabError. A LabError of the function is raised as it is.
    """
    check_executor(executor)
    yield from _Tasks(executor, function, tasks, named, done).results()


def check_executor(executor: object) -> None:
    """Raise LabError for an object that cannot be an executor."""
    if not callable(getattr(executor, "submit", None)) or isinstance(executor, type):
        wanted = "an object with submit, such as loky.get_reusable_executor() or dask.distributed.Client()"
        raise LabError(f"executor is {shortened(executor)}; wanted {wanted}")
    if getattr(executor, "asynchronous", False) is True:
        raise LabError("executor is an asynchronous Client of Dask; wanted one that is not")


class _Tasks(Generic[T]):
    """The tasks of one call. Each is waiting, in flight or done.

    If a worker is lost, so are its tasks. A pool of processes then loses all tasks in flight. Which task ended the
    worker is unknown, so each of these tasks is tried again while no other task is in flight. A task that then fails is
    lost.
    """

    def __init__(
        self,
        executor: Executor,
        function: Callable[..., T],
        tasks: Sequence[tuple[Any, ...]],
        named: Callable[[int], str],
        done: Callable[[int, T], None] | None,
    ) -> None:
        self._pool = _submitting(executor)
        self._function, self._tasks, self._named, self._done = function, tasks, named, done
        self._packed: dict[int, bytes] = {}
        self._waiting = deque(range(len(tasks)))
        self._alone: deque[int] = deque()
        """Tasks to try again one at a time, because they were in flight when a worker was lost."""
        self._flying: dict[Any, int] = {}
        self._tries: Counter[int] = Counter()
        self._found: dict[int, T | TaskLost] = {}
        self._worked = False
        """True if any task has returned a result."""

    def results(self) -> Iterator[T | TaskLost]:
        try:
            for number in range(len(self._tasks)):
                while number not in self._found:
                    self._submit()
                    for future in _first_done(list(self._flying)):
                        self._take(future, self._flying.pop(future))
                yield self._found.pop(number)
        finally:
            for future in self._flying:
                future.cancel()

    def _submit(self) -> None:
        if self._alone:
            # one at a time: if a worker is lost now, it is known which task ended it
            if not self._flying:
                self._send(self._alone.popleft())
            return
        most = _most_in_flight(self._pool)
        while self._waiting and len(self._flying) < most:
            self._send(self._waiting.popleft())

    def _send(self, number: int) -> None:
        call = self._call(self._tasks[number])
        try:
            future = self._submitted(call)
        except Exception as error:  # it broke permanently, was shut down, or has no workers left
            if not (isinstance(error, concurrent.BrokenExecutor) and self._tries):
                raise RunError(f"the executor takes no tasks: {_line(error)}") from None
            # it ran tasks before, so one of them broke it
            self._lose(number, error)
        else:
            self._flying[future] = number

    def _submitted(self, call: tuple[Any, ...]) -> Any:
        try:
            return self._pool.submit(*call)
        except concurrent.BrokenExecutor:
            if type(self._pool).__name__ != "_ReusablePoolExecutor":
                raise
            from loky import get_reusable_executor  # replaces a broken pool by a new one

            self._pool = get_reusable_executor(max_workers=self._pool._max_workers)
            return self._pool.submit(*call)

    def _call(self, task: tuple[Any, ...]) -> tuple[Any, ...]:
        if isinstance(self._pool, concurrent.ThreadPoolExecutor):
            return partial(_here, self._function), *task
        return partial(_there, version("dtfm_lab"), self._function), *(self._pack(argument) for argument in task)

    def _pack(self, argument: Any) -> bytes:
        packed = self._packed.get(id(argument))  # the tasks keep the argument alive, so its id is not reused
        if packed is None:
            try:
                packed = zlib.compress(pickle.dumps(argument), 1)
            except Exception as error:
                raise RunError(f"{shortened(argument)} cannot be sent to a worker: {_line(error)}") from None
            self._packed[id(argument)] = packed
        return packed

    def _take(self, future: Any, number: int) -> None:
        from asyncio import CancelledError  # raised by Dask; asyncio and ssl take a while to load

        self._tries[number] += 1
        try:
            result = future.result()
        except (Exception, CancelledError) as error:
            self._fail(number, error)
            return
        if isinstance(result, _Raised):
            if isinstance(result.error, LabError):
                raise result.error
            raise RunError(f"{self._named(number)} failed on its worker: {_line(result.error)}") from result.error
        self._worked = True
        self._found[number] = result
        if self._done is not None:
            self._done(number, result)

    def _fail(self, number: int, error: BaseException) -> None:
        """Try a task again whose worker was lost. If it has been tried ``TRIES`` times, count it as lost.

        Raises RunError instead if the error is not about a lost worker and no task has returned a result.
        """
        if self._tries[number] < TRIES:
            self._alone.append(number)
        elif self._worked or isinstance(error, concurrent.BrokenExecutor) or type(error).__name__ in LOSSES:
            # Dask's errors by name, because Dask may not be installed
            self._lose(number, error)
        else:
            raise RunError(f"the executor runs nothing; {self._named(number)}: {_line(error)}") from None

    def _lose(self, number: int, error: BaseException) -> None:
        self._found[number] = TaskLost(f"{self._named(number)}: its worker was lost: {_line(error)}")


def _there(sent_by: str, function: Callable[..., T], *packed: bytes) -> T | _Raised:
    """Unpack the arguments and call the function. Runs on a worker. An error of the function is returned as a value."""
    here = version("dtfm_lab")
    if here != sent_by:
        return _Raised(RunError(f"a worker has dtfm_lab {here}; wanted {sent_by}, as here"))
    return _here(function, *map(_unpacked, packed))


def _here(function: Callable[..., T], *task: Any) -> T | _Raised:
    try:
        return function(*task)
    except Exception as error:
        try:
            # an exception that cannot be pickled would not reach the caller, but its text does
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(_line(error))
        return _Raised(error)


@lru_cache(UNPACKED)
def _unpacked(packed: bytes) -> Any:
    return pickle.loads(zlib.decompress(packed))


def _submitting(executor: Any) -> Any:
    """Return the object to submit to: the executor itself. For a Client of Dask, return an executor that does not merge
    equal calls, so that a task can be tried again."""
    if callable(getattr(executor, "get_executor", None)):
        return executor.get_executor(pure=False)
    return executor


def _most_in_flight(pool: Any) -> int:
    workers = getattr(pool, "_max_workers", None)
    return IN_FLIGHT * workers if isinstance(workers, int) else MOST_IN_FLIGHT


def _first_done(futures: list[Any]) -> list[Any]:
    """Wait until at least one future is done. Return all futures that are done."""
    if all(isinstance(future, concurrent.Future) for future in futures):
        return list(concurrent.wait(futures, return_when=concurrent.FIRST_COMPLETED).done)
    while not (done := [future for future in futures if future.done()]):
        time.sleep(POLL_S)
    return done


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return f"{kind}: {text[:300]}" if text else kind


AnyExecutor = Executor | str
"""An object with ``submit``, or the name of an executor."""
KNOWN = "here, loky, loky:N, threads:N or dask://HOST:PORT"
CONNECT_S = 10
"""Maximum seconds to wait for the answer of a Dask scheduler."""


@contextmanager
def opened(given: AnyExecutor | None) -> Iterator[Executor | None]:
    """Yield an executor to use. A named executor is opened and closed at the end. An object or None is yielded as it
    is.

    Raises LabError for a value that is not an executor, RunError if no scheduler of Dask answers, and MissingExtra if
    Dask is not installed.
    """
    if not isinstance(given, str):
        if given is not None:
            check_executor(given)
        yield given
        return
    kind, _, rest = given.partition(":")
    if given == "here":
        yield InProcessExecutor()
        return
    if kind == "loky" and (count := _count(given, rest, default=None)) != 0:
        from loky import get_reusable_executor

        pool = get_reusable_executor(max_workers=count)
        try:
            yield pool
        finally:
            # tasks that still run belong to a caller who has stopped
            pool.shutdown(wait=False, kill_workers=True)
    elif kind == "threads" and (count := _count(given, rest, default=0)):
        with concurrent.ThreadPoolExecutor(count) as threads:
            yield threads
    elif kind == "dask" and rest.startswith("//") and rest[2:]:
        with _client(rest[2:]) as client:
            yield client
    else:
        raise LabError(f"executor is {shortened(given)}; wanted {KNOWN}")


def _count(given: str, text: str, default: int | None) -> int | None:
    if not text:
        return default
    if not text.isdecimal() or not 0 < int(text) <= 10_000:
        raise LabError(f"executor is {shortened(given)}; wanted {KNOWN}, N from 1")
    return int(text)


def _client(address: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise MissingExtra("executor dask:// needs dask.distributed; wanted: pip install distributed") from None
    try:
        client: Any = distributed.Client
        return client(f"tcp://{address}", timeout=CONNECT_S)
    except (OSError, ValueError, TimeoutError):
        raise RunError(f"no scheduler of Dask answers at {address} within {CONNECT_S} s") from None
