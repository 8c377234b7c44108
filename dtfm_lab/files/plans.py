"""Plans as versioned JSON. A plan file holds its network and job, so it can be simulated or run without other files."""

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from dtfm_lab.domain.errors import FileError, LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import LINK_SPREAD, BandwidthEstimate, CollectiveSpeed, Device, Topology
from dtfm_lab.domain.network.device import GROUP_FIELDS
from dtfm_lab.domain.plan import CostBreakdown, Placement, Plan
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.files.reading import Section, dump, parse, read_mapping, write_text

NOUNS = {"topology", "job", "placement", "cost"}
"""Fields of a plan that have their own section in the file."""


class NetworkSection(Section):
    """A topology in SI units with exact numbers. The diagonal is written as 0 and ignored when read.

    Times by message size are present if the network was measured, and null for pairs that were not.
    """

    name: str
    description: str = ""
    devices: tuple[Device, ...]
    latency_s: list[list[float]]
    bandwidth_bytes_per_s: list[list[float]]
    message_bytes: list[float] | None = None
    message_s: list[list[list[float] | None]] | None = None
    link_spread: float = LINK_SPREAD
    estimates: tuple[BandwidthEstimate, ...] = ()
    collectives: tuple[CollectiveSpeed, ...] = ()


class CostSection(Section):
    group_s: list[float]
    hop_s: list[float]
    weights_s: list[list[float]]


class PlanFile(Section):
    dtfm_plan: int
    topology: NetworkSection
    job: Job
    placement: list[list[int]]
    cost: CostSection
    lower_bound_s: float
    planner: str
    objective: str = "communication"
    iteration_s: float | None = None
    iteration_lower_bound_s: float | None = None
    queueing: str = "pairs"
    efficiency: float | None = None
    seed: int | None = None
    generation: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    left_open: tuple[str, ...] | None = None
    absent: tuple[str, ...] = ()
    priced_for: str
    """Fingerprint of the network that the cost was computed for."""
    summary: dict[str, Any] = Field(default_factory=dict)
    """The content of ``plan --json``, for people and scripts. It is not read back."""


PROVENANCE = [field.name for field in fields(Plan) if field.name in PlanFile.model_fields.keys() - NOUNS]
"""Fields of a plan that are written unchanged, except an ``efficiency`` that is a function: it is written as null."""
UNSAID = {field.name: field.default for field in fields(Device) if field.name in ("host", *GROUP_FIELDS)}
"""Device fields that are left out of a file if they have these values. One value is infinite, which JSON cannot
hold."""


def network_to_mapping(topology: Topology) -> dict[str, Any]:
    """Return the network in plain JSON types and SI units, with exact numbers."""
    bandwidth = topology.bandwidth_bytes_per_s.copy()
    # JSON has no infinity, and a device's link to itself has no limit.
    np.fill_diagonal(bandwidth, 0.0)
    data = {
        "name": topology.name,
        "description": topology.description,
        "devices": [
            {what: value for what, value in dump(device).items() if what not in UNSAID or value != UNSAID[what]}
            for device in topology.devices
        ],
        "latency_s": topology.latency_s.tolist(),
        "bandwidth_bytes_per_s": bandwidth.tolist(),
    }
    if topology.message_bytes is not None and topology.message_s is not None:
        # Pairs are measured at all sizes or at none.
        measured = ~np.isnan(topology.message_s[:, :, 0])
        data["message_bytes"] = topology.message_bytes.tolist()
        data["message_s"] = [
            [times if known else None for times, known in zip(*row, strict=True)]
            for row in zip(topology.message_s.tolist(), measured.tolist(), strict=True)
        ]
    if topology.link_spread != LINK_SPREAD:
        data["link_spread"] = topology.link_spread
    if topology.estimates:
        data["estimates"] = [dump(one) for one in topology.estimates]
    if topology.collectives:
        data["collectives"] = [dump(one) for one in topology.collectives]
    return data


def network_from_mapping(data: dict[str, Any]) -> Topology:
    """Return the network that ``network_to_mapping`` wrote."""
    return _network(parse(NetworkSection, data, "network"))


def plan_to_mapping(plan: Plan) -> dict[str, Any]:
    """Return the plan in plain JSON types, with its network and its job."""
    return {
        "dtfm_plan": 1,
        "topology": network_to_mapping(plan.topology),
        "job": dump(plan.job),
        "placement": plan.placement.devices.tolist(),
        "cost": {name: getattr(plan.cost, name).tolist() for name in CostSection.model_fields},
        "priced_for": plan.topology.fingerprint,
        **{name: getattr(plan, name) for name in PROVENANCE},
        # Functions of efficiency cannot be written.
        "efficiency": plan.efficiency if isinstance(plan.efficiency, float) else None,
        "summary": plan.summary(),
    }


def plan_from_mapping(data: dict[str, Any], *, where: str = "plan") -> Plan:
    """Return the plan that ``plan_to_mapping`` wrote. Raises FileError, whose text begins with ``where``."""
    file = parse(PlanFile, data, where, version="dtfm_plan")
    try:
        topology = _network(file.topology)
        # With another network, the stored cost would be false.
        if topology.fingerprint != file.priced_for:
            raise PlanError(
                f"the network is {topology.fingerprint}, but the plan was priced for {file.priced_for}; "
                f"wanted the network as it was (evaluate prices a placement on another)"
            )
        return Plan(
            topology=topology,
            job=file.job,
            placement=Placement(np.array(file.placement, dtype=np.int64)),
            cost=CostBreakdown(**{name: np.array(seconds, dtype=float) for name, seconds in file.cost}),
            **{name: getattr(file, name) for name in PROVENANCE},
        )
    except (LabError, ValueError, OverflowError) as error:
        raise FileError(f"{where}: {error}") from None


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> Path:
    """Write a plan, all or nothing; returns the path."""
    return write_text(path, json.dumps(plan_to_mapping(plan), indent=1) + "\n")


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read the plan in a file. Raises FileError, in one line, if it holds no plan."""
    path = Path(path)
    return plan_from_mapping(read_mapping(path), where=path.name)


def _network(section: NetworkSection) -> Topology:
    return Topology(
        section.devices,
        np.array(section.latency_s),
        np.array(section.bandwidth_bytes_per_s),
        name=section.name,
        description=section.description,
        link_spread=section.link_spread,
        estimates=section.estimates,
        collectives=section.collectives,
        message_bytes=None if section.message_bytes is None else np.array(section.message_bytes),
        message_s=_message_s(section),
    )


def _message_s(section: NetworkSection) -> FloatArray | None:
    """Return (N, N, K) times by message size, with NaN for pairs that were not measured."""
    if section.message_s is None:
        return None
    missing = [float("nan")] * len(section.message_bytes or ())
    return np.array([[missing if times is None else times for times in row] for row in section.message_s], dtype=float)
