"""Plan + Schedule -> Trace in virtual time."""

from dtfm_lab.simulation.schedules import peak_activations, schedules
from dtfm_lab.simulation.simulate import simulate

__all__ = ["peak_activations", "schedules", "simulate"]
