"""Executors by name, as the command line has them: ``here``, ``loky``, ``threads:8``, ``dask://host:8786``."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from dtfm_lab.domain.errors import LabError, MissingExtra, RunError
from dtfm_lab.domain.network import shortened
from dtfm_lab.simulation.executors import Executor, Here, check_executor

AnyExecutor = Executor | str
"""An object with ``submit``, or the name of one."""
KNOWN = "here, loky, loky:N, threads:N or dask://HOST:PORT"
CONNECT_S = 10
"""Seconds that a scheduler of Dask has to answer."""


@contextmanager
def opened(given: AnyExecutor | None) -> Iterator[Executor | None]:
    """The executor itself, or the one of a name, which is closed at the end; None for None.

    Raises LabError for what is none, and RunError where no scheduler answers.
    """
    if not isinstance(given, str):
        if given is not None:
            check_executor(given)
        yield given
        return
    kind, _, rest = given.partition(":")
    if given == "here":
        yield Here()
        return
    if kind == "loky" and (count := _count(given, rest, default=None)) != 0:
        from loky import get_reusable_executor

        pool = get_reusable_executor(max_workers=count)
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, kill_workers=True)
    elif kind == "threads" and (count := _count(given, rest, default=0)):
        with ThreadPoolExecutor(count) as threads:
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
