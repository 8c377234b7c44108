"""What happened, or is predicted to happen, on every device, and why it took that long.

A Trace has one row per action; critical path, idle time by cause and throughput follow from it.
"""

from dtfm_lab.domain.trace.causes import PATH, weights
from dtfm_lab.domain.trace.chains import CAUSES
from dtfm_lab.domain.trace.faults import Fault, Rehearsed
from dtfm_lab.domain.trace.metrics import metrics
from dtfm_lab.domain.trace.origin import origin
from dtfm_lab.domain.trace.trace import Clock, ComputeTime, RunContext, Span, Trace

__all__ = [
    "CAUSES",
    "PATH",
    "Clock",
    "ComputeTime",
    "Fault",
    "Rehearsed",
    "RunContext",
    "Span",
    "Trace",
    "metrics",
    "origin",
    "weights",
]
