"""A Trace as the columns that the Gantt canvas draws."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.schedule import COMPUTE, SENDS, Lane
from dtfm_lab.domain.trace import RunContext, Span, Trace
from dtfm_lab.figures.palette import KIND_COLORS, legend_name

DRAWN = (*COMPUTE[:2], *SENDS, *COMPUTE[2:])
"""what gets bars, as the legend lists it; receives mirror the sends and are left out"""
KIND_INDEX = {kind: i for i, kind in enumerate(DRAWN)}
LEGEND = [{"name": legend_name(kind), "color": KIND_COLORS[kind]} for kind in DRAWN]
MOST_ROWS_WITH_NETWORK = 32
"""above so many devices only computations get a row"""


class Columns(NamedTuple):
    start: np.ndarray
    end: np.ndarray
    row: np.ndarray
    kind: np.ndarray
    microbatch: np.ndarray


class ChartRows:
    """Which row of the chart a device's lane is on."""

    def __init__(self, context: RunContext) -> None:
        self._devices = context.devices
        n_stages, n_replicas = len(context.devices), len(context.devices[0])
        self._with_network = n_stages * n_replicas <= MOST_ROWS_WITH_NETWORK
        self._n_replicas = n_replicas

    @property
    def labels(self) -> list[str]:
        labels = []
        for stage, names in enumerate(self._devices):
            for name in names:
                labels.append(f"S{stage} · {name}")
                labels += ["network"] if self._with_network else []
        return labels

    def columns(self, spans: Iterable[Span]) -> Columns:
        """The spans that have a row, in the dtypes that the canvas reads."""
        rows = []
        for span in spans:
            action = span.action
            if action.kind not in KIND_INDEX or (action.kind in SENDS and not self._with_network):
                continue
            device = action.stage * self._n_replicas + span.replica
            row = device * 2 + (action.lane is not Lane.COMPUTE) if self._with_network else device
            microbatch = -1 if action.microbatch is None else action.microbatch
            rows.append((span.start_s, span.end_s, row, KIND_INDEX[action.kind], microbatch))
        start, end, row, kind, microbatch = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        return Columns(
            np.array(start, "f4"),
            np.array(end, "f4"),
            np.array(row, "u2"),
            np.array(kind, "u1"),
            np.array(microbatch, "i2"),
        )


def typical_iteration(trace: Trace) -> list[Span]:
    """The spans of the iteration whose length is nearest the median."""
    typical = int(np.argmin(np.abs(trace.iteration_ends_s - trace.iteration_s)))
    iterations = np.unique(trace.iteration)
    return [span for span in trace.spans() if span.iteration == iterations[typical]]
