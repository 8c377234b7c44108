"""What a simulated row costs: one iteration of 1e4 to 1e6 rows, on independent pairs and on one NIC a device.

Microseconds a row, kernels compiled. ``first`` is simulate() of a schedule not seen before: built, lowered, laid out
as arrays, played and made a trace. ``again`` is the same call once more; ``play`` the event loop alone, which is all
that other durations or links cost. The opponents, in the same run and up to 150,000 rows: ``plain``, an interpreter of
the same programs in Python that asks the emulated links one by one, and which the engine is tested against;
``networkx``, its longest path through the order that the engine has found, which only adds up. Its place is beside
``play``: neither counts what it takes to build the graph.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import networkx as nx
import numpy as np

from dtfm_lab.costs.seconds import analytic
from dtfm_lab.domain.network import QUEUEING, Links
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import lower
from dtfm_lab.domain.schedule.task_graph import RECEIVE, task_graph
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.engine import PlacedTasks, TaskTimes, programs_of, start_compiling
from dtfm_lab.simulation.schedules import schedules

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "simulation"))
from plans import node_of, plan_of, uneven
from slow_interpreter import interpret

N_STAGES, N_REPLICAS = 8, 4
ROWS_PER_MICROBATCH = N_REPLICAS * (2 * N_STAGES + 4 * (N_STAGES - 1))
MICROBATCHES = [round(rows / ROWS_PER_MICROBATCH) for rows in (1e4, 2.4e4, 1e5, 1e6)]
LARGEST_FOR_OPPONENTS = 150_000
"""Most rows that the opponents simulate."""


@click.command(help=__doc__)
@click.option("--schedule", default="1f1b", show_default=True, type=click.Choice(sorted(schedules)))
@click.option("--repeats", default=5, show_default=True, help="Of what is warm; the fastest counts.")
def main(schedule: str, repeats: int) -> None:
    seconds = timed(lambda: start_compiling().wait())
    shape = f"{N_STAGES} stages x {N_REPLICAS} replicas"
    print(f"{schedule} on {shape}; kernels compiled, or read back, in {seconds:.1f} s")
    columns = ["rows", "first", "again", "play", "plain", "networkx", "play, whole"]
    print(f"{'queueing':10}" + "".join(f"{column:>14}" for column in columns))
    for queueing in QUEUEING:
        for n_microbatches in MICROBATCHES:
            one_size(schedule, queueing, n_microbatches, repeats)


def one_size(name: str, queueing: str, n_microbatches: int, repeats: int) -> None:
    plan = drawn_plan(n_microbatches)
    lower.cache_clear()
    task_graph.cache_clear()
    first_s = timed(lambda: simulate(plan, name, queueing=queueing))
    again_s = min(timed(lambda: simulate(plan, name, queueing=queueing)) for _ in range(repeats))
    links, tasks = Links.of(plan.topology, queueing), tasks_of(plan, name)
    play_s = min(timed(lambda: tasks.simulate(links)) for _ in range(repeats))
    n_rows = len(tasks.graph)
    columns = [first_s, again_s, play_s]
    if n_rows <= LARGEST_FOR_OPPONENTS:
        columns += opponents(plan, tasks, links)
    shown = "".join(f"{1e6 * seconds / n_rows:>14.2f}" for seconds in columns) + " " * 14 * (5 - len(columns))
    print(f"{queueing:10}{n_rows:>14,}{shown}{1e3 * play_s:>11.1f} ms", flush=True)


def drawn_plan(n_microbatches: int) -> Plan:
    """A plan on a network of its own, so that nothing of it is cached."""
    return plan_of(N_STAGES, n_microbatches, N_REPLICAS, uneven(N_STAGES * N_REPLICAS, n_microbatches))


def tasks_of(plan: Plan, name: str) -> PlacedTasks:
    """The plan's tasks, every computation with another duration."""
    programs = programs_of(plan, schedules[name](N_STAGES, plan.job.n_microbatches))
    tasks = PlacedTasks.of(plan, programs, analytic(plan, programs))
    specified_s = np.random.default_rng(0).random(len(tasks.compute_s))
    return replace(tasks, compute_s=np.where(tasks.graph.computation >= 0, specified_s, 0.0))


def opponents(plan: Plan, tasks: PlacedTasks, links: Links) -> list[float]:
    """Seconds of the plain interpreter and of networkx, which must find what the engine does."""
    simulated = tasks.simulate(links)
    nodes = node_of(tasks)
    seconds = {node: float(tasks.compute_s[i]) for node, i in nodes.items()}
    began = time.perf_counter()
    times = interpret(plan, tasks.graph.programs, links, seconds)
    plain_s = time.perf_counter() - began
    found = np.array([times[node][1] for node in nodes])
    assert np.allclose(found, simulated.end_s[list(nodes.values())], rtol=1e-9)
    graph = in_its_order(simulated)
    began = time.perf_counter()
    longest_s = nx.dag_longest_path_length(graph)
    networkx_s = time.perf_counter() - began
    assert np.isclose(longest_s, simulated.makespan_s, rtol=1e-9)
    return [plain_s, networkx_s]


def in_its_order(simulated: TaskTimes) -> nx.DiGraph:
    """Graph of start times: an edge is the time from one start to another that waits for it, or to the end."""
    whole, n = simulated.tasks.graph, len(simulated.tasks.graph)
    source = whole.sources
    received = np.flatnonzero(whole.role == RECEIVE)
    queued = np.flatnonzero(simulated.before >= 0)
    sent = whole.partner[received]
    sources = np.concatenate([source, simulated.before[queued], sent, np.arange(n)])
    targets = np.concatenate([whole.successors, queued, received, np.full(n, n)])
    waits_s = np.concatenate(
        [
            simulated.duration_s[source],
            simulated.duration_s[simulated.before[queued]],
            simulated.latency_s[sent],
            simulated.duration_s,
        ]
    )
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(zip(sources.tolist(), targets.tolist(), waits_s.tolist(), strict=True))
    return graph


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
