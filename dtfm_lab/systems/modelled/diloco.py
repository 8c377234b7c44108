"""DiLoCo: islands of devices train alone and average what changed every H iterations; and Streaming DiLoCo, fragment by
fragment beside the iterations."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import IntArray
from dtfm_lab.systems import assumption as common
from dtfm_lab.systems.assumption import TRIED, Assumption
from dtfm_lab.systems.branch import Branch, distinct
from dtfm_lab.systems.grids import groupings, sized
from dtfm_lab.systems.strategy import Budget, GridStrategy, strategies

ISLANDS = ("regions", "devices")
PRECISIONS = ("fp32", "fp16", "int8")


@strategies.register("diloco")
@dataclass(frozen=True, kw_only=True)
class DiLoCo(GridStrategy):
    """DiLoCo: workers step alone and average what changed every H iterations.

    A worker is a pipeline whose devices lie on one island, or a single device that holds the whole model; an island
    with more devices than a pipeline has several workers, as a job knows one interval for all its replicas: data
    parallelism inside a worker has no model here, tensor parallelism inside a host does. Its user may leave out the
    islands of the slowest devices, for which all others wait. The parameters of the last
    average and the outer optimiser's momentum are not counted as memory of the device: torchft keeps them on the host.
    """

    name: ClassVar[str] = "diloco"
    title: ClassVar[str] = "DiLoCo"
    cite: ClassVar[str] = "Douillard et al. 2023"
    url: ClassVar[str] = "https://arxiv.org/abs/2311.08105"
    mathematics: ClassVar[str] = (
        "workers step alone between two averages, which an outer optimiser applies: a loss may need more iterations"
    )

    every: Annotated[
        int,
        Assumption(
            help="Iterations that a worker steps alone before all average (H).",
            unit="iterations",
            least=2,
            source="DiLoCo, section 3: 500 inner steps",
        ),
    ] = 500
    precision: Annotated[
        str,
        Assumption(
            help="Numbers of the averaged changes on their way, where smaller than the job's own.",
            choices=PRECISIONS,
            source="OpenDiLoCo averages in fp16; with 2 bytes, table 4 of Streaming DiLoCo is met",
        ),
    ] = "fp16"
    islands: Annotated[
        str,
        Assumption(
            help="Devices among which a worker's pipeline may lie: those of a region, or each device for itself.",
            choices=ISLANDS,
            source="DiLoCo, section 1: islands of well connected devices; here the network's regions",
        ),
    ] = "regions"
    most_workers: Annotated[
        int,
        Assumption(
            help="Workers beyond these are not used.",
            least=2,
            source="DiLoCo, section 3.1: up to 64 workers are tried",
        ),
    ] = 64
    microbatches: Annotated[
        str, common.microbatches(source="OpenDiLoCo: per_device_train_batch_size is the user's")
    ] = TRIED

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
@dataclass(frozen=True, kw_only=True)
class StreamingDiLoCo(DiLoCo):
    """Streaming DiLoCo: fragments of the model are averaged in turn, beside the next iterations.

    The paper's fragments are of whole layers, interleaved; a job's are equal parts of every device's parameters, as
    many as come nearest to the paper's and divide H. Workers and memory are those of ``DiLoCo``.
    """

    name: ClassVar[str] = "streaming-diloco"
    title: ClassVar[str] = "Streaming DiLoCo"
    cite: ClassVar[str] = "Douillard et al. 2025"
    url: ClassVar[str] = "https://arxiv.org/abs/2501.18512"
    mathematics: ClassVar[str] = (
        "workers step alone, fragments are averaged in turn and late, and mixed with what workers have become: a loss "
        "may need more iterations"
    )

    every: Annotated[
        int,
        Assumption(
            help="Iterations from one average of a fragment to its next (H).",
            unit="iterations",
            least=2,
            source="Streaming DiLoCo, the simulation of table 4: 100",
        ),
    ] = 100
    precision: Annotated[
        str,
        Assumption(
            help="Numbers of the averaged changes on their way; fp4 as published would be half of int8.",
            choices=PRECISIONS,
            source="Streaming DiLoCo, section 2.4, sends fp4; int8 is the nearest that jobs have, twice the bytes",
        ),
    ] = "int8"
    fragment_layers: Annotated[
        int,
        Assumption(
            help="Layers of a fragment, as nearly as whole numbers of fragments divide H.",
            unit="layers",
            least=1,
            source="Streaming DiLoCo, section 3: three layers a fragment",
        ),
    ] = 3
    delay: Annotated[
        int,
        Assumption(
            help="Iterations beside which a fragment travels before its average is due (tau); 0 does not overlap.",
            unit="iterations",
            least=0,
            source="Streaming DiLoCo, section 2.3: tau is 1 or more; torchft's fragment_sync_delay",
        ),
    ] = 1

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
