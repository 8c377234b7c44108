"""Lists every public name of the core once. ``dtfm_lab`` offers the same names, plus ``Lab`` and ``figures``.

Notebooks call these functions as ``dtfm_lab``; widgets and the command line call them as ``dtfm_lab.lab``. Both also
offer the names of extensions, which are imported when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.extension import attribute, offered
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.lab.comparing import compare

if TYPE_CHECKING:  # at run time ``__getattr__`` imports these
    from dtfm_lab.files import load_plan, load_trace, save
    from dtfm_lab.lab.plans import evaluate, explain, frontier, load_job, load_topology, plan, replan, search, with_job
    from dtfm_lab.lab.runs import memory, run, simulate, start, sweep
    from dtfm_lab.planning import planners
    from dtfm_lab.simulation.schedules import schedules

LOADED_WHEN_USED = {
    "dtfm_lab.files": ("load_plan", "load_trace", "save"),
    "dtfm_lab.lab.plans": (
        "evaluate",
        "explain",
        "frontier",
        "load_job",
        "load_topology",
        "plan",
        "replan",
        "search",
        "with_job",
    ),
    "dtfm_lab.lab.runs": ("memory", "run", "simulate", "start", "sweep"),
    "dtfm_lab.planning": ("planners",),
    "dtfm_lab.simulation.schedules": ("schedules",),
}
"""Module -> its public names. A module is imported when one of its names is first used, because the planners alone take
as long to load as everything else."""
HOMES = {name: module for module, names in LOADED_WHEN_USED.items() for name in names}

__all__ = [
    "Device",
    "Job",
    "LabError",
    "Plan",
    "Schedule",
    "Topology",
    "Trace",
    "compare",
    "evaluate",
    "explain",
    "frontier",
    "load_job",
    "load_plan",
    "load_topology",
    "load_trace",
    "memory",
    "plan",
    "planners",
    "replan",
    "run",
    "save",
    "schedules",
    "search",
    "simulate",
    "start",
    "sweep",
    "with_job",
]


def __getattr__(name: str) -> Any:
    """Import a public name of the core when it is first used, or return one that an extension offers."""
    if name in HOMES:
        globals()[name] = getattr(import_module(HOMES[name]), name)
        return globals()[name]
    return attribute("api", __name__, name)


def __dir__() -> list[str]:
    """Return the public names, including those of extensions."""
    return sorted({*__all__, *offered("api")})
