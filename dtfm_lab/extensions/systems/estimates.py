"""Rank the systems with estimated links at their minimum, and again at their maximum. This shows if the ranking depends
on links that were not measured."""

import contextlib
import math
import time
from collections.abc import Sequence

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology, at_their_ends
from dtfm_lab.domain.network.estimates import ENDS, estimates_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.extensions.systems.outcome import Outcome

MEASURE = "iperf3 --json, a test of NCCL and dtfm-lab network probe measure links"
MOST_RIVALS = 3
"""Number of systems, the fastest first, whose runners-up are simulated too at each end of the estimates."""
MOST_S = 1.0
"""Maximum processor seconds for one end. 32 GPUs take tens of milliseconds; only networks of thousands reach this."""


def note_on(topology: Topology, outcomes: Sequence[Outcome]) -> str:
    """Say which system is fastest if the estimated links are faster, and which if they are slower.

    Empty if no link is an estimate or no system has a plan. Nothing is searched: only plans that the systems have tried
    are simulated.
    """
    ranked = [one for one in outcomes if one.found is not None]
    if not (links := estimates_of(topology)) or not ranked:
        return ""
    said, fastest = [], ranked[0].title
    for most, how in ENDS.items():
        found = _seconds(ranked, topology, most=most)
        if found:
            title = min(found, key=found.__getitem__)
            stays = "is" if title != fastest else "takes" if len(ranked) == 1 else "stays"
            rest = format_s(found[title]) if len(ranked) == 1 else f"fastest, {format_s(found[title])},"
            of = f" of the first {len(found)} systems" if len(found) < len(ranked) else ""
            said.append(f"{title} {stays} {rest}{of} where they are {how}")
    return f"{links}. With the plans tried here {', and '.join(said)}. {MEASURE[0].upper()}{MEASURE[1:]}."


def _seconds(ranked: Sequence[Outcome], topology: Topology, *, most: bool) -> dict[str, float]:
    """Return each system's seconds, by its title, at one end of the estimates. If time runs out, only the first systems
    are included."""
    # Nothing is estimated at this end, so the times are those known.
    if np.array_equal(at_their_ends(topology, most=most).bandwidth_bytes_per_s, topology.bandwidth_bytes_per_s):
        return {one.title: one.iteration_s for one in ranked if one.iteration_s is not None}
    began_s, found = time.thread_time(), dict[str, float]()

    def keep_fastest(one: Outcome, plan: Plan) -> None:
        if found and time.thread_time() - began_s > MOST_S:
            return
        with contextlib.suppress(LabError):  # skip a plan that cannot be simulated there
            there = plan.changed(topology=at_their_ends(plan.topology, most=most))
            found[one.title] = min(found.get(one.title, math.inf), one.strategy.seconds(there, one.budget))

    for one in ranked:
        # The chosen plans first, in case the time runs out.
        keep_fastest(one, one.plan)
    rivals = sorted((one for one in ranked if one.title in found), key=lambda rival: found[rival.title])
    # A runner-up may be better with other links.
    for one in rivals[:MOST_RIVALS]:
        for plan in one.runners_up:
            keep_fastest(one, plan)
    return found
