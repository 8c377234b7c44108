"""Where a trace's numbers come from, in a few words for every picture of it."""

from __future__ import annotations

from dtfm_lab.domain.trace.trace import RunContext


def origin(context: RunContext) -> str:
    """``virtual clock, emulated links, on CPU``; then the rehearsed part and the stand-in, where there is one."""
    parts = [f"{context.clock} clock", f"{context.links} links"]
    if context.source == "measured":
        parts.append(f"on {context.runs_on.upper()}")
    if context.rehearsed is not None:
        parts.append(f"rehearsing {context.rehearsed.sentence}")
    if context.stand_in:
        parts.append(f"{context.stand_in} as model")
    return ", ".join(parts)
