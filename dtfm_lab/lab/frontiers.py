"""Seconds against dollars: the frontier of a network and a job."""

from collections.abc import Iterator
from typing import Any

from dtfm_lab import planning
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.lab.arguments import FrontierOptions, Progress, ProgressOfFrontier, newest_of, of_network
from dtfm_lab.lab.plans import nouns
from dtfm_lab.planning import Frontier


@of_network(ProgressOfFrontier)
def frontier(
    topology: Topology | str, job: Job | str | None = None, *, progress: Progress | None = None, **options: Any
) -> Frontier:
    """The plans that no other is both as fast and as cheap as: ``.to_frame()``, ``.plans``, ``.at(20)`` by price.

    Found by 12 searches (``searches``) in 20 s together (``seconds``; longer where so many do not fit into it): for the
    fastest iteration, for the fewest dollars a billion tokens, and for the fastest under limits of price. With
    ``steps`` of every search the same seed gives the same frontier. ``batches=[512, 1024]`` has one for each global
    batch. ``progress`` is called with the frontier after every search; Ctrl-C keeps the best so far. Devices without a
    price count as free.
    """
    return newest_of(planning.stream_frontier(*nouns(topology, job), **options), progress)


@of_network(FrontierOptions)
def search_frontier(topology: Topology | str, job: Job | str | None = None, **options: Any) -> Iterator[Frontier]:
    """The frontiers of ``frontier`` as they come, one after each search, each as good as the one before or better."""
    return planning.stream_frontier(*nouns(topology, job), **options)
