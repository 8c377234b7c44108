"""A plan as a table with one row per device: what the device does, and what hardware it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.units import IntArray

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {
    "device": "object",
    "stage": "Int64",
    "replica": "Int64",
    "region": "object",
    "host": "object",
    "gpu": "object",
    "blocks": "Int64",
    "parameters": "Int64",
    "microbatches": "Int64",
    "flop": "float64",
    "work_share": "float64",
    "peak_flop_per_s": "float64",
    "memory_bytes": "float64",
    "price_per_hour": "float64",
}
"""Columns of the table and their dtypes. ``Plan.to_frame`` documents them."""


def device_table(topology: Topology, job: Job, grid: IntArray, blocks: Sequence[int] | None) -> pd.DataFrame:
    """Return the table of ``Plan.to_frame``.

    ``grid`` has (stages, replicas) device indices. ``blocks`` has the number of blocks of each stage.
    """
    import pandas as pd  # takes a while to load

    stages = _stages(job, blocks)
    rows = []
    for (stage, replica), index in np.ndenumerate(grid):
        count = job.microbatch_counts[replica]
        row = {"stage": stage, "replica": replica, "microbatches": count} | stages[stage]
        rows.append(row | {"flop": count * row.get("flop", np.nan)} | _hardware(topology.devices[int(index)]))
    serving = set(grid.ravel().tolist())
    idle = [device for index, device in enumerate(topology.devices) if index not in serving]
    rows += [_hardware(device) | {"microbatches": 0, "flop": 0.0} for device in idle]
    columns = COLUMNS if any(device.host for device in topology.devices) else _without(COLUMNS, "host")
    # A job of message sizes has no work, and 0 would be taken for a number.
    table = pd.DataFrame(rows, columns=[*columns])
    if job.model is None:
        table["flop"] = np.nan
    # Of all work, so that unequal shares can be seen.
    table["work_share"] = table["flop"] / table["flop"].sum()
    return table.astype(columns)


def _without(columns: dict[str, str], name: str) -> dict[str, str]:
    return {column: kind for column, kind in columns.items() if column != name}


def _stages(job: Job, blocks: Sequence[int] | None) -> list[dict[str, Any]]:
    """Return each stage's blocks, parameters and FLOP per micro-batch; empty dictionaries if the job has no model."""
    if blocks is None:
        return [{} for _ in range(job.n_stages)]
    per_forward = (1 + job.modelled().backward.whole) * job.microbatch
    flop = [per_forward * sum(layer.forward_flop for layer in layers) for layers in job.stage_layers]
    columns = zip(blocks, job.stage_parameters, flop, strict=True)
    return [{"blocks": count, "parameters": parameters, "flop": each} for count, parameters, each in columns]


def _hardware(device: Device) -> dict[str, Any]:
    same = ("region", "host", "gpu", "peak_flop_per_s", "memory_bytes", "price_per_hour")
    return {"device": device.name} | {what: getattr(device, what) for what in same}
