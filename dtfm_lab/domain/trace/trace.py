"""What happened, or is predicted to happen, on every device."""

from functools import cached_property
from typing import Any

import pandas as pd

from dtfm_lab.domain.schedule import LANE
from dtfm_lab.domain.trace import causes
from dtfm_lab.domain.trace.columns import Span, TraceColumns
from dtfm_lab.domain.trace.interval import interval as interval_of
from dtfm_lab.domain.trace.overlap import Travel, travel
from dtfm_lab.domain.trace.run_context import ComputeTime


class Trace(TraceColumns):
    """When every action of every device started and ended, and what explains it."""

    def __repr__(self) -> str:
        c = self.context
        return f"<Trace {c.source} {c.schedule}, {c.clock} clock: {self.n_iterations} x {self.iteration_s:.6g} s>"

    interval = interval_of
    critical_path = causes.critical_path
    critical_summary = causes.critical_summary

    @property
    def bubble(self) -> pd.DataFrame:
        """Each device's seconds busy, and idle by cause: see ``domain.trace.causes``."""
        return causes.bubble(self)

    @cached_property
    def travel(self) -> Travel:
        """How long a device's messages travel, and how much of that it computes: see ``domain.trace.overlap``."""
        return travel(self)

    def spans(self) -> list[Span]:
        columns = (self.iteration, self.replica, self.action, self.start_s, self.end_s)
        return [Span(i, r, self.actions[a], s, e) for i, r, a, s, e in zip(*(c.tolist() for c in columns), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """One row an action: iteration, replica, stage, device, kind, microbatch and peer (-1: none),
        lane, link ("a -> b", empty for computations), start_s, end_s."""
        table = [
            (
                a.stage,
                self.device(a, replica),
                a.kind.value,
                -1 if a.microbatch is None else a.microbatch,
                -1 if a.peer is None else a.peer,
                LANE[a.kind].value,
                self.link(a, replica),
            )
            for replica in range(len(self.context.devices[0]))
            for a in self.actions
        ]
        columns = ["stage", "device", "kind", "microbatch", "peer", "lane", "link"]
        described = pd.DataFrame(table, columns=columns).iloc[self.replica * len(self.actions) + self.action]
        described = described.reset_index(drop=True)
        described.insert(0, "iteration", self.iteration)
        described.insert(1, "replica", self.replica)
        described["start_s"], described["end_s"] = self.start_s, self.end_s
        return described

    def profile_frame(self) -> pd.DataFrame:
        """The compute times known before the run: stage, replica, kind, seconds."""
        rows: list[Any] = list(self.context.profile)
        return pd.DataFrame(rows, columns=list(ComputeTime._fields))

    @property
    def metrics(self) -> dict[str, float | None]:
        """Throughput, utilisation and price of ``iteration_s``: see ``RunContext.metrics``."""
        return self.context.metrics(self.iteration_s)
