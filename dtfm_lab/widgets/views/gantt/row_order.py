"""In which order the rows of a chart are drawn, and which of them belong together."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from dtfm_lab.widgets.views.gantt.bars import ChartRows

ROWS_BY = ("stage", "pipeline", "region")
NOWHERE = "no region"


def arranged(
    rows: ChartRows, by: str, regions: Mapping[str, str], *, network: bool
) -> tuple[list[int], list[dict[str, Any]]]:
    """The rows to draw, from top to bottom, and how many of them each group has.

    ``by`` is one of ROWS_BY; without ``network`` the rows of messages are left out. ``regions`` maps devices.
    """
    n_positions, n_replicas = rows.shape
    device = rows.devices[:: rows.rows_per_device]
    places = [(position, replica) for position in range(n_positions) for replica in range(n_replicas)]

    def group(index: int) -> str:
        position, replica = places[index]
        if by == "region":
            return regions.get(device[index], "") or NOWHERE
        return f"pipeline {replica}" if by == "pipeline" else f"stage {position}"

    turned = by == "pipeline"
    order = sorted(range(len(places)), key=lambda i: places[i][::-1] if turned else places[i])
    if by == "region":
        order.sort(key=group)
    each = range(rows.rows_per_device if network else 1)
    drawn = [index * rows.rows_per_device + below for index in order for below in each]
    members = [(name, len(list(same)) * len(each)) for name, same in groupby(order, group)]
    if by == "stage":  # its rows say so themselves; a line parts them where a stage has several
        return drawn, [{"label": "", "count": n} for _, n in members] if n_replicas > 1 else []
    return drawn, [{"label": name, "count": n} for name, n in members]
