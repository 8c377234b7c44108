"""DT-FM: GPipe as its code runs it, with and without the placement of its scheduler."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.extensions.systems.bound import fits
from dtfm_lab.extensions.systems.grids import MICROBATCHES, in_rank_order, shapes, sizes_of
from dtfm_lab.extensions.systems.strategy import TRIED, Budget, Strategy, described, strategies
from dtfm_lab.planning import evaluate, plan
from dtfm_lab.planning.iteration.structured.candidates import device_sets

FIRST_SEED = 2022
"""Seed of DT-FM's first random placement. The next ones count up from it."""
MOST_SETS = 3
"""Maximum number of smaller sets of devices that are tried besides all devices. They share the search time."""
LEAST_GENERATIONS = 400
"""Minimum generations of DT-FM's search in each shape. After 200, the best of 64 devices on six continents is a quarter
slower."""


@described
@dataclass(frozen=True, kw_only=True)
class GPipeOfDTFM(Strategy):
    """How DT-FM trains, for any placement of the stages."""

    n_stages: int | None = None
    transport: str = "overlapped"
    flush_every: int = 64
    synchronisation: str = "ring"
    checkpointing: str = "block"

    microbatches: str = TRIED

    def _shaped(self, n_devices: int, job: Job) -> Iterator[Job]:
        """Yield the job as DT-FM trains it, in each shape. Its micro-batch size is the job's, or 1 if the job gives
        none."""
        how = job.with_fields(
            schedule="gpipe",
            microbatch=job.microbatch or 1,
            transport=self.transport,
            synchronisation=self.synchronisation,
            checkpointing=self.checkpointing,
        )
        for shaped in shapes(how, n_devices):
            if shaped.n_stages == self.n_stages or (self.n_stages is None and shaped.n_stages > 1):
                yield shaped

    def _sized(self, found: Plan) -> Iterator[Plan]:
        """Yield the plan with every micro-batch size that is tried, its own size first. All have the same placement,
        because it does not depend on the size."""
        sizes = sizes_of(self.microbatches, found.job, MICROBATCHES) or ()
        for microbatch in dict.fromkeys((found.job.microbatch, *sizes)):
            with suppress(LabError):  # it does not divide the batch, or leaves too few micro-batches for the replicas
                yield self._flushed(found.changed(job=found.job.with_fields(microbatch=microbatch)))

    def _flushed(self, found: Plan) -> Plan:
        """Return the plan with the flush interval of the assumption (in micro-batches), halved until the plan fits in
        memory.

        The last interval tried is 1, which is returned even if it does not fit.
        """
        flush_every = min(self.flush_every, found.job.n_microbatches)
        while True:
            flushed = found.changed(job=found.job.with_fields(flush_every=flush_every))
            if flush_every == 1 or fits(flushed):
                return flushed
            flush_every //= 2


@strategies.register("dt-fm")
@described
@dataclass(frozen=True, kw_only=True)
class DTFM(GPipeOfDTFM):
    """DT-FM: GPipe with overlapped messages, placed by its scheduler for the lowest communication cost."""

    name: ClassVar[str] = "dt-fm"
    searches: ClassVar[bool] = True

    planner: str = "dtfm"

    devices: str = TRIED

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """Yield a plan for each set of devices, shape and micro-batch size. All sizes have the placement that the
        scheduler found for the set and the shape."""
        wanted = [
            (members, shaped) for members in self._members(topology) for shaped in self._shaped(len(members), job)
        ]
        # Every shape gets an equal share of the search, as none is known to be best.
        share_s = budget.seconds / max(len(wanted), 1)
        for members, shaped in wanted:
            try:
                found = self._placed(topology.subset(members), shaped, budget, share_s)
            except LabError:  # no placement on these devices fits this shape
                continue
            if len(members) < len(topology):
                ranks = Placement(np.array(members)[found.placement.devices]).rank_map(len(topology))
                found = evaluate(topology, found.job, rank_map=ranks)
            yield from self._sized(found)

    def _placed(self, topology: Topology, job: Job, budget: Budget, share_s: float) -> Plan:
        """Return the scheduler's placement after the budget's steps. If the budget has no steps, the search stops after
        its share of the seconds.

        Without steps, the planner ``dtfm`` always completes ``LEAST_GENERATIONS``, so that having many shapes to choose
        from does not cut the search short.
        """
        placed = partial(plan, topology, job, self.planner, seed=budget.seed, improve_bound=False)
        if budget.steps:
            return placed(steps=budget.steps)
        if self.planner != "dtfm":
            return placed(seconds=share_s)
        found = placed(steps=LEAST_GENERATIONS)
        left_s = share_s - found.seconds
        return placed(seconds=left_s, start=found) if left_s > 0 else found

    def _members(self, topology: Topology) -> list[list[int]]:
        """Return the sets of devices to use: all devices, then the smaller sets that suit equal shares best.

        Smaller sets are ranked by their size times the speed of their slowest device.
        """
        everyone, *fewer = [members.tolist() for members in device_sets(topology)]
        if self.devices != TRIED:
            return [everyone]
        suited = sorted(fewer, key=lambda one: -len(one) * min(topology.devices[i].peak_flop_per_s for i in one))
        return [everyone, *suited[:MOST_SETS]]


@described
@dataclass(frozen=True, kw_only=True)
class DTFMRandom(GPipeOfDTFM):
    """DT-FM without its scheduler: the same GPipe with random placements."""

    name: ClassVar[str] = "dt-fm-random"

    n_draws: int = 3

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """Yield one plan that may be chosen. Its shape and micro-batch size are those whose first random placement is
        fastest. Its placement has the median seconds of all random placements with this shape. Shapes that do not fit
        are yielded as well, so that the outcome can say why.

        The median stands for a user without a scheduler, who cannot pick the best random placement.
        """
        ranks = random_ranks(len(topology), self.n_draws, budget.seed)
        tried: list[tuple[float, Job, Plan]] = []
        for shaped in self._shaped(len(topology), job):
            first = self._flushed(in_rank_order(topology, shaped, ranks[0], order="pp-dp"))
            if not fits(first):
                yield first  # so that the outcome can say what does not fit
                continue
            tried += [(self.seconds(one, budget), one.job, one) for one in self._sized(first) if fits(one)]
        if not tried:
            return
        first_s, shaped, first = min(tried, key=lambda one: one[0])
        draws = [(first_s, first)]
        for device_of_rank in ranks[1:]:
            ranked = self._flushed(in_rank_order(topology, shaped, device_of_rank, order="pp-dp"))
            # The median, since one random placement may be lucky.
            draws.append((self.seconds(ranked, budget), ranked))
        yield sorted(draws, key=lambda one: one[0])[len(draws) // 2][1]


def random_ranks(n_devices: int, n_draws: int, seed: int) -> list[IntArray]:
    """Return the device of each rank, (n_devices,), for each random placement. Device 0 keeps rank 0, as in DT-FM's
    rank maps.

    With seed 0 and 64 devices these are the maps of its scripts, which use the seeds 2022, 2023 and so on.
    """
    maps = []
    for draw in range(n_draws):
        ranks = np.arange(1, n_devices)
        np.random.RandomState(FIRST_SEED + seed + draw).shuffle(ranks)  # the same generator as in its script
        maps.append(np.argsort(np.concatenate([[0], ranks])))
    return maps
