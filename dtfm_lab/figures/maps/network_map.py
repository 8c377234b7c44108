"""A network on the map of the world."""

from __future__ import annotations

import plotly.graph_objects as go

from dtfm_lab.domain.network import Topology
from dtfm_lab.figures.maps.atlas import atlas, homeless, mapped
from dtfm_lab.figures.maps.devices import devices
from dtfm_lab.figures.maps.links import region_links
from dtfm_lab.figures.maps.network import NO_MAP, count, network
from dtfm_lab.figures.theme import LEGEND_BELOW, described, titled

FEW_REGIONS = 10
FASTEST = 2
"""links of each region that are drawn where there are more regions"""


def network_map(topology: Topology) -> go.Figure:
    """Regions at their places on Earth, wide lines for fast links, in bows, as flights go.

    Devices stand around their region's place, or beside it where clusters would cover each other. Regions
    without a known place stand below the map; where no region has one, it is the abstract picture, and says so.
    """
    where = atlas(topology)
    if where is None:
        figure = network(topology)
        return figure.update_layout(title_subtitle_text=f"{figure.layout.title.subtitle.text} · {NO_MAP}")
    many = len(topology.regions) > FEW_REGIONS
    lines = region_links(topology, where.route, FASTEST if many else None)
    marks = devices(topology, where.places, None, marker_px=where.marker_px, named=False)
    figure = mapped(go.Figure([*lines, *marks]), where)
    size = f"{count(len(topology), 'device')} in {count(len(topology.regions), 'region')}"
    width = "line width: bandwidth, of the slower direction"
    only = f"the {FASTEST} fastest links of each region" if many else ""
    note = " · ".join(filter(None, [width, only, homeless(where)]))
    titled(figure, f"{topology.name}: {size}", note, height=where.height, hovermode="closest", legend=LEGEND_BELOW)
    return described(figure, f"World map of the network {topology.name}: {size}; {note}.")
