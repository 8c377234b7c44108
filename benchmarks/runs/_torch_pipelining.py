"""The opponent of ``pipelining.py``: the same stages under torch.distributed.pipelining, gloo between processes.

It reads a RunSpec as its one line of standard input and writes a JSON object:
losses, and seconds of each iteration, from a barrier to the moment at which the last process has taken its step.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.batches import TextBatches
from dtfm_lab.runtime.worker.stages import build_stages, next_token_loss
from dtfm_lab.runtime.worker.training_state import learning_rate_at

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def work(spec: RunSpec, rank: int, meeting: str, told: SimpleQueue[object]) -> None:
    """One process: the whole run of one stage."""
    torch.set_num_threads(1)
    job = spec.plan.job
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=job.n_stages)
    module = build_stages(job, job.n_stages, [rank], spec.seed)[rank]
    stage = PipelineStage(module, rank, job.n_stages, torch.device("cpu"))
    schedule = SCHEDULES[spec.schedule](stage, job.n_microbatches, loss_fn=next_token_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=spec.learning_rate)
    batches = TextBatches(spec.text, job.modelled().seq_len, job.global_batch, spec.seed)
    ends_s, losses = [], []
    for iteration in range(spec.iterations):
        inputs, targets = batches.batch(iteration)
        dist.barrier()
        began_s = time.monotonic()
        optimizer.zero_grad()
        found: list[torch.Tensor] = []
        if rank == job.n_stages - 1:
            schedule.step(target=targets, losses=found, return_outputs=False)
            losses.append(float(torch.stack(found).mean()))
        elif rank == 0:
            schedule.step(inputs)
        else:
            schedule.step()
        optimizer.param_groups[0]["lr"] = learning_rate_at(spec.learning_rate, iteration)
        optimizer.step()
        ends_s.append((began_s, time.monotonic()))
    told.put((rank, ends_s, losses))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    spec = RunSpec.from_line(sys.stdin.readline())
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # as the coordinator: loaded once, before forking
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        ranks = range(spec.plan.job.n_stages)
        processes = [context.Process(target=work, args=(spec, rank, meeting, told), daemon=True) for rank in ranks]
        for process in processes:
            process.start()
        answers = [told.get() for _ in processes]
        for process in processes:
            process.join()
    began_s = [min(each) for each in zip(*([began for began, _ in ends] for _, ends, _ in answers), strict=True)]
    ended_s = [max(each) for each in zip(*([ended for _, ended in ends] for _, ends, _ in answers), strict=True)]
    losses = next(found for _, _, found in answers if found)
    seconds = [end - begin for begin, end in zip(began_s, ended_s, strict=True)]
    print(json.dumps({"losses": losses, "seconds": seconds}))


if __name__ == "__main__":
    main()
