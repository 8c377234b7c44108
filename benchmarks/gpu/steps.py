"""All steps, in the order in which they run: those that cost little and tell most come first."""

from __future__ import annotations

from figures import Step

STEPS: dict[str, Step] = {
    step.name: step
    for step in (
        Step("doctor", "What torch, CuPy and the driver see", 2),
        Step("one_rank", "One worker on the GPU, GPipe and 1F1B", 2),
        Step("codec_speed", "CuPy's coding against a copy and against torch", 1.5),
        Step("batch_pricing", "Placements priced in batches", 2),
        Step("one_stage", "Utilisation of one stage in bf16, 1.3 billion parameters", 5),
        Step("half_precision", "bf16, and fp16 with a scaled loss, beside fp32", 2),
        Step("memory_peaks", "The memory model beside torch's peak", 3),
        Step("calibration_rows", "Measured rows for the table of GPUs", 3),
        Step("eight_devices", "Eight devices of a world-wide network on one GPU: GPT of 355 million parameters", 8),
        Step("two_ranks", "Messages between two GPUs by NCCL", 1.5),
    )
}
