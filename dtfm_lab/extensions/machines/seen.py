"""What tools report about your machines before they form a network: hosts with their GPUs, and speeds of links."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

MOST_GPUS = 64
"""Maximum number of GPUs per host."""


class ReportedGpu(NamedTuple):
    """A GPU as a tool names it."""

    name: str
    memory_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReportedHost:
    """What one source reports about a machine. Fields it does not report are empty."""

    name: str
    addresses: frozenset[str] = frozenset()
    """Further names and IP addresses, by which other sources may know the host."""
    gpus: tuple[ReportedGpu, ...] = ()
    numbers: tuple[int, ...] | None = None
    """The driver's numbers of ``gpus``, if some of the host's GPUs were left out."""
    region: str = ""
    price_per_hour: float | None = None
    """US dollars per hour for one of its GPUs."""
    between: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Connection of two GPUs by their driver numbers, as ``nvidia-smi topo -m`` prints it (NV12, SYS)."""
    pcie: tuple[int, int] | None = None
    """Generation and lanes of its GPUs' PCIe."""
    inside_bytes_per_s: float | None = None
    """Minimum bandwidth between two of its GPUs, measured by a test inside the host."""
    least_inside_bytes_per_s: float | None = None
    """Measured by a test over several hosts. Links inside the host are at least as fast."""
    has_best_network: bool = False
    """True if the fastest network was requested that is sold with its kind of GPU."""


class Measurement(NamedTuple):
    """A measured direction from one host to another, each given by name or address."""

    source: str
    target: str
    bytes_per_s: float
    latency_s: float | None
    """Seconds of one way; None if not measured."""
    tool: str


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """Everything that one source reports."""

    hosts: tuple[ReportedHost, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    are_near: bool = False
    """True if its hosts form one cluster, unless regions differ."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""


class ToolOutput(BaseModel):
    """A part of a tool's output. Unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, coerce_numbers_to_str=True)
