"""DiLoCo: islands of devices train alone and average what changed every H iterations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.systems import assumption as common
from dtfm_lab.systems.assumption import TRIED, Assumption
from dtfm_lab.systems.branch import Branch, SystemCandidate
from dtfm_lab.systems.grids import MICROBATCHES, sizes_of
from dtfm_lab.systems.strategy import Budget, RankedStrategy, strategies

ISLANDS = ("regions", "devices")
PRECISIONS = ("fp32", "fp16", "int8")


@strategies.register("diloco")
@dataclass(frozen=True, kw_only=True)
class DiLoCo(RankedStrategy):
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

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan | Branch]:
        """Workers of every length, the fastest by a closed form first. Raises PlanError where there are no two."""
        if next(self.candidates(topology, job, budget), None) is None:
            raise PlanError(f"{topology.name} has no two workers for a batch of {job.global_batch}; wanted two or more")
        yield from super().branches(topology, job, budget)

    def candidates(self, topology: Topology, job: Job, budget: Budget) -> Iterator[SystemCandidate]:
        """Pipelines of every length within the islands, without and with recomputation."""
        heads, trained = job.modelled().n_heads, self.trained(job)
        sizes = sizes_of(self.microbatches, job, MICROBATCHES) or (job.microbatch,)
        for degree in topology.group_sizes:
            if heads % degree:
                continue
            grouped = topology.grouped(degree)
            for islands in _fastest(grouped, self._islands(grouped)):
                for length in _lengths(islands, job.modelled().n_blocks):
                    grid = _pipelines(islands, length)[:, : self.most_workers]
                    yield from _shaped(grouped, trained.with_fields(tensor_parallel=degree), grid, sizes)

    def _islands(self, topology: Topology) -> list[IntArray]:
        if self.islands == "devices":
            return [np.array([device]) for device in range(len(topology))]
        region = np.array([topology.regions.index(device.region) for device in topology.devices])
        return [np.flatnonzero(region == one) for one in range(len(topology.regions))]


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


def _shaped(topology: Topology, job: Job, grid: IntArray, sizes: Sequence[int]) -> Iterator[SystemCandidate]:
    """The job on these pipelines in every micro-batch, with activations kept or blocks computed again."""
    n_stages, n_replicas = grid.shape
    if n_replicas < 2:
        return
    for microbatch in sizes:
        if job.global_batch % microbatch or job.global_batch // microbatch < n_replicas:
            continue
        for checkpointing in ("none", "block"):
            shape = {"n_stages": n_stages, "n_replicas": n_replicas, "microbatch": microbatch}
            yield SystemCandidate(topology, job.with_fields(**shape, checkpointing=checkpointing), grid)
