"""The inequalities behind the bound, and the proofs that use them.

They limit how many micro-batches a device of each class can process in T seconds, for each kind of stage. T is
*refuted* if it is proven that no plan takes at most T seconds. The following holds for a device that processes n
micro-batches in T seconds as part of any plan, whatever its order of passes:

- Its first pass is a forward. It waits for the forwards of the stages before it and a message from each (``start``).
- Its passes follow each other: start + n (F + I + W) + averaging <= T. F is a forward, I the backward to the inputs and
  W the backward to the weights. If backwards are not split, I is the whole backward and W is 0. I repeats the forwards
  of checkpointed blocks. Averaging follows the last pass.
- With the transports batched and blocking, a device does nothing else until a message that it sends has arrived. Every
  micro-batch then adds the time of its message down and of its message up. With the transport blocking, the two
  directions between two devices also take turns. Then the 2 n messages of n micro-batches follow each other between
  the first forward and the last I.
- After its last I, messages and backwards go all the way up to the first stage: start + n (F + I) + up <= T.
- A link carries n messages one after another. Before the first of them come the passes that make it, after the last the
  passes that use it. Every message down is answered by one up.
- Between the F and the I of a micro-batch lies a round trip to the next stage. If memory holds A micro-batches, n round
  trips fit into A (T - start - averaging), and only A forwards precede the first I.
- Averaging takes place with R - 1 peers that are not the device's neighbours. It uses the best links that the device
  has, each peer on its own link.
  - Sharded: the device sends each peer a shard, one after another, then each an averaged shard. This takes two sums of
    R - 1 messages.
  - Sharded at once: the slowest peer's shard there and back.
  - Central: the smaller of what a member and the root do. A member sends the whole gradient to the root and gets the
    average back. The root sends the average to its slowest peer.
  - Ring: 2 (R - 1) shards follow each other.
  - Hierarchical: the smaller of what a member and a leader do.

  Averaging that overlaps the last backward begins no earlier than that backward (``classes.Averages``). Averaging may
  be hidden if it runs during later iterations or covers one fragment at a time. It then counts as 0 s.
- Replicas that gather in their passes (zero-2, zero-3) process equally many micro-batches. No pass is faster than the
  messages of its ring (``gathered_passes``).
- At the end, the first and last stage of a pipeline exchange the gradient of a tied embedding. If replicas split the
  optimizer states, this exchange comes before averaging.

A device counts as having the best links and neighbours of its class. One NIC for all of its messages makes them no
faster, so all of this holds with NICs, too. With NICs, messages to both neighbours add up.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from dtfm_lab.costs.seconds import NOTHING, RING, travels_beside, way_of
from dtfm_lab.domain.job import BYTES_PER_ELEMENT
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.bounds.classes import (
    FIRST,
    LAST,
    MIDDLE,
    SOLE,
    Averages,
    ClassPassCosts,
    DeviceClasses,
    Family,
    Seconds,
    StageKinds,
    gathered_passes,
)
from dtfm_lab.planning.iteration.problem import IterationProblem, Passes

MOST_NEIGHBOURS = 16
"""Maximum number of classes that are tried as neighbours one by one. All others on one side of a cut count as one
class, as near as the nearest of them."""


@dataclass(frozen=True, eq=False)
class Capacities:
    """The capacity of each class's devices: how many micro-batches one of them can process within a time limit.

    It is for one micro-batch size, one family of schedules and given kinds of stages.
    """

    classes: DeviceClasses
    kinds: StageKinds
    family: Family
    microbatch: int
    synchronises: bool = True
    """False if no averaging follows the passes: in an iteration in which each replica only updates itself, and with
    zero-3."""
    _averages: dict[int, Averages] = field(default_factory=dict)
    _neighbours: dict[bytes, tuple[IntArray, FloatArray]] = field(default_factory=dict)
    """Results of ``neighbours``, by the sides of the cut."""

    @property
    def problem(self) -> IterationProblem:
        return self.classes.problem

    @cached_property
    def n_microbatches(self) -> int:
        return self.problem.job.global_batch // self.microbatch

    @cached_property
    def flop_per_s(self) -> FloatArray:
        """(C,) FLOP/s of the fastest device of each class."""
        return self.classes.flop_per_s(self.microbatch)

    @cached_property
    def _of_problem(self) -> Passes:
        return self.problem.passes(self.microbatch)

    @cached_property
    def costs(self) -> ClassPassCosts:
        """Costs for groups on one side of a cut, without the messages that replicas exchange during passes."""
        passes = self._of_problem
        kinds, classes, problem = self.kinds, self.classes, self.problem
        n_messages = np.array([1, 2, 1, 0])[kinds.role]
        each = float(self.microbatch * BYTES_PER_ELEMENT[problem.job.dtype])
        kept = each * kinds.held
        most_replicas = problem.job.n_replicas or problem.n_devices  # the smallest shards that a device may hold
        counts = (most_replicas,) if problem.job.n_replicas else (1, most_replicas)  # one has no buckets
        static = np.min([problem.held_bytes(n, kinds.parameters, kinds.frozen) for n in counts], axis=0)
        free = classes.memory_bytes[None, :] - static[:, None]
        fits = free >= (kept + n_messages * passes.hop_bytes[passes.least])[:, None]
        inputs = passes.least_inputs[np.where(kinds.role % SOLE == FIRST, 0, 1)]
        lasting = np.minimum(inputs, kept) if passes.recompute else kept
        most = np.floor(np.maximum(free, 0) / np.maximum(lasting, 1)[:, None])
        in_flight = np.where(fits & (lasting > 0)[:, None], np.maximum(most, 1), 0)
        # with several stages per device, the number in flight is unknown, so no limit by memory is used
        if self.family.stages_per_device > 1:
            in_flight[:] = 0
        flop_s = self.microbatch / self.flop_per_s[None, :]
        fastest_s = self.microbatch / self.flop_per_s.max()
        coding = n_messages * passes.coding_s[passes.least]
        weight = problem.job.modelled().backward.weights if self.family.splits else 0.0
        inputs_per_forward = passes.backward_per_forward - weight
        block = np.diff(problem.block_flop).min()
        extras = zip((problem.first_extra, problem.last_extra), problem.alone, strict=True)
        ends = [extra[0] for extra, alone in extras if alone]
        chain = (1 + inputs_per_forward) * kinds.chain_flop[:, None] * flop_s
        whole = problem.block_flop[-1] + problem.first_extra[0] + problem.last_extra[0]
        back_flop = inputs_per_forward * kinds.flop + kinds.again_flop
        input_s = back_flop[:, None] * flop_s + coding[:, None]
        return ClassPassCosts(
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
            next_s=(1 + inputs_per_forward) * min([block, *ends]) * fastest_s,
            rest_s=(1 + inputs_per_forward) * np.maximum(whole - kinds.flop, 0) * fastest_s,
        )

    @cached_property
    def hop_s(self) -> FloatArray:
        """(C, C) minimum seconds for which a message between stages occupies its link."""
        passes = self._of_problem
        return self.classes.moving_s(float(passes.hop_bytes[passes.least]))

    @cached_property
    def least_hop_s(self) -> float:
        return float((self.hop_s + self.classes.latency_s).min())

    def neighbours(self, side: IntArray) -> tuple[IntArray, FloatArray]:
        """Return (C, J) classes and (C, J, 5) links of the neighbours to try, in the form that the kernel takes."""
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
        """Return the maximum number of micro-batches, with a fraction, that a pipeline with a message across the cut
        can process within ``limit_s``."""
        apart = side[:, None] != side[None, :]
        costs, latency = self.costs, self.classes.latency_s
        least = self.problem.first_extra[0] + (0.0 if self.problem.alone[0] else self.problem.block_flop[1])
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
        """Return (Q, I, 2, C) capacities, as from ``fill_capacities``.

        ``on_side`` (I,) are the numbers of devices that a group may have on side 0. ``upper`` (Q, C) is an upper limit
        of each capacity. Where it is 0, nothing is computed.
        """
        from dtfm_lab.planning.iteration.bounds import capacity_kernel as kernel  # imports numba

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
        border_s = averages.border_s(side) if across and how == RING else None
        if job.gathers_passes:  # such replicas process equally many
            counts: tuple[int, ...] = (self.n_microbatches // n_replicas,)
        else:
            counts = job.microbatches_per_replica or (1, self.n_microbatches)
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
        problem, classes, kinds = self.problem, self.classes, self.kinds
        turns, tied_before = job.transport == "blocking", job.sharding in ("zero-1", "zero-2")
        most = float(max(counts))
        kernel.fill_capacities(
            kernel.Rules(limit_s, n_stages, n_replicas, most, problem.nics, waits, turns, self.least_hop_s),
            kernel.Stages(kinds.role, kinds.before_hops, costs),
            kernel.BestLinks(neighbours, links),
            kernel.BestAveraging(how, averages.pair_s, floor_s, averages.tied_s(side), tied_before),
            kernel.Cut(side, on_side, crossing),
            classes.count,
            upper,
            capacity,
        )
        if border_s is not None:
            last_s = costs.before_s[:, None] + np.sum(near, axis=0) + slower_s
            last_s += np.maximum(border_s - hidden_s - slower_s, 0.0)
            sends = (last_s <= limit_s) & (costs.fits > 0)
            lone = ~(sends[:, side == 0].any(axis=1) & sends[:, side == 1].any(axis=1))
            capacity[np.ix_(lone, (on_side > 0) & (on_side < n_replicas))] = 0.0
        capacity[capacity < min(counts)] = 0.0
        return capacity

    def _how(self, n_replicas: int) -> int:
        """Return the way to average as the number that the kernel takes. Ways that the bound does not cover count as no
        averaging."""
        job = self.problem.job
        # parts of a message take as long as the whole only if seconds are proportional to bytes
        in_parts = self.family.stages_per_device > 1 or self.problem.links.message_bytes is not None
        averages = self.synchronises and n_replicas > 1 and not travels_beside(job) and not (job.overlap and in_parts)
        way = way_of(job) if averages else NOTHING
        return NOTHING if way is None else way

    def _passes(self, n_replicas: int, side: IntArray | None = None) -> Seconds:
        """Return the seconds of a micro-batch's passes, at least as long as the messages that replicas exchange in
        them. With ``side``, they are for groups on both sides of a cut."""
        computing = self.costs.forward_s, self.costs.input_s, self.costs.weight_s
        if not self.problem.job.gathers_passes or n_replicas == 1 or self.family.stages_per_device > 1:
            return computing
        return gathered_passes(computing, self.classes, self.kinds, self.microbatch, n_replicas, side)

    def compile_kernels(self) -> None:
        """Call the kernels once, on a single device, so that numba compiles them."""
        from dtfm_lab.planning.iteration.bounds.capacity_kernel import together

        side = np.zeros(len(self.classes.count), dtype=np.int64)
        found = self.of(1.0, 1, 1, side, np.array([1]), np.zeros((len(self.kinds), len(side))))
        together(found.max(axis=2), self.classes.count, side, np.array([1]), 1)


# ---------------------------------------------------------------------------------------------------------------------
# Proofs that no plan of a shape takes at most T seconds: first without a cut of the network, which is quick, then with
# each cut.
#
# A proof is a configuration program (Gilmore and Gomory, *A linear programming approach to the cutting-stock problem*,
# 1961), solved with HiGHS. A sum over all devices would miss that a stage needs R devices that keep up. In a plan of T
# seconds, every stage has a kind, R devices, and a number of devices on side 0 of the cut. Each of these devices can
# process at least the micro-batches of its pipeline, and the R pipelines have N together. A configuration is a kind of
# stage and a number of devices on side 0. Let u be the number of stages of a configuration, which is whole. Let z be
# the number of devices of a class in these stages whose pipelines stay on one side, or cross. A plan then satisfies
#
# - the sum of z over configurations is at most the devices of the class;
# - for every configuration: z of each side = (devices on that side) u, and as many stay as pipelines stay there;
# - for every configuration: sum of z x capacity >= N u;
# - there is one first stage, one last, and S in all, with all blocks of the model.
#
# If this has no solution, even with fractional z, no plan of this shape takes T seconds. Capacities grow with T, and
# with them the set of solutions, so T can be bisected.


INFEASIBLE = 2
"""HiGHS's status for an infeasible program. With any other status a solution may exist."""
MOST_NODES = 200
LARGEST = 6000
"""Maximum number of columns of a program that is solved. A larger one counts as feasible."""
LARGEST_WHOLE = 1500
"""Maximum number of columns of a program that is also solved with whole numbers of stages."""
MOST_SECONDS = 2.0
"""Seconds after which the solver gives up, for a machine that is busy with other things."""


@dataclass(frozen=True, eq=False)
class PlanFamily:
    """Plans of one shape, one micro-batch size and one family of schedules."""

    capacities: Capacities
    n_stages: int
    n_replicas: int


@dataclass(frozen=True, eq=False)
class Program:
    """A configuration program without the capacities: one case, the sides of a cut, and the devices."""

    case: PlanFamily
    count: IntArray
    """(C,) devices of each class."""
    side: IntArray
    """(C,) side of the cut on which each class lies; all 0 without a cut."""
    on_side: IntArray
    """(I,) numbers of devices that a stage may have on side 0 of the cut."""
    prices: tuple[FloatArray, float] | None = None
    """(C,) US dollars per hour of a device of each class, and the maximum for all used devices together. None
    without such a limit."""
    staying: tuple[int, int] | None = None
    """Number of pipelines wholly on side 0, and wholly on side 1. All other pipelines cross the cut. None allows any
    numbers."""

    def feasible(self, capacity: FloatArray) -> bool:
        """Return False if it is proven that no plan of the case is possible with these (Q, I, 2, C) capacities."""
        if self.staying is None:
            capacity = np.stack([capacity.max(axis=2), np.zeros_like(capacity[:, :, 0])], axis=2)
        else:
            allowed = (self.on_side >= self.staying[0]) & (self.on_side <= self.case.n_replicas - self.staying[1])
            capacity = capacity * allowed[None, :, None, None]
            for s in (0, 1):
                if self.staying[s] == 0:
                    capacity[:, :, 0, self.side == s] = 0.0
            if self.case.n_replicas == sum(self.staying):
                capacity[:, :, 1] = 0.0
        possible = self.possible(capacity)
        return bool(possible.any()) and self._solvable(capacity, possible)

    def possible(self, capacity: FloatArray) -> npt.NDArray[np.bool_]:
        """Return (Q, I) True for configurations in which the best devices of each side together could process all
        micro-batches.

        Return False for all if the configurations that remain cannot fill all roles or hold all blocks of the model.
        """
        from dtfm_lab.planning.iteration.bounds.capacity_kernel import together  # imports numba

        of, n_stages = self.case.capacities, self.case.n_stages
        total = together(capacity.max(axis=2), self.count, self.side, self.on_side, self.case.n_replicas)
        possible: npt.NDArray[np.bool_] = total >= of.n_microbatches
        least = of.problem.least_blocks(n_stages)
        others = least.sum() - np.array([least[0], 1, least[-1], least[0]])  # by role
        possible &= (of.kinds.blocks <= of.problem.n_blocks - others[of.kinds.role])[:, None]
        possible &= ((of.kinds.role == SOLE) == (n_stages == 1))[:, None]
        if not self._roles_possible(np.asarray(possible.any(axis=1))):
            possible[:] = False
        return possible

    def _roles_possible(self, kinds_possible: npt.NDArray[np.bool_]) -> bool:
        """Return True if the kinds of stages that are possible, (Q,), can fill every role and hold exactly the model's
        blocks.

        It uses only the minimum and the maximum blocks of each role.
        """
        kinds = self.case.capacities.kinds
        if (kinds.required > 0).any():
            return bool(kinds_possible[kinds.required > 0].all())
        least = most = 0
        for role, n in self._wanted:
            blocks = kinds.blocks[kinds_possible & (kinds.role == role)]
            if n and not len(blocks):
                return False
            if n:
                least, most = least + n * int(blocks.min()), most + n * int(blocks.max())
        return least <= self.case.capacities.problem.n_blocks <= most

    @property
    def _wanted(self) -> tuple[tuple[int, int], ...]:
        """Each role, and the number of stages that have it."""
        return ((SOLE, 1),) if self.case.n_stages == 1 else ((FIRST, 1), (MIDDLE, self.case.n_stages - 2), (LAST, 1))

    def _solvable(self, capacity: FloatArray, possible: npt.NDArray[np.bool_]) -> bool:
        """Return False if the solver refutes the program of the possible configurations."""
        kinds, side, count, n_classes = self.case.capacities.kinds, self.side, self.count, len(self.count)
        q_u, i_u = np.nonzero(possible)
        number = np.full(possible.shape, -1)
        number[q_u, i_u] = np.arange(len(q_u))
        q, i, crosses, c = np.nonzero((capacity > 0) & possible[:, :, None, None])
        n_side0, u_of_z, cap = self.on_side[i_u], number[q, i], capacity[q, i, crosses, c]
        n_u, n_z = len(q_u), len(c)
        # not refuting is always safe: it only makes the bound lower
        if n_u + n_z > LARGEST:
            return True
        u = n_z + np.arange(n_u)
        z = np.arange(n_z)
        rows: list[tuple[IntArray, IntArray, FloatArray]] = [(c, z, np.ones(n_z))]
        low, high = [np.zeros(n_classes)], [count.astype(float)]
        n_rows = n_classes

        def add(row: IntArray, z_value: FloatArray, which: IntArray, u_value: FloatArray, most: float) -> None:
            """Add one row per configuration: sum of z_value z - u_value u, from 0 to ``most``."""
            nonlocal n_rows
            rows.append((n_rows + row, z[which], z_value))
            rows.append((n_rows + np.arange(n_u), u, -u_value))
            low.append(np.zeros(n_u))
            high.append(np.full(n_u, most))
            n_rows += n_u

        def add_one(columns: IntArray, value: FloatArray, least: float, most: float) -> None:
            """Add one row: the sum of ``value`` times these columns, from ``least`` to ``most``."""
            nonlocal n_rows
            rows.append((np.full(len(columns), n_rows), columns, np.asarray(value, dtype=float)))
            low.append(np.array([least]))
            high.append(np.array([most]))
            n_rows += 1

        for s, wanted in ((0, n_side0), (1, self.case.n_replicas - n_side0)):
            here = np.flatnonzero(side[c] == s)
            if len(here) or wanted.any():
                add(u_of_z[here], np.ones(len(here)), here, wanted.astype(float), 0.0)
            staying = here[crosses[here] == 0]
            if self.staying is not None and self.staying[s] > 0:
                add(u_of_z[staying], np.ones(len(staying)), staying, np.full(n_u, float(self.staying[s])), 0.0)
        add(u_of_z, cap / self.case.capacities.n_microbatches, z, np.ones(n_u), np.inf)
        of_role = [(kinds.role[q_u] == role, n) for role, n in self._wanted]
        if (kinds.required > 0).any():
            of_role = [(q_u == q, int(kinds.required[q])) for q in range(len(kinds))]
        for which, n in (*of_role, (kinds.blocks[q_u], self.case.capacities.problem.n_blocks)):
            add_one(u, which, float(n), float(n))
        if self.prices is not None:
            add_one(z, self.prices[0][c], -np.inf, self.prices[1])
        row, column, value = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        matrix = scipy.sparse.csc_array((value, (row, column)), shape=(n_rows, n_z + n_u))
        bounds = scipy.optimize.Bounds(0, np.concatenate([count[c], np.full(n_u, self.case.n_stages)]))
        constraints = scipy.optimize.LinearConstraint(matrix, np.concatenate(low), np.concatenate(high))
        whole = np.concatenate([np.zeros(n_z), np.ones(n_u)])
        how = {"bounds": bounds, "options": {"node_limit": MOST_NODES, "time_limit": MOST_SECONDS}}
        for integrality in (0 * whole, whole) if n_u + n_z <= LARGEST_WHOLE else (0 * whole,):
            # fractional stages come first, because their refutation is much faster
            answer = scipy.optimize.milp(whole * 0, integrality=integrality, constraints=constraints, **how)
            if answer.status == INFEASIBLE:
                return False
        return True


MOST_PROGRAMS = 2000
"""Limit on the work for one cut and shape: its number of programs times the length of ``Program.on_side``. Beyond it,
only the program that allows any number of pipelines on each side is solved."""
MOST_SIDES = 50
"""Maximum length of ``Program.on_side``. A shape that needs more is not tried with the cut."""
MOST_FAILURES = 12
"""A cut is no longer tried once it has failed to refute this number of shapes in a row."""


def batch_flop(problem: IterationProblem) -> float:
    """Return the FLOP of all forwards and backwards of the batch, with the recomputation that the job requests."""
    flop = problem.block_flop[-1] + problem.first_extra[0] + problem.last_extra[0]
    per_forward = 1.0 + problem.backward_per_forward
    return float(problem.job.global_batch * (flop * per_forward + problem.block_again_flop[-1]))


@dataclass(eq=False)
class Refuter:
    """Proves for one case after another that no plan takes at most a given time.

    It remembers the longest time that it refuted for each case, because any shorter time is then refuted, too.
    """

    classes: DeviceClasses
    cuts: list[IntArray]
    prices: tuple[FloatArray, float] | None = None
    _flop: float = field(init=False)
    _flop_per_s: FloatArray = field(init=False)
    """(N,) FLOP/s of the fastest 1, 2, ... devices together."""
    _refuted_s: dict[object, float] = field(default_factory=dict)
    _failures: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = self.classes.problem
        self._flop = batch_flop(problem)
        self._flop_per_s = np.cumsum(np.sort(problem.flop_per_s)[::-1])

    def refutes(self, case: PlanFamily, limit_s: float) -> bool:
        """Return True if it is proven that no plan of the case takes at most ``limit_s``."""
        used = min(case.n_stages * case.n_replicas, len(self._flop_per_s))
        if limit_s <= max(self._refuted_s.get(case, 0.0), self._flop / self._flop_per_s[used - 1] * (1 - 1e-9)):
            return True
        upper = self._whole(case, limit_s)
        if upper is not None:
            for number, side in enumerate(self.cuts):
                if self._failures.get(number, 0) == MOST_FAILURES:
                    continue
                if self._refuted_with(side, number, case, limit_s, upper):
                    self._failures[number] = 0
                    break
                self._failures[number] = self._failures.get(number, 0) + 1
            else:
                return False
        self._refuted_s[case] = limit_s
        return True

    def _whole(self, case: PlanFamily, limit_s: float) -> FloatArray | None:
        """Return None if the case is refuted without a cut, else (Q, C) capacities, 0 for kinds of stages that are not
        possible."""
        n_classes = len(self.classes.count)
        one_side, everyone = np.zeros(n_classes, dtype=np.int64), np.array([case.n_replicas])
        program = Program(case, self.classes.count, one_side, everyone, self.prices)
        everything = np.full((len(case.capacities.kinds), n_classes), np.inf)
        shape = case.n_stages, case.n_replicas
        capacity = case.capacities.of(limit_s, *shape, program.side, program.on_side, everything)
        if not program.feasible(capacity):
            return None
        return np.asarray(capacity[:, 0, 0] * program.possible(capacity))

    def _refuted_with(self, side: IntArray, number: int, case: PlanFamily, limit_s: float, upper: FloatArray) -> bool:
        capacities, n_stages, n_replicas = case.capacities, case.n_stages, case.n_replicas
        sizes = np.bincount(side, weights=self.classes.count, minlength=2).astype(np.int64)
        on_side = np.arange(max(0, n_replicas - sizes[1]), min(n_replicas, sizes[0]) + 1)
        ways = list(_staying(sizes, n_stages, n_replicas))
        if len(on_side) > MOST_SIDES:
            return False
        if len(ways) * len(on_side) > MOST_PROGRAMS:
            ways = []  # try only the program that holds for all of them
        program = Program(case, self.classes.count, side, on_side, self.prices)
        capacity = capacities.of(limit_s, n_stages, n_replicas, side, on_side, upper)
        crossing = np.floor(capacities.crossing(side, limit_s) + 1e-9)
        for staying in (None, *ways):
            if staying == (0, 0) and n_replicas * crossing < capacities.n_microbatches:
                continue
            if limit_s <= self._refuted_s.get((case, number, staying), 0.0):
                continue
            solvable = replace(program, staying=staying).feasible(capacity)
            if solvable and (staying is not None or not ways):
                return False
            if not solvable:
                self._refuted_s[case, number, staying] = limit_s
                if staying is None:
                    return True
        return True


def _staying(sizes: IntArray, n_stages: int, n_replicas: int) -> Iterator[tuple[int, int]]:
    """Yield possible numbers of pipelines that lie wholly on side 0 and wholly on side 1.

    The most promising come first, because the first feasible program ends the attempt.
    """
    most = np.minimum(sizes // n_stages, n_replicas).tolist()
    found = [(a, b) for a in range(most[0] + 1) for b in range(min(most[1], n_replicas - a) + 1)]
    if n_stages == 1:
        found = [(a, b) for a, b in found if a + b == n_replicas]
    yield from sorted(found, key=lambda pair: (sum(pair) > 0, sum(pair) < n_replicas, -sum(pair), -max(pair)))
