"""Whom a worker exchanges messages with: read off its own program; no torch in here."""

from __future__ import annotations

from collections.abc import Collection

from dtfm_lab.domain.schedule import RECEIVES, SENDS, Kind
from dtfm_lab.runtime.protocol.run_spec import RunSpec


def sources(spec: RunSpec, position: int, replica: int) -> list[int]:
    """The ranks that send to this worker."""
    return _other_ends(spec, position, replica, RECEIVES)


def targets(spec: RunSpec, position: int, replica: int) -> list[int]:
    """The ranks that this worker sends to."""
    return _other_ends(spec, position, replica, SENDS)


def _other_ends(spec: RunSpec, position: int, replica: int, kinds: Collection[Kind]) -> list[int]:
    ends = {
        spec.rank(*step.action.other_end(replica, spec.plan.job.n_replicas))
        for synchronise in (False, True)
        for step in spec.programs(synchronise=synchronise).of(position, replica)
        if step.action.kind in kinds
    }
    return sorted(ends)
