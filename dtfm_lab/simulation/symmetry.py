"""How many pipelines of a plan have to be simulated: those after which all that decides the times repeats itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.simulation.efficiency import GivenEfficiency, speeds_of

TURNING = ("ring", "sharded", "sharded-at-once")
"""Ways to average in which every replica does the same with those that follow it."""


def period_of_counts(job: Job) -> int:
    """Replicas after which programs repeat themselves, the first ones standing for all; all where none do."""
    counts = np.array(job.microbatch_counts)
    return _period([counts]) if job.synchronisation in TURNING else len(counts)


def period_of(plan: Plan, links: Links, efficiency: GivenEfficiency = None) -> int:
    """Replicas after which the times of a plan repeat themselves, on these links; all where they do not.

    Then replica r + period has devices, links to those with which it exchanges messages, and cards that it shares like
    those of replica r, and the first ``period`` replicas stand for all.
    """
    job, grid = plan.job, plan.placement.devices
    n_stages, n_replicas = map(int, grid.shape)
    if job.synchronisation not in TURNING or plan.absent or links.message_bytes is not None or n_replicas == 1:
        return n_replicas
    columns: list[IntArray | FloatArray] = [np.array(job.microbatch_counts), *_devices(plan, efficiency)]
    for stage in range(n_stages if n_stages > 1 else 0):
        for other in {(stage + 1) % n_stages, (stage - 1) % n_stages}:
            columns += _links(links, grid[stage], grid[other])
    peers = (1,) if job.synchronisation == "ring" else range(1, n_replicas)
    for row in grid:
        for away in peers:
            columns += _links(links, row, np.roll(row, -away))
    card = grid if links.card_of is None else links.card_of[grid]
    return _period(columns, card if links.has_cards else None)


def _devices(plan: Plan, efficiency: GivenEfficiency) -> list[IntArray]:
    """(replicas,) of each stage, a number for each kind of device."""
    numbers: dict[tuple[object, ...], int] = {}
    devices, speeds = plan.topology.devices, speeds_of(plan.job, plan.topology.devices, efficiency)

    def number(at: int) -> int:
        one = devices[at]
        key = one.gpu, one.gpus, one.inner_bandwidth_bytes_per_s, one.inner_latency_s, float(speeds[at])
        return numbers.setdefault(key, len(numbers))

    return [np.array([number(at) for at in row]) for row in plan.placement.devices.tolist()]


def _links(links: Links, here: IntArray, there: IntArray) -> list[FloatArray]:
    return [links.latency_s[here, there], links.bandwidth_bytes_per_s[here, there]]


def _period(columns: Sequence[IntArray | FloatArray], card: IntArray | None = None) -> int:
    """The smallest number of replicas after which these (replicas,) columns repeat, and the (stages, replicas) cards
    are others, shared in the same way."""
    rows = np.stack([np.unique(column, return_inverse=True)[1] for column in columns])
    n = int(rows.shape[1])
    labels = None
    if card is not None:
        _, first, inverse = np.unique(card.T.ravel(), return_index=True, return_inverse=True)
        labels = np.argsort(np.argsort(first))[inverse].reshape(card.T.shape)
    for period in range(1, n // 2 + 1):
        if n % period or (rows[:, period:] != rows[:, :-period]).any():
            continue
        if labels is None or (labels[period:] == labels[:-period] + labels[:period].max() + 1).all():
            return period
    return n
