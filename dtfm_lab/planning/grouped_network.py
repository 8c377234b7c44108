"""The network that a job with tensor parallelism is planned on: groups of GPUs of one host, each one device."""

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology


def network_of(topology: Topology, job: Job) -> tuple[Topology, Job]:
    """The network of groups that the job's tensor parallelism wants, and the job with what it leaves to a planner.

    A network of single GPUs is grouped; without a planner, the degree is that of the network, and nothing is sharded.
    Raises TopologyError where no host has so many GPUs, or groups are of another size.
    """
    open_ = {"tensor_parallel": topology.devices[0].gpus, "sharding": "none"}
    if chosen := {what: value for what, value in open_.items() if getattr(job, what) is None}:
        job = job.with_fields(**chosen)
    return topology.grouped(job.tensor_parallel or 1), job
