"""Traces as a run would have measured them, from the simulator's event loop, with noise on every action."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule.task_graph import RECEIVE
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files import load_job, load_topology
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.engine import PlacedTasks, programs_of
from dtfm_lab.simulation.simulate import simulate


def lecture_hall_plan(stages=((0, 1), (2, 3), (4, 5), (6, 7)), **job) -> Plan:
    return evaluate(load_topology("lecture-hall"), load_job("tiny", **job), stages=stages)


def measured(
    plan: Plan,
    schedule: str = "1f1b",
    *,
    truth: Topology | None = None,
    slow: dict[tuple[int, int], float] | None = None,
    queueing: str = "pairs",
    iterations: int = 5,
    noise: float = 0.0,
    seed: int = 0,
) -> Trace:
    """As if the plan had run on the network ``truth``, the devices at some (stage, replica) so many times as slow."""
    rng = np.random.default_rng(seed)
    predicted = simulate(plan, schedule, queueing=queueing)
    factor = slow or {}
    n_devices = plan.job.n_stages
    profile = [
        row._replace(seconds=row.seconds * factor.get((row.stage % n_devices, row.replica), 1.0))
        for row in predicted.context.profile
    ]
    links = Links.of(truth or plan.topology, queueing)
    every = plan.job.synchronise_every
    actions, columns = {}, []
    for iteration in range(iterations):
        programs = programs_of(plan, predicted.context.recorded_schedule, synchronise=(iteration + 1) % every == 0)
        tasks = PlacedTasks.of(plan, programs, profile)
        whole = tasks.graph
        factors = np.exp(noise * rng.standard_normal(len(whole)))
        received = whole.role == RECEIVE
        factors[received] = factors[whole.partner[received]]
        simulated = replace(tasks, n_bytes=tasks.n_bytes * factors, compute_s=tasks.compute_s * factors).simulate(links)
        table = np.array([actions.setdefault(action, len(actions)) for action in whole.actions])
        columns.append(
            (np.full(len(whole), iteration), whole.replica, table[whole.action], simulated.start_s, simulated.end_s)
        )
    context = replace(predicted.context, source="measured", clock="virtual", links="emulated")
    return Trace(context, tuple(actions), *(np.concatenate(parts) for parts in zip(*columns, strict=True)))


def with_factor(
    topology: Topology, source: str, target: str, *, bandwidth: float = 1.0, latency: float = 1.0
) -> Topology:
    """One direction of one link changed."""
    i, j = topology.index(source), topology.index(target)
    return topology.with_link(
        source,
        target,
        bandwidth_bytes_per_s=topology.bandwidth_bytes_per_s[i, j] * bandwidth,
        latency_s=topology.latency_s[i, j] * latency,
        one_way=True,
    )
