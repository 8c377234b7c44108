"""What comes in at a worker, from whom, in which order and how large: read off the other workers' programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dtfm_lab.domain.schedule import ACROSS_STAGES, SENDS, Action, Kind
from dtfm_lab.runtime.protocol.gradient_shards import shards_of
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.codec import Codec
from dtfm_lab.runtime.worker.stages import DTYPES


class Incoming(NamedTuple):
    """A receive as the program names it, and the bytes that it brings."""

    action: Action
    n_bytes: int


def incoming(
    spec: RunSpec, position: int, replica: int, n_parameters: int
) -> dict[int, Callable[[int], Sequence[Incoming]]]:
    """By source rank, what it sends to this worker in an iteration, in order.

    ``n_parameters``: of this worker, which are as many as those of the replicas that it averages with.
    """
    alone, together = (_by_source(spec, position, replica, n_parameters, which) for which in (False, True))

    def of(source: int) -> Callable[[int], Sequence[Incoming]]:
        return lambda iteration: (together if spec.synchronises(iteration) else alone).get(source, ())

    return {source: of(source) for source in {*alone, *together}}


def _by_source(
    spec: RunSpec, position: int, replica: int, n_parameters: int, synchronise: bool
) -> dict[int, list[Incoming]]:
    job, trained, dtype = spec.plan.job, spec.trained, DTYPES[spec.trained.dtype]
    programs = spec.programs(synchronise=synchronise)
    steps, members = programs.of(position, replica), range(job.n_replicas)
    shards = shards_of(steps, job.synchronisation, replica, members, job.n_replicas)
    passed = Codec(job.compression if job.codes_activations else "none", dtype)
    averaged = Codec(job.gradients_as if job.codes_gradients else "none", dtype)

    def n_bytes(action: Action) -> int:
        if action.kind in ACROSS_STAGES:
            return passed.n_bytes(trained.activation_elements)
        if action.kind is Kind.RECV_E:
            return trained.modelled().vocab_size * trained.modelled().d_model * dtype.itemsize
        shard = shards[action].bounds(n_parameters)
        if action.kind is Kind.RECV_P and job.sharding != "none":
            return Codec("none", dtype).n_bytes(shard.stop - shard.start)
        return averaged.n_bytes(shard.stop - shard.start)

    here = spec.rank(position, replica)
    found: dict[int, list[Incoming]] = {}
    for there in spec.workers:
        for step in programs.of(*there):
            action = step.action
            if action.kind in SENDS and spec.rank(*action.other_end(there[1], job.n_replicas)) == here:
                receive = action.counterpart()
                found.setdefault(spec.rank(*there), []).append(Incoming(receive, n_bytes(receive)))
    return found
