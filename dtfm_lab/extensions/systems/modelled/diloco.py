"""DiLoCo: islands of devices train alone and average what changed every H iterations; and Streaming DiLoCo, fragment by
fragment beside the iterations."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import IntArray
from dtfm_lab.extensions.systems.grids import distinct, groupings, sized
from dtfm_lab.extensions.systems.strategy import TRIED, Branch, Budget, GridStrategy, described, strategies


@strategies.register("diloco")
@described
@dataclass(frozen=True, kw_only=True)
class DiLoCoStrategy(GridStrategy):
    """DiLoCo: workers step alone and average what changed every H iterations.

    A worker is a pipeline whose devices lie on one island, or a single device that holds the whole model; an island
    with more devices than a pipeline has several workers, as a job knows one interval for all its replicas: data
    parallelism inside a worker has no model here, tensor parallelism inside a host does. Its user may leave out the
    islands of the slowest devices, for which all others wait. The parameters of the last
    average and the outer optimiser's momentum are not counted as memory of the device: torchft keeps them on the host.
    """

    name: ClassVar[str] = "diloco"

    every: int = 500
    precision: str = "fp16"
    islands: str = "regions"
    most_workers: int = 64
    microbatches: str = TRIED

    def trained(self, job: Job) -> Job:
        """The job as the system trains it, whatever its shape."""
        in_fp32 = {"gradient_dtype": "fp32", "gradient_compression": "none"}
        compressed = {"gradient_compression": self.precision}
        return job.with_fields(
            schedule="1f1b",
            synchronisation="ring",
            synchronise_every=self.every,
            **(in_fp32 if self.precision == "fp32" else compressed),
        )

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Pipelines of every length within the islands, without and with recomputation. Raises PlanError where no two
        workers can be had."""
        found = list(distinct(self._workers(topology, job)))
        if not found:
            raise PlanError(f"{topology.name} has no two workers for a batch of {job.global_batch}; wanted two or more")
        yield from found

    def _workers(self, topology: Topology, job: Job) -> Iterator[Branch]:
        for grouped, trained in groupings(topology, self.trained(job)):
            for islands in _fastest(grouped, self._islands(grouped)):
                for length in _lengths(islands, job.modelled().n_blocks):
                    grid = _pipelines(islands, length)[:, : self.most_workers]
                    for shaped in sized(trained, self.microbatches, *grid.shape) if grid.shape[1] > 1 else ():
                        for checkpointing in ("none", "block"):
                            yield Branch(grouped, shaped.with_fields(checkpointing=checkpointing), grid)

    def _islands(self, topology: Topology) -> list[IntArray]:
        if self.islands == "devices":
            return [np.array([device]) for device in range(len(topology))]
        region = np.array([topology.regions.index(device.region) for device in topology.devices])
        return [np.flatnonzero(region == one) for one in range(len(topology.regions))]


@strategies.register("streaming-diloco")
@described
@dataclass(frozen=True, kw_only=True)
class StreamingDiLoCo(DiLoCoStrategy):
    """Streaming DiLoCo: fragments of the model are averaged in turn, beside the next iterations.

    The paper's fragments are of whole layers, interleaved; a job's are equal parts of every device's parameters, as
    many as come nearest to the paper's and divide H. Workers and memory are those of ``DiLoCoStrategy``.
    """

    name: ClassVar[str] = "streaming-diloco"

    every: int = 100
    precision: str = "int8"
    fragment_layers: int = 3
    delay: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delay > self.every:
            raise LabError(
                f"system {self.name}: delay is {self.delay} with every {self.every}; wanted at most {self.every}, as a "
                f"fragment is averaged once in so many iterations"
            )

    def fragments(self, n_blocks: int) -> int:
        """Fragments of a model with so many blocks: of the numbers that divide H, the nearest to the paper's."""
        slots = self.every // max(self.delay, 1)
        wanted = n_blocks / self.fragment_layers
        divide = [n for n in range(1, slots + 1) if not slots % n]
        return min(divide, key=lambda n: (abs(math.log(n / wanted)), n))

    def trained(self, job: Job) -> Job:
        """The job as the system trains it, whatever its shape."""
        # H is kept a multiple of the delay: the last few iterations of a longer one would be nobody's
        every = self.every // max(self.delay, 1) * max(self.delay, 1)
        fragments = self.fragments(job.modelled().n_blocks)
        local = super().trained(job)
        return local.with_fields(synchronise_every=every, fragments=fragments, fragment_delay=self.delay)


def _fastest(topology: Topology, islands: list[IntArray]) -> Iterator[list[IntArray]]:
    """All islands, and without the slowest ones, by their slowest devices: workers have equal shares of the batch."""
    slowest = [min(topology.devices[device].peak_flop_per_s for device in island) for island in islands]
    for least in sorted(set(slowest)):
        yield [island for island, speed in zip(islands, slowest, strict=True) if speed >= least]


def _lengths(islands: list[IntArray], n_blocks: int) -> list[int]:
    """Numbers of stages: powers of two, and what divides an island without a rest."""
    largest = max(len(island) for island in islands)
    wanted = {2**i for i in range(largest.bit_length())}
    wanted |= {n for island in islands for n in range(1, len(island) + 1) if not len(island) % n}
    return sorted(n for n in wanted if n <= min(largest, n_blocks))


def _pipelines(islands: list[IntArray], length: int) -> IntArray:
    """(length, workers) as many pipelines as there are on the islands, each within one, in the network's order."""
    whole = [island[: len(island) // length * length].reshape(-1, length) for island in islands]
    return np.vstack(whole).T
