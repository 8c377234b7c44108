"""Networks: devices, the latency and bandwidth of the links between them, and when messages move over the links."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.collectives import CollectiveSpeed, checked_collectives, slowdowns, spread_over
from dtfm_lab.domain.network.conversions import (
    LINKS,
    changes_in_si,
    devices_of_columns,
    either,
    frame_of_links,
    graph_of_links,
    labels_of_matrices,
    links_of_frame,
    links_of_graph,
)
from dtfm_lab.domain.network.device import (
    Device,
    as_number,
    between_groups,
    check_count,
    check_text,
    group_device,
    group_sizes,
    groups_of,
    is_plain,
    matrix_of,
    nics_of,
    shortened,
    typical_price,
    with_measured,
)
from dtfm_lab.domain.network.estimate import BandwidthEstimate
from dtfm_lab.domain.network.streams import LINUX_WINDOW_BYTES, streams_bandwidth
from dtfm_lab.domain.registry import current_name, unknown
from dtfm_lab.domain.units import FloatArray, IntArray, counted, to_gbps, to_ms

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

MOST_SIZES = 64
"""Maximum number of measured message sizes. Each size needs a matrix."""
MOST_TIMES = 2**26
"""Maximum number of measured times over all pairs and sizes: half a gigabyte."""
LARGEST = 1e30
"""Maximum seconds, bytes and bytes/s; 1 / LARGEST is the minimum bytes/s. Beyond it, transfer times overflow floats."""
LINK_SPREAD = 0.1
"""Default of ``Topology.link_spread``. A guess of how far long transfers deviate from a bandwidth that was measured
once."""
MOST_SPREAD = 3.0
"""Maximum of ``link_spread`` and of a collective's spread. At this value, one in six messages takes twenty times as
long as the median."""


@dataclass(frozen=True, eq=False)
class Topology:
    """The communication graph of the DT-FM paper (Yuan et al. 2022): N devices and two N x N link matrices.

    Entry ``[i, j]`` describes the link from device i to device j. The diagonal is the link of a device to itself:
    latency 0, bandwidth infinite.

    Links need not be symmetric, but every exchange in training goes both ways. A gradient shard travels over i -> j and
    returns, averaged, over j -> i. Activations cross a stage boundary one way, and their gradients, which are as large,
    cross it the other way. The communication cost therefore charges a pair the sum of both directions
    (``round_trip_s``). It is the same for (i, j) and (j, i), and transposing both matrices changes no plan. Changing
    one direction counts half as much as changing both. A simulated or real message goes one way and takes its own
    direction's time.

    A network may hold measured times of messages of several sizes. Simulated and emulated messages then use these times
    (``transfer_s``). The communication cost, which is the paper's, still uses latency and bandwidth.

    Devices of one host share its NIC. Their messages to other hosts leave one at a time and arrive one at a time.
    Messages within the host use the pair's own link. The communication cost does not include this wait.

    Raises
    ------
    TopologyError
        There is no device, or two have the same name. A matrix has another shape, or a link has no bandwidth or a
        negative or missing latency. ``link_spread`` or ``collectives`` is out of range. Measured times are impossible,
        or two measurements of one GPU differ.
    """

    devices: tuple[Device, ...]
    latency_s: FloatArray
    """(N, N) seconds, one way. The paper's A."""
    bandwidth_bytes_per_s: FloatArray
    """(N, N) bytes per second. The paper's B."""
    name: str = field(default="unnamed", kw_only=True)
    description: str = field(default="", kw_only=True)
    estimates: tuple[BandwidthEstimate, ...] = field(default=(), kw_only=True)
    """Bandwidths that were not measured, each with the range that it may lie in."""
    link_spread: float = field(default=LINK_SPREAD, kw_only=True)
    """Standard deviation of the logarithm of every message's seconds. Only the interval around a predicted iteration
    time uses it."""
    collectives: tuple[CollectiveSpeed, ...] = field(default=(), kw_only=True)
    """How much slower collectives are when more hosts take part, by number of hosts; empty if they are not.

    Averaging, and the gathers of sharded parameters, count it. Messages between stages and the communication cost do
    not. In Python a row may be a tuple: hosts, fraction of the bandwidth and, optionally, spread.
    """
    message_bytes: FloatArray | None = field(default=None, kw_only=True)
    """(K,) increasing message sizes that were timed; None without timed messages."""
    message_s: FloatArray | None = field(default=None, kw_only=True)
    """(N, N, K) seconds from the first byte offered to the last byte delivered; NaN if not timed. A time below the
    link's latency counts as the latency."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", str(self.name))
        object.__setattr__(self, "description", str(self.description))
        # Measurements of one GPU hold for all of its kind.
        if any(device.measured is not None for device in self.devices):
            object.__setattr__(self, "devices", with_measured(self.devices))
        check_text("topology", self.name)
        if not is_plain(" ".join(self.description.split())):
            raise TopologyError(f"topology {self.name}: its description holds a character that cannot be printed")
        if not (names := self.names):
            raise TopologyError(f"topology {self.name} has no devices; wanted at least one")
        name, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise TopologyError(f"{counted(count, 'device')} are named {name!r}; names must be unique")
        self._own_matrix("latency_s", diagonal=0.0)
        self._own_matrix("bandwidth_bytes_per_s", diagonal=np.inf)
        latency, bandwidth = self.latency_s, self.bandwidth_bytes_per_s
        self._check_links(
            "latency_s", (latency >= 0) & (latency <= LARGEST), "latency", f"0 or more seconds (to {LARGEST:g})"
        )
        good = (bandwidth >= 1 / LARGEST) & (bandwidth <= LARGEST) | np.eye(len(names), dtype=bool)
        self._check_links("bandwidth_bytes_per_s", good, "bandwidth", f"more than 0 bytes/s (to {LARGEST:g})")
        spread = as_number(self.link_spread)
        if spread is None or not 0 <= spread <= MOST_SPREAD:
            raise TopologyError(
                f"topology {self.name}: link_spread is {shortened(self.link_spread)}; wanted 0 to {MOST_SPREAD:g}"
            )
        object.__setattr__(self, "link_spread", spread)
        if self.collectives != ():
            rows = checked_collectives(self.collectives, MOST_SPREAD)
            object.__setattr__(self, "collectives", rows)
        message_bytes, message_s = checked_times(names, self.message_bytes, self.message_s)
        object.__setattr__(self, "message_bytes", message_bytes)
        object.__setattr__(self, "message_s", message_s)

    def _own_matrix(self, what: str, diagonal: float) -> None:
        """Check a matrix's shape, then replace it by a read-only float copy with this diagonal."""
        matrix = np.array(matrix_of(what, getattr(self, what)))
        if matrix.shape != (n := len(self.devices), n):
            found = f"{what} has shape {matrix.shape}, but there are {counted(n, 'device')}"
            raise TopologyError(f"{found}: wanted ({n}, {n})")
        np.fill_diagonal(matrix, diagonal)
        matrix.setflags(write=False)
        object.__setattr__(self, what, matrix)

    def _check_links(self, what: str, good: npt.NDArray[np.bool_], noun: str, wanted: str) -> None:
        if (bad := np.argwhere(~good)).size:
            i, j = bad[0]
            more = f" ({len(bad)} such links)" if len(bad) > 1 else ""
            raise TopologyError(
                f"link {self.devices[i].name} -> {self.devices[j].name}: {noun} is {getattr(self, what)[i, j]}; "
                f"every pair of devices needs {wanted}, even a slow link{more}"
            )

    @classmethod
    def from_matrices(
        cls,
        latency_ms: npt.ArrayLike | None = None,
        bandwidth_gbps: npt.ArrayLike | None = None,
        *,
        latency_s: npt.ArrayLike | None = None,
        bandwidth_bytes_per_s: npt.ArrayLike | None = None,
        names: Sequence[str] | None = None,
        regions: Sequence[str] | None = None,
        hosts: Sequence[str] | None = None,
        name: str = "matrices",
        link_spread: float = LINK_SPREAD,
        **device: Any,
    ) -> Topology:
        """Return the topology with these (N, N) latencies and bandwidths, from row to column. Diagonals are ignored.

        Give latencies in milliseconds or, by name, in seconds, and bandwidths in Gbit/s or bytes/s. The index of a
        DataFrame from ``to_matrices`` names the devices. Devices with equal entries in ``hosts`` share a NIC; "" means
        no host. ``device`` sets further fields of every Device: ``gpu="A100"`` for all, or a list with one value per
        device.
        """
        given = {
            "latency_ms": latency_ms,
            "latency_s": latency_s,
            "bandwidth_gbps": bandwidth_gbps,
            "bandwidth_bytes_per_s": bandwidth_bytes_per_s,
        }
        speeds = [either(what, given, wanted="an (N, N) matrix") for what in LINKS]
        names = labels_of_matrices(speeds) if names is None else names
        latency, bandwidth = (matrix_of(speed.name, speed.value) for speed in speeds)
        n = len(latency) if latency.ndim else 0
        check_count(n)
        names = [f"device-{i}" for i in range(n)] if names is None else names
        regions = [""] * n if regions is None else regions
        columns = {"names": names, "regions": regions} | ({} if hosts is None else {"hosts": hosts})
        devices = devices_of_columns(n, columns, device)
        with np.errstate(over="ignore"):  # an overflow is refused as an infinite bandwidth
            in_si = speeds[0].in_si(latency), speeds[1].in_si(bandwidth)
        return cls(devices, *in_si, name=name, link_spread=link_spread)

    def to_matrices(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return (N, N) milliseconds and Gbit/s, from row to column, both labelled with the device names."""
        import pandas as pd  # takes a while to load

        rows, columns = pd.Index(self.names, name="source"), pd.Index(self.names)
        return (
            pd.DataFrame(to_ms(self.latency_s), index=rows, columns=columns),
            pd.DataFrame(to_gbps(self.bandwidth_bytes_per_s), index=rows, columns=columns),
        )

    def __len__(self) -> int:
        return len(self.devices)

    def __repr__(self) -> str:
        return f"<Topology {self.name}: {counted(len(self), 'device')} in {counted(len(self.regions), 'region')}>"

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices)

    @cached_property
    def nic_of(self) -> IntArray | None:
        """(N,) index of the first device of each device's host (itself without a host); None if no host has several
        devices."""
        return nics_of([device.host for device in self.devices])

    @cached_property
    def slowdowns(self) -> FloatArray | None:
        """(N + 1,) factors. Entry h multiplies the seconds of a collective over h hosts; None without ``collectives``.
        A device without a host counts as a host."""
        return slowdowns(self.collectives, len(self)) if self.collectives else None

    def spread_over(self, n_hosts: int) -> float:
        """Return the spread of the seconds of a collective in which this many hosts take part."""
        return spread_over(self.collectives, n_hosts, self.link_spread) if self.collectives else self.link_spread

    def grouped(self, gpus: int) -> Topology:
        """Return the network with every ``gpus`` identical devices of a host merged into one, for tensor parallelism.

        Peak, memory and price add up. Links within a group become its inner link. The link between two groups is the
        fastest link between any of their devices, which is the link of the hosts' NICs. Left-over devices and times
        measured by message size are dropped. Raises TopologyError if no host has that many identical devices, or if
        devices already are groups of another size.
        """
        groups = groups_of(self.name, self.devices, gpus)
        if len(groups) == len(self):
            return self
        if len(groups[0]) not in self._groupings:
            self._groupings[len(groups[0])] = self._grouped(groups)
        return self._groupings[len(groups[0])]

    @cached_property
    def _groupings(self) -> dict[int, Topology]:
        """Cache of grouped networks. Grouping thousands of devices takes a second."""
        return {}

    def _grouped(self, groups: list[list[int]]) -> Topology:
        return replace(
            self,
            devices=tuple(
                group_device(self.devices, one, self.latency_s, self.bandwidth_bytes_per_s) for one in groups
            ),
            latency_s=between_groups(np.minimum, self.latency_s, groups),
            bandwidth_bytes_per_s=between_groups(np.maximum, self.bandwidth_bytes_per_s, groups),
            message_bytes=None,
            message_s=None,
        )

    @property
    def group_sizes(self) -> list[int]:
        """Degrees of tensor parallelism that some host supports: powers of two up to 8."""
        return group_sizes(self.devices)

    @cached_property
    def regions(self) -> tuple[str, ...]:
        """Region names in the order of their first device."""
        return tuple(dict.fromkeys(device.region for device in self.devices))

    def index(self, name: str) -> int:
        """Return the position of the device with this name. Raises UnknownName with the nearest name."""
        try:
            return self._index[name]
        except KeyError:
            raise unknown("device", name, self.names) from None

    def at(self, device: int | str) -> int:
        """Return the position of a device given by name or index. Raises UnknownName for an unknown name, and
        TopologyError for an index that is out of range or not a whole number."""
        if isinstance(device, str):
            return self.index(device)
        if isinstance(device, bool) or not isinstance(device, int | np.integer):
            raise TopologyError(f"device {shortened(device)} is not an index or a name; wanted one")
        if not 0 <= device < len(self):
            found = shortened(device)
            raise TopologyError(f"device {found} is out of range; {self.name} has devices 0 to {len(self) - 1}")
        return int(device)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def transfer_s(self, message_bytes: float) -> FloatArray:
        """Return (N, N) seconds to move one message over every idle link: latency + size / bandwidth, or the measured
        time."""
        modelled_s = self._modelled_s(message_bytes)
        if self.message_bytes is None or self.message_s is None:
            return modelled_s
        upper, share = segment_of(self.message_bytes, message_bytes)
        low_s, high_s = (np.maximum(self.message_s[:, :, end], self.latency_s) for end in (upper - 1, upper))
        measured_s = low_s + share * (high_s - low_s)
        return np.where(np.isnan(measured_s), modelled_s, measured_s)

    def round_trip_s(self, message_bytes: float) -> FloatArray:
        """Return (N, N), symmetric: seconds of one message there and one of the same size back, each in its own
        direction.

        The communication cost charges these seconds. They follow from latency and bandwidth, never from measured
        times.
        """
        one_way = self._modelled_s(message_bytes)
        return one_way + one_way.T

    def _modelled_s(self, message_bytes: float) -> FloatArray:
        return self.latency_s + message_bytes / self.bandwidth_bytes_per_s

    def scaled(self, latency: float = 1.0, bandwidth: float = 1.0) -> Topology:
        """Return a copy with every latency and every bandwidth multiplied by a factor. Measured times change
        accordingly."""
        latency_s = self.latency_s * latency
        message_s = self.message_s
        if message_s is not None:
            moving_s = np.maximum(message_s - self.latency_s[:, :, None], 0.0)
            message_s = latency_s[:, :, None] + moving_s / bandwidth
        with np.errstate(over="ignore", invalid="ignore"):  # what becomes infinite or none is refused
            bandwidth_bytes_per_s = self.bandwidth_bytes_per_s * bandwidth
        return replace(self, latency_s=latency_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s, message_s=message_s)

    def over_tcp(self, streams: int = 1, window_bytes: float = LINUX_WINDOW_BYTES) -> Topology:
        """Return a copy with every bandwidth limited to what ``streams`` TCP streams reach over the pair's round trip.
        Measured times stay."""
        round_trip_s = self.latency_s + self.latency_s.T
        reached = streams_bandwidth(self.bandwidth_bytes_per_s, round_trip_s, streams, window_bytes)
        return replace(self, bandwidth_bytes_per_s=reached)

    def with_typical_prices(self) -> Topology:
        """Return a copy in which devices without a price get their GPU's typical price (0 if the table has none)."""
        priced = (replace(d, price_per_hour=d.price_per_hour or typical_price(d.gpu)) for d in self.devices)
        return replace(self, devices=tuple(priced))

    def subset(self, devices: Iterable[int | str]) -> Topology:
        """Return a copy with only these devices (indices or names), in this order."""
        keep = [self.at(device) for device in devices]
        grid = np.ix_(keep, keep)
        return replace(
            self,
            devices=tuple(self.devices[i] for i in keep),
            latency_s=self.latency_s[grid],
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s[grid],
            message_s=None if self.message_s is None else self.message_s[grid],
        )

    def with_link(
        self,
        source: int | str,
        target: int | str,
        *,
        latency_s: float | None = None,
        bandwidth_bytes_per_s: float | None = None,
        latency_ms: float | None = None,
        bandwidth_gbps: float | None = None,
        one_way: bool = False,
    ) -> Topology:
        """Return a copy with one pair's link changed, in either unit; both directions unless ``one_way``.

        Measured times of a changed link no longer apply and are dropped.
        """
        i, j = self.at(source), self.at(target)
        if i == j:
            raise TopologyError(f"link {self.names[i]} -> {self.names[j]}: a device has no link to itself")
        given = {
            "latency_s": latency_s,
            "latency_ms": latency_ms,
            "bandwidth_bytes_per_s": bandwidth_bytes_per_s,
            "bandwidth_gbps": bandwidth_gbps,
        }
        changed = changes_in_si(given, f"link {self.names[i]} -> {self.names[j]}")
        latency, bandwidth = self.latency_s.copy(), self.bandwidth_bytes_per_s.copy()
        message_s = None if self.message_s is None else self.message_s.copy()
        # Both directions, because people call them one link.
        for a, b in [(i, j)] if one_way else [(i, j), (j, i)]:
            for what, matrix in (("latency_s", latency), ("bandwidth_bytes_per_s", bandwidth)):
                if changed[what] is not None:
                    matrix[a, b] = changed[what]
            # Measured for the old link.
            if message_s is not None:
                message_s[a, b] = np.nan
        return replace(self, latency_s=latency, bandwidth_bytes_per_s=bandwidth, message_s=message_s)

    @cached_property
    def fingerprint(self) -> str:
        """12 hex digits that change with any device, link or measurement. They do not depend on the network's name,
        positions on the canvas, estimates or ``link_spread``."""
        digest = hashlib.sha256()
        for d in self.devices:
            fields = (d.name, d.region, d.gpu, d.peak_flop_per_s, d.memory_bytes, d.price_per_hour, None)
            digest.update(repr(fields).encode())
            if d.host:  # a network without hosts keeps the fingerprint that it had before there were any
                digest.update(repr({"host": d.host}).encode())
            if d.gpus > 1:
                digest.update(repr((d.gpus, d.inner_latency_s, d.inner_bandwidth_bytes_per_s)).encode())
            if d.measured is not None:
                digest.update(repr(d.measured).encode())
        digest.update(self.latency_s.tobytes())
        digest.update(self.bandwidth_bytes_per_s.tobytes())
        if self.message_bytes is not None and self.message_s is not None:
            digest.update(self.message_bytes.tobytes())
            digest.update(self.message_s.tobytes())
        if self.collectives:
            digest.update(repr(self.collectives).encode())
        return digest.hexdigest()[:12]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per directed link: source, target, latency_ms, bandwidth_gbps. Measured times are left out."""
        return frame_of_links(self.names, self.latency_s, self.bandwidth_bytes_per_s)

    @classmethod
    def from_frame(cls, links: pd.DataFrame, name: str = "frame", **device: Any) -> Topology:
        """Return the topology from one row per directed link, with the columns of ``to_frame``.

        Every pair must occur once in each direction.

        ``latency_s`` may replace ``latency_ms`` and ``bandwidth_bytes_per_s`` may replace ``bandwidth_gbps``. Devices
        are ordered by first appearance. ``device`` sets further fields of each.
        """
        names, latency_s, bandwidth = links_of_frame(links)
        return cls.from_matrices(latency_s=latency_s, bandwidth_bytes_per_s=bandwidth, names=names, name=name, **device)

    def to_networkx(self) -> nx.DiGraph[str]:
        """Return a graph. Nodes carry the Device's fields, edges latency_s and bandwidth_bytes_per_s; no measured
        times."""
        links = {"latency_s": self.latency_s, "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s}
        attributes: dict[str, Any] = {"name": self.name, "description": self.description}
        attributes |= {} if self.link_spread == LINK_SPREAD else {"link_spread": self.link_spread}
        attributes |= {"collectives": [astuple(one) for one in self.collectives]} if self.collectives else {}
        return graph_of_links(self.devices, links, attributes)

    @classmethod
    def from_networkx(cls, graph: nx.Graph[Any], name: str | None = None) -> Topology:
        """Return the topology of a graph in the form that ``to_networkx`` makes. An undirected edge counts both ways.

        Every pair needs exactly one edge each way. ``latency_ms`` may replace ``latency_s``, ``bandwidth_gbps`` may
        replace ``bandwidth_bytes_per_s``, and ``peak_tflops`` and ``memory_gib`` may replace a node's numbers in SI. A
        node that names a GPU of the table gets its peak and memory if it states none. Other attributes are ignored,
        except misspelt ones, which raise TopologyError.
        """
        devices, latency_s, bandwidth = links_of_graph(graph)
        attributes = {what: str(graph.graph.get(what) or "") for what in ("name", "description")}
        name = name or attributes["name"] or "graph"
        spread = {what: graph.graph[what] for what in ("link_spread", "collectives") if what in graph.graph}
        return cls(devices, latency_s, bandwidth, name=name, description=attributes["description"], **spread)


# ---------------------------------------------------------------------------------------------------------------------
# Networks whose messages were measured: seconds of several sizes over each pair, between which times are
# interpolated.


def segment_of(message_bytes: FloatArray, n_bytes: float | FloatArray) -> tuple[IntArray, FloatArray]:
    """Locate message sizes, of any shape, among the measured sizes.

    Returns the index of the upper end of each size's segment, and the position within that segment. The position is 0
    at the lower end and for sizes below all measured ones, 1 at the upper end, and above 1 for sizes beyond all
    measured ones.
    """
    upper = np.clip(np.searchsorted(message_bytes, n_bytes), 1, len(message_bytes) - 1)
    low, high = message_bytes[upper - 1], message_bytes[upper]
    return upper, np.maximum((n_bytes - low) / (high - low), 0.0)


def check_sizes(n_sizes: int, n_devices: int) -> None:
    """Raise TopologyError for fewer than two sizes, or too many sizes or times, before anything of size (N, N, K) is
    allocated."""
    if not 2 <= n_sizes <= MOST_SIZES:
        raise TopologyError(f"message_bytes has {n_sizes} sizes; wanted from 2 to {MOST_SIZES}")
    if (times := n_devices**2 * n_sizes) > MOST_TIMES:
        raise TopologyError(
            f"{n_sizes} message_bytes between {counted(n_devices, 'device')} are {times:,} times; wanted at most "
            f"{MOST_TIMES:,}"
        )


def checked_times(
    names: Sequence[str], message_bytes: Any, message_s: Any
) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
    """Return read-only copies, (K,) and (N, N, K) with NaN on the diagonal; None and None if no pair was measured.

    Raises
    ------
    TopologyError
        Only one of the two is given, shapes differ, sizes do not increase, or a pair was measured at some sizes only,
        takes negative time, or takes less time for a larger message.
    """
    if message_bytes is None and message_s is None:
        return None, None
    if message_bytes is None or message_s is None:
        there, missing = ("message_s", "message_bytes") if message_bytes is None else ("message_bytes", "message_s")
        raise TopologyError(f"{there} comes without {missing}; wanted both, or neither")
    sizes, times = np.array(matrix_of("message_bytes", message_bytes)), np.array(matrix_of("message_s", message_s))
    n = len(names)
    if sizes.ndim != 1:
        raise TopologyError(f"message_bytes has shape {sizes.shape}; wanted (K,)")
    check_sizes(len(sizes), n)
    if not (sizes[0] >= 0 and sizes[-1] <= LARGEST and (sizes[1:] > sizes[:-1]).all()):
        raise TopologyError(f"message_bytes is {sizes.tolist()}; wanted sizes from 0 on, each larger than the last")
    if times.shape != (wanted := (n, n, len(sizes))):
        raise TopologyError(f"message_s has shape {times.shape}; wanted {wanted}: one time a pair and size")
    times[np.arange(n), np.arange(n)] = np.nan
    unknown = np.isnan(times)
    some, every = unknown.any(axis=2), unknown.all(axis=2)
    # A larger message cannot be quicker.
    falls = (times[:, :, 1:] < times[:, :, :-1]).any(axis=2)
    outside = ((times < 0) | (times > LARGEST)).any(axis=2)
    if (bad := np.argwhere(falls | outside | (some & ~every))).size:
        i, j = bad[0]
        raise TopologyError(
            f"link {names[i]} -> {names[j]}: message_s is {times[i, j].tolist()}; wanted a time from 0 on for every "
            f"size, none below the one before it"
        )
    if every.all():
        return None, None
    sizes.setflags(write=False)
    times.setflags(write=False)
    return sizes, times


# ---------------------------------------------------------------------------------------------------------------------
# When messages leave and arrive: one model of links for the simulator and the emulated links of real runs.
#
# ``pairs``: every directed pair of devices is a separate link, on which messages queue (the paper's network). With the
# ``blocking`` transport, the pipelines' messages in both directions of a pair also take turns
# (``domain.schedule.schedule``).
#
# ``nics``: a device has one NIC. Its messages leave one at a time, to any device. They come in one at a time, in the
# order in which their first bytes arrive.
#
# Devices of one host share its NIC, in both models. Messages to and from other hosts take that NIC one at a time.
# Messages within the host take the pair's own link and no NIC.
#
# Otherwise the two directions are independent, and a transfer does not keep its device from computing. A message takes
# its bytes over the bandwidth of its pair. If messages were measured, it takes as long as messages of its size took.


QUEUEING = ("pairs", "nics")


@dataclass(frozen=True, eq=False)
class Links:
    """All links of a network; ``[i, j]`` is from device i to device j. Raises UnknownName for an unknown queueing."""

    latency_s: FloatArray
    bandwidth_bytes_per_s: FloatArray
    queueing: str = "pairs"
    message_bytes: FloatArray | None = None
    """(K,) message sizes that were measured; None without measured messages."""
    charged_bytes: FloatArray | None = None
    """(N, N, K) bytes that would take the measured time (beyond latency) at the pair's bandwidth; NaN if not measured.
    Storing bytes lets a change of bandwidth scale the measured times."""
    nic_of: IntArray | None = None
    """(N,) as ``Topology.nic_of``: the first device of each device's host; None if no host has several devices."""
    slowdowns: FloatArray | None = None
    """(N + 1,) as ``Topology.slowdowns``: entry h multiplies the seconds of a collective over h hosts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "queueing", current_name("queueing", self.queueing))
        if self.queueing not in QUEUEING:
            raise unknown("queueing", self.queueing, QUEUEING)

    @classmethod
    def of(cls, topology: Topology, queueing: str = "pairs") -> Self:
        latency_s, bandwidth = topology.latency_s, topology.bandwidth_bytes_per_s
        if topology.message_s is None:
            return cls(latency_s, bandwidth, queueing, nic_of=topology.nic_of, slowdowns=topology.slowdowns)
        moving_s = np.maximum(topology.message_s - latency_s[:, :, None], 0.0)
        charged_bytes = moving_s * bandwidth[:, :, None]
        more = topology.message_bytes, charged_bytes, topology.nic_of, topology.slowdowns
        return cls(latency_s, bandwidth, queueing, *more)

    @classmethod
    def free(cls, n_devices: int) -> Self:
        """Return links without latency and with infinite bandwidth."""
        shape = (n_devices, n_devices)
        return cls(np.zeros(shape), np.full(shape, np.inf))

    def scaled(self, latency: float = 1.0, bandwidth: float = 1.0) -> Links:
        """Return the links with every latency and every bandwidth multiplied by a factor."""
        return replace(
            self, latency_s=self.latency_s * latency, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * bandwidth
        )

    def delayed(self, seconds: float) -> Links:
        """Return the links with ``seconds`` of latency added between any two devices."""
        return replace(self, latency_s=np.where(np.eye(len(self.latency_s), dtype=bool), 0.0, self.latency_s + seconds))

    def moving_s(self, sender: int | IntArray, receiver: int | IntArray, n_bytes: float | FloatArray) -> Any:
        """Return the seconds that messages occupy their links, beyond the latency. Arguments may have any shape."""
        bandwidth = self.bandwidth_bytes_per_s[sender, receiver]
        if self.message_bytes is None or self.charged_bytes is None:
            return n_bytes / bandwidth
        upper, share = segment_of(self.message_bytes, n_bytes)
        low, high = (self.charged_bytes[sender, receiver, end] for end in (upper - 1, upper))
        charged = low + share * (high - low)
        return np.where(np.isnan(charged), n_bytes, charged) / bandwidth

    def slower(self, groups: IntArray) -> FloatArray:
        """Return the factor by which the messages of a collective take longer, for each group of devices.

        ``groups`` holds (..., R) device indices, and the result has shape (...,). A factor follows from the number of
        hosts that hold the group. It is 1 if the network has no ``collectives``.
        """
        if self.slowdowns is None:
            return np.ones(groups.shape[:-1])
        return self.slowdowns[hosts_among(groups, self.nic_of)]

    def least_slower(self, n_members: int) -> float:
        """Return the smallest factor of ``slower`` for a group of this many devices, on as few hosts as possible."""
        if self.slowdowns is None:
            return 1.0
        hosts = np.arange(len(self.latency_s)) if self.nic_of is None else self.nic_of
        sizes = np.sort(np.bincount(hosts))[::-1]
        return float(self.slowdowns[min(1 + int(np.searchsorted(np.cumsum(sizes), n_members)), len(hosts))])

    @property
    def has_nics(self) -> bool:
        """True if messages of different pairs wait for each other anywhere."""
        return self.queueing == "nics" or self.nic_of is not None

    def queues(self, sender: IntArray, receiver: IntArray) -> tuple[IntArray, IntArray]:
        """Return the queues of messages on these links: see ``queues_of``."""
        return queues_of(sender, receiver, len(self.latency_s), self.queueing, self.nic_of)


def queues_of(
    sender: IntArray, receiver: IntArray, n_devices: int, queueing: str, nic_of: IntArray | None
) -> tuple[IntArray, IntArray]:
    """Return two arrays: the queue that each message occupies when it leaves, and when it arrives (-1 for none).

    Queues are numbered in this order: NICs for sending, NICs for receiving, pairs.
    """
    n = n_devices
    pair = 2 * n + sender * n + receiver
    if nic_of is None:
        return (sender, n + receiver) if queueing == "nics" else (pair, np.full_like(receiver, -1))
    apart = nic_of[sender] != nic_of[receiver]
    has_nic = is_shared(nic_of) | (queueing == "nics")
    leaving = np.where(apart & has_nic[sender], nic_of[sender], pair)
    return leaving, np.where(apart & has_nic[receiver], n + nic_of[receiver], -1)


def hosts_among(groups: IntArray, nic_of: IntArray | None) -> IntArray:
    """Return (...,) the number of hosts that hold each group of devices. ``groups`` has (..., R) device indices,
    ``nic_of`` is as in ``Topology``."""
    hosts = np.sort(groups if nic_of is None else nic_of[groups], axis=-1)
    return np.asarray(1 + (np.diff(hosts, axis=-1) != 0).sum(axis=-1))


def is_shared(nic_of: IntArray) -> npt.NDArray[np.bool_]:
    """Return (N,) True for each device that shares its NIC with another one."""
    return np.bincount(nic_of, minlength=len(nic_of))[nic_of] > 1
