"""SimuMax's measured rows: Llama-3 shapes, cut to a few layers, on eight B200 of one host: iterations and memory.

Each row twice: as the lab predicts it of itself, and with one efficiency a model, fitted to its rows of other grids.
"""

from collections.abc import Iterator
from dataclasses import replace

from dtfm_lab.domain.job import Job, llama
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import GiB
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.published.calibration import median
from dtfm_lab.published.evidence import Evidence
from dtfm_lab.published.hosts import hosts_of
from dtfm_lab.published.row import Row
from dtfm_lab.published.sources import Omission, published
from dtfm_lab.published.tables import numbers
from dtfm_lab.published.units import gpu_peak_bytes, interval_of, shares_of
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.simulate import iteration_seconds

SEQUENCE, GPUS = 4096, 8
NVLINK_BYTES_PER_S = 900e9
"""One way, of the B200's data sheet."""
TRIED = (0.4, 0.6)
"""Efficiencies at which an iteration is simulated. Its seconds are a line in one over the efficiency, to a tenth of a
per cent, as the order of passes stays."""
BETWEEN = "8"
"""Micro-batches of the rows that say nothing new: their milliseconds are those of the line through the two other rows
of the grid, to 1.6 %."""
ONE_EFFICIENCY = ", one efficiency"
ASSUMED = ("zero-1", "fp32 gradients", "attention, SwiGLU and loss fused", "sequence parallel where tensor parallel")
TIMED = (*ASSUMED, "memory_traffic", "transport blocking", "ring over NVLink, not overlapped")


def plan_of(line: dict[str, str]) -> Plan:
    """The plan of a row: ranks of a tensor-parallel group beside each other, all on one host."""
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
    gpus, n_stages, n_replicas = (int(line[name]) for name in ("tensor_parallel", "stages", "replicas"))
    job = Job(
        name=line["model"],
        model=model,
        tensor_parallel=gpus if gpus > 1 else None,
        n_stages=n_stages,
        n_replicas=n_replicas,
        global_batch=n_replicas * int(line["microbatches"]),
        microbatch=1,
        dtype="bf16",
        schedule="1f1b",
        synchronisation="ring",
        sharding="zero-1",
        gradient_dtype="fp32",
        memory_traffic=True,
        operators="fused",
        sequence_parallel=gpus > 1,
        transport="blocking",
    )
    host = hosts_of(GPUS, "B200", inside_bytes_per_s=NVLINK_BYTES_PER_S, between_bytes_per_s=NVLINK_BYTES_PER_S)
    return evaluate(host, job, rank_map=[r * n_stages + s for s in range(n_stages) for r in range(n_replicas)])


def _line_of(plan: Plan) -> tuple[float, float]:
    """Milliseconds of an iteration: what is fixed, and what is divided by the efficiency."""
    (x0, t0), (x1, t1) = ((1 / one, 1000 * iteration_seconds(plan, efficiency=one)) for one in TRIED)
    slope = (t1 - t0) / (x1 - x0)
    return t0 - slope * x0, slope


@published(
    "simumax",
    title="SimuMax, Llama-3 layers on eight B200",
    cite="SimuMax v1.2, Moore Threads, docs/b200/b200_release_v1.2_summary.md of its repository",
    licence="Apache-2.0",
    url="https://github.com/MooreThreads/SimuMax",
    omitted=(
        Omission("DeepSeek-V2 and V3, expert parallel", 12, "experts and latent attention are not modelled"),
        Omission("Llama-3 with sequences of 32,768 and 131,072", 7, "context parallelism is not modelled"),
        Omission(
            "memory of 8 and of 32 micro-batches",
            16,
            "one measurement stands for all numbers of micro-batches (section 6 of its reproduction guide)",
        ),
        Omission("A100 with PCIe", 24, "published as errors of its own simulator, without a measured number"),
    ),
)
def simumax() -> Iterator[Row]:
    """Iterations of two models, four grids and three numbers of micro-batches, and the memory of each grid."""
    by_model: dict[str, list[dict[str, str]]] = {}
    for line in numbers("simumax_b200.csv"):
        by_model.setdefault(line["model"], []).append(line)
    for model, lines in by_model.items():
        plans = [plan_of(line) for line in lines]
        for line, plan in zip(lines, plans, strict=True):
            trace = simulate(plan)
            row = _timed(model, line, 1000 * trace.iteration_s, Evidence.TRANSFERRED)
            interval = interval_of("iteration", row.predicted, trace)
            yield replace(row, interval=interval, assumptions=(*TIMED, *shares_of(plan)))
            if line["microbatches"] == lines[0]["microbatches"]:
                yield Row(
                    group=model,
                    setting=_setting(line),
                    quantity="memory",
                    unit="GiB",
                    published=float(line["measured_peak_gib"]),
                    predicted=gpu_peak_bytes(plan) / GiB,
                    theirs=float(line["simumax_peak_gib"]),
                    assumptions=ASSUMED,
                    note="the same for all numbers of micro-batches",
                )
        straight = [_line_of(plan) for plan in plans]
        own = [
            slope / (float(line["measured_ms"]) - fixed) for (fixed, slope), line in zip(straight, lines, strict=True)
        ]
        for line, (fixed, slope) in zip(lines, straight, strict=True):
            efficiency = median(
                [own[i] for i, other in enumerate(lines) if other["tensor_parallel"] != line["tensor_parallel"]]
            )
            fitted = f"efficiency {efficiency:.3f}, to the model's rows of other grids"
            yield _timed(model, line, fixed + slope / efficiency, Evidence.LEAVE_ONE_OUT, ONE_EFFICIENCY, fitted)


def _timed(
    model: str, line: dict[str, str], predicted_ms: float, evidence: Evidence, how: str = "", fitted: str = ""
) -> Row:
    between = line["microbatches"] == BETWEEN
    return Row(
        group=model + how,
        setting=_setting(line) + how,
        quantity="iteration",
        unit="ms",
        published=float(line["measured_ms"]),
        predicted=predicted_ms,
        evidence=Evidence.DUPLICATE if between else evidence,
        theirs=float(line["simumax_ms"]),
        assumptions=TIMED,
        fitted=fitted,
        note="on the line through the rows of 4 and of 32 micro-batches" if between else "",
    )


def _setting(line: dict[str, str]) -> str:
    grid = f"TP {line['tensor_parallel']} PP {line['stages']} DP {line['replicas']}"
    return f"{line['model']}, {line['layers']} layers, {grid}, {line['microbatches']} micro-batches"
