"""The origin of each number in an advice: its formula or its source."""

from collections.abc import Iterator, Sequence

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology, hardware_of
from dtfm_lab.domain.units import format_gbps, money, to_gbps, to_ms
from dtfm_lab.extensions.advice.ways import LINE_BYTES_PER_S, LINE_S, FleetOption, watts_of

HOW = """\
Iteration: the fastest plan found, by the link model and the share of peak that each GPU reaches. Brackets, here and \
in all columns, are 90 % intervals of a measured value. Options are compared by their middle values.
{Unit}/s: {batch:,} per batch, divided by the iteration. Time: {unit} divided by {unit}/s, without starting, loading \
or losses.
Dollars: hours x prices of the rented devices in use, plus kWh x {per_kwh}. kWh: hours x watts of your own devices in \
use, at full load. This is an upper estimate for the GPUs, without the computers around them. "+ ?": some watts are \
unknown.
Speed-up left: how many times faster {scope} could be, a proven bound. Empty if the bound is loose.
Links: as in the network, each as if it were alone. Assumptions: NVLink inside a rented host with several V100, \
A100, H100 or newer GPUs, PCIe 4 x16 inside others (3.06 GB/s through its memory between GeForce GPUs), and \
{line_ms:g} ms and {line} from home to a rented machine that the network does not have.
What fits: by the simulator's count of memory. "needs about" is the whole model on one device, held as tightly as \
possible.
Upgrades: planned again with one more device, or the same plan simulated with twice the bandwidth of a link.
Spot: lab.replay under the policy goodput, which writes checkpoints and replans. The rates are assumptions."""


def origins_of(
    topology: Topology, job: Job, ways: Sequence[FleetOption], per_kwh: float, absent: tuple[str, ...]
) -> Iterator[str]:
    """Yield a line per kind of number with its formula or source, except lines that start with one of ``absent``."""
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
