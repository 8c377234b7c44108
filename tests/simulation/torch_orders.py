"""What torch.distributed.pipelining orders, from torch itself: the oracles of our builders.

    python tests/simulation/torch_orders.py > tests/data/torch_orders.json
    python tests/simulation/torch_orders.py --csv READ.csv FOLDER RANKS STAGES_PER_RANK MICROBATCHES

One process is every rank in turn, under the ``fake`` backend: nothing is sent, nothing computed. The second form
reads a schedule with torch's loader and has torch write it to FOLDER/again.csv, and its own interleaved one of this
size, bubbles included, to FOLDER/interleaved-1f1b.csv.
"""

import json
import sys

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble, _PipelineScheduleRuntime
from torch.testing._internal.distributed.fake_pg import FakeStore

ORACLES = {
    "gpipe": "ScheduleGPipe: the calls that its _step_microbatches makes of a stage that records them",
    "1f1b": "Schedule1F1B: the calls that its _step_microbatches makes of a stage that records them; not its "
    "pipeline_order, which on the last rank never passes micro-batch 0 forward",
    "interleaved-1f1b": "ScheduleInterleaved1F1B: its pipeline_order without bubbles",
    "zb-h1": "ScheduleInterleavedZeroBubble with one stage a rank: its pipeline_order without bubbles",
}
SIZES = {
    "gpipe": [(1, 1, 3), (2, 1, 1), (4, 1, 8), (8, 1, 5)],
    "1f1b": [(1, 1, 4), (2, 1, 2), (2, 1, 7), (3, 1, 3), (4, 1, 9), (5, 1, 6), (8, 1, 8), (8, 1, 20)],
    "interleaved-1f1b": [
        *[(2, 2, 1), (2, 2, 4), (2, 3, 6), (2, 4, 2), (3, 2, 3), (3, 2, 8), (3, 3, 5), (3, 4, 6), (4, 2, 3), (4, 2, 8)],
        *[(4, 2, 10), (4, 3, 8), (4, 4, 4), (5, 2, 12), (6, 2, 12), (6, 3, 9), (7, 2, 7), (7, 4, 8), (8, 2, 16)],
        *[(8, 2, 18), (8, 3, 11), (8, 4, 8)],
    ],
    "zb-h1": [(2, 1, 2), (2, 1, 6), (3, 1, 2), (3, 1, 8), (4, 1, 3), (4, 1, 10), (5, 1, 12), (8, 1, 4), (8, 1, 18)],
}
"""ranks, stages a rank, micro-batches"""
REFUSED = [(2, 2, 5), (3, 2, 7), (4, 2, 9), (4, 3, 11), (5, 2, 13), (8, 2, 17), (8, 4, 25)]
"""sizes of interleaved-1f1b that torch refuses"""


CLASSES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved-1f1b": ScheduleInterleaved1F1B,
    "zb-h1": ScheduleInterleavedZeroBubble,
}


def main() -> None:
    if sys.argv[1:2] == ["--csv"]:
        write_csv(*sys.argv[2:4], *map(int, sys.argv[4:]))
        return
    found = {
        "torch": torch.__version__,
        "oracles": ORACLES,
        "orders": {name: {written(size): orders_of(name, *size) for size in SIZES[name]} for name in SIZES},
        "refused": [written(size) for size in REFUSED if is_refused("interleaved-1f1b", *size)],
    }
    print(json.dumps(found, indent=1))


def written(size: tuple[int, int, int]) -> str:
    return " ".join(map(str, size))


def orders_of(name: str, n_ranks: int, stages_per_rank: int, n_microbatches: int) -> list[str]:
    """Per rank, what torch does, as ``Schedule.orders`` writes it."""
    with_ranks(n_ranks)
    if name in ("gpipe", "1f1b"):
        return [executed(CLASSES[name], rank, n_ranks, n_microbatches) for rank in range(n_ranks)]
    schedule = CLASSES[name](stages_of_a_rank(n_ranks, stages_per_rank), n_microbatches, loss_fn=nothing)
    return [" ".join(str(a) for a in schedule.pipeline_order[rank] if a is not None) for rank in range(n_ranks)]


def executed(kind: type, rank: int, n_ranks: int, n_microbatches: int) -> str:
    stage = Recorder(rank, n_ranks)
    schedule = kind(stage, n_microbatches)
    schedule._initialize_stage = nothing
    schedule._step_microbatches([()] * n_microbatches, [{}] * n_microbatches)
    return " ".join(stage.done)


def is_refused(name: str, *size: int) -> bool:
    try:
        orders_of(name, *size)
    except ValueError:
        return True
    return False


def write_csv(read: str, folder: str, n_ranks: int, stages_per_rank: int, n_microbatches: int) -> None:
    with_ranks(n_ranks)
    stages = stages_of_a_rank(n_ranks, stages_per_rank)
    schedule = _PipelineScheduleRuntime(stages, n_microbatches, loss_fn=nothing)
    schedule._load_csv(read)
    schedule._dump_csv(f"{folder}/again.csv", format="compute_only")
    own = ScheduleInterleaved1F1B(stages, n_microbatches, loss_fn=nothing)
    own._dump_csv(f"{folder}/interleaved-1f1b.csv", format="compute_only")


def with_ranks(n_ranks: int) -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=n_ranks)


def stages_of_a_rank(n_ranks: int, stages_per_rank: int) -> list[PipelineStage]:
    """The first rank's; every rank knows the orders of all."""
    n_stages = n_ranks * stages_per_rank
    return [PipelineStage(nn.Identity(), s, n_stages, torch.device("cpu")) for s in range(0, n_stages, n_ranks)]


class Recorder(PipelineStage):
    """A stage of no content that writes down what its schedule has it do."""

    def __init__(self, stage: int, n_stages: int) -> None:
        super().__init__(nn.Identity(), stage, n_stages, torch.device("cpu"))
        self.done: list[str] = []

    def forward_one_chunk(self, microbatch: int, *_, **__) -> None:
        self.done.append(f"{self.stage_index}F{microbatch}")

    def backward_one_chunk(self, microbatch: int, *_, **__) -> None:
        self.done.append(f"{self.stage_index}B{microbatch}")

    def get_fwd_recv_ops(self, microbatch: int) -> list:
        return []

    get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = get_fwd_recv_ops

    def perform_reduce_grad(self, *_) -> None: ...


def nothing(*_, **__) -> None: ...


if __name__ == "__main__":
    main()
