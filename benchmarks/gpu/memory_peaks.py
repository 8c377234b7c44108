"""Step 7: the memory model beside the peak of torch's allocator, for six cuts and schedules.

One device's passes are played in the schedule's order, without other devices: what it would receive is made at once.
The optimiser is torch's fused AdamW. In a rehearsal the peak is that of the numbers that autograd saves, which a CPU
can count, beside the predicted activations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from figures import Figure, Setting
from plain_training import random_batch
from saved_bytes import SavedBytes

import dtfm_lab as lab
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind, Schedule
from dtfm_lab.runtime.worker.autograd_stage import AutogradStage
from dtfm_lab.runtime.worker.stages import build_stages

WITHIN = 0.10
MODEL = gpt(name="gpt-410m", n_layers=24, d_model=1024, n_heads=16, seq_len=1024, vocab_size=50257, tied=False)
LITTLE = gpt(name="little", n_layers=8, d_model=32, n_heads=2, seq_len=32, vocab_size=256, tied=False)
"""For rehearsals; a block a stage where there are most."""
MICROBATCHES = 8


@dataclass(frozen=True)
class Case:
    """A cut, a schedule, and the device of the pipeline that is played."""

    n_stages: int
    schedule: str
    position: int
    checkpoints: str = "none"

    @property
    def name(self) -> str:
        kept = f", checkpoints: {self.checkpoints}" if self.checkpoints != "none" else ""
        return f"{self.n_stages} stages, {self.schedule}, device {self.position}{kept}"


CASES = (
    Case(1, "1f1b", 0),
    Case(4, "gpipe", 0),
    Case(4, "1f1b", 0),
    Case(4, "1f1b", 3),
    Case(8, "zb-h1", 2),
    Case(4, "gpipe", 1, "block"),
)


def measure(setting: Setting) -> Iterator[Figure]:
    for case in CASES:
        job = lab.load_job(
            "tiny",
            model=LITTLE if setting.rehearses else MODEL,
            n_stages=case.n_stages,
            n_replicas=1,
            global_batch=MICROBATCHES * 2,
            microbatch=2,
            dtype="fp32",
            checkpointing=case.checkpoints,
            operators="eager",  # as the lab's own stages are: torch's loss, and no dropout
            dropout=False,
        )
        network = lab.load_topology("worldwide")
        plan = lab.plan(network.subset(range(case.n_stages)), job, steps=1, seed=0)
        if setting.rehearses and case.checkpoints != "none":
            yield Figure(name=case.name, value="not counted", note="checkpoints save through hooks of their own")
            continue
        try:
            predicted, measured = compared(plan, case, setting.runs_on)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            yield Figure(name=case.name, value="out of memory")
            continue
        error = predicted / measured - 1
        what = "saved by autograd, activations alone" if setting.rehearses else "torch's peak"
        yield Figure(
            name=f"{case.name}: predicted against {what}",
            value=100 * error,
            unit="%",
            goal=f"within {WITHIN:.0%}",
            met=abs(error) <= WITHIN,
            note=f"{predicted / 2**20:.4g} against {measured / 2**20:.4g} MiB",
        )


def compared(plan: Plan, case: Case, device: str) -> tuple[float, float]:
    """Predicted and measured bytes of the device's peak; on a CPU, of its activations."""
    schedule = lab.schedules[case.schedule](case.n_stages, MICROBATCHES)
    report = lab.memory(plan, case.schedule)
    if device == "cpu":
        with SavedBytes() as saved:
            play(plan.job, schedule, case.position, device, saved)
        return float(report.activations_bytes[case.position, 0]), float(saved.peak)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    play(plan.job, schedule, case.position, device)
    return float(report.peak_bytes[case.position, 0]), float(torch.cuda.max_memory_allocated() - before)


def play(job: Job, schedule: Schedule, position: int, device: str, saved: SavedBytes | None = None) -> None:
    """Two iterations of one device's passes and the optimiser's step; the second finds all states allocated."""
    held = schedule.stages_of(position)
    modules = build_stages(job, schedule.n_stages, held, 0)
    model = job.modelled()
    shape = (job.microbatch, model.seq_len, model.d_model)
    program = schedule.programs[position]
    stages = {
        stage: AutogradStage(
            module.to(device),
            shape,
            MICROBATCHES,
            is_last=stage == schedule.n_stages - 1,
            split_backward=any(action.kind is Kind.BACKWARD_INPUT for action in program),
            recompute=job.checkpoints == "stage",
            checkpoints_blocks=job.checkpoints == "block",
        )
        for stage, module in modules.items()
    }
    parameters = [parameter for module in modules.values() for parameter in module.parameters()]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    if saved is not None:
        saved.leave_out(parameters)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=device == "cuda")
    tokens, targets = random_batch(job, device)
    batch = list(zip(tokens.split(job.microbatch), targets.split(job.microbatch), strict=True))
    for _ in range(2 if device == "cuda" else 1):
        for action in program:
            stage, m = stages[action.stage], action.microbatch
            assert m is not None
            if action.kind is Kind.BACKWARD_WEIGHT:
                stage.backward_weight(m)
                continue
            first, last = action.stage == 0, action.stage == schedule.n_stages - 1
            none = first if action.kind is Kind.FORWARD else last
            received = None if none else torch.randn(shape, device=device)
            run = {
                Kind.FORWARD: stage.forward,
                Kind.BACKWARD: stage.backward,
                Kind.BACKWARD_INPUT: stage.backward_input,
            }[action.kind]
            run(m, received, batch)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
