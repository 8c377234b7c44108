"""Tasks through an executor: any object with ``submit(function, *arguments)`` that returns a future.

Executors of ``concurrent.futures`` and loky, and Dask's Client, are such objects. A future has ``result``, ``cancel``
and ``done``. This module is the only one that knows so: it sends large arguments packed, keeps a bounded number of
tasks in flight, gives a task of a lost worker another try, and cancels what is not needed any more.
"""

import pickle
import time
import zlib
from asyncio import CancelledError
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures as concurrent
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Any, Generic, Protocol, TypeVar

from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.domain.network import shortened

T = TypeVar("T")

IN_FLIGHT = 3
"""Tasks per worker that are submitted ahead, where the executor says how many workers it has."""
MOST_IN_FLIGHT = 1000
"""Tasks that are submitted ahead where it does not."""
POLL_S = 0.02
"""Seconds between two looks at futures that are not those of ``concurrent.futures``."""
TRIES = 2
"""Times that a task is tried whose worker is lost."""
UNPACKED = 32
"""Arguments that a worker keeps unpacked: the plan of a sweep is sent with every task, and unpacked once."""


class Future(Protocol):
    """What becomes of one task."""

    def result(self) -> Any: ...
    def cancel(self) -> Any: ...
    def done(self) -> bool: ...


class Executor(Protocol):
    """Runs functions elsewhere."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """A Future of one call."""


class Here:
    """Stands for this process alone, where otherwise more would be started for what takes long."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """A finished future of the call, which is made at once."""
        future: concurrent.Future[Any] = concurrent.Future()
        future.set_result(fn(*args))
        return future


@dataclass(frozen=True)
class Lost:
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
) -> Iterator[T | Lost]:
    """Results of a module-level function for each task, in the order of the tasks.

    ``done`` is called with the number of a task and its result as soon as it is there. A task whose worker is lost is
    tried again once; if that worker is lost, too, the task is ``Lost`` and all others go on. Closed early, the iterator
    cancels what has not begun. The executor stays open. ``named`` says what a task is, for errors.

    Raises RunError for an executor that cannot run anything, or for a function that fails by mistake.
    """
    check_executor(executor)
    yield from _Tasks(executor, function, tasks, named, done).results()


def check_executor(executor: object) -> None:
    """Raises LabError for what cannot be one."""
    if not callable(getattr(executor, "submit", None)) or isinstance(executor, type):
        wanted = "an object with submit, such as loky.get_reusable_executor() or dask.distributed.Client()"
        raise LabError(f"executor is {shortened(executor)}; wanted {wanted}")
    if getattr(executor, "asynchronous", False) is True:
        raise LabError("executor is an asynchronous Client of Dask; wanted one that is not")


class _Tasks(Generic[T]):
    def __init__(
        self,
        executor: Executor,
        function: Callable[..., T],
        tasks: Sequence[tuple[Any, ...]],
        named: Callable[[int], str],
        done: Callable[[int, T], None] | None,
    ) -> None:
        self._executor, self._function, self._tasks, self._named, self._done = executor, function, tasks, named, done
        self._pool = _submitting(executor)
        self._packed: dict[int, bytes] = {}
        self._waiting = deque(range(len(tasks)))
        self._suspects: deque[int] = deque()
        """Tasks that were in flight when workers were lost; they are tried again one by one, to find which it was."""
        self._flying: dict[Any, int] = {}
        self._tries: Counter[int] = Counter()
        self._found: dict[int, T | Lost] = {}
        self._any = False
        """Whether any task had a result."""
        self._renewed_for_nothing = False
        """Whether the newest pool has not taken a task yet."""

    def results(self) -> Iterator[T | Lost]:
        try:
            for number in range(len(self._tasks)):
                while number not in self._found:
                    self._submit()
                    for future in _first_done(list(self._flying)):
                        if future in self._flying:  # not lost with its pool a moment ago
                            self._take(future, self._flying.pop(future))
                yield self._found.pop(number)
        finally:
            for future in self._flying:
                future.cancel()

    def _submit(self) -> None:
        if self._suspects:
            if not self._flying:
                self._send(self._suspects.popleft())
            return
        most = _most_in_flight(self._pool)
        while self._waiting and len(self._flying) < most:
            self._send(self._waiting.popleft())

    def _send(self, number: int) -> None:
        call = self._call(self._tasks[number])
        try:
            self._flying[self._pool.submit(*call)] = number
        except concurrent.BrokenExecutor as error:
            if self._renewed_for_nothing or not (self._any or self._flying or _is_renewable(self._executor)):
                raise RunError(f"the executor takes no tasks: {_line(error)}") from None
            self._waiting.appendleft(number)
            self._renewed_for_nothing = not self._flying
            self._break(error)
        except Exception as error:  # it was shut down, or nobody is there any more
            raise RunError(f"the executor takes no tasks: {_line(error)}") from None
        else:
            self._renewed_for_nothing = False

    def _call(self, task: tuple[Any, ...]) -> tuple[Any, ...]:
        if isinstance(self._pool, concurrent.ThreadPoolExecutor):
            return partial(_here, self._function), *task
        return partial(_there, version("dtfm_lab"), self._function), *(self._pack(argument) for argument in task)

    def _pack(self, argument: Any) -> bytes:
        packed = self._packed.get(id(argument))  # the tasks keep it alive, so no other has its id
        if packed is None:
            try:
                packed = zlib.compress(pickle.dumps(argument), 1)
            except Exception as error:
                raise RunError(f"{shortened(argument)} cannot be sent to a worker: {_line(error)}") from None
            self._packed[id(argument)] = packed
        return packed

    def _take(self, future: Any, number: int) -> None:
        self._tries[number] += 1
        try:
            result = future.result()
        except concurrent.BrokenExecutor as error:
            self._break(error, number)
            return
        except (Exception, CancelledError) as error:
            self._fail(number, error)
            return
        if isinstance(result, _Raised):
            if isinstance(result.error, LabError):
                raise result.error
            raise RunError(f"{self._named(number)} failed on its worker: {_line(result.error)}") from result.error
        self._any = True
        self._found[number] = result
        if self._done is not None:
            self._done(number, result)

    def _fail(self, number: int, error: BaseException) -> None:
        """Try a task again whose worker was lost, unless that is no use."""
        kind = type(error).__name__
        if self._tries[number] < TRIES:
            if kind == "KilledWorker":  # Dask blames all tasks that a lost worker had, so each has a try alone
                self._suspects.append(number)
            else:
                self._waiting.appendleft(number)
        elif self._any or kind in ("KilledWorker", "CancelledError"):
            self._lose(number, error)
        else:
            raise RunError(f"the executor runs nothing; {self._named(number)}: {_line(error)}") from None

    def _lose(self, number: int, error: BaseException) -> None:
        self._found[number] = Lost(f"{self._named(number)}: its worker was lost: {_line(error)}")

    def _break(self, error: Exception, *broken: int) -> None:
        """Go on after a whole pool broke: what was in flight is tried again alone, to find whose worker it was."""
        flying, self._flying = self._flying, {}
        was_alone = bool(broken) and not flying
        suspects = list(broken)
        for future, number in flying.items():
            if future.exception() is None:
                self._take(future, number)
            else:
                self._tries[number] += 1
                suspects.append(number)
        if not _is_renewable(self._executor):
            for number in (*suspects, *self._suspects, *self._waiting):
                self._lose(number, error)
            self._suspects.clear()
            self._waiting.clear()
            return
        self._executor = self._pool = _renewed(self._executor)
        for number in suspects:
            if was_alone and self._tries[number] >= TRIES:
                self._lose(number, error)
            else:
                self._suspects.append(number)


def _there(sent_by: str, function: Callable[..., T], *packed: bytes) -> T | _Raised:
    """On a worker: the function of the arguments as they were sent, with its error as a value."""
    here = version("dtfm_lab")
    if here != sent_by:
        return _Raised(RunError(f"a worker has dtfm_lab {here}; wanted {sent_by}, as here"))
    return _here(function, *map(_unpacked, packed))


def _here(function: Callable[..., T], *task: Any) -> T | _Raised:
    try:
        return function(*task)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(_line(error))
        return _Raised(error)


@lru_cache(UNPACKED)
def _unpacked(packed: bytes) -> Any:
    return pickle.loads(zlib.decompress(packed))


def _submitting(executor: Any) -> Any:
    """The executor itself; of a Client of Dask one whose equal tasks are different tasks, so one can be tried again."""
    if callable(getattr(executor, "get_executor", None)):
        return executor.get_executor(pure=False)
    return executor


def _most_in_flight(pool: Any) -> int:
    workers = getattr(pool, "_max_workers", None)
    return IN_FLIGHT * workers if isinstance(workers, int) else MOST_IN_FLIGHT


def _first_done(futures: list[Any]) -> list[Any]:
    """Those that are done, as soon as one is."""
    if all(isinstance(future, concurrent.Future) for future in futures):
        return list(concurrent.wait(futures, return_when=concurrent.FIRST_COMPLETED).done)
    while not (done := [future for future in futures if future.done()]):
        time.sleep(POLL_S)
    return done


def _is_renewable(executor: object) -> bool:
    """Whether another pool can take the place of a broken one: loky's reusable executor is made anew."""
    return type(executor).__name__ == "_ReusablePoolExecutor"


def _renewed(executor: Any) -> Any:
    from loky import get_reusable_executor

    return get_reusable_executor(max_workers=executor._max_workers)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return f"{kind}: {text[:300]}" if text else kind
