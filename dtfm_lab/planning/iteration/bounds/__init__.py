"""Lower bounds on the seconds and the dollars of an iteration that hold for every plan of a job on a network.

``iteration_bound_steps`` yields ever higher bounds on the seconds: first the work of all devices together, then what a
configuration program of devices in stages refutes. ``price_bound`` is for dollars, ``bindings`` says what binds.
"""

from dtfm_lab.planning.iteration.bounds.iteration_bound import (
    Binding,
    bindings,
    iteration_bound_steps,
    least_of,
    work_bound_s,
)
from dtfm_lab.planning.iteration.bounds.price_bound import price_bound

__all__ = ["Binding", "bindings", "iteration_bound_steps", "least_of", "price_bound", "work_bound_s"]
