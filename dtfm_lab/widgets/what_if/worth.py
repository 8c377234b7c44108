"""What a better link or device would save, as rows of a list and for one selection. It contains no widget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s, format_share
from dtfm_lab.planning.explain.iteration_analysis import FACTOR
from dtfm_lab.simulation.sensitivity import LEAST_REPORTED, ImprovedTarget, SensitivityGain, improved_s
from dtfm_lab.simulation.simulate import SimulatedIterations, simulated_iterations

BETTER = {"bandwidth": "more bandwidth", "latency": "less latency", "compute": "faster computing"}
"""The improvements, in words."""
WITH_FACTOR = {
    "compute": "if 2 x as fast",
    "bandwidth": "with 2 x the bandwidth",
    "latency": "with 1/2 of the latency",
}
BETWEEN = " - "
"""Separates the two ends in a link's name."""


def rows_of(gains: Iterable[SensitivityGain]) -> list[dict[str, Any]]:
    """Return the rows of a ``WorthView``, with the largest saving first. Improvements that save nothing are left
    out."""
    useful = [gain for gain in gains if gain.change < -LEAST_REPORTED]
    useful.sort(key=lambda gain: gain.change_s)
    # The longest bar fills the row, and the others are in proportion.
    most_s = -useful[0].change_s if useful else 1.0
    return [
        {
            "name": gain.name.replace(BETWEEN, " – "),
            "what": BETTER[gain.what],
            "saves": format_s(-gain.change_s),
            "share": format_share(-gain.change),
            "length": -gain.change_s / most_s,
            "devices": list(gain.first),
        }
        for gain in useful
    ]


def savings(plan: Plan, schedule: str, queueing: str, devices: Sequence[str]) -> list[list[str]]:
    """Return (what, what it saves) for a device, or for the link between two, improved by ``FACTOR``.

    A link between two regions stands for the links of all their devices, as in the inspector. Raises LabError if the
    plan cannot be simulated.
    """
    base = simulated_iterations(plan, schedule, queueing=queueing)
    rows = []
    for what, share in improved_shares(base, devices).items():
        saved = f"saves {format_s(share * base.iteration_s)}, {format_share(share)}"
        rows.append([WITH_FACTOR[what], saved if share > LEAST_REPORTED else "saves nothing"])
    return rows


def improved_shares(base: SimulatedIterations, devices: Sequence[str]) -> dict[str, float]:
    """Return {what is improved: share of the iteration saved} for a device, or for the link between two devices.

    The improvement is by ``FACTOR``.
    """
    topology, before_s = base.plan.topology, base.iteration_s
    at = [topology.index(name) for name in devices]
    whats: tuple[str, ...] = ("compute",)
    target = ImprovedTarget("device", devices[0], [(at[0], at[0])])
    if len(at) > 1:
        target, whats = ImprovedTarget("link", "", joined(topology, at[0], at[1])), ("bandwidth", "latency")
    saved_s = {what: before_s - improved_s(base, what, target, FACTOR) for what in whats}
    return {what: seconds / before_s if before_s > 0 else 0.0 for what, seconds in saved_s.items()}


def joined(topology: Topology, a: int, b: int) -> list[tuple[int, int]]:
    """Return the pairs of devices whose links are edited together with one link: all pairs between two regions, or only
    this pair if the regions are equal or unknown."""
    regions = [device.region for device in topology.devices]
    if regions[a] == regions[b] or "" in (regions[a], regions[b]):
        return [(a, b)]
    near, far = ([i for i, region in enumerate(regions) if region == regions[end]] for end in (a, b))
    return list(product(near, far))
