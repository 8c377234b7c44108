"""What tools say of one's machines, before it is a network: hosts with their GPUs, and speeds of what lies between."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict


class ReportedGpu(NamedTuple):
    """A GPU as a tool names it."""

    name: str
    memory_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReportedHost:
    """What one source says of a machine; empty where it says nothing."""

    name: str
    addresses: frozenset[str] = frozenset()
    """Further names and IP addresses, by which other sources may know it."""
    gpus: tuple[ReportedGpu, ...] = ()
    numbers: tuple[int, ...] | None = None
    """The driver's numbers of ``gpus``, where some of the host's GPUs were left out."""
    region: str = ""
    price_per_hour: float | None = None
    """US dollars for one of its GPUs."""
    between: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """By the driver's numbers of two GPUs: how they are connected, as ``nvidia-smi topo -m`` says it (NV12, SYS)."""
    pcie: tuple[int, int] | None = None
    """Generation and lanes of its GPUs' PCIe."""
    inside_bytes_per_s: float | None = None
    """Measured between two of its GPUs, at least, by a test inside the host."""
    least_inside_bytes_per_s: float | None = None
    """Measured by a test over several hosts: links inside the host are at least as fast."""
    has_best_network: bool = False
    """Whether the fastest network was asked for that its kind is sold with."""


class Measurement(NamedTuple):
    """A measured way from one host to another, each by a name or an address."""

    source: str
    target: str
    bytes_per_s: float
    latency_s: float | None
    """One way; None where it was not measured."""
    tool: str


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """All that one source says."""

    hosts: tuple[ReportedHost, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    are_near: bool = False
    """Whether its hosts are one cluster, as far as no region says otherwise."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""


class ToolOutput(BaseModel):
    """A part of a tool's output. Keys that are not read are the tool's own business."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, coerce_numbers_to_str=True)
