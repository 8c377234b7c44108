"""Compiling kernels off the critical path: a search shows its first result before they are there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from dtfm_lab.planning.cost import PairCosts
from dtfm_lab.planning.problem import Generation, Problem

LOOK_S = 0.05
"""between two steps while kernels are compiled"""

Rehearsal = Callable[[Problem], object]
"""Calls every kernel of a planner once, on a small problem, with arguments of the types that it will have."""


class _Warmth(threading.Thread):
    """Rehearses, which loads numba and compiles the kernels, or takes them from its cache on disk."""

    def __init__(self, rehearse: Rehearsal) -> None:
        super().__init__(daemon=True, name="dtfm-lab compiles")
        self._rehearse = rehearse
        self.error: BaseException | None = None

    def run(self) -> None:
        costs = 1.0 - np.eye(4)
        pair = PairCosts(group_s=costs, hop_s=costs.copy())
        try:
            self._rehearse(Problem(pair=pair, n_stages=2, n_replicas=2, bound_s=0.0))
        except BaseException as error:
            self.error = error


_warming: dict[Rehearsal, _Warmth] = {}
_starting = threading.Lock()


def warm(rehearse: Rehearsal) -> threading.Thread:
    """Begin to rehearse on a thread, if nobody has; returns at once."""
    return _warmth(rehearse)


def until_compiled(look: Generation, rehearse: Rehearsal) -> Iterator[Generation]:
    """The same look again and again, not counted as a step, until the kernels are there.

    The time that this takes is handed out with it (``waited_s``) and belongs to no budget: a machine
    compiles once.
    """
    warmth, began = _warmth(rehearse), time.perf_counter()
    while warmth.is_alive():
        warmth.join(LOOK_S)
        yield replace(look, whole=False, waited_s=time.perf_counter() - began)
    if warmth.error is not None:
        _warming.pop(rehearse, None)  # another search may have waited for it too
        raise warmth.error


def _warmth(rehearse: Rehearsal) -> _Warmth:
    with _starting:
        if rehearse not in _warming:
            _warming[rehearse] = _Warmth(rehearse)
            _warming[rehearse].start()
        return _warming[rehearse]
