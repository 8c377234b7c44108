"""Results that are kept in a file as they come, so that an interrupted sweep goes on where it was."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from importlib.metadata import version
from typing import Any, Protocol, TypeVar

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation.executors import Executor, Lost
from dtfm_lab.simulation.process_pool import map_in_order

T = TypeVar("T")


class Kept(Protocol):
    """Rows of plain values by key, such as ``files.sweep_rows.SweepRows``."""

    def __contains__(self, key: str) -> bool: ...
    def __getitem__(self, key: str) -> Mapping[str, Any]: ...
    def keep(self, key: str, row: Mapping[str, Any]) -> None:
        """Write a row."""


def resumed(
    function: Callable[..., T],
    tasks: Sequence[tuple[Any, ...]],
    *,
    workers: int | None,
    executor: Executor | None,
    named: Callable[[int], str],
    kept: Kept | None,
    to_row: Callable[[T], Mapping[str, Any]],
    of_row: Callable[[Mapping[str, Any]], T],
) -> Iterator[T | Lost]:
    """Results in the order of the tasks: those that are kept as they were, all others computed, and then kept.

    A task whose worker was lost is not kept, so it is tried again when the sweep is.
    """
    how: dict[str, Any] = {"executor": executor}
    if kept is None:
        yield from map_in_order(function, tasks, workers, named=named, **how)
        return
    keys = [fingerprint(function.__name__, *task) for task in tasks]
    known = {number: of_row(kept[key]) for number, key in enumerate(keys) if key in kept}
    missing = [number for number in range(len(tasks)) if number not in known]

    def done(position: int, result: T) -> None:
        kept.keep(keys[missing[position]], to_row(result))

    computed = map_in_order(
        function,
        [tasks[number] for number in missing],
        workers,
        named=lambda position: named(missing[position]),
        done=done,
        **how,
    )
    for number in range(len(tasks)):
        yield known[number] if number in known else next(computed)


def fingerprint(*values: object) -> str:
    """Hex digits that change with any of the values, or with the lab's version; alike in every process.

    Of a plan count its network, job, placement and queueing, and not how long it was searched for.
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
    digest.update(f"{type(value).__name__}(".encode())
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            _add(digest, each.name)
            _add(digest, getattr(value, each.name))
    elif isinstance(value, Mapping):
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
    """The fields of a dataclass of numbers as JSON has them: null where a number is unknown."""
    return {what: _plain(number) for what, number in asdict(value).items()}


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and math.isnan(value) else value


def of_plain(kind: Callable[..., T], row: Mapping[str, Any]) -> T:
    """The dataclass of ``plain``."""
    return kind(**{what: math.nan if value is None else value for what, value in row.items()})
