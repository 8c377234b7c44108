"""SimuMax's measured rows: Llama-3 shapes, cut to a few layers, on eight B200 of one host: iterations and memory.

What is fitted is one efficiency a model, to its rows with other numbers of micro-batches.
"""

from collections.abc import Iterator

import numpy as np

from dtfm_lab.domain.job import Job, llama
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import GiB
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.published.calibration import median
from dtfm_lab.published.row import Band, KnownMiss, Row
from dtfm_lab.published.sources import published
from dtfm_lab.published.tables import numbers
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory

SEQUENCE, N_STAGES, N_REPLICAS = 4096, 2, 4
NVLINK_BYTES_PER_S, NVLINK_S = 900e9, 5e-6
"""One way, of the B200's data sheet; the latency is a guess, and of no weight."""
TRIED = (0.4, 0.6)
"""Efficiencies at which an iteration is simulated. Its seconds are a line in one over the efficiency, to a tenth of a
per cent, as the order of passes stays."""
TEMPORARIES = (
    "an operator's temporaries are not counted: a micro-batch's gradient of a matrix of 128,256 x 16,384, before it is "
    "added in fp32, is 3.9 GiB, and fp32 logits with their gradients are 3 GiB"
)


def _plan_of(line: dict[str, str]) -> Plan:
    model = llama(
        name=line["model"],
        n_layers=int(line["layers"]),
        d_model=int(line["d_model"]),
        n_heads=int(line["heads"]),
        n_kv_heads=int(line["kv_heads"]),
        d_ff=int(line["d_ff"]),
        seq_len=SEQUENCE,
        vocab_size=int(line["vocabulary"]),
    )
    job = Job(
        name=line["model"],
        model=model,
        n_stages=N_STAGES,
        n_replicas=N_REPLICAS,
        global_batch=N_REPLICAS * int(line["microbatches"]),
        microbatch=1,
        dtype="bf16",
        schedule="1f1b",
        synchronisation="ring",
        sharding="zero-1",
        gradient_dtype="fp32",
        memory_traffic=True,
        transport="blocking",
    )
    n = N_STAGES * N_REPLICAS
    devices = tuple(Device(name=f"gpu {i}", gpu="B200") for i in range(n))
    topology = Topology(devices, NVLINK_S * (1 - np.eye(n)), np.full((n, n), NVLINK_BYTES_PER_S), name="8 B200")
    return evaluate(topology, job, stages=np.arange(n).reshape(N_STAGES, N_REPLICAS).tolist())


def _line_of(plan: Plan) -> tuple[float, float]:
    """Milliseconds of an iteration: what is fixed, and what is divided by the efficiency."""
    (x0, t0), (x1, t1) = ((1 / one, 1000 * simulate(plan, efficiency=one).iteration_s) for one in TRIED)
    slope = (t1 - t0) / (x1 - x0)
    return t0 - slope * x0, slope


@published(
    "simumax",
    title="SimuMax, Llama-3 layers on eight B200",
    cite="SimuMax v1.2, Moore Threads, measured B200 results in its repository",
    licence="Apache-2.0",
    url="https://github.com/MooreThreads/SimuMax",
    known_misses={("llama-3-405b, 4 layers, 4 micro-batches", "memory"): KnownMiss(0.927, TEMPORARIES)},
)
def simumax() -> Iterator[Row]:
    """Iterations of two models and three numbers of micro-batches, and the memory of each model."""
    by_model: dict[str, list[dict[str, str]]] = {}
    for line in numbers("simumax_b200.csv"):
        by_model.setdefault(line["model"], []).append(line)
    for model, lines in by_model.items():
        plans = [_plan_of(line) for line in lines]
        straight = [_line_of(plan) for plan in plans]
        measured = [float(line["measured_ms"]) for line in lines]
        own = [slope / (ms - fixed) for (fixed, slope), ms in zip(straight, measured, strict=True)]
        for at, line in enumerate(lines):
            others = [i for i in range(len(lines)) if i != at]
            efficiency = median([own[i] for i in others])
            fixed, slope = straight[at]
            each = ", ".join(
                f"{(fixed + slope / own[i]) / measured[at]:.3f} from that of {lines[i]['microbatches']}" for i in others
            )
            setting = f"{model}, {line['layers']} layers, {line['microbatches']} micro-batches"
            assumptions = ("zero-1", "fp32 gradients", "attention fused")
            yield Row(
                group=model,
                setting=setting,
                quantity="iteration",
                unit="ms",
                published=measured[at],
                predicted=fixed + slope / efficiency,
                band=Band.share(0.03),
                theirs=float(line["simumax_ms"]),
                assumptions=(*assumptions, "memory_traffic", "transport blocking", "ring over NVLink, not overlapped"),
                fitted=f"efficiency {efficiency:.3f}, to the model's rows of other numbers of micro-batches",
                note=f"fitted to one row, {each}",
            )
            if at == 0:
                yield Row(
                    group=model,
                    setting=setting,
                    quantity="memory",
                    unit="GiB",
                    published=float(line["measured_peak_gib"]),
                    predicted=int(memory(plans[at]).peak_bytes.max()) / GiB,
                    band=Band.share(0.05),
                    assumptions=assumptions,
                    note="the same for all numbers of micro-batches",
                )
