"""How long an iteration takes for many warm-ups, without lowering a schedule and laying it out for each."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np

from dtfm_lab.domain.network import Links
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.units import IntArray
from dtfm_lab.simulation.engine import Scene, programs_of
from dtfm_lab.simulation.kernels.events import COMPUTATION
from dtfm_lab.simulation.schedules.flushed import adaptive
from dtfm_lab.simulation.schedules.orders import taking_turns
from dtfm_lab.simulation.structure import Structure

Warmups = tuple[int, ...]


class Makespans:
    """Seconds of one iteration by warm-ups, each played once; of one that synchronises where every one does.

    Warm-ups change only the order in which devices compute: the engine plays one scene of which the order is taken
    out, with the order in question as edges of its own.
    """

    def __init__(self, plan: Plan, profile: tuple[ComputeTime, ...], links: Links) -> None:
        self._plan, self._profile, self._links = plan, profile, links
        self._played: dict[Warmups, float] = {}

    def __len__(self) -> int:
        """How many were played."""
        return len(self._played)

    def __call__(self, depths: IntArray) -> float:
        warmups = tuple(depths.tolist())
        if warmups not in self._played:
            scene = replace(self._unordered, extra_edges=self._lanes(warmups))
            self._played[warmups] = scene.play(self._links).makespan_s
        return self._played[warmups]

    def fewest(self, limit_s: float) -> IntArray:
        """Of the warm-ups played within the limit, those that sum to least."""
        within = (warmups for warmups, seconds in self._played.items() if seconds <= limit_s)
        return np.array(min(within, key=lambda warmups: (sum(warmups), warmups)))

    @cached_property
    def _unordered(self) -> Scene:
        job = self._plan.job
        plain = adaptive(job.n_stages, job.n_microbatches)
        programs = programs_of(self._plan, plain, synchronise=job.synchronise_every == 1)
        scene = Scene.of(self._plan, programs, self._profile)
        return replace(scene, structure=_without_lanes(scene.structure))

    @cached_property
    def _passes(self) -> IntArray:
        """(devices, replicas, 2 M) nodes of all forwards, then of all backwards, by micro-batch."""
        job = self._plan.job
        return _passes_of(self._unordered.structure, job.n_stages, job.n_replicas, job.n_microbatches)

    def _lanes(self, warmups: Warmups) -> tuple[IntArray, IntArray]:
        """Edges from each pass to the one after it on its device."""
        m = self._plan.job.n_microbatches
        forwards, backwards = range(m), range(m, 2 * m)
        turns = np.array([taking_turns(forwards, backwards, min(warmup, m)) for warmup in warmups])
        lanes = np.take_along_axis(self._passes, turns[:, None, :], axis=2)
        return lanes[:, :, :-1].ravel(), lanes[:, :, 1:].ravel()


@lru_cache(maxsize=2)  # on other links it is the same
def _without_lanes(whole: Structure) -> Structure:
    """Passes wait for what they need and no longer for each other; what follows the last of them stays."""
    n = len(whole)
    passing = np.isin([action.kind for action in whole.actions], [Kind.FORWARD, Kind.BACKWARD])[whole.action]
    nodes = np.flatnonzero(passing & (whole.role == COMPUTATION))
    before, after = nodes[:-1], nodes[1:]
    neighbours = (whole.position[before] == whole.position[after]) & (whole.replica[before] == whole.replica[after])
    source = np.repeat(np.arange(n), np.diff(whole.next_from))
    edges = source * n + whole.next_node
    by_key = np.argsort(edges, kind="stable")
    # where a pass also needs the one before it, the edge is there twice, and one stays
    lanes = by_key[np.searchsorted(edges[by_key], (before * n + after)[neighbours])]
    left = np.ones(len(edges), dtype=bool)
    left[lanes] = False
    source, target = source[left], whole.next_node[left]
    return replace(
        whole,
        waits_for=whole.waits_for - np.bincount(whole.next_node[~left], minlength=n),
        next_from=np.concatenate([[0], np.cumsum(np.bincount(source, minlength=n))]),
        next_node=target,
    )


@lru_cache(maxsize=2)
def _passes_of(whole: Structure, n_stages: int, n_replicas: int, n_microbatches: int) -> IntArray:
    """``Makespans._passes``."""
    column = np.full(len(whole.actions), -1)
    for i, action in enumerate(whole.actions):
        if action.kind in (Kind.FORWARD, Kind.BACKWARD) and action.microbatch is not None:
            column[i] = action.microbatch + (action.kind is Kind.BACKWARD) * n_microbatches
    nodes = np.empty((n_stages, n_replicas, 2 * n_microbatches), dtype=np.int64)
    passing = np.flatnonzero(column[whole.action] >= 0)
    at = column[whole.action[passing]]
    nodes[whole.position[passing], whole.replica[passing], at] = passing
    return nodes
