"""SimuMax's measured iterations and memory of Llama-3 shapes and DeepSeek-V2 and V3 on eight B200 of one host.

The models are cut to a few layers. Each row is predicted without a fit. Rows without context or expert parallelism are
also predicted with one efficiency per model, fitted to the model's rows with other tensor-parallel degrees.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dtfm_lab.domain.job import MODELS, Job, ModelSpec, llama
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import by_key
from dtfm_lab.extensions.published.calibration import SecondsLine, median
from dtfm_lab.extensions.published.row import Evidence, Row, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import hosts_of, listed_plan, simulated_row
from dtfm_lab.simulation import simulate

GPUS = 8
NVLINK_BYTES_PER_S = 900e9
"""NVLink's bytes/s between two B200s, one way, from the data sheet."""
TRIED = (0.4, 0.6)
"""The two efficiencies at which an iteration is simulated. The line through both results gives all others
(``SecondsLine``)."""
BETWEEN = "8"
"""Number of micro-batches of the rows that add no information: their milliseconds lie on a line through the same
grid's two other rows.

The distance is at most 1.6 %; for DeepSeek-V2 without a pipeline, 4 %.
"""
ONE_EFFICIENCY = ", one efficiency"
ASSUMED = ("zero-1", "fp32 gradients", "attention, SwiGLU and loss fused", "sequence parallel where tensor parallel")
TIMED = (*ASSUMED, "memory_traffic", "transport blocking", "ring over NVLink, not overlapped")
LONG = "131072"
"""Tokens per sequence of the rows that missed at first. After that, the speed of the attention was looked up."""
LOOKED_UP = "no blind prediction: the speed of cuDNN's attention was looked up after this row had missed"


BY_CHOICE = {
    "context_parallel": "keys and values in a ring (measured: all to all)",
    "expert_parallel": "as many tokens for each expert",
}
"""What is assumed about a row that uses this kind of parallelism."""


def plan_of(line: dict[str, str]) -> Plan:
    """Return the plan of a row. Ranks of a group are neighbours, and all are on one host."""
    gpus, n_stages, n_replicas = (int(line[name]) for name in ("tensor_parallel", "stages", "replicas"))
    experts, context = int(line["expert_parallel"]), int(line["context_parallel"])
    job = Job(
        name=line["model"],
        model=_model(line),
        tensor_parallel=gpus,
        context_parallel=context,
        expert_parallel=experts,
        n_stages=n_stages,
        n_replicas=n_replicas,
        global_batch=n_replicas * experts * int(line["microbatches"]),
        microbatch=experts,
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
    return listed_plan(host, job)


def _model(line: dict[str, str]) -> ModelSpec:
    n_layers = int(line["layers"])
    if whole := MODELS.get(line["model"]) if not line["d_model"] else None:
        embedding, dense, *_, experts, head = whole.layers
        return replace(whole, layers=(embedding, dense, *[experts] * (n_layers - 1), head))
    return llama(
        name=line["model"],
        n_layers=n_layers,
        d_model=int(line["d_model"]),
        n_heads=int(line["heads"]),
        n_kv_heads=int(line["kv_heads"]),
        d_ff=int(line["d_ff"]),
        seq_len=int(line["sequence"]),
        vocab_size=int(line["vocabulary"]),
    )


@published("simumax")
def simumax() -> Iterator[Row]:
    """Yield iterations of each model, grid, sequence length and number of micro-batches, and the memory of each
    grid."""
    for model, lines in by_key((line["model"], line) for line in numbers("simumax_b200.csv")).items():
        plans = [plan_of(line) for line in lines]
        for line, plan in zip(lines, plans, strict=True):
            chosen = tuple(words for what, words in BY_CHOICE.items() if int(line[what]) > 1)
            trace = simulate(plan)
            yield simulated_row(plan, trace, **_timed(line), group=model, assumptions=(*TIMED, *chosen))
            # Memory does not depend on their number, so it is compared once.
            if line["microbatches"] == lines[0]["microbatches"]:
                yield simulated_row(
                    plan,
                    trace,
                    group=model,
                    setting=_setting(line),
                    quantity="memory",
                    unit="GiB",
                    published=float(line["measured_peak_gib"]),
                    theirs=float(line["simumax_peak_gib"]),
                    assumptions=(*ASSUMED, *chosen),
                    note="the same for all numbers of micro-batches",
                )
        # One efficiency is fitted only where nothing else was chosen.
        alone = [at for at, line in enumerate(lines) if all(line[what] == "1" for what in BY_CHOICE)]
        lines, plans = [lines[at] for at in alone], [plans[at] for at in alone]
        seconds = [SecondsLine.of(plan, TRIED) for plan in plans]
        own = [one.efficiency(float(line["measured_ms"]) / 1000) for one, line in zip(seconds, lines, strict=True)]
        for line, one in zip(lines, seconds, strict=True):
            efficiency = median(
                # Other grids only, or the row's own grid would predict itself.
                [own[i] for i, other in enumerate(lines) if other["tensor_parallel"] != line["tensor_parallel"]]
            )
            yield Row(
                **_timed(line, Evidence.LEAVE_ONE_OUT, ONE_EFFICIENCY),
                group=model + ONE_EFFICIENCY,
                predicted=1000 * one.seconds(efficiency),
                assumptions=TIMED,
                fitted=f"efficiency {efficiency:.3f}, to the model's rows of other grids",
            )


def _timed(line: dict[str, str], evidence: Evidence = Evidence.TRANSFERRED, how: str = "") -> dict[str, Any]:
    """Return the fields of a line's iteration row that do not depend on the prediction. ``how`` is appended to the
    setting."""
    between = line["microbatches"] == BETWEEN
    note = LOOKED_UP if line["sequence"] == LONG else ""
    return {
        "setting": _setting(line) + how,
        "quantity": "iteration",
        "unit": "ms",
        "published": float(line["measured_ms"]),
        "evidence": Evidence.DUPLICATE if between else evidence,
        "theirs": float(line["simumax_ms"]),
        "note": "on the line through the rows of 4 and of 32 micro-batches" if between else note,
    }


def _setting(line: dict[str, str]) -> str:
    degrees = {
        "TP": int(line["tensor_parallel"]),
        "CP": int(line["context_parallel"]),
        "EP": int(line["expert_parallel"]),
        "PP": int(line["stages"]),
        "DP": int(line["replicas"]) * int(line["expert_parallel"]),  # their ranks are also data-parallel
    }
    grid = " ".join(f"{word} {degree}" for word, degree in degrees.items() if word not in ("CP", "EP") or degree > 1)
    length = "" if line["sequence"] == "4096" else f"{int(line['sequence']):,} tokens, "
    return f"{line['model']}, {line['layers']} layers, {length}{grid}, {line['microbatches']} micro-batches"
