"""Lower bounds on the seconds of a simulated iteration that hold for every plan of a job on a network.

``iteration_bound_steps`` yields ever higher ones: first the work of all devices together, then what a configuration
program of devices in stages refutes.
"""

from dtfm_lab.planning.iteration.bounds.iteration_bound import iteration_bound_steps, work_bound_s

__all__ = ["iteration_bound_steps", "work_bound_s"]
