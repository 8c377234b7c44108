"""Step 5: training in bf16, and in fp16 with a scaled loss, beside float32. One process: the lab's workers train in
fp32 and fp64 only, so nothing here says that stages and replicas agree on a skipped step.
"""

from __future__ import annotations

from collections.abc import Iterator

from figures import Figure, Setting
from plain_training import PlainTraining
from small import SMALL

import dtfm_lab as lab
from dtfm_lab.domain.job import gpt
from dtfm_lab.runtime.worker.batches import TextBatches

MODEL = gpt(name="gpt-25m", n_layers=8, d_model=512, n_heads=8, seq_len=256, vocab_size=256, tied=False)
WITHIN = 0.02


def measure(setting: Setting) -> Iterator[Figure]:
    steps = 6 if setting.rehearses else 200
    last = {}
    for dtype in ("fp32", "bf16", "fp16"):
        sizes = {"n_stages": 1, "n_replicas": 1, "global_batch": 8 if setting.rehearses else 32, "dtype": dtype}
        model = SMALL if setting.rehearses else MODEL
        job = lab.load_job("tiny", model=model, microbatch=8, **sizes)
        training = PlainTraining(job, setting.runs_on, learning_rate=1e-3)
        batches = TextBatches(None, job.modelled().seq_len, job.global_batch, 0)
        losses = [
            training.step(*(part.to(setting.runs_on) for part in batches.batch(step))).item() for step in range(steps)
        ]
        few = max(1, steps // 10)
        last[dtype] = sum(losses[-few:]) / few
        if dtype == "fp32":
            yield Figure(name="fp32, last loss", value=last[dtype], unit="nats", note=f"after {steps} steps")
            continue
        difference = abs(last[dtype] / last["fp32"] - 1)
        scale = training.scaler.get_scale()
        yield Figure(
            name=f"{dtype}, last loss against fp32",
            value=100 * difference,
            unit="%",
            goal=f"within {WITHIN:.0%}",
            met=difference <= WITHIN,
            note=f"{last[dtype]:.4f} nats" + (f", scale at last {scale:g}" if dtype == "fp16" else ""),
        )
