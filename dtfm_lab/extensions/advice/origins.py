"""Where each number of an advice is from: its formula, or its source."""

from collections.abc import Iterator, Sequence

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology, hardware_of
from dtfm_lab.domain.units import format_gbps, money, to_gbps, to_ms
from dtfm_lab.extensions.advice.ways import LINE_BYTES_PER_S, LINE_S, FleetOption, watts_of

HOW = """\
An iteration: of the fastest plan that a search found, by the link model and what each GPU reaches of its peak; in \
brackets, here and in all columns, where a measured one lies with 90 % confidence. Ways are compared by their middles.
{Unit}/s: {batch:,} of a batch over an iteration. Time: {unit} over {unit}/s, without starting, loading or losses.
Dollars: hours x prices of the rented devices that serve, and kWh x {per_kwh}. kWh: hours x watts of the own devices \
that serve, at full load: an upper figure, without the computers around GPUs. "+ ?": some watts are not known.
At most: how many times faster {scope} can be, a proven bound; empty where that is loose.
Links: those of the network, each as if it were alone. Assumed are NVLink inside a rented host of several V100, \
A100, H100 or newer, PCIe 4 x16 inside one of others (between GeForce GPUs 3.06 GB/s through its memory), and \
{line_ms:g} ms and {line} from home to one that the network does not have.
What fits: by the simulator's count of memory; "needs some" is the whole model on one device, held as tightly as can be.
What more would be worth: planned anew with one more device; a link of the same plan simulated at twice its bandwidth.
Spot: lab.replay under the policy goodput, which writes checkpoints and plans anew. The rates are assumed."""


def origins_of(
    topology: Topology, job: Job, ways: Sequence[FleetOption], per_kwh: float, absent: tuple[str, ...]
) -> Iterator[str]:
    """A line for each kind of number, its formula or its source, but none that begins with one of ``absent``."""
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
        yield "No device of the network has a price, so all are your own; --typical-prices makes them rented ones."
    devices = [device for way in ways for device in way.topology.devices]
    for gpu in dict.fromkeys(device.gpu for device in devices):
        yield f"{gpu}: {_source(gpu, [device for device in devices if device.gpu == gpu])}"


def _source(gpu: str, devices: Sequence[Device]) -> str:
    """Where the numbers of a kind of device are from."""
    row = hardware_of(gpu)
    parts = ["peak and memory as the network states" if row is None else row.source]
    if any(not device.price_per_hour for device in devices):
        watts = watts_of(devices[0])
        parts.append("watts unknown" if watts is None else f"{watts:g} W, the maker's figure")
    for price in sorted({device.price_per_hour for device in devices} - {0.0}):
        listed = row is not None and price == row.price_per_hour
        parts.append(f"{money(price)} an hour, {row.price_source if row and listed else 'as given'}")
    return "; ".join(parts)
