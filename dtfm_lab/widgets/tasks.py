"""Work that a button starts, on the kernel's event loop or on a thread. A cell never blocks."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from dtfm_lab.domain.errors import LabError

FRAME_S = 0.066
"""Seconds between two checks for new results of a search or a run."""
SLOW_S = 0.15
"""Seconds of computing after which a panel shows that it is busy."""
HANDOVER_S = 0.001
"""Maximum seconds that the kernel's loop waits for the interpreter while a search computes on a thread.

Python's default is 0.005, and every message to the page would wait that long.
"""

Result = TypeVar("Result")
Item = TypeVar("Item")

logger = logging.getLogger(__name__)
_running: set[asyncio.Task[None]] = set()
_sharing: list[float] = []
"""The interpreter's usual switch interval in seconds, repeated once per thread that computes now. The last thread
restores it."""
_sharing_lock = threading.Lock()


def begin(work: Coroutine[Any, Any, None], report_error: Callable[[str], None]) -> asyncio.Task[None]:
    """Start a coroutine and keep its task alive until it ends. An exception is reported as one line."""

    async def guarded() -> None:
        try:
            await work
        except LabError as error:
            report_error(str(error))
        except Exception as error:  # a bug: one line on the screen, the traceback in the log
            logger.exception("work that a button started has failed")
            report_error(f"this should not have happened: {type(error).__name__}: {error}")

    task = asyncio.get_running_loop().create_task(guarded())
    _running.add(task)
    task.add_done_callback(_running.discard)
    task.add_done_callback(lambda _: work.close())  # if it was cancelled before it began
    return task


def has_event_loop() -> bool:
    """True if this is called on a running event loop. A plain script has none."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def shared_interpreter() -> Iterator[None]:
    """Let the kernel's loop get the interpreter quickly for as long as this thread computes."""
    with _sharing_lock:
        # Several threads may share; the first one knows the usual interval, and the last one restores it.
        _sharing.append(_sharing[0] if _sharing else sys.getswitchinterval())
        sys.setswitchinterval(min(HANDOVER_S, _sharing[0]))
    try:
        yield
    finally:
        with _sharing_lock:
            before_s = _sharing.pop()
            if not _sharing:
                sys.setswitchinterval(before_s)


async def run_on_thread(
    work: Callable[[], Result], stopped: asyncio.Event, on_slow: Callable[[], None] = lambda: None
) -> Result | None:
    """Return what ``work`` returns, or raise what it raises. None as soon as ``stopped`` is set.

    ``on_slow`` is called once if the work takes longer than ``SLOW_S`` seconds. Stopped work ends on its thread by
    itself, and its result is dropped.
    """
    task, stop = asyncio.ensure_future(asyncio.to_thread(work)), asyncio.ensure_future(stopped.wait())
    try:
        # Quick work shows no sign of waiting, which would only flicker.
        if not (await asyncio.wait({task, stop}, timeout=SLOW_S, return_when=asyncio.FIRST_COMPLETED))[0]:
            on_slow()
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
    if task.done():
        return task.result()
    # It continues in its thread, and its result is dropped.
    drop(task)
    return None


def drop(task: asyncio.Future[Any]) -> None:
    """Let work on a thread end by itself, and ignore its result or error."""
    task.add_done_callback(lambda late: late.cancelled() or late.exception())  # else asyncio logs it as never read


class OncePerTurn:
    """Does ``work`` once for all requests in one turn of the kernel's loop, after the turn's messages to the page.

    Without a running loop, each request does the work at once.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._due: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_due(self) -> bool:
        """True if the work is requested and has not started."""
        return self._due is not None

    def ask(self, delay_s: float = 0.0) -> None:
        """Do the work within ``delay_s`` seconds, or earlier if an earlier request asked for that."""
        if not has_event_loop():
            return self._work()
        loop = asyncio.get_running_loop()
        due_s = loop.time() + delay_s
        if self._due is not None and self._loop is loop:  # cells and messages may have their own loops
            if self._due.when() <= due_s:
                return
            self._due.cancel()
        self._due, self._loop = loop.call_at(due_s, self._do), loop

    def _do(self) -> None:
        self._due = None
        self._work()


class LatestRequest:
    """Answers the newest of many requests on the kernel's loop, one at a time. Requests made during an answer wait.

    ``answer`` gets the number of its request. ``can_answer`` says if there is anything to answer now. ``at_rest`` is
    called whenever nothing is left to answer.
    """

    def __init__(
        self,
        answer: Callable[[int], Awaitable[None]],
        report_error: Callable[[str], None],
        *,
        can_answer: Callable[[], bool],
        at_rest: Callable[[], None],
    ) -> None:
        self._answer, self._report_error, self._can_answer, self._at_rest = answer, report_error, can_answer, at_rest
        self._n_begun = 0
        self.n_requested = 0
        """Number of the newest request."""
        self.is_running = False

    @property
    def waits(self) -> bool:
        """True if the newest request has not been started."""
        return self._n_begun < self.n_requested

    def ask(self) -> None:
        self.n_requested += 1
        self.go_on()

    def go_on(self) -> None:
        """Answer a waiting request that could not be answered before, for example because no loop ran."""
        if self.waits and not self.is_running and self._can_answer() and has_event_loop():
            self.is_running = True
            begin(self._work(), self._report_error)

    def drop(self) -> None:
        """Forget all requests. The one that is being answered continues, but its number is no longer the newest."""
        self.n_requested += 1
        self._n_begun = self.n_requested

    async def _work(self) -> None:
        try:
            while self.waits and self._can_answer():
                self._n_begun = self.n_requested
                await self._answer(self._n_begun)
        finally:
            self.is_running = False
            self._at_rest()


class Stream(Generic[Item]):
    """Runs an iterator on a thread and keeps its items until ``drain`` returns them."""

    def __init__(self, items: Iterator[Item]) -> None:
        self.newest: Item | None = None
        self.error: BaseException | None = None
        self.stopped = threading.Event()
        self._unseen: dict[int, Item] = {}
        """{number of an item: item} that ``drain`` has not returned yet. Items are numbered as they arrive."""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, args=(items,), daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop the iterator after its next item. Return at once."""
        self.stopped.set()

    def drain(self) -> list[Item]:
        """Return the items since the last call, in order. Raises the iterator's exception once all items are
        returned."""
        with self._lock:
            unseen, self._unseen = self._unseen, {}
        if not unseen and self.error is not None:
            error, self.error = self.error, None
            raise error
        return [item for _, item in sorted(unseen.items())]

    async def watch(
        self, show: Callable[[Item], None], tick: Callable[[], None] = lambda: None, *, every_s: float = FRAME_S
    ) -> None:
        """Watch as ``watch_all`` does, but show only the newest item."""
        await self.watch_all(lambda items: show(items[-1]), tick, every_s=every_s)

    async def watch_all(
        self, show: Callable[[list[Item]], None], tick: Callable[[], None] = lambda: None, *, every_s: float = FRAME_S
    ) -> None:
        """Call ``show`` with new items, if there are any, and then ``tick``, until the iterator ends.

        The stream stops when this is cancelled. Raises what the iterator raised.
        """
        try:
            while True:
                running = self.running  # read before draining, so that no last item is missed
                if items := self.drain():
                    show(items)
                if not running:
                    break
                tick()
                await asyncio.sleep(every_s)
            self.drain()  # raises the error that came after the last item
        finally:
            self.stop()

    def _work(self, items: Iterator[Item]) -> None:
        try:
            with shared_interpreter():
                self._follow(items)
        except BaseException as error:
            self.error = error
        finally:
            if isinstance(items, Generator):
                items.close()  # ends a solver that it has started, too

    def _follow(self, items: Iterator[Item]) -> None:
        """Take the items as they arrive, on the thread."""
        for number, item in enumerate(items):
            self.newest = item
            self._keep(number, item)
            if self.stopped.is_set():
                return

    def _keep(self, number: int, item: Item) -> None:
        with self._lock:
            self._unseen[number] = item


class Paced:
    """Limits how often something that is slow to draw is drawn: at most once every ``every_s`` seconds."""

    def __init__(self, every_s: float) -> None:
        self._every_s, self._due_s = every_s, 0.0

    def is_due(self) -> bool:
        """Return True if it is time to draw. If so, the next time is ``every_s`` seconds from now."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._every_s
        return True
