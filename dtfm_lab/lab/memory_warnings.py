"""What a plan's devices lack in memory, said when the plan is made, not only when it is simulated."""

import logging
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation.memory import MemoryReport, memory

log = logging.getLogger(__name__)


def held_memory(plan: Plan) -> MemoryReport | None:
    """The peak memory of every device under the plan's own schedule; None for a job without a model, and for one that
    its schedule or model does not allow to be simulated."""
    if plan.job.model is None:
        return None
    try:
        return memory(plan)
    except LabError:
        return None


def warned(plan: Plan) -> Plan:
    """The plan itself, after a warning in the log where its devices lack memory. The objectives but communication cost
    leave out plans that do not fit."""
    report = held_memory(plan) if plan.objective == "communication" else None
    if report is not None and not report.fits:
        log.warning("out of memory: %s; lab.memory(plan).advice says what would fit", report.sentence)
    return plan


def memory_line(plan: Plan) -> str:
    """The line that ``dtfm-lab simulate`` prints about memory; empty where ``held_memory`` has none."""
    report = held_memory(plan)
    if report is None:
        return ""
    return f"memory: {report.sentence}" if report.fits else f"out of memory: {report.advice}"


def memory_summary(report: MemoryReport) -> dict[str, Any]:
    """The fields of ``memory`` in ``--json``, but for the advice."""
    at = report.worst
    return {
        "fits": report.fits,
        "devices_over": int((report.over_bytes > 0).sum()),
        "worst_device": report.devices[at[0]][at[1]],
        "peak_bytes": int(report.peak_bytes[at]),
        "limit_bytes": int(report.limit_bytes[at]),
        "over_bytes": int(report.over_bytes[at]),
        "sentence": report.sentence,
    }
