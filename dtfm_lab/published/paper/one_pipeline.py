"""One and two pipelines of eight V100s on even links, as DT-FM's authors timed them: where an efficiency is from."""

from functools import cache

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import from_gbps, from_ms
from dtfm_lab.planning import evaluate
from dtfm_lab.published.calibration import median, own_factor
from dtfm_lab.published.paper.settings import N_STAGES, classifier
from dtfm_lab.published.tables import numbers
from dtfm_lab.simulation.simulate import iteration_seconds

SEQUENCES = 96
"""Of a pipeline in an iteration, all flushed once."""
Line = dict[str, str]


def lines() -> list[Line]:
    """The measured lines."""
    return numbers("dt_fm_one_pipeline.csv")


def plan_of(line: Line) -> Plan:
    """The plan of a measured line: DT-FM's GPipe on links that are all alike."""
    n_replicas = int(line["replicas"])
    n = N_STAGES * n_replicas
    job = Job(
        name="one pipeline",
        model=classifier(24),
        n_stages=N_STAGES,
        n_replicas=n_replicas,
        global_batch=SEQUENCES * n_replicas,
        microbatch=1,
        schedule="gpipe",
        checkpointing="block",
        synchronisation=line["synchronisation"] or "ring",
    )
    far = from_ms(float(line["latency_ms"])) * (1 - np.eye(n))
    rate = np.full((n, n), from_gbps(float(line["bandwidth_gbps"])))
    topology = Topology.from_matrices(latency_s=far, bandwidth_bytes_per_s=rate, name="even links")
    return evaluate(topology, job, rank_map=list(range(n)))


def seconds_of(plan: Plan, efficiency: float) -> float:
    """Predicted seconds of an iteration."""
    return iteration_seconds(plan, efficiency=efficiency)


def is_fitted(line: Line) -> bool:
    """Whether an efficiency is fitted to the line."""
    return line["replicas"] == "1" and float(line["bandwidth_gbps"]) >= COMPUTE_BOUND_GBPS


@cache
def own_factors() -> tuple[float, ...]:
    """The efficiency of each line of one pipeline whose passes, and not its links, take most of the time."""
    factors = []
    for line in lines():
        if is_fitted(line):
            plan = plan_of(line)
            factors.append(own_factor(lambda share, plan=plan: seconds_of(plan, share), float(line["seconds"])))  # type: ignore[misc]
    return tuple(factors)


COMPUTE_BOUND_GBPS = 5.0
"""From this rate on, a hop takes less than a forward: slower links say little of the passes."""


def efficiency() -> float:
    """Share of a V100's peak that DT-FM's passes reach on AWS p3.2xlarge: the median of those factors."""
    return median(own_factors())
