"""Which form of a kernel runs: compiled where that is there, or worth waiting for, else as it stands.

Compiling takes seconds, once on a machine, and reading it back from disk a good part of one: more than a small
simulation takes uncompiled. Both forms give the same bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from dtfm_lab.simulation.kernels import events

SMALL = 3_000
"""nodes; up to as many run uncompiled"""
LARGE = 60_000
"""nodes; from here on compiled code is waited for"""

_kernels: dict[str, Callable[..., Any]] = {}
_compiling = threading.Lock()
_ready = threading.Event()
_begun = threading.Event()


def kernel(name: str, n_nodes: int) -> Callable[..., Any]:
    """``play_events`` or ``longest_from``, for so many nodes."""
    if not _ready.is_set() and n_nodes > SMALL:
        begin()
        if n_nodes > LARGE:
            _ready.wait()
    plain: Callable[..., Any] = getattr(events, name)
    return _kernels.get(name, plain)


def begin() -> threading.Event:
    """Begin to compile on a thread, if nobody has; the event is set when that is over."""
    with _compiling:
        if not _begun.is_set():
            _begun.set()
            threading.Thread(target=_compile, daemon=True, name="dtfm-lab compiles the simulator").start()
    return _ready


def _compile() -> None:
    """Without numba, or where it fails, kernels stay as they stand: slow, and right."""
    try:
        from dtfm_lab.domain.compiling import compiled  # numba takes half a second to load

        made = {name: compiled(getattr(events, name)) for name in ("play_events", "longest_from")}
        whole, number = np.zeros(1, np.int64), np.zeros(1)
        edges = np.zeros(2, np.int64)
        filled = np.zeros(1), np.zeros(1), *np.zeros((3, 1), np.int64)
        made["play_events"](whole, number, number, whole, whole, 1, whole, edges, whole[:0], *filled)
        made["longest_from"](whole, number, number, whole, whole - 1, whole, edges, whole[:0], number)
        _kernels.update(made)
    finally:
        _ready.set()
