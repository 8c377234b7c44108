"""The paper's five steps from a network to a plan, with the plan's numbers in their captions, and the first two steps:
the network, and the groups in it."""

from functools import partial

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import FloatArray, format_s, to_gbps
from dtfm_lab.figures.maps.layout import rim_to_rim
from dtfm_lab.figures.maps.marks import device_links, devices, region_links
from dtfm_lab.figures.maps.network import FASTEST, FEW_REGIONS, Scene, grounds, scene
from dtfm_lab.figures.panels import Room, Subfigure, joined
from dtfm_lab.figures.plan.graph_steps import coarsened, lettered, path, weighed
from dtfm_lab.figures.theme import WORDLESS, bare, count, quality, titled

LETTER_PX = 7.6
NAME_PX = 18
WIDTH_PX = 836
"""Width of a notebook cell without margins."""
SMALL = Room(400, 340)
LARGE = Room(WIDTH_PX, 460)
TOP_PX = 84


def communication_graph(plan: Plan, room: Room) -> Subfigure:
    """Devices and links, without the plan."""
    topology = plan.topology
    drawn = _scene(topology, room)
    if drawn.few:
        lines = device_links(topology, drawn.places)
    else:
        many = len(topology.regions) > FEW_REGIONS
        lines = region_links(topology, partial(rim_to_rim, drawn.patches), FASTEST if many else None)
    marks = devices(topology, drawn.places, None, marker_px=drawn.marker_px, named=drawn.few)
    figure = go.Figure([*lines, *marks])
    _ground(figure, drawn, room)
    n = len(topology)
    gbps = to_gbps(topology.bandwidth_bytes_per_s[~np.eye(n, dtype=bool)])
    if not gbps.size:
        return Subfigure(figure, "(a) communication graph", "One device and no link.", room.height)
    low, high = f"{gbps.min():.3g}", f"{gbps.max():.3g}"
    speeds = low if low == high else f"{low} to {high}"
    width = "line width is bandwidth" if drawn.few else "a line joins two regions, its width is the median bandwidth"
    if not drawn.few and many:
        width += f", the {FASTEST} fastest of each region are drawn"
    words = f"{count(n, 'device')} and {n * (n - 1):,} directed links of {speeds} Gbit/s; {width}."
    return Subfigure(figure, "(a) communication graph", words, room.height)


def partition(plan: Plan, room: Room) -> Subfigure:
    """The same devices in the colour of their group and with its letter."""
    topology, cost = plan.topology, plan.cost
    drawn, groups = _scene(topology, room), lettered(plan)
    letters = {int(i): groups.letter(stage) for stage, group in enumerate(plan.placement.devices) for i in group}
    marks = devices(topology, drawn.places, plan, marker_px=drawn.marker_px, named=drawn.few)
    for trace in marks:
        if trace.name == "devices" and "text" in trace.mode:
            trace.update(text=[letters.get(i, WORDLESS) for i in range(len(topology))])
    figure = go.Figure(marks)
    _ground(figure, drawn, room)
    s, d = plan.placement.devices.shape
    words = f"{count(s, 'group')} of {count(d, 'device')}: all of a group will hold the same layers."
    if d > 1:
        slowest = groups.letter(int(cost.group_s.argmax()))
        words += f" The slowest, {slowest}, averages its gradients in {format_s(cost.data_parallel_s)}."
    else:
        words += " A group of one has nothing to average."
    if idle := len(plan.idle_devices):
        words += f" {count(idle, 'device')} {'stays' if idle == 1 else 'stay'} idle, in grey."
    return Subfigure(figure, "(b) balanced partition into groups", words, room.height)


def _scene(topology: Topology, room: Room) -> Scene:
    """The layout of the abstract picture, with markers sized for a panel of this size."""
    drawn = scene(topology)
    _, _, unit_px = _extent(drawn, room)
    return drawn._replace(marker_px=float(np.clip(0.92 * unit_px, 4, 22)))


def _ground(figure: go.Figure, drawn: Scene, room: Room) -> go.Figure:
    """Draw the regions, and set axes that leave room for their names."""
    grounds(bare(figure, square=True), drawn.patches)
    low, high, unit_px = _extent(drawn, room)
    (x, y), half = (low + high) / 2, np.array([room.width, room.height]) / 2 / unit_px
    figure.update_xaxes(range=[x - half[0], x + half[0]], constrain="domain")
    figure.update_yaxes(range=[y - half[1], y + half[1]], constrain="domain")
    return figure


def _extent(drawn: Scene, room: Room) -> tuple[FloatArray, FloatArray, float]:
    """Lower left and upper right corner of the drawing, and the pixels of a unit for it to fit with its names."""
    corners = np.array([(p.centre - p.half, p.centre + p.half) for p in drawn.patches.values()])
    low, high = corners[:, 0].min(axis=0), corners[:, 1].max(axis=0)
    longest = max(map(len, drawn.patches))
    names_px = np.array(
        [2 * LETTER_PX * longest if all(patch.round for patch in drawn.patches.values()) else 0, 2 * NAME_PX]
    )
    return low, high, float(((np.array(room) - names_px) / (high - low)).min())


PANELS = {"a": communication_graph, "b": partition, "c": coarsened, "d": weighed, "e": path}


def five_steps(plan: Plan) -> go.Figure:
    """(a) communication graph, (b) groups, (c) coarsened graph, (d) its weights, (e) the path: five panels.

    Groups have letters until step (e) gives each its stage; their colours are those of their stages throughout.

    Source: DT-FM section 3, the steps from its communication graph to an assignment of the layers.
    """
    a, b, c, d, e = (make(plan, SMALL if letter != "e" else LARGE) for letter, make in PANELS.items())
    figure, height = joined([[a, b], [c, d], [e]], WIDTH_PX)
    return titled(
        figure,
        f"{plan.job.name} on {plan.topology.name}: from network to plan in five steps",
        f"communication cost {format_s(plan.cost.total_s)}, by {plan.planner}, {quality(plan.gap)}",
        alt=" ".join(f"{panel.heading}: {panel.caption}" for panel in (a, b, c, d, e)),
        height=int(height + TOP_PX),
        hovermode="closest",
        margin={"t": TOP_PX, "b": 0},
    )


def step(plan: Plan, letter: str) -> go.Figure:
    """One of the five steps at full size; raises UnknownName for a letter other than a to e."""
    if letter not in PANELS:
        raise unknown("step", letter, PANELS)
    panel = PANELS[letter](plan, LARGE)
    figure = titled(
        panel.figure,
        panel.heading,
        panel.caption,
        alt=f"{plan.job.name} on {plan.topology.name}, {panel.heading}: {panel.caption}",
        hovermode="closest",
        showlegend=False,
        margin_b=24,
    )
    return figure.update_layout(height=int(panel.height_px + figure.layout.margin.t + figure.layout.margin.b))
