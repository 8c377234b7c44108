"""What happened, or is predicted to happen, on every device, and why it took that long.

A Trace has one row per action; critical path, idle time by cause and throughput follow from it.
"""

from dtfm_lab.domain.trace.causes import CAUSES, PATH
from dtfm_lab.domain.trace.columns import Span
from dtfm_lab.domain.trace.run_context import (
    BY_MODEL,
    MEASURED,
    UNSAID,
    Basis,
    Clock,
    ComputeTime,
    Fault,
    RunContext,
    Subplan,
    TracedPlan,
)
from dtfm_lab.domain.trace.trace import Trace, predicted_ends
