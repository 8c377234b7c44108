"""Rows of torchtitan: tokens per second and peak memory of Llama 3.1 8B with FSDP on H100s.

They were measured with and without torch.compile.

Devices reach the share of the data sheet's peak that other sources give. Without torch.compile, each operator between
matrix products reads and writes memory (``memory_traffic``). With torch.compile, these operators are fused into a few,
and their time is neglected. The GPUs of torchtitan have slower memory (2.4 TB/s) and a power limit of 500 W, for which
we know no peak.
"""

from collections.abc import Iterator
from typing import Any

from dtfm_lab.domain.job import MODELS, Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import GiB
from dtfm_lab.extensions.published.row import Evidence, Row, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import ALLOCATED, RESERVED, hosts_of, only_plan, simulated_row
from dtfm_lab.extensions.systems.modelled.data_parallel import FSDP
from dtfm_lab.simulation import simulate

LOCAL_BATCH = 2
NVLINK_BYTES_PER_S = 450e9
"""Bytes/s between two GPUs of a host, one way, from the H100's data sheet."""
NETWORK_BYTES_PER_S = 8 * 50e9
"""Bytes/s of a host's eight NICs of 400 Gbit/s together."""


@published("torchtitan")
def torchtitan() -> Iterator[Row]:
    """Yield throughput and memory of 8 and of 128 GPUs."""
    for line in numbers("torchtitan.csv"):
        n, compiled = int(line["gpus"]), line["compiled"] == "yes"
        system = ("zero-3", "selective checkpointing", "fp32 gradients")
        how: dict[str, Any] = {
            "group": "torchtitan",
            "setting": f"{n} H100, FSDP{', torch.compile' if compiled else ''}",
            "evidence": Evidence.TRANSFERRED,
        }
        plan = plan_of(n, compiled=compiled)
        trace = simulate(plan)
        yield simulated_row(
            plan,
            trace,
            quantity="throughput",
            unit="tokens/s a GPU",
            published=float(line["tokens_per_s"]),
            assumptions=(*system, "operators are fused" if compiled else "operators move memory"),
            **how,
        )
        yield simulated_row(
            plan,
            trace,
            value=lambda found: found.peak_bytes / ALLOCATED / GiB,
            quantity="memory",
            unit="GiB",
            published=float(line["peak_gib"]),
            assumptions=(*system, "loss in fp32", RESERVED),
            **how,
        )


def plan_of(n: int, *, compiled: bool) -> Plan:
    """Return the plan that shards the model over n GPUs, in hosts of eight."""
    network = hosts_of(n, "H100", inside_bytes_per_s=NVLINK_BYTES_PER_S, between_bytes_per_s=NETWORK_BYTES_PER_S)
    job = Job(
        name="torchtitan",
        model=MODELS["llama-3-8b"],
        operators="eager",
        global_batch=LOCAL_BATCH * n,
        microbatch=LOCAL_BATCH,
        dtype="bf16",
    )
    strategy = FSDP(checkpointing="selective", compiled=compiled, reshard=True, microbatches="given", devices="all")
    return only_plan(strategy, network, job)
