"""Gaps in the rows of a measured iteration: a device was lost there, and its copy had not taken over yet."""

from collections.abc import Iterable
from typing import Any

from dtfm_lab.domain.trace import Fault
from dtfm_lab.domain.units import format_s

LONGEST = 0.3
"""Share of an iteration that a gap takes at most: the seconds of this machine may be many iterations of a modelled
clock."""


def gaps_before(
    faults: Iterable[Fault], iteration: int, iteration_s: float, time_scale: float = 1.0
) -> list[dict[str, Any]]:
    """Return the gaps before an iteration that was begun again, as ``GanttView.gaps`` has them.

    The iteration begins at 0, so a gap ends there. A second of the chart, whose iteration lasts ``iteration_s``, takes
    ``time_scale`` seconds of this machine.
    """
    last = {fault.device: fault for fault in faults if fault.iteration == iteration}
    return [_before(fault, *_width(fault.lost_s / time_scale, iteration_s)) for fault in last.values()]


def gap_after(device: str, from_s: float, lost_s: float, iteration_s: float, time_scale: float = 1.0) -> dict[str, Any]:
    """Return the gap of a device that has been lost for ``lost_s`` seconds of this machine; its last bar ends at
    ``from_s``."""
    width_s, cut = _width(lost_s / time_scale, iteration_s)
    tip = f"{device} is lost: another worker is started in its place{cut}"
    return {"device": device, "from": from_s, "to": from_s + width_s, "text": "lost", "tip": tip, "open": True}


def _before(fault: Fault, width_s: float, cut: str) -> dict[str, Any]:
    lost = format_s(fault.lost_s)
    tip = (
        f"{fault.device} {fault.how}: {lost} of this machine until its copy took over, with the state of "
        f"{fault.state_from}; then iteration {fault.iteration} was begun again{cut}"
    )
    return {"device": fault.device, "from": -width_s, "to": 0.0, "text": f"{lost} lost", "tip": tip, "open": False}


def _width(lost_s: float, iteration_s: float) -> tuple[float, str]:
    """Return the seconds of the chart that a gap takes, and words where it is drawn shorter than it was."""
    longest_s = LONGEST * iteration_s
    return (longest_s, " (drawn shorter than it was)") if lost_s > longest_s > 0 else (lost_s, "")
