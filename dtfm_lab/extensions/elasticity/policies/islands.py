"""Islands: each pipeline trains alone for many steps until all average, so a loss affects only one of them.

Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", arXiv 2311.08105.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.policies.rerouting import Adapting
from dtfm_lab.extensions.elasticity.policy import Fleet, Response, Situation, policies


@policies.register("diloco")
@dataclass(frozen=True, kw_only=True)
class DiLoCo(Adapting):
    """A pipeline that loses a device stops, and its progress since the last average is lost. The others continue.

    Its remaining devices and new arrivals join at the next average, in the best shape for all. A step of the history is
    a round: ``local_steps`` steps of each pipeline, and the average. Averaging so rarely is a different training
    algorithm, so samples are not comparable with those of other policies. ``local_steps`` of the history shows which
    algorithm it was.
    """

    local_steps: int = 50
    """Local steps between two averages. The authors try 50 at least, and choose 500."""
    full_batch = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_steps < 1:
            raise TraceError(f"local_steps of policy diloco is {self.local_steps}; wanted 1 or more")

    def decide(self, now: Situation) -> Response | None:
        in_rounds: Any = _Rounds(now.fleet, self.local_steps)
        response = super().decide(replace(now, fleet=in_rounds))
        if response is None or response.operation is None or not now.lost or response.after_s is not None:
            return response
        # ask again right after the pause, so that the rest of a stopped island joins at the next average
        idle = now.present - response.operation.devices
        return replace(response, again=response.pause_s) if idle else response

    def adapted(self, now: Situation, operation: Operation) -> Operation | None:
        return now.fleet.without(operation, now.lost)


class _Rounds:
    """Wraps a fleet so that a step of its operations is a round of local steps. Everything else is as in the wrapped
    fleet."""

    def __init__(self, fleet: Fleet, local_steps: int) -> None:
        self._fleet, self._local_steps = fleet, local_steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    def operation(self, present: frozenset[int], current: Operation | None = None) -> Operation | None:
        found = self._fleet.operation(present, current)
        return None if found is None else _round_of(found, self._local_steps)

    def without(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        step = replace(
            operation,
            step_s=operation.step_s / self._local_steps,
            samples=operation.samples / self._local_steps,
            local_steps=1,
        )
        found = self._fleet.without(step, lost)
        return None if found is None else _round_of(found, self._local_steps)


@lru_cache(maxsize=1024)  # equal operations must be one object, as in a fleet
def _round_of(step: Operation, local_steps: int) -> Operation:
    return replace(step, step_s=step.step_s * local_steps, samples=step.samples * local_steps, local_steps=local_steps)
