"""The processes of ``in_processes``: each joins the gloo group, runs the reader's function and writes the result.

Started as ``python -m dtfm_lab.extensions.course.gloo_process FILE``. The file holds a list of orders, one per rank.
The process loads torch and forks itself for each of several orders. Only this module and the workers load torch.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from dtfm_lab.domain.job import Job
from dtfm_lab.extensions.course.processes import error_file, result_file
from dtfm_lab.files import load_job
from dtfm_lab.runtime.protocol.processes import exit_with_parent
from dtfm_lab.runtime.worker.batches import TextBatches
from dtfm_lab.runtime.worker.stages import build_stages, next_token_loss
from dtfm_lab.runtime.worker.training_state import learning_rate_at

RATE = 2e-3
"""The lab's default learning rate of a run."""

NOT_YOURS = ("all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast", "gather", "scatter", "all_to_all")
"""Functions of torch.distributed that do what the reader has to write. They raise an error here."""


class Pieces(NamedTuple):
    """One stage of ``tiny`` with its data and optimizer, equal to the stage in a run of the lab with this seed."""

    module: torch.nn.Module
    step: Callable[[int], None]
    """Takes the optimizer step that ends an iteration, counted from 0, and sets all gradients to zero."""
    microbatches: Callable[[int], list[tuple[torch.Tensor, torch.Tensor]]]
    """(inputs, targets) of each micro-batch of an iteration, each (sequences, tokens)."""
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """Mean cross-entropy of logits and targets."""
    shape: tuple[int, int, int]
    """Shape of a micro-batch's activations: sequences, tokens, width."""


def pieces(stage: int, n_stages: int, seed: int = 0, batch: int = 8, microbatch: int = 2) -> Pieces:
    """Return a stage of ``tiny`` with its optimizer, and the batches of a run with this seed."""
    job: Job = load_job("tiny", n_stages=n_stages, n_replicas=1, global_batch=batch, microbatch=microbatch)
    # Made as in a run of the lab with this seed, so that the results can be compared.
    module = build_stages(job, n_stages, [stage], seed)[stage]
    model = job.modelled()
    text = TextBatches(None, model.seq_len, batch, seed)

    def microbatches(iteration: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(part[0], part[1]) for part in text.share(iteration, 0, (batch // microbatch,))]

    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)

    def step(iteration: int) -> None:
        optimizer.param_groups[0]["lr"] = learning_rate_at(RATE, iteration)
        optimizer.step()
        optimizer.zero_grad()

    return Pieces(module, step, microbatches, next_token_loss, (microbatch, model.seq_len, model.d_model))


def main(orders: list[dict[str, Any]]) -> None:
    """Be the only rank, or fork a process for each rank and wait for them. Exit with status 1 when one has failed."""
    if len(orders) == 1:
        be_rank(orders[0])
        return
    parent, pids = os.getpid(), []
    for asked in orders:
        pid = os.fork()
        if pid == 0:
            exit_with_parent(parent)
            said = os.open(error_file(Path(asked["folder"]), asked["rank"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, sys.stderr.fileno())
            be_rank(asked)
            # Unloading torch would take time in each of the forks.
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        if os.waitpid(pid, 0)[1] != 0:
            os._exit(1)


def be_rank(asked: dict[str, Any]) -> None:
    """Run the reader's function as one rank of the group."""
    # Many processes share the machine's cores.
    torch.set_num_threads(1)
    folder = Path(asked["folder"])
    rendezvous = f"file://{folder / 'group'}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=asked["rank"], world_size=asked["n"])
    messages = _recorded()
    for name in NOT_YOURS:
        setattr(dist, name, _refused(name))
    functions = runpy.run_path(asked["file"])
    if asked["function"] not in functions:
        raise SystemExit(f"{Path(asked['file']).name} has no function {asked['function']}")
    value = functions[asked["function"]](asked["rank"], asked["n"], **asked["given"])
    value = value.tolist() if isinstance(value, torch.Tensor) else value
    # No process may leave while another still sends to it.
    dist.barrier()
    found = json.dumps({"value": value, "messages": messages})
    result_file(folder, asked["rank"]).write_text(found, encoding="utf-8")
    dist.destroy_process_group()


def _recorded() -> list[tuple[str, int]]:
    """Return a list to which each message from now on is appended: ("send" or "recv", bytes)."""
    messages: list[tuple[str, int]] = []
    for name in ("send", "isend", "recv", "irecv"):
        original = getattr(dist, name)

        def recording(
            tensor: torch.Tensor, *rest: Any, original: Any = original, name: str = name, **named: Any
        ) -> Any:
            messages.append((name.removeprefix("i"), tensor.numel() * tensor.element_size()))
            return original(tensor, *rest, **named)

        setattr(dist, name, recording)
    return messages


def _refused(name: str) -> Callable[..., None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"dist.{name} is what you are to write; wanted dist.send and dist.recv")

    return refuse


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
