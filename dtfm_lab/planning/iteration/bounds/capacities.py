"""How many micro-batches each class of devices can pass within T seconds, as a stage of each kind: the laws.

For a device that passes n micro-batches in T seconds as part of any plan, whatever its order of passes:

- Its first pass is a forward, and waits for the forwards of the stages before it and a message from each (``start``).
- Its passes follow each other: start + n (F + I + W) + averaging <= T. F is a forward, I the backward to the inputs and
  W that to the weights, with I the whole and W nothing where backwards are not split; I repeats the forwards of blocks
  that are checkpointed. Averaging follows the last pass.
- Where it waits for what it sends (batched, blocking), nothing of its own runs meanwhile: every micro-batch takes in
  addition its message down and its message up until they have arrived. Where the two directions between two devices
  take turns (blocking), both messages of n micro-batches follow each other between the first forward and the last I.
- After its last I, messages and backwards go all the way up: start + n (F + I) + up <= T.
- A link carries n messages one after the other. Before the first of them come the passes that make it, after the last
  the passes that use it up; what goes down has to come back up.
- Between the F and the I of a micro-batch lies a round trip to the next stage. Where memory holds A micro-batches,
  n round trips fit into A (T - start - averaging); and only A forwards precede the first I.
- Averaging, with R - 1 peers that are not its neighbours, over the best links that it has, each peer on a link of its
  own: sharded, every peer is sent a shard, waits for it, and twice (two sums of R - 1 messages); sharded at once, the
  slowest peer's shard there and back; central, the whole gradient to the root and back, or as the root to the slowest
  peer; in a ring, 2 (R - 1) shards follow each other; hierarchical, the least of what a member, and a leader, does.
  Where it overlaps with the last backward it begins no earlier than that (``averages``). Where it travels beside an
  iteration it may hide, and counts as nothing; so do fragments.
- Replicas that gather in their passes (zero-2, zero-3) pass equally many micro-batches, each no faster than the
  messages of its ring (``gathered_passes``).
- The ends of a pipeline then exchange the gradient of a tied embedding; before, where replicas split states.

Links and neighbours are the best that the class has. One card for all of a device's messages makes them no faster, so
all of this holds for it, too; there, messages to both neighbours add up.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.bounds.averages import Averages, Seconds, gathered_passes
from dtfm_lab.planning.iteration.bounds.classes import FIRST, SOLE, Costs, DeviceClasses, Family, StageKinds
from dtfm_lab.planning.iteration.problem import IterationProblem, Passes
from dtfm_lab.planning.iteration.tables_of import REPLAYED
from dtfm_lab.simulation.memory_intervals import sharded_over

MOST_NEIGHBOURS = 16
"""Classes that are tried as neighbours one by one; all others count as one that is as near as the nearest of them."""
HOW = (*REPLAYED, "none")
"""Ways to average, by their number in the kernel."""


@dataclass(frozen=True, eq=False)
class Capacities:
    """Capacities of the classes of a problem for one micro-batch, one family of schedules and kinds of stages."""

    classes: DeviceClasses
    kinds: StageKinds
    family: Family
    microbatch: int
    synchronises: bool = True
    """False for an iteration in which each replica only updates itself."""
    _averages: dict[int, Averages] = field(default_factory=dict)
    _neighbours: dict[bytes, tuple[IntArray, FloatArray]] = field(default_factory=dict)
    """By the sides of a cut."""

    @property
    def problem(self) -> IterationProblem:
        return self.classes.problem

    @cached_property
    def n_microbatches(self) -> int:
        return self.problem.job.global_batch // self.microbatch

    @cached_property
    def flop_per_s(self) -> FloatArray:
        """(C,) FLOP/s of the fastest of each class."""
        return self.classes.flop_per_s(self.microbatch)

    @cached_property
    def _of_problem(self) -> Passes:
        return self.problem.passes(self.microbatch)

    @cached_property
    def costs(self) -> Costs:
        """Of groups on one side of a cut, without the messages of their passes."""
        passes = self._of_problem
        kinds, classes, problem = self.kinds, self.classes, self.problem
        n_messages = np.array([1, 2, 1, 0])[kinds.role]
        each = float(self.microbatch * problem.bytes_per_element)
        kept = each * kinds.held
        most_replicas = problem.job.n_replicas or problem.n_devices  # of which each holds the smallest shards
        parts = sharded_over(problem.job.sharding, most_replicas).parameters
        static = kinds.parameters * problem.static_bytes(most_replicas) + kinds.frozen / parts
        free = classes.memory_bytes[None, :] - static[:, None]
        fits = free >= (kept + n_messages * passes.hop_bytes[passes.least])[:, None]
        inputs = passes.input_bytes[np.where(kinds.role % SOLE == FIRST, 0, passes.least)]
        lasting = np.minimum(inputs, kept) if passes.recompute else kept
        most = np.floor(np.maximum(free, 0) / np.maximum(lasting, 1)[:, None])
        in_flight = np.where(fits & (lasting > 0)[:, None], np.maximum(most, 1), 0)
        if self.family.stages_per_device > 1:
            in_flight[:] = 0
        flop_s = self.microbatch / self.flop_per_s[None, :]
        fastest_s = self.microbatch / self.flop_per_s.max()
        coding = n_messages * passes.coding_s[passes.least]
        weight = problem.job.modelled().backward.weights if self.family.splits else 0.0
        inputs_per_forward = passes.backward_per_forward - weight
        block = np.diff(problem.block_flop).min()
        chain = (1 + inputs_per_forward) * kinds.chain_flop[:, None] * flop_s
        whole = problem.block_flop[-1] + problem.first_extra[0] + problem.last_extra[0]
        back_flop = inputs_per_forward * kinds.flop + kinds.again_flop
        input_s = back_flop[:, None] * flop_s + coding[:, None]
        return Costs(
            fits=fits.astype(float),
            in_flight=in_flight.astype(float),
            forward_s=kinds.flop[:, None] * flop_s + coding[:, None],
            input_s=input_s,
            weight_s=weight * kinds.flop[:, None] * flop_s,
            slower_s=np.zeros_like(input_s),
            hidden_s=np.zeros_like(input_s),
            chain_s=chain,
            before_s=kinds.before_flop * fastest_s,
            before_back_s=inputs_per_forward * kinds.before_flop * fastest_s,
            next_s=(1 + inputs_per_forward) * block * fastest_s,
            rest_s=(1 + inputs_per_forward) * np.maximum(whole - kinds.flop, 0) * fastest_s,
        )

    @cached_property
    def hop_s(self) -> FloatArray:
        """(C, C) seconds for which a message between stages occupies its link at least."""
        passes = self._of_problem
        return self.classes.moving_s(float(passes.hop_bytes[passes.least]))

    @cached_property
    def least_hop_s(self) -> float:
        return float((self.hop_s + self.classes.latency_s).min())

    def neighbours(self, side: IntArray) -> tuple[IntArray, FloatArray]:
        """(C, J) classes and (C, J, 5) links of the neighbours to be tried, as the kernel takes them."""
        hop, latency, n = self.hop_s, self.classes.latency_s, len(self.classes.count)
        links = np.stack([hop.T, hop, latency.T, latency], axis=2)
        links[~np.isfinite(links).all(axis=2)] = np.inf
        near = side[:, None] == side[None, :]
        tried_most = min(n, MOST_NEIGHBOURS)
        total = links.sum(axis=2)
        neighbours, of = np.full((n, tried_most + 2), -1), np.full((n, tried_most + 2, 5), np.inf)
        for c in range(n):
            order = np.argsort(total[c], kind="stable")
            tried, others = order[:tried_most], order[tried_most:]
            neighbours[c, :tried_most] = tried
            of[c, :tried_most] = np.column_stack([links[c, tried], near[c, tried]])
            for j, here in enumerate((others[near[c, others]], others[~near[c, others]])):
                if len(here):
                    of[c, tried_most + j] = np.append(links[c, here].min(axis=0), 1 - j)
        return neighbours, of

    def crossing(self, side: IntArray, limit_s: float) -> float:
        """Most micro-batches that a pipeline passes within ``limit_s`` where it has a message across the cut."""
        apart = side[:, None] != side[None, :]
        costs, latency = self.costs, self.classes.latency_s
        least = self.problem.first_extra[0] + self.problem.block_flop[1]
        before_s = self.microbatch * float(least) / self.flop_per_s.max()
        window = limit_s - (latency + latency.T)[apart] - costs.next_s - before_s
        there, back = self.hop_s[apart], self.hop_s.T[apart]
        most = np.minimum((window - back) / there, (window - there) / back)
        return max(float(most.max(initial=0.0)), 0.0)

    def of(
        self,
        limit_s: float,
        n_stages: int,
        n_replicas: int,
        side: IntArray,
        on_side: IntArray,
        upper: FloatArray,
    ) -> FloatArray:
        """(Q, I, 2, C) capacities, as ``fill_capacities`` gives them, for groups with (I,) devices on side 0.

        No device has more than its (Q, C) ``upper``; where that is 0, nothing is computed.
        """
        from dtfm_lab.planning.iteration.bounds.capacity_kernel import fill_capacities  # imports numba

        capacity = np.zeros((len(self.kinds), len(on_side), 2, len(side)))
        if (of_side := side.tobytes()) not in self._neighbours:
            self._neighbours[of_side] = self.neighbours(side)
        neighbours, links = self._neighbours[of_side]
        apart = bool((side != side[0]).any())
        crossing = self.crossing(side, limit_s) if apart else 0.0
        job = self.problem.job
        averages = self._averages.setdefault(n_replicas, Averages(self.classes, self.kinds.parameters, n_replicas))
        how = self._how(n_replicas)
        across = apart and n_replicas > 1
        floor_s = np.stack([averages.floor_s, averages.across_s(side) if across else averages.floor_s])
        border_s = averages.border_s(side) if across and HOW[how] == "ring" else None
        if job.gathers_passes:  # which pass equally many
            shares: tuple[int, ...] = (self.n_microbatches // n_replicas,)
        else:
            shares = job.microbatches_per_replica or (1, self.n_microbatches)
        waits = job.transport != "overlapped" and self.family.stages_per_device == 1
        near = self._passes(n_replicas)
        slower_s, hidden_s = self.costs.slower_s, self.costs.hidden_s
        if across:
            slower_s = np.sum(self._passes(n_replicas, side), axis=0) - np.sum(near, axis=0)
        if job.overlap:
            hidden_s = near[1] + near[2]
        costs = self.costs._replace(
            forward_s=near[0], input_s=near[1], weight_s=near[2], slower_s=slower_s, hidden_s=hidden_s
        )
        fill_capacities(
            limit_s, n_stages, float(max(shares)), how, self.problem.cards, waits, job.transport == "blocking",
            job.sharding in ("zero-1", "zero-2"), self.kinds.role, costs, self.kinds.before_hops, self.least_hop_s,
            self.classes.count, neighbours, links, averages.pair_s, floor_s, averages.tied_s(side), side, on_side,
            n_replicas, crossing, upper, capacity,
        )  # fmt: skip
        if border_s is not None:
            last_s = costs.before_s[:, None] + np.sum(near, axis=0) + slower_s
            last_s += np.maximum(border_s - hidden_s - slower_s, 0.0)
            sends = (last_s <= limit_s) & (costs.fits > 0)
            lone = ~(sends[:, side == 0].any(axis=1) & sends[:, side == 1].any(axis=1))
            capacity[np.ix_(lone, (on_side > 0) & (on_side < n_replicas))] = 0.0
        capacity[capacity < min(shares)] = 0.0
        return capacity

    def _how(self, n_replicas: int) -> int:
        """The way to average, as the kernel takes it; those that the bound does not know are as if there were none."""
        job = self.problem.job
        hides = job.fragments > 1 or job.fragment_delay > 0
        # parts of a message are as long as the whole where seconds are proportional to bytes
        in_parts = self.family.stages_per_device > 1 or self.problem.links.message_bytes is not None
        averages = self.synchronises and n_replicas > 1 and not hides and not (job.overlap and in_parts)
        return HOW.index(job.synchronisation if averages and job.synchronisation in HOW else "none")

    def _passes(self, n_replicas: int, side: IntArray | None = None) -> Seconds:
        """The passes of a micro-batch; those of groups on both sides of a cut where ``side`` is given."""
        computing = self.costs.forward_s, self.costs.input_s, self.costs.weight_s
        if not self.problem.job.gathers_passes or n_replicas == 1 or self.family.stages_per_device > 1:
            return computing
        return gathered_passes(computing, self.classes, self.kinds, self.microbatch, n_replicas, side)

    def compile_kernels(self) -> None:
        """Use the kernels once, for plans of one device."""
        from dtfm_lab.planning.iteration.bounds.capacity_kernel import together

        side = np.zeros(len(self.classes.count), dtype=np.int64)
        found = self.of(1.0, 1, 1, side, np.array([1]), np.zeros((len(self.kinds), len(side))))
        together(found.max(axis=2), self.classes.count, side, np.array([1]), 1)
