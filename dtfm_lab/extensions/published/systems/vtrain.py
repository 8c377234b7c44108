"""Iterations of GPT models on 64 to 512 A100s, in grids of three parallelisms, as vTrain's authors measured them."""

from collections.abc import Iterator

from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.published.row import Evidence, Row, assumptions, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import PER_HOST, hosts_of, listed_plan, simulated_row

VOCABULARY = 50257
INSIDE_BYTES_PER_S = 150e9
"""Bytes/s one way between GPUs inside a host, from vTrain's configurations."""
BETWEEN_BYTES_PER_S = 100e9
"""Bytes/s one way between hosts, from vTrain's configurations. Each host has 800 Gbit/s."""
ASSUMED = assumptions()["vtrain"]
REPEATED = {"92": 53937.9, "93": 53909.6}
"""Milliseconds of a second measurement of the same configuration, by number of the line."""


def plan_of(line: dict[str, str]) -> Plan:
    """Return the plan of a row, in Megatron-LM's rank order."""
    gpus, n_replicas, n_stages = (int(line[name]) for name in ("tensor_parallel", "data_parallel", "stages"))
    model = gpt(
        name=line["model"],
        n_layers=int(line["layers"]),
        d_model=int(line["width"]),
        n_heads=int(line["heads"]),
        seq_len=int(line["sequence_tokens"]),
        vocab_size=VOCABULARY,
    )
    job = Job(
        name="vtrain",
        model=model,
        tensor_parallel=gpus if gpus > 1 else None,
        n_stages=n_stages,
        n_replicas=n_replicas,
        global_batch=int(line["batch_sequences"]),
        microbatch=int(line["microbatch_sequences"]),
        dtype="fp16",
        schedule="1f1b",
        transport="batched",
        synchronisation="ring",
        checkpointing="block",
        attention="unfused",
        memory_traffic=True,
    )
    hosts = hosts_of(
        int(line["gpus"]), "A100", inside_bytes_per_s=INSIDE_BYTES_PER_S, between_bytes_per_s=BETWEEN_BYTES_PER_S
    )
    return listed_plan(hosts, job)


@published("vtrain")
def vtrain() -> Iterator[Row]:
    """Yield iterations of three models."""
    for line in numbers("vtrain_multi.csv"):
        gpus = int(line["tensor_parallel"])
        # An omission of data/sources.yaml: a tensor-parallel group here lies within a host.
        if gpus > PER_HOST:
            continue
        grid = f"TP {gpus} DP {line['data_parallel']} PP {line['stages']}"
        number = line["source_line"]
        yield simulated_row(
            plan_of(line),
            group=line["model"],
            setting=f"{line['model']}, {grid}, micro-batch {line['microbatch_sequences']}, line {number}",
            quantity="iteration",
            unit="ms",
            published=float(line["iteration_ms"]),
            evidence=Evidence.DUPLICATE if number == "93" else Evidence.TRANSFERRED,
            assumptions=ASSUMED,
            note=f"measured a second time: {REPEATED[number]} ms" if number in REPEATED else "",
        )
