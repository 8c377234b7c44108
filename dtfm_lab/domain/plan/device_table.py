"""A plan as a table: what each device of the network does, and what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dtfm_lab.domain.job import BACKWARD_PER_FORWARD

if TYPE_CHECKING:
    from dtfm_lab.domain.plan.plan import Plan

COLUMNS = {
    "device": "object",
    "stage": "Int64",
    "replica": "Int64",
    "region": "object",
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
"""Columns of the table and their types. ``Plan.to_frame`` says what they hold."""


def device_table(plan: Plan) -> pd.DataFrame:
    """The table of ``Plan.to_frame``."""
    stages = _stages(plan)
    rows = []
    for (stage, replica), device in np.ndenumerate(plan.placement.devices):
        count = plan.job.microbatch_counts[replica]
        row = {"stage": stage, "replica": replica, "microbatches": count} | _hardware(plan, int(device)) | stages[stage]
        rows.append(row | {"flop": count * row.get("flop", np.nan)})
    rows += [_hardware(plan, device) | {"microbatches": 0, "flop": 0.0} for device in plan.idle_devices]
    table = pd.DataFrame(rows, columns=[*COLUMNS])
    if plan.job.model is None:
        table["flop"] = np.nan
    table["work_share"] = table["flop"] / table["flop"].sum()
    return table.astype(COLUMNS)


def _stages(plan: Plan) -> list[dict[str, Any]]:
    """Per stage its blocks, its parameters, and the FLOP of one micro-batch; nothing where there is no model."""
    job, blocks = plan.job, plan.blocks_per_stage
    if blocks is None:
        return [{} for _ in range(job.n_stages)]
    per_forward = (1 + BACKWARD_PER_FORWARD) * job.microbatch
    flop = [per_forward * sum(layer.forward_flop for layer in layers) for layers in job.stage_layers]
    columns = zip(blocks, job.stage_parameters, flop, strict=True)
    return [{"blocks": count, "parameters": parameters, "flop": each} for count, parameters, each in columns]


def _hardware(plan: Plan, index: int) -> dict[str, Any]:
    device = plan.topology.devices[index]
    same = ("region", "gpu", "peak_flop_per_s", "memory_bytes", "price_per_hour")
    return {"device": device.name} | {what: getattr(device, what) for what in same}
