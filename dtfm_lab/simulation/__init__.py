"""Plan + Schedule -> Trace in virtual time."""

from dtfm_lab.simulation.activation_budget import room
from dtfm_lab.simulation.memory import MemoryReport, memory
from dtfm_lab.simulation.memory_advice import Remedy, advice, remedies
from dtfm_lab.simulation.schedules import build, peak_activations, schedules
from dtfm_lab.simulation.simulate import simulate

__all__ = [
    "MemoryReport",
    "Remedy",
    "advice",
    "build",
    "memory",
    "peak_activations",
    "remedies",
    "room",
    "schedules",
    "simulate",
]
