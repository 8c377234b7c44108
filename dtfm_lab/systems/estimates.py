"""Whether a ranking depends on links that nobody measured: ranked again at both ends of what these may be."""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, at_their_ends, estimated
from dtfm_lab.domain.units import format_s
from dtfm_lab.systems.choosing import outcome_of
from dtfm_lab.systems.outcome import Outcome

MEASURE = "iperf3 --json, a test of NCCL and dtfm-lab network probe measure links"
MOST_SHOWN = 4
"""Most estimates that a note names."""
RIVAL, MOST_RIVALS = 3.0, 3
"""Systems choose their plans again at an end of the estimates if their plans take at most ``RIVAL`` times as long there
as the fastest, at most ``MOST_RIVALS`` of them: it takes as long as asking them did."""
ENDS = {True: "as fast as they may be", False: "as slow as they may be"}


def estimates_of(topology: Topology) -> str:
    """The estimated links of a network, each with its range; empty where all are measured or stated."""
    found = [str(one) for one in estimated(topology)]
    more = f" and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return f"Nobody measured these links: {', '.join(found[:MOST_SHOWN])}{more}" if found else ""


def note_on(topology: Topology, job: Job, outcomes: Sequence[Outcome]) -> str:
    """What the order of systems owes to estimated links: which is fastest where they are faster or slower.

    Empty where no link is an estimate. A system that searches keeps its plan, so that this takes no search.
    """
    ranked = [one for one in outcomes if one.found is not None]
    if not (links := estimates_of(topology)) or not ranked:
        return ""
    said, fastest = [], ranked[0].title
    for most, how in ENDS.items():
        found = _seconds(ranked, topology, job, most=most)
        if found:
            title = min(found, key=found.__getitem__)
            stays = "is" if title != fastest else "takes" if len(ranked) == 1 else "stays"
            rest = format_s(found[title]) if len(ranked) == 1 else f"fastest, {format_s(found[title])},"
            said.append(f"{title} {stays} {rest} where they are {how}")
    return f"{links}. {', and '.join(said)}. {MEASURE[0].upper()}{MEASURE[1:]}."


def _seconds(ranked: Sequence[Outcome], topology: Topology, job: Job, *, most: bool) -> dict[str, float]:
    """By title the seconds of each system at one end of the estimates."""
    network = at_their_ends(topology, most=most)
    if np.array_equal(network.bandwidth_bytes_per_s, topology.bandwidth_bytes_per_s):
        return {one.title: one.iteration_s for one in ranked if one.iteration_s is not None}
    found = dict(_with_their_plans(ranked, most=most))
    least_s = min(found.values(), default=0.0)
    rivals = [one for one in ranked if one.title in found and found[one.title] <= RIVAL * least_s]
    for one in sorted(rivals, key=lambda rival: found[rival.title])[:MOST_RIVALS]:
        if not one.strategy.searches:
            chosen_s = outcome_of(one.strategy, network, job, one.budget).iteration_s
            found[one.title] = min(found[one.title], chosen_s or found[one.title])
    return found


def _with_their_plans(ranked: Sequence[Outcome], *, most: bool) -> Iterator[tuple[str, float]]:
    """The title of each system and the seconds of its plan as it is."""
    for one in ranked:
        with contextlib.suppress(LabError):  # a plan whose simulation is refused there says nothing
            plan = one.plan.changed(topology=at_their_ends(one.plan.topology, most=most))
            yield one.title, one.strategy.seconds(plan, one.budget)
