"""What happened, or is predicted to happen, on every device, and why it took that long.

A Trace has one row per action; critical path, idle time by cause and throughput follow from it.
"""

from dtfm_lab.domain.trace.causes import CAUSES, PATH
from dtfm_lab.domain.trace.columns import LINK_SEPARATOR, Span
from dtfm_lab.domain.trace.run_context import (
    BY_MODEL,
    MEASURED,
    SMALL_MODEL,
    UNSAID,
    Basis,
    Clock,
    ComputeTime,
    Fault,
    RunContext,
    Subplan,
    TracedPlan,
    part_words,
)
from dtfm_lab.domain.trace.trace import Trace, predicted_ends
