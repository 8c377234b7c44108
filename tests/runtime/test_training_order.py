"""Training as workers do it, with every operation of torch on a GPU's streams: their order is proved as a whole."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import workers_as_threads
from cuda_order import Operations, OrderedCuda, ordered
from run_helpers import small_plan
from workers_as_threads import InMemory, train

from dtfm_lab.runtime.gpu import cuda_processor
from dtfm_lab.runtime.worker.device_math import DeviceMath
from dtfm_lab.runtime.worker.execute import ProgramExecutor
from dtfm_lab.runtime.worker.transport import Message


def trained(processor: Any, schedule: str, **fields: Any) -> tuple[list[float], OrderedCuda]:
    """The losses of three iterations on as many fake GPUs as there are workers, and what their order was."""
    plan = small_plan(**fields)
    gc.collect()
    gc.disable()  # a cycle that another worker's thread collects would be freed by a thread that knows nothing of it
    try:
        with pytest.MonkeyPatch.context() as patch, ordered(patch) as cuda:
            gpus: dict[int, Any] = {}
            for rank in range(plan.job.n_tasklets):
                with cuda.host(f"{rank} computing"):
                    gpus[rank] = processor.CudaProcessor(0, shares=False)
            arrived: dict[Any, Any] = {}

            class ByStreams(InMemory):
                """Contents leave and arrive by the processors' buffers, each pair in host threads of its own."""

                def send(
                    self, to: int, iteration: int, there: Any, content: torch.Tensor, *args: Any, **how: Any
                ) -> None:
                    raw = content.detach().contiguous().view(-1).view(torch.uint8)
                    leaving = cuda.hand_over(gpus[self.rank].send_buffer(raw))
                    with cuda.host(f"{self.rank} sending to {to}"):
                        buffer = cuda.take_over(leaving)
                        packet = buffer.to_host().numpy().copy()
                        del buffer, leaving
                    with cuda.host(f"{to} receiving from {self.rank}"):
                        host = gpus[to].host_buffer(len(packet))
                        host.numpy()[:] = packet
                        arrived[to, iteration, there] = cuda.hand_over(gpus[to].receive_buffer(host))
                    super().send(to, iteration, there, content, *args, **how)

                def receive(self, iteration: int, action: Any) -> Message:
                    message = super().receive(iteration, action)
                    return message._replace(content=cuda.take_over(arrived.pop((self.rank, iteration, action))).wait())

            class OnGpu(ProgramExecutor):
                def __init__(self, *args: Any, **how: Any) -> None:
                    self._rank = args[3].rank
                    super().__init__(*args, processor=gpus[self._rank], **how)

                def iteration(self, *args: Any) -> float:
                    with Operations(cuda), cuda.host(f"{self._rank} computing"):
                        return super().iteration(*args)

            def on_gpu(spec: Any, position: int, replica: int) -> DeviceMath:
                with cuda.host(f"{spec.rank(position, replica)} computing"):
                    return DeviceMath(spec, position, replica)

            patch.setattr(workers_as_threads, "InMemory", ByStreams)
            patch.setattr(workers_as_threads, "DeviceMath", on_gpu)
            patch.setattr(workers_as_threads, "ProgramExecutor", OnGpu)
            losses = train(plan, schedule, 3).losses
            cuda.over = True
    finally:
        gc.enable()
    return losses, cuda


RUNS = {
    "1f1b": ("1f1b", {}),
    "split backwards, int8": ("zb-h1", {"compression": "int8", "gradient_compression": "int8"}),
    "a ring, sharded states, tied": ("gpipe", {"synchronisation": "ring", "sharding": "zero-1"}),
    "local updates": ("1f1b", {"synchronise_every": 2}),
}


@pytest.mark.parametrize("what", RUNS)
def test_training_asks_for_everything_in_order(what):
    schedule, fields = RUNS[what]
    losses, cuda = trained(cuda_processor, schedule, **fields)
    assert cuda.faults[:5] == []
    assert losses == train(small_plan(**fields), schedule, 3).losses
