"""What is tried out on a plan without searching anew: how messages queue, gradients are averaged, memory is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as w

from dtfm_lab.domain.job import COMPRESSIONS, Job
from dtfm_lab.domain.synchronisation import synchronisations
from dtfm_lab.widgets.bench import Bench

QUEUES = {"one link a pair": "pairs", "one card a device": "cards"}
MOST_ITERATIONS = 10_000
TRIED = ("synchronisation", "synchronise_every", "compression", "recompute")
"""fields of a job"""


class Choices:
    """Sets ``bench.choices`` and ``bench.queueing``; begins with what the job says."""

    def __init__(self, bench: Bench, changed: Callable[[], None]) -> None:
        self._bench, self._changed = bench, changed
        self._taken: tuple[Any, ...] = ()
        self._filling = False
        self.queueing = _choice(QUEUES, "Messages", "230px", "Who waits: messages of a pair of devices, or of a card")
        self.synchronisation = _choice(
            list(synchronisations), "Averaging", "225px", "How the replicas of a stage average their gradients"
        )
        self.every = w.BoundedIntText(
            1,
            min=1,
            max=MOST_ITERATIONS,
            description="every",
            layout=w.Layout(width="112px"),
            style={"description_width": "38px"},
            tooltip="Average every so many iterations; between two, replicas take their steps alone",
        )
        self.compression = _choice(
            list(COMPRESSIONS), "Compression", "200px", "What activations and gradients are rounded to on their way"
        )
        self.recompute = w.Checkbox(
            False,
            description="Recompute activations",
            indent=False,
            layout=w.Layout(width="175px", margin="2px 2px 2px 12px"),
            tooltip="Keep a stage's input only and run its forward again before the backward: less memory, more time",
        )
        self.view = w.HBox([self.queueing, self.synchronisation, self.every, self.compression, self.recompute])
        self._controls = dict(
            zip(TRIED, (self.synchronisation, self.every, self.compression, self.recompute), strict=True)
        )
        self._take()
        bench.observe(lambda _: self._take(), ["job", "plan"])
        for control in (self.queueing, *self._controls.values()):
            control.observe(lambda _: self._set(), "value")

    def _take(self) -> None:
        """Follow the job where it says something new; a new shape or batch leaves what is being tried out."""
        job: Job | None = self._bench.job or (self._bench.plan.job if self._bench.plan is not None else None)
        if job is None or self._taken == (said := tuple(getattr(job, field) for field in TRIED)):
            return
        self._taken = said
        self._filling = True
        for field, control in self._controls.items():
            control.value = getattr(job, field)
        self._filling = False
        self._set()

    def _set(self) -> None:
        if self._filling:
            return
        self._bench.queueing = self.queueing.value
        self._bench.choices = {field: control.value for field, control in self._controls.items()}
        self._changed()


def _choice(options: Any, name: str, width: str, tooltip: str) -> w.Dropdown:
    items = list(options.items()) if isinstance(options, dict) else options
    return w.Dropdown(
        options=items,
        description=name,
        layout=w.Layout(width=width),
        tooltip=tooltip,
        style={"description_width": f"{max(80, 9 * len(name))}px"},
    )
