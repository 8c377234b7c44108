"""The training and held-out losses of a model in the course of a run."""

import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.trace import Trace
from dtfm_lab.figures.palette import BLUE, LINE_GREY, ORANGE
from dtfm_lab.figures.theme import figure_of, titled
from dtfm_lab.files.traces import losses as losses_table


@figure_of(Trace)
def losses(trace: Trace) -> go.Figure:
    """Mean training loss of each iteration, and the losses on held-out text or samples.

    Raises TraceError for a trace without losses, such as a simulated one.
    """
    context = trace.context
    values = list(context.losses)
    if not values:
        raise TraceError(f"the {context.source} trace holds no losses; wanted one of a real run")
    table = losses_table(trace)
    known = table["training_loss"].notna()
    figure = go.Figure(
        go.Scatter(
            x=table["iteration"][known].tolist(),
            y=values,
            mode="lines+markers" if len(values) <= 100 else "lines",
            line={"color": BLUE, "width": 2.5},
            marker={"size": 7},
            hovertemplate="iteration %{x}: loss %{y:.4f}<extra></extra>",
            name="training",
            showlegend=bool(context.held_out),
        )
    )
    if context.held_out:
        figure.add_scatter(
            x=[done for done, _ in context.held_out],
            y=[loss for _, loss in context.held_out],
            mode="markers",
            marker={"color": ORANGE, "size": 11, "symbol": "diamond"},
            hovertemplate="after %{x} iterations: held-out loss %{y:.4f}<extra></extra>",
            name="held-out text" if context.plan.counted == "tokens" else "held-out samples",
        )
    if context.unigram_entropy is not None:
        figure.add_hline(
            # What a model reaches that knows only how often each byte occurs.
            context.unigram_entropy,
            line={"dash": "dash", "width": 1.5, "color": LINE_GREY},
            annotation_text="without context (unigram entropy)",
            annotation_position="bottom left",
        )
    figure.update_xaxes(title_text="iterations done", tickformat="d")
    # Ticks between whole iterations would mean nothing.
    if len(values) <= 20:
        figure.update_xaxes(dtick=1)
    figure.update_yaxes(title_text="mean loss (nats per token)" if context.plan.counted == "tokens" else "mean loss")
    change = f"{values[0]:.3f} to {values[-1]:.3f}" if len(values) > 1 else f"{values[0]:.3f}"
    n_iterations = f"{len(values)} iterations" if len(values) > 1 else "1 iteration"
    return titled(
        figure,
        f"training loss {change} in {n_iterations}",
        f"{context.job} on {context.topology} · {context.schedule} · {context.provenance}",
        height=420,
    )
