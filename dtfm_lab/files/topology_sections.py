"""The sections of a topology as people write it in YAML, with their keys, units and defaults (see topology_reading)."""

from typing import Annotated, Any, Literal

from pydantic import FailFast, Field, model_validator

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network import LINK_SPREAD, LONGEST_NAME, MOST_DEVICES, MOST_SPREAD, as_number, shortened
from dtfm_lab.domain.network.conversions import OTHER_UNIT
from dtfm_lab.files.reading import Section

Name = Annotated[str, Field(max_length=LONGEST_NAME)]


UNITS = {what: other for what, (other, _) in OTHER_UNIT.items()} | {
    "uplink_bytes_per_s": "uplink_gbps",
    "downlink_bytes_per_s": "downlink_gbps",
}
"""Keys in SI -> the keys of the sections below, in the units that people write."""


class UnitSection(Section):
    """A section whose numbers may also be given in SI, under names that say so."""

    @model_validator(mode="before")
    @classmethod
    def _in_written_units(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not (given := UNITS.keys() & data.keys()):
            return data
        converted = dict(data)
        for what in sorted(given):
            if (other := UNITS[what]) not in cls.model_fields:
                continue
            value = converted.pop(what)
            if other in converted:
                raise ValueError(f"both {other} and {what} are given; wanted one of them")
            converted[other] = _written(what, value)
        return converted


def _written(what: str, value: Any) -> Any:
    """A number, or a list of numbers, in SI in the unit that people write; raises ValueError for anything else."""
    if what == "message_s" and isinstance(value, list):
        return [_written("latency_s", each) for each in value]
    if (number := as_number(value)) is None:
        raise ValueError(f"{what} is {shortened(value)}; wanted a number")
    _, from_written = OTHER_UNIT[what.replace("uplink", "bandwidth").replace("downlink", "bandwidth")]
    return number / from_written(1.0) if number else number


class Speed(UnitSection):
    """Speed of a link."""

    latency_ms: float = Field(ge=0, allow_inf_nan=False)
    """Milliseconds that a message of no length takes, one way."""
    bandwidth_gbps: float = Field(gt=0, allow_inf_nan=False)
    """Gbit/s."""


class HardwareSection(UnitSection):
    """What a device has, or all devices of a region unless they say otherwise."""

    gpu: Name | None = None
    """Name of the GPU; peak and memory follow from it where the table of hardware has it."""
    host: Name | None = None
    """Machine whose network card the devices share."""
    peak_tflops: float | None = Field(default=None, gt=0)
    """Most TFLOP/s of a device."""
    memory_gib: float | None = Field(default=None, gt=0)
    """Memory of a device in GiB."""
    price_per_hour: float | None = Field(default=None, ge=0)
    """Dollars an hour."""
    uplink_gbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Most Gbit/s that leave the device, over whatever link of a region or the default."""
    downlink_gbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Most Gbit/s that reach the device, over whatever link of a region or the default."""


class DeviceSection(HardwareSection):
    """One device."""

    name: Name
    """Its own name, which no other device has."""
    region: Name | None = None
    """Region that it is in; the one under which it stands, where it stands under one."""
    position: tuple[float, float] | None = None
    """Latitude and longitude in degrees, for maps."""
    gpus: int = Field(default=1, ge=1)
    """GPUs that act as one device, whose numbers are of all of them together."""
    inner: Speed | None = None
    """Speed between two of its GPUs."""


class RegionSection(HardwareSection):
    """Devices with the same speed between each two of them."""

    name: Name
    """Its own name, which no other region has."""
    count: int | None = Field(default=None, ge=1, le=MOST_DEVICES)
    """Number of devices, named after the region, such as Oslo-0."""
    per_host: int | None = Field(default=None, ge=1)
    """Devices of a host: the region's devices are counted into hosts of so many."""
    inside_host: Speed | None = None
    """Speed between two devices of a host."""
    devices: Annotated[list[DeviceSection], FailFast()] = Field(default_factory=list)
    """Devices with names of their own, besides those that are counted."""
    latency_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Milliseconds that a message of no length takes between two devices of the region, one way."""
    bandwidth_gbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Gbit/s between two devices of the region."""


class HostSection(Speed):
    """Speed between two devices of one host."""

    name: Name
    """The host."""


class OneWaySection(Speed):
    """Speed in one direction."""

    source: Name | None = Field(default=None, alias="from")
    """Where messages come from."""
    target: Name | None = Field(default=None, alias="to")
    """Where messages go."""

    def ends(self, pair: tuple[str, str] | None, noun: str) -> tuple[str, str]:
        """Source and target, or both ends of the pair; raises TopologyError unless exactly one of both is given."""
        if pair is not None and self.source is None and self.target is None:
            return pair
        if pair is None and self.source is not None and self.target is not None:
            return self.source, self.target
        key = "regions" if noun == "region pair" else "between"
        raise TopologyError(f"a {noun} needs either '{key}: [a, b]' or both 'from: a' and 'to: b'")


class BetweenSection(OneWaySection):
    """Speed between the devices of two regions."""

    regions: tuple[Name, Name] | None = None
    """Both regions, where both directions have this speed."""


class LinkSection(OneWaySection):
    """Speed of a single link."""

    between: tuple[Name, Name] | None = None
    """Both devices, where both directions have this speed."""


class MeasuredLinkSection(UnitSection):
    """Times of messages over one link, in one direction."""

    source: Name = Field(alias="from")
    """Device that sends."""
    target: Name = Field(alias="to")
    """Device that receives."""
    message_ms: list[float]
    """Milliseconds of a message of each size."""


class MeasuredSection(Section):
    """What was measured of a network."""

    message_bytes: list[float]
    """Sizes of the messages, growing."""
    links: Annotated[list[MeasuredLinkSection], FailFast()]
    """A line for each direction of each link that was measured."""


class EstimateSection(Section):
    """A bandwidth that nobody measured, of all links of the kind that have it."""

    links: Literal["inside hosts", "between hosts"]
    """Links between two devices of a host, or all others."""
    bandwidth_gbps: float = Field(gt=0, allow_inf_nan=False)
    """What these links have."""
    least_gbps: float = Field(gt=0, allow_inf_nan=False)
    """The least that it may be."""
    most_gbps: float = Field(gt=0, allow_inf_nan=False)
    """The most that it may be."""


class TopologyFile(Section):
    """A network as people write it."""

    dtfm_topology: int
    """Version of the format."""
    name: Name | None = None
    """Name of the network; that of the file where not given."""
    description: str = ""
    """What it is and where its numbers are from."""
    link_spread: float = Field(default=LINK_SPREAD, ge=0, le=MOST_SPREAD)
    """How sure the links are: one standard deviation of the logarithm of the seconds of their messages."""
    estimates: list[EstimateSection] = Field(default_factory=list, max_length=100)
    """Which bandwidths nobody measured, and how far each may be off."""
    typical_prices: bool = False
    """Whether devices without a price have the typical one of their GPU."""
    default: Speed | None = None
    """Speed of links for which nothing else is said."""
    regions: Annotated[list[RegionSection], FailFast()] = Field(default_factory=list)
    """Groups of devices that are near each other."""
    devices: Annotated[list[DeviceSection], FailFast()] = Field(default_factory=list)
    """Devices, each with its region or none."""
    hosts: Annotated[list[HostSection], FailFast()] = Field(default_factory=list)
    """Speeds between two devices of a host."""
    between: Annotated[list[BetweenSection], FailFast()] = Field(default_factory=list)
    """Speeds between regions."""
    links: Annotated[list[LinkSection], FailFast()] = Field(default_factory=list)
    """Speeds of single links, which come before all others."""
    measured: MeasuredSection | None = None
    """Measured times of messages of several sizes."""
