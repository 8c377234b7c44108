"""Plan + Schedule -> Trace in virtual time.

``simulate`` predicts an iteration, ``memory`` what devices hold, ``sweeps`` and ``sensitivity`` the effect of changes.
"""

from dtfm_lab.simulation.memory import MemoryReport, memory
from dtfm_lab.simulation.memory_advice import Remedy, advice, remedies
from dtfm_lab.simulation.memory_intervals import activation_budget
from dtfm_lab.simulation.schedules import build, peak_activations, schedules
from dtfm_lab.simulation.simulate import simulate

__all__ = [
    "MemoryReport",
    "Remedy",
    "activation_budget",
    "advice",
    "build",
    "memory",
    "peak_activations",
    "remedies",
    "schedules",
    "simulate",
]
