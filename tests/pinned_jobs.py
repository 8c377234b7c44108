"""Jobs of models that leave the planner stages, replicas, schedule and checkpointing alone, as DT-FM has them."""

from typing import Any

import dtfm_lab as lab

AS_DT_FM: dict[str, Any] = {
    "microbatch": 1,
    "tensor_parallel": 1,
    "sharding": "none",
    "synchronisation": "sharded",
    "overlap": False,
}


def pinned_job(name: str, **fields: Any) -> lab.Job:
    """The job of this name with micro-batches of one, whole optimiser states and sharded averages, or these fields."""
    return lab.load_job(name, **AS_DT_FM | fields)
