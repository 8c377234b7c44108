"""What tools report about your machines before they form a network: hosts with their GPUs, and speeds of links."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

MOST_GPUS = 64
"""Maximum number of GPUs per host."""


class ReportedGpu(NamedTuple):
    """A GPU by the name that a tool gives it."""

    name: str
    memory_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReportedHost:
    """What one source reports about a machine. Fields it does not report are empty."""

    name: str
    addresses: frozenset[str] = frozenset()
    """Other names and IP addresses of the host, which other sources may use."""
    gpus: tuple[ReportedGpu, ...] = ()
    numbers: tuple[int, ...] | None = None
    """Driver numbers of the GPUs in ``gpus``. None if no GPU was left out, so that the numbers are 0, 1 and so on."""
    region: str = ""
    price_per_hour: float | None = None
    """US dollars per hour for one of its GPUs."""
    between: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """How two GPUs are connected, by their driver numbers: as ``nvidia-smi topo -m`` prints it (NV12, SYS)."""
    pcie: tuple[int, int] | None = None
    """Generation and number of lanes of its GPUs' PCIe, the slowest if they differ."""
    inside_bytes_per_s: float | None = None
    """Minimum bytes/s between two of its GPUs, measured by a test inside the host."""
    least_inside_bytes_per_s: float | None = None
    """Lower bound of the bytes/s between two of its GPUs: what a test over several hosts reached."""
    has_best_network: bool = False
    """True if the host was requested with the fastest network that is sold with its kind of GPU."""


class Measurement(NamedTuple):
    """The measured link from one host to another. Hosts are given by name or address."""

    source: str
    target: str
    bytes_per_s: float
    latency_s: float | None
    """Latency of one direction in seconds; None if not measured."""
    tool: str


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """Everything that one source reports."""

    hosts: tuple[ReportedHost, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    are_near: bool = False
    """True if all its hosts in the same region are in one cluster."""
    notes: tuple[str, ...] = ()
    """Texts for the network's description, such as what was left out and why."""


class ToolOutput(BaseModel):
    """A part of a tool's output. Unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, coerce_numbers_to_str=True)
