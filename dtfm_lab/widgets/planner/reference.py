"""What the real planner finds in a moment by the communication cost, as others are measured by it."""

import time
from dataclasses import dataclass

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import search
from dtfm_lab.planning.step import PROVEN

PLANNER, SECONDS = "evolutionary", 1.0


@dataclass(frozen=True)
class Reference:
    """The real planner's cost, what no placement is cheaper than, and how long it took."""

    cost_s: float
    bound_s: float
    found_s: float
    """Seconds of search until the cost was found; the proof may have taken longer."""
    proved_s: float | None
    """Seconds of search until it was proved; None where it is not."""

    @property
    def is_proved(self) -> bool:
        return self.proved_s is not None

    @property
    def sentence(self) -> str:
        """``The real planner proved 456 ms in 6 ms``, or what it found."""
        if self.proved_s is not None:
            return f"The real planner proved {format_s(self.cost_s)} in {rounded(self.proved_s)}"
        return f"The real planner found {format_s(self.cost_s)} in {rounded(self.found_s)}"


def rounded(seconds: float) -> str:
    """Return a duration of a search in whole milliseconds, or in seconds to a tenth."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(1, round(seconds * 1e3))} ms"


def refer(topology: Topology, job: Job) -> Reference:
    """Search by the communication cost for up to ``SECONDS``. Raises PlanError where the job does not fit."""
    began = time.perf_counter()
    best_s, bound_s, found_s, proved_s = float("inf"), 0.0, 0.0, None
    for step in search(topology, job, PLANNER, seed=0, seconds=SECONDS):
        bound_s = max(bound_s, step.bound_s)
        if step.best_s < best_s * (1 - PROVEN):
            best_s, found_s = step.best_s, step.seconds
        if step.gap < PROVEN:
            proved_s = step.seconds
        if time.perf_counter() - began > 10 * SECONDS:
            break
    return Reference(best_s, min(bound_s, best_s), found_s, proved_s)
