"""The origin of each number in an advice: its formula or its source."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology, hardware_of
from dtfm_lab.domain.units import format_gbps, money, to_gbps, to_ms
from dtfm_lab.extensions.advice.ways import LINE_BYTES_PER_S, LINE_S, FleetOption, watts_of

HOW = Path(__file__).with_name("origins.txt").read_text(encoding="utf-8")
"""Template with one line per kind of number, and placeholders in braces."""


def origins_of(
    topology: Topology, job: Job, ways: Sequence[FleetOption], per_kwh: float, absent: tuple[str, ...]
) -> Iterator[str]:
    """Yield one line per kind of number with its formula or source, and one per kind of device. Lines that start with
    one of ``absent`` are left out."""
    lines = HOW.format(
        batch=job.tokens,
        unit=job.counted,
        Unit=job.counted.capitalize(),
        per_kwh=money(per_kwh),
        scope=" or ".join(dict.fromkeys(way.plan.scope for way in ways if way.plan)) or "any plan",
        line_ms=to_ms(LINE_S),
        line=format_gbps(to_gbps(LINE_BYTES_PER_S)),
    ).splitlines()
    yield from (line for line in lines if not line.startswith(absent))
    if not any(device.price_per_hour for device in topology.devices):
        yield "No device of the network has a price, so all count as your own; --typical-prices makes them rented."
    devices = [device for way in ways for device in way.topology.devices]
    for gpu in dict.fromkeys(device.gpu for device in devices):
        yield f"{gpu}: {_source(gpu, [device for device in devices if device.gpu == gpu])}"


def _source(gpu: str, devices: Sequence[Device]) -> str:
    """Return the sources of the numbers for a kind of device."""
    row = hardware_of(gpu)
    parts = ["peak and memory from the network" if row is None else row.source]
    if any(not device.price_per_hour for device in devices):
        watts = watts_of(devices[0])
        parts.append("watts unknown" if watts is None else f"{watts:g} W (maker's figure)")
    for price in sorted({device.price_per_hour for device in devices} - {0.0}):
        listed = row is not None and price == row.price_per_hour
        parts.append(
            f"{money(price)} per hour, {row.price_source if row and listed else 'from the network or catalogue'}"
        )
    return "; ".join(parts)
