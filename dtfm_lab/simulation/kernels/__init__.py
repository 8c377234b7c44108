"""Inner loops of the simulator: plain Python that numba also compiles, on a thread; here is chosen which form runs.

Compiling takes seconds, once on a machine, and reading it back from disk a good part of one: more than a small
simulation takes uncompiled. Both forms give the same bits.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from dtfm_lab.simulation.kernels import events, rings

SMALL = 3_000
"""Most nodes of a simulation that runs uncompiled without starting to compile."""
LARGE = 60_000
"""Nodes from which a simulation waits for the compiled kernels."""

PLAIN: dict[str, Callable[..., Any]] = {
    "event_loop": events.event_loop,
    "longest_paths": events.longest_paths,
    "ring_times": rings.ring_times,
    "shared_ring_times": rings.shared_ring_times,
}
compiled_kernels: dict[str, Callable[..., Any]] = {}
"""The compiled form of each kernel, by name; empty until ``start`` has finished."""
_starting = threading.Lock()
_started = threading.Event()
_finished = threading.Event()


def kernel(name: str, n_nodes: int) -> Callable[..., Any]:
    """``event_loop``, ``longest_paths`` or ``ring_times``, in the form to use for so many nodes, or messages."""
    if not _finished.is_set() and n_nodes > SMALL:
        start()
        if n_nodes > LARGE:
            _finished.wait()
    return compiled_kernels.get(name, PLAIN[name])


def start() -> threading.Event:
    """Start to compile on a thread, unless that was done before; the event is set when it has finished."""
    with _starting:
        if not _started.is_set():
            _started.set()
            threading.Thread(target=_compile, daemon=True, name="dtfm-lab compiles the simulator").start()
    return _finished


def _compile() -> None:
    """Without numba, or where it fails, the plain kernels stay in use: slower, with the same results."""
    try:
        from dtfm_lab.domain.compiling import compiled  # numba takes half a second to load

        made = {name: compiled(plain) for name, plain in PLAIN.items()}
        whole, number = np.zeros(1, np.int64), np.zeros(1)
        edges = np.zeros(2, np.int64)
        filled = np.zeros(1), np.zeros(1), *np.zeros((4, 1), np.int64)
        made["event_loop"](
            whole, number, number, whole, whole, 1, whole - 1, 1, whole, edges, whole[:0], number, *filled
        )
        made["longest_paths"](whole, number, number, whole, whole - 1, whole - 1, whole, edges, whole[:0], number)
        one, none = np.zeros((1, 1)), np.zeros((1, 1), np.int64)
        made["ring_times"](one, none, one, one, one, one, one, whole, 1, np.zeros((8, 1, 1)))
        made["shared_ring_times"](one, one, one, one, one, one, none, none, none, True, 1, np.zeros((8, 1, 1)))
        compiled_kernels.update(made)
    finally:
        _finished.set()
