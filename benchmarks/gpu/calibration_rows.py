"""Step 8: measured iterations of whole models on this GPU, as rows that ``lab.published.calibrate`` and the ledger
read.

``gpu-rows.csv`` and ``gpu-network.yaml`` beside the report are in the format of docs/how-far-to-trust-it.md. A row is
plain training in bf16, eager; the lab predicts it from floating-point operations and the table's peak.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

import torch
import yaml
from figures import Figure, NotRun, Setting
from machine_facts import table_row
from plain_training import PlainTraining, random_batch
from timing import device_name, seconds_of

import dtfm_lab as lab

WITHIN = 0.10
MODELS = (("gpt2-medium", 16, 8), ("gpt2-large", 16, 8), ("gpt2-xl", 8, 4), ("gpt3-xl", 8, 4))
"""Model, global batch, micro-batch."""
LITTLE = (("tiny", 2, 1), ("tiny", 4, 1))
REHEARSED_TFLOPS = 1.0
"""Peak of the processor that a rehearsal takes for a GPU.

It is more than one thread of an x86 core reaches in fp32, and little enough that a busy machine still reaches the
thousandth of it that a row must have.
"""


def measure(setting: Setting) -> Iterator[Figure]:
    name = device_name(setting.runs_on)
    row = ("laptop", None) if setting.rehearses else table_row(name)
    if row is None:
        raise NotRun(f"the table of GPUs has no row for {name}")
    device = {"name": "gpu", "gpu": row[0]}
    if setting.rehearses:  # a core that is faster than the table's laptop would reach more than its peak
        device["peak_tflops"] = REHEARSED_TFLOPS
    network = {"name": "one-gpu", "devices": [device]}
    document = {"dtfm_topology": 1, "default": {"latency_ms": 0.01, "bandwidth_gbps": 100}, "regions": [network]}
    (setting.folder / "gpu-network.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    rows = []
    for model, global_batch, microbatch in LITTLE if setting.rehearses else MODELS:
        dtype = "fp32" if setting.rehearses else "bf16"
        sizes = {"n_stages": 1, "n_replicas": 1, "global_batch": global_batch, "microbatch": microbatch, "dtype": dtype}
        job = lab.load_job("tiny", model=model, **sizes)
        torch.set_float32_matmul_precision("high")
        try:
            training, batch = PlainTraining(job, setting.runs_on), random_batch(job, setting.runs_on)
            repeats = 2 if setting.rehearses else 5
            seconds = seconds_of(
                lambda training=training, batch=batch: training.step(*batch), setting.runs_on, repeats, warm_up=2
            )
        except torch.cuda.OutOfMemoryError:
            yield Figure(name=f"{model}, batch {global_batch}", value="out of memory")
            continue
        finally:
            training = batch = None
        setting_of_row = f"{model}, batch {global_batch}, micro-batch {microbatch}"
        yield Figure(name=setting_of_row, value=seconds, unit="s an iteration")
        rows.append(
            {
                "setting": setting_of_row,
                "quantity": "iteration",
                "published": f"{seconds:.6g}",
                "unit": "s",
                "network": "gpu-network.yaml",
                "job": "tiny",
                "model": model,
                **{key: str(value) for key, value in sizes.items()},
                "rank_map": "0",
                "efficiency": "fit",
                "band": "10%",
                "group": row[0],
                "cite": f"benchmarks/gpu on {name}",
            }
        )
        if len(rows) > 1:
            _write(setting, rows)
    if len(rows) < 2:
        raise NotRun(f"{len(rows)} of the models fitted; wanted two or more to leave one out")
    calibration = lab.published.calibrate(setting.folder / "gpu-rows.csv")
    yield Figure(
        name="efficiency",
        value=100 * calibration.efficiency,
        unit="%",
        note=f"of the peak of {row[0]}; rows' own {calibration.low:.1%} to {calibration.high:.1%}",
    )
    yield Figure(
        name="each row predicted from all others, mean error",
        value=100 * calibration.mean_error,
        unit="%",
        goal=f"at most {WITHIN:.0%}",
        met=calibration.mean_error <= WITHIN,
    )


def _write(setting: Setting, rows: list[dict[str, str]]) -> None:
    with (setting.folder / "gpu-rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
