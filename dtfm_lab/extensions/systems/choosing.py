"""Choose a system's best plan: the fastest that fits the devices' memory, of all that the system offers its user."""

import heapq
import math
import time
from collections.abc import Iterable, Iterator, Sequence

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.systems.bound import fits, least_lacking_bytes, sentence_of
from dtfm_lab.extensions.systems.outcome import Outcome
from dtfm_lab.extensions.systems.strategy import (
    FORMER,
    NOT_MODELLED,
    Branch,
    Budget,
    Strategy,
    priced,
    strategies,
    variant,
    work_of,
)
from dtfm_lab.simulation.executors import Executor, TaskLost, results_of

ROUNDING = 1e-9
"""Relative rounding error of a lower bound. A plan is skipped only if its bound is larger than the best seconds by more
than this share."""
MOST_RUNNERS_UP = 2
"""Maximum number of plans in ``Outcome.runners_up``."""
Asked = Iterable[str | Strategy | type[Strategy]] | str | Strategy | type[Strategy] | None
"""Systems by name, as classes, or with your own assumptions. None means all."""


def outcome_of(
    strategy: Strategy, topology: Topology, job: Job, budget: Budget | None = None, *, prune: bool = True
) -> Outcome:
    """Return the outcome of a system: its best plan for the work of a job, or the reason why it has none.

    Plans that cannot beat the best so far (``Strategy.least_s``) are not simulated. This may change the outcome's
    ``runners_up``, but not its plan. ``prune=False`` simulates all. If several plans are equally fast, the one that the
    system yields first is taken.
    """
    budget = Budget() if budget is None else budget
    work, began = work_of(job), time.perf_counter()
    branches, reason = _branches(strategy, topology, work, budget)
    # open items: lower bound, place in the order yielded, and a plan or a branch whose plans are not built yet
    queue: list[tuple[float, tuple[int, int], Plan | Branch]] = [
        # Each branch has its own bound, so most of its plans are never built.
        (one.least_s if prune and isinstance(one, Branch) else 0.0, (number, -1), one)
        for number, one in enumerate(branches)
    ]
    heapq.heapify(queue)
    best: tuple[float, tuple[int, int]] = (math.inf, (0, 0))
    found: Plan | None = None
    simulated: list[tuple[float, tuple[int, int], Plan]] = []
    nearest: tuple[float, tuple[int, int], Plan | None] = (math.inf, (0, 0), None)
    try:
        # the heap gives the lowest bound first: once it exceeds the best, no remaining plan can win
        while queue and queue[0][0] <= best[0] * (1 + ROUNDING):
            least_s, place, one = heapq.heappop(queue)
            if isinstance(one, Plan) and place[1] >= 0:
                this = strategy.seconds(one, budget), place
                simulated.append((*this, one))
                # On a tie the plan that the system would try first, so that results do not depend on the bounds.
                if this < best:
                    # Checked only for plans that would win, because memory takes a simulation.
                    if fits(one):
                        best, found = this, one.changed(iteration_s=this[0])
                    else:  # only its exact peak does not fit, so no other plan is nearer to fitting
                        nearest = min(nearest, (0.0, place, one), key=lambda each: each[:2])
                continue
            # its plans are built only now, and go back on the heap with their own bounds
            for at, plan in enumerate([one] if isinstance(one, Plan) else one.plans()):
                plan = _queued(plan, budget)
                if lacking := least_lacking_bytes(plan):
                    nearest = min(nearest, (lacking, (place[0], at), plan), key=lambda each: each[:2])
                    continue
                # A branch's bound holds for its plans too, and may be above their own.
                own_s = strategy.least_s(plan, budget) if prune else 0.0
                heapq.heappush(queue, (max(least_s, own_s), (place[0], at), plan))
        if found is None and nearest[2] is not None:
            reason = f"none of its plans fits the devices: {sentence_of(nearest[2])}"
        elif found is None:
            refused = (why for one in branches if isinstance(one, Branch) for why in one.refusals)
            reason = next(refused, reason)
    except LabError as error:
        reason = str(error)
    if found is not None and isinstance(branches[best[1][0]], Branch):
        found = priced(found).changed(iteration_s=found.iteration_s)
    return Outcome(
        strategy=strategy,
        budget=budget,
        found=found,
        reason="" if found is not None else reason,
        runners_up=() if found is None else tuple(_runners_up(found, simulated, queue)),
        considered=sum(1 if isinstance(one, Plan) else len(one) for one in branches),
        seconds=time.perf_counter() - began,
    )


def _runners_up(
    best: Plan,
    simulated: Iterable[tuple[float, tuple[int, int], Plan]],
    queue: Iterable[tuple[float, tuple[int, int], Plan | Branch]],
) -> Iterator[Plan]:
    """Yield plans of other shapes that fit, one per shape: first the fastest simulated ones, then those with the lowest
    bounds."""
    shapes = {_shape(best.job)}
    ranked = [*sorted(simulated, key=lambda each: each[:2]), *sorted(queue, key=lambda each: each[:2])]
    for _, _, plan in ranked:
        if len(shapes) > MOST_RUNNERS_UP:
            return
        if isinstance(plan, Plan) and _shape(plan.job) not in shapes and fits(plan):
            shapes.add(_shape(plan.job))
            yield plan


def _shape(job: Job) -> tuple[int | None, ...]:
    return job.n_stages, job.n_replicas, job.group_gpus


def _queued(plan: Plan, budget: Budget) -> Plan:
    return plan if plan.queueing == budget.queueing else plan.changed(queueing=budget.queueing)


def _branches(strategy: Strategy, topology: Topology, work: Job, budget: Budget) -> tuple[list[Plan | Branch], str]:
    """Return the plans and branches that a system yields, and the reason to state if none of them gives a plan."""
    found: list[Plan | Branch] = []
    try:
        for one in strategy.branches(topology, work, budget):
            found.append(one)
    except LabError as error:
        return found, str(error)
    if not found and (why := why_no_shape(strategy, topology, work)):
        return found, why
    n_blocks = work.modelled().n_blocks
    return found, (
        f"none of its shapes suits {counted(len(topology), 'device')}, {counted(n_blocks, 'block')} and a batch of "
        f"{counted(work.global_batch, 'sequence')}; wanted numbers that its stages and replicas divide"
    )


def why_no_shape(strategy: Strategy, topology: Topology, work: Job) -> str:
    """Say which assumption of the system rules out every shape: parallelism within hosts, stages or interleaving. Empty
    for other reasons."""
    stated = {
        name: getattr(strategy, name, None) for name in ("tensor_parallel", "context_parallel", "expert_parallel")
    }
    degrees = {name: one for name, one in stated.items() if isinstance(one, int) and not isinstance(one, bool)}
    model, gpus = work.modelled(), math.prod(degrees.values())
    if gpus not in topology.group_sizes:
        named = " and ".join(f"{name} {one}" for name, one in degrees.items() if one > 1)
        sizes = ", ".join(map(str, topology.group_sizes))
        return f"{named} take {counted(gpus, 'GPU')} of a host of {topology.name}; wanted one of {sizes}"
    if model.n_heads % (shared := degrees.get("tensor_parallel", 1)):
        return f"tensor_parallel is {shared}; wanted a divisor of the {counted(model.n_heads, 'head')} of {model.name}"
    n_stages, each = getattr(strategy, "n_stages", None), getattr(strategy, "stages_per_device", 1)
    if n_stages is None:
        return ""
    # A system that cuts evenly refuses other numbers of stages, as the real one does.
    whole = each > 1 or strategy.name == "megatron"  # other systems may cut a model into unequal stages
    if (
        whole
        and n_stages > 1
        and model.n_blocks % (n_stages * each)
        and not getattr(strategy, "blocks_per_stage", None)
    ):
        stages = f"{n_stages} stages" if each == 1 else f"{n_stages} stages, {each} of them each device,"
        return f"{stages} do not divide the {counted(model.n_blocks, 'block')} of {model.name}; wanted a divisor"
    replicas, over = divmod(len(topology) // gpus, n_stages)
    microbatch = work.microbatch or 1
    if over or not replicas or work.global_batch % (replicas * microbatch):
        return ""
    of_each = work.global_batch // (replicas * microbatch)
    if each > 1 and n_stages > 1 and of_each % n_stages:
        return (
            f"stages that interleave take micro-batches in groups of {n_stages}, and a replica has {of_each}; wanted a "
            "multiple"
        )
    return ""


def chosen(systems: Asked) -> list[Strategy]:
    """Return the named or given strategies, each once; all by default. A name or a class gets its default assumptions.

    Raises UnknownName for an unknown name. Raises LabError for an empty list, a system that is not modelled, or
    something that is not a system.
    """
    if systems is None:
        systems = list(strategies)
    given = [systems] if isinstance(systems, str | Strategy | type) else systems
    if not isinstance(given, Iterable):
        raise LabError(f"systems is {shortened(systems)}; wanted names of systems, or Strategies")
    found: list[Strategy] = []
    for one in given:
        system = _one(one)
        if system not in found:
            found.append(system)
    if not found:
        raise LabError("systems is empty; wanted one at least")
    return found


def _one(system: object) -> Strategy:
    if isinstance(system, Strategy):
        return system
    if isinstance(system, type) and issubclass(system, Strategy):
        return system()
    if not isinstance(system, str):
        raise LabError(f"a system is {shortened(system)}; wanted the name of one, or a Strategy")
    reasons = {name.casefold(): reason for name, reason in NOT_MODELLED.items()}
    if system not in (*strategies, *FORMER) and (reason := reasons.get(system.casefold())):
        raise LabError(f"{system} is not modelled: {reason}")
    return variant(system)


def outcomes_in_order(
    tasks: Sequence[tuple[Strategy, Topology, Job, Budget]], executor: Executor | None
) -> Iterator[Outcome]:
    """Yield the outcome of each task, in order. Tasks run here, or on the executor's workers. If a worker is lost, the
    outcome has no plan, and gives that as the reason."""
    if executor is None:
        for task in tasks:
            yield outcome_of(*task)
        return
    for (strategy, _, _, budget), found in zip(
        tasks, results_of(executor, outcome_of, tasks, named=lambda i: f"system {tasks[i][0].heading}"), strict=True
    ):
        if isinstance(found, TaskLost):
            yield Outcome(strategy=strategy, budget=budget, found=None, reason=found.reason)
        else:
            yield found
