"""How each device spends an iteration: computing, and waiting by cause."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import counted, format_s
from dtfm_lab.figures.palette import CAUSE_COLORS
from dtfm_lab.figures.theme import edged, figure_of, literal, percent, time_unit, titled

ROW_PX = 24
CROWDED_PX = 11
MANY_DEVICES = 24
"""With more devices, rows are narrow and bars have no percentages."""
CAUSES = {
    "busy": "computing",
    "dependency": "waiting for computations elsewhere",
    "latency": "waiting for messages: latency",
    "bandwidth": "waiting for messages: bandwidth",
    "queue": "waiting for messages behind others",
    "synchronisation": "synchronising gradients",
    "straggler": "waiting for a slow device",
}


@figure_of(Trace)
def bubble(trace: Trace) -> go.Figure:
    """Draw one bar per device, first stage on top. It shows how long the device computes in an iteration, and how long
    it is idle by cause.

    All bars are as long as the iteration. Raises TraceError for a trace without its column ``after``.
    """
    frame, context = trace.bubble, trace.context
    iteration_s = float(frame["iteration_s"].max())
    unit, scale = time_unit(iteration_s)
    n, n_per_stage = len(frame), len(context.devices[0])
    crowded = n > MANY_DEVICES
    row_px = CROWDED_PX if crowded else ROW_PX
    # between stages there is a gap of half a row
    at = [row + stage * 0.5 * (n_per_stage > 1) for row, stage in enumerate(frame["stage"])]
    shares = {cause: frame[f"{cause}_s"] / iteration_s if iteration_s > 0 else frame["busy_s"] * 0 for cause in CAUSES}
    figure = go.Figure()
    for cause, words in CAUSES.items():
        seconds = frame[f"{cause}_s"]
        # A cause that takes nothing would only lengthen the legend.
        if not (shares[cause] > 0).any():
            continue
        x, y = (seconds * scale).to_numpy(np.float32), np.array(at, dtype=np.float32)
        look = {"width": 0.85, "textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
        look |= {"texttemplate": None if crowded else "%{customdata:.0%}", "marker": edged(CAUSE_COLORS[cause])}
        hover = f"stage %{{y}} · {words} · %{{x:.4~r}} {unit} (%{{customdata:.1%}})<extra></extra>"
        data = shares[cause].to_numpy(np.float32)
        figure.add_bar(orientation="h", x=x, y=y, name=words, customdata=data, hovertemplate=hover, **look)
    names = [f"{stage} · {literal(device)}" for stage, device in zip(frame["stage"], frame["device"], strict=True)]
    figure.update_yaxes(
        tickvals=np.array(at, dtype=np.float32), ticktext=names, tickfont_size=9 if crowded else 11,
        range=[at[-1] + 0.6, -0.6], showgrid=False, zeroline=False,
    )  # fmt: skip
    figure.update_xaxes(title_text=f"time of an iteration ({unit})", range=[0, iteration_s * scale * 1.005 or 1.0])
    mean = pd.Series({cause: float(share.mean()) for cause, share in shares.items()})
    of = f" · mean of {counted(trace.n_iterations, 'iteration')}" if trace.n_iterations > 1 else ""
    return titled(
        figure,
        _title(context.schedule, iteration_s, mean),
        f"{context.job} on {context.topology} · {context.source}{of} · {context.provenance} · percentages of the "
        "iteration",
        alt=_alt(context.schedule, n, iteration_s, mean),
        barmode="stack",
        height=max(300, int((at[-1] + 1.2) * row_px) + 190),
        legend_traceorder="normal",
        uniformtext={"minsize": 8, "mode": "hide"},
    )


def _title(schedule: str, iteration_s: float, mean: pd.Series) -> str:
    begin = f"{schedule}: devices compute {percent(mean['busy'])} of {format_s(iteration_s)}"
    causes = mean.drop("busy")
    if causes.max() <= 0:
        return begin
    return f"{begin}; the largest idle part is {causes.idxmax()}, {percent(causes.max())}"


def _alt(schedule: str, n: int, iteration_s: float, mean: pd.Series) -> str:
    parts = ", ".join(f"{CAUSES[str(cause)]} {percent(share)}" for cause, share in mean.items() if share > 0)
    return f"{schedule}, {counted(n, 'device')}, {format_s(iteration_s)} an iteration; on average {parts}."
