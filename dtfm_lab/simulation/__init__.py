"""Plan + Schedule -> Trace in virtual time.

``simulate`` predicts an iteration, ``memory`` the memory that devices need. ``variations`` and ``sensitivity`` predict
the effect of changes.
"""

from dtfm_lab.simulation.memory import MemoryReport, memory
from dtfm_lab.simulation.schedules import build, schedules
from dtfm_lab.simulation.simulate import simulate
