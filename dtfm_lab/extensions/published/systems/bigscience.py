"""BigScience's trials of grids on A100s before it trained BLOOM: seconds of an iteration, and memory.

The models have 181 to 203 billion parameters and ran with Megatron-DeepSpeed on 40 to 48 hosts of eight A100s. Besides
FLOP, three things decide the seconds: matrix sides that only suit slow kernels (``UNALIGNED`` of
``costs/efficiency.py``), the all-reduces within a host, and the host's network. The network is only a quarter as fast
as the host's four adapters together.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import GiB
from dtfm_lab.extensions.published.row import Evidence, Row, assumptions, numbers
from dtfm_lab.extensions.published.sailor_memory import CONTEXT_BYTES, buffers_bytes, communicators
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.systems.vtrain import INSIDE_BYTES_PER_S
from dtfm_lab.extensions.published.units import ALLOCATED, Prediction, hosts_of, listed_plan, simulated_row
from dtfm_lab.simulation import simulate

SEQUENCE = 2048
"""Tokens per sequence."""
STATED_VOCABULARY = 250_000
"""Rows of the embedding that the stated model sizes count."""
VOCABULARY = 250_880
"""Rows of the embedding in training, padded to a multiple of 128 for each of eight GPUs."""
FIRST_WIDTH = 14_400
"""Width of the model in rows that do not name one."""
HEADS = {14_400: 80, 13_824: 96, 14_336: 112}
"""Attention heads by width, for lines that name none: multiples of 8, for eight GPUs per layer. Our guess."""
ADAPTERS_BYTES_PER_S = 4 * 12.5e9
"""Bytes/s of a host's four Omni-Path adapters of 100 Gbit/s together."""
BETWEEN_BYTES_PER_S = ADAPTERS_BYTES_PER_S / 4
"""Bytes/s of a host's network, fitted to the rows of width 14,400 and micro-batch 1.

The fewer the stages, the more parameters each GPU averages, and the longer iterations take. DeepSpeed's ZeRO-3 on
Selene reaches an equally small share of its adapters (``known_misses.csv``).
"""
BUCKETS_BYTES = 2 * 5e8 * 2
"""Bytes of the buffers for DeepSpeed's reduce_bucket_size and allgather_bucket_size: 500 million numbers each by
default."""
FITTED = "what a host's network reaches, and the speed of unaligned products, to the rows of width 14,400"
REPEATED = {"582": "482"}
"""Lines that repeat the measurement of another line: the repeating line, and the other one."""


class Shape(NamedTuple):
    """Shape of the model in one line of the measurements."""

    layers: int
    width: int
    heads: int

    @classmethod
    def of(cls, line: dict[str, str]) -> "Shape":
        """Return the shape from the line's columns. If the line has no number of layers, the stated size gives it, with
        equal layers per stage.

        A layer has 12 width^2 + 13 width parameters. The embedding and the positions have ``width`` numbers per row.
        """
        width = int(line["hidden"] or FIRST_WIDTH)
        heads = int(line["heads"] or HEADS.get(width, width // 128))
        if line["layers"]:
            return cls(int(line["layers"]), width, heads)
        # Besides embedding and positions, the last norm has two numbers for each of the width.
        rest = float(line["size_b"]) * 1e9 - (STATED_VOCABULARY + SEQUENCE + 2) * width
        n_stages = int(line["pp"])
        return cls(n_stages * round(rest / (12 * width**2 + 13 * width) / n_stages), width, heads)


def blocks_of_stages(n_blocks: int, n_stages: int) -> tuple[int, ...]:
    """Return the blocks of each stage as DeepSpeed's PipelineModule cuts: all stages are filled equally, and the last
    has the rest.

    From 28 February on, BigScience counted the embedding and the head as a block each (``type:transformer|embedding``)
    and chose the number of blocks so that the total divides. This is assumed if the total divides and the blocks alone
    do not. Source: ``partition_balanced`` in deepspeed/runtime/utils.py; the head of ``data/bigscience_a100.csv``.
    """
    ends = int(n_blocks % n_stages > 0 and (n_blocks + 2) % n_stages == 0)
    each, left = -(-(n_blocks + 2 * ends) // n_stages), n_blocks + 2 * ends
    counts = []
    for after in reversed(range(n_stages)):
        counts.append(min(each, left - after))  # the lab has no empty stages
        left -= counts[-1]
    counts[0], counts[-1] = counts[0] - ends, counts[-1] - ends
    return tuple(counts)


def plan_of(line: dict[str, str]) -> Plan:
    """Return the plan of a line. Ranks go to tensor-parallel GPUs first, then replicas, then stages.

    Micro-batches beyond a whole number per replica are left out.
    """
    shape = Shape.of(line)
    n_stages, n_replicas, microbatch = (int(line[name]) for name in ("pp", "dp", "mbs"))
    model = gpt(
        name=f"{line['size_b']}B",
        n_layers=shape.layers,
        d_model=shape.width,
        n_heads=shape.heads,
        seq_len=SEQUENCE,
        vocab_size=VOCABULARY,
    )
    dtype = line["precision"] or "fp16"
    job = Job(
        name="bigscience",
        model=model,
        tensor_parallel=int(line["tp"]),
        n_stages=n_stages,
        n_replicas=n_replicas,
        blocks_per_stage=blocks_of_stages(shape.layers, n_stages),
        global_batch=int(line["gbs"]) // (n_replicas * microbatch) * n_replicas * microbatch,
        microbatch=microbatch,
        dtype=dtype,
        # DeepSpeed's BF16_Optimizer adds up gradients in fp32.
        gradient_dtype="fp32" if dtype == "bf16" else None,
        schedule="1f1b",
        transport="blocking",
        synchronisation="ring",
        sharding="none" if line["zero"] == "0" else "zero-1",
        checkpointing="block",
        attention="unfused",
        memory_traffic=True,
    )
    network = hosts_of(
        _gpus(line), "A100", inside_bytes_per_s=INSIDE_BYTES_PER_S, between_bytes_per_s=BETWEEN_BYTES_PER_S
    )
    return listed_plan(network, job)


def _gpus(line: dict[str, str]) -> int:
    return int(line["dp"]) * int(line["tp"]) * int(line["pp"])


def _framework_bytes(plan: Plan) -> float:
    """Return the bytes of CUDA's context, NCCL's buffers and DeepSpeed's on a GPU of a middle stage."""
    job = plan.job
    opened = communicators(job.tensor_parallel or 1, job.n_stages, job.n_replicas, min(1, job.n_stages - 1))
    return CONTEXT_BYTES + buffers_bytes(opened) + BUCKETS_BYTES


def _used_gib(found: Prediction) -> float:
    # nvidia-smi reports what torch has reserved, and what is outside its allocator.
    return (found.peak_bytes / ALLOCATED + _framework_bytes(found.plan)) / GiB


@published("bigscience")
def bigscience() -> Iterator[Row]:
    """Yield seconds of an iteration, and the memory that ``nvidia-smi`` reported for the fullest GPU."""
    assumed = assumptions()["bigscience"]
    for line in numbers("bigscience_a100.csv"):
        plan, shape = plan_of(line), Shape.of(line)
        trace = simulate(plan)
        grid = f"DP {line['dp']} TP {line['tp']} PP {line['pp']}, micro-batch {line['mbs']}"
        repeated = REPEATED.get(line["line"])
        how: dict[str, Any] = {
            "group": f"width {shape.width}",
            "setting": f"{shape.layers} layers of {shape.width}, {grid}, line {line['line']}",
            "note": f"line {repeated} again" if repeated else "",
        }
        yield simulated_row(
            plan,
            trace,
            quantity="iteration",
            unit="s",
            published=float(line["seconds_per_iteration"]),
            evidence=Evidence.DUPLICATE if repeated else Evidence.FITTED,
            fitted=FITTED,
            assumptions=assumed["iteration"],
            **how,
        )
        yield simulated_row(
            plan,
            trace,
            value=_used_gib,
            quantity="memory",
            unit="GiB",
            published=float(line["mem_gb"]),
            evidence=Evidence.DUPLICATE if repeated else Evidence.TRANSFERRED,
            assumptions=assumed["memory"],
            **how,
        )
