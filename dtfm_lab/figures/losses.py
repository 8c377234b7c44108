"""What the model learnt during a run."""

from __future__ import annotations

import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.trace import Trace
from dtfm_lab.figures.palette import BLUE
from dtfm_lab.figures.theme import titled


def losses(trace: Trace) -> go.Figure:
    """Mean training loss of each iteration; raises TraceError for a trace without, such as a simulated one."""
    context = trace.context
    values = list(context.losses)
    if not values:
        raise TraceError(f"the {context.source} trace holds no losses; wanted one of a real run")
    iterations = list(range(len(values)))
    figure = go.Figure(
        go.Scatter(
            x=iterations,
            y=values,
            mode="lines+markers" if len(values) <= 100 else "lines",
            line={"color": BLUE, "width": 2.5},
            marker={"size": 7},
            hovertemplate="iteration %{x}: loss %{y:.4f}<extra></extra>",
            showlegend=False,
        )
    )
    figure.update_xaxes(title_text="iteration", tickformat="d", rangemode="tozero")
    if len(values) <= 20:
        figure.update_xaxes(dtick=1)
    figure.update_yaxes(title_text="mean training loss (nats per token)")
    change = f"{values[0]:.3f} to {values[-1]:.3f}" if len(values) > 1 else f"{values[0]:.3f}"
    n_iterations = f"{len(values)} iterations" if len(values) > 1 else "1 iteration"
    return titled(
        figure,
        f"training loss {change} in {n_iterations}",
        f"{context.job} on {context.topology} · {context.schedule} · {context.clock} clock",
        height=420,
    )
