"""The markers of a network's map, one for each device."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import TERA, FloatArray, GiB
from dtfm_lab.figures.maps.layout import is_drawn
from dtfm_lab.figures.palette import BLUE, GREY, MARKER_EDGE, ink_on, stage_color
from dtfm_lab.figures.theme import WORDLESS, literal

ROOM_FOR_NUMBER_PX = 12
"""Least size of a marker in which a number is readable."""
FADED = 0.3
"""Opacity of devices in the background."""


def devices(
    topology: Topology,
    places: FloatArray,
    plan: Plan | None,
    *,
    marker_px: float,
    named: bool,
    strong: Collection[int] | None = None,
) -> list[go.Scatter]:
    """Markers, and names below them where ``named``.

    With a plan, a device has the colour and the number of its stage, and is grey where idle. If ``strong`` devices
    are given, all others are faded and have no number.
    """
    task: dict[int, tuple[int, int]] = {}
    if plan is not None:
        task = {int(device): (s, r) for (s, r), device in np.ndenumerate(plan.placement.devices)}
    indices = range(len(topology))
    colors = [stage_color(task[i][0]) if i in task else BLUE if plan is None else GREY for i in indices]
    words = [literal(d.name) + (f" · {literal(d.region)}" if d.region else "") for d in topology.devices]
    if plan is not None:
        roles = [f"stage {task[i][0]}, pipeline {task[i][1]}" if i in task else "idle" for i in indices]
        words = [f"{word}<br>{role}" for word, role in zip(words, roles, strict=True)]
    hardware = [_hardware(device) for device in topology.devices]
    if len(set(hardware)) == 1:
        hover = {"hovertemplate": f"%{{hovertext}}<br>{hardware[0]}<extra></extra>"}
    else:
        words, hover = [f"{w}<br>{h}" for w, h in zip(words, hardware, strict=True)], {"hoverinfo": "text"}
    shown = [strong is None or i in strong for i in indices]
    x, y = places.T.astype(np.float32)
    marks = go.Scatter(
        x=x,
        y=y,
        showlegend=False,
        mode="markers+text" if marker_px >= ROOM_FOR_NUMBER_PX else "markers",
        name="devices",
        text=[str(task[i][0]) if i in task and shown[i] else WORDLESS for i in indices],
        textfont={"color": [ink_on(color) for color in colors], "size": 12 if marker_px > 15 else 10},
        marker={
            "size": marker_px,
            "color": colors,
            "opacity": 1 if strong is None else [1.0 if is_shown else FADED for is_shown in shown],
            "line": {"width": 1, "color": MARKER_EDGE},
        },
        hovertext=words,
        **hover,
    )
    return [_names(topology, places, marker_px), marks] if named else [marks]


def _hardware(device: Device) -> str:
    return f"{literal(device.gpu)}, {device.peak_flop_per_s / TERA:.4g} TFLOP/s, {device.memory_bytes / GiB:.4g} GiB"


def _names(topology: Topology, places: FloatArray, marker_px: float) -> go.Scatter:
    """Names below the devices, or on the outer side of a ring. An invisible marker keeps a name off its device."""
    positions = ["bottom center"] * len(topology)
    if not is_drawn(topology):
        for i, device in enumerate(topology.devices):
            ring = places[[other.region == device.region for other in topology.devices]]
            dx, dy = (places[i] - (ring.min(axis=0) + ring.max(axis=0)) / 2).tolist()
            if abs(dx) > 0.3 * abs(dy):
                positions[i] = "middle right" if dx > 0 else "middle left"
            elif dy > 0:
                positions[i] = "top center"
    return go.Scatter(
        x=places[:, 0].astype(np.float32),
        y=places[:, 1].astype(np.float32),
        showlegend=False,
        mode="markers+text",
        name="names",
        text=[literal(name) for name in topology.names],
        textposition=positions,
        marker={"size": marker_px, "opacity": 0},
        hoverinfo="skip",
    )
