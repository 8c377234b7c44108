"""Megatron-LM, 1.7 billion parameters on 32 A100s without model parallelism: FLOP/s of a GPU.

The efficiency of matrix products is another publication's, that of Zero Bubble's rows, of the same code on the same
GPU; everything else is of the data sheets.
"""

import re
from collections.abc import Iterator

import numpy as np

from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import TERA
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.published.row import Band, Row
from dtfm_lab.published.sources import published
from dtfm_lab.published.systems.zero_bubble_throughput import megatron_efficiency
from dtfm_lab.published.tables import numbers
from dtfm_lab.simulation import simulate

LAYERS, WIDTH, HEADS, SEQUENCE, VOCABULARY = 24, 2304, 24, 2048, 51200
"""Of the first row of table 1, and section 5."""
PER_HOST = 8
NVLINK_BYTES_PER_S, NETWORK_BYTES_PER_S = 300e9, 8 * 25e9
"""One way, of the A100's data sheet; and of a host's eight cards of 200 Gbit/s (section 5)."""
NVLINK_S, NETWORK_S = 5e-6, 10e-6
"""Guesses, of no weight."""


@published(
    "megatron-lm",
    title="Megatron-LM, 1.7 billion parameters on 32 A100s",
    cite="Narayanan et al., SC 2021, table 1",
    licence="figures of a paper, cited",
    url="https://arxiv.org/abs/2104.04473",
)
def megatron() -> Iterator[Row]:
    """FLOP/s of a GPU by the paper's own count, its equation 3."""
    (line,) = (one for one in numbers("single_figures.csv") if one["system"] == "Megatron-LM")
    found = re.search(r"(\d+) A100.*micro-batch (\d+), batch (\d+)", line["setting"])
    assert found is not None, "the line names its sizes"
    n, microbatch, batch = map(int, found.groups())
    efficiency = megatron_efficiency()
    seconds = simulate(plan_of(n, microbatch, batch), efficiency=efficiency).iteration_s
    flop = counted_flop(batch)
    yield Row(
        group="Megatron-LM",
        setting=line["setting"],
        quantity="compute",
        unit="TFLOP/s",
        published=float(line["figure"]),
        predicted=flop / seconds / n / TERA,
        band=Band.share(0.1),
        assumptions=(
            "checkpointing block",
            "attention unfused",
            "memory_traffic",
            "a ring over NVLink and eight cards of 200 Gbit/s a host, not overlapped",
        ),
        fitted=f"efficiency {efficiency:.3f}, to Zero Bubble's 36 throughputs on A100s",
        note="one row of another paper, two years older: 10 % is the band",
    )


def counted_flop(batch: int) -> float:
    """FLOP of an iteration, a recomputed forward included, as the paper counts them."""
    own = 96 * batch * SEQUENCE * LAYERS * WIDTH**2
    return own * (1 + SEQUENCE / (6 * WIDTH) + VOCABULARY / (16 * LAYERS * WIDTH))


def plan_of(n: int, microbatch: int, batch: int) -> Plan:
    """The model whole on every GPU."""
    host = np.arange(n) // PER_HOST
    same = host[:, None] == host[None, :]
    network = Topology.from_matrices(
        latency_s=np.where(same, NVLINK_S, NETWORK_S),
        bandwidth_bytes_per_s=np.where(same, NVLINK_BYTES_PER_S, NETWORK_BYTES_PER_S),
        hosts=[f"host-{i}" for i in host],
        gpu="A100",
        name=f"{n} A100",
    )
    model = gpt(name="1.7B", n_layers=LAYERS, d_model=WIDTH, n_heads=HEADS, seq_len=SEQUENCE, vocab_size=VOCABULARY)
    job = Job(
        name="megatron-lm",
        model=model,
        n_stages=1,
        n_replicas=n,
        global_batch=batch,
        microbatch=microbatch,
        dtype="fp16",
        schedule="1f1b",
        synchronisation="ring",
        checkpointing="block",
        attention="unfused",
        memory_traffic=True,
    )
    return evaluate(network, job, stages=[list(range(n))])
