"""Merge the reports of several sources into a network, and record the origin of each part."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, permutations
from pathlib import Path

import numpy as np

from dtfm_lab.domain.errors import FileError, TopologyError
from dtfm_lab.domain.network import (
    BETWEEN,
    LINK_SPREAD,
    BandwidthEstimate,
    Device,
    Topology,
    check_count,
    find_place,
    link_between,
)
from dtfm_lab.domain.registry import listed, unknown
from dtfm_lab.domain.units import counted, format_gbps, format_s, to_gbps
from dtfm_lab.extensions.machines.hardware import GivenHardware
from dtfm_lab.extensions.machines.links import (
    NVLINK_S,
    PCIE_S,
    LinkSpeed,
    between_near,
    bridge_bytes_per_s,
    inside,
)
from dtfm_lab.extensions.machines.seen import Measurement, ReportedHost, SourceReport
from dtfm_lab.extensions.machines.sources import READ, read_sources
from dtfm_lab.files.reading import located

ESTIMATED_SPREAD = 0.5
"""``link_spread`` of a network with an estimated link between hosts: one standard deviation is a factor of 1.65."""
FARTHER = 4.0
"""Factor by which a bandwidth that is estimated from the distance may be too low or too high."""
MOST_NAMED = 4
"""Maximum number of hosts with an unknown place that an error names."""


def network_from(
    paths: Iterable[str | os.PathLike[str]],
    *,
    at: Mapping[str, str] | None = None,
    peak_tflops: Mapping[str, float] | None = None,
    memory_gib: Mapping[str, float] | None = None,
    probed: Mapping[str, SourceReport] | None = None,
    name: str = "my-machines",
) -> Topology:
    """Return the network of your machines, from the output of tools: ``lab.load_topology`` with a list of files.

    Files may be any mix of: ``nvidia-smi -q -x``, ``nvidia-smi topo -m``, ``iperf3 --json``, NCCL tests, nodes of
    Kubernetes, Ray or Slurm, an ssh config, a SkyPilot task and catalogue (``READ``).

    ``at`` gives regions of hosts by name. ``peak_tflops`` gives half-precision TFLOP/s of GPUs that are not in the
    table of hardware, by the names that tools use. ``memory_gib`` gives their memory if no tool reports it. ``probed``
    holds reports that do not come from files, by a name for their origin. The network's description says what was
    measured, estimated and left out. Its ``estimates`` say how far each estimate may be off.

    Raises FileError for a file that is broken or that no reader knows, and UnknownName for a host in ``at`` that no
    source reports. Raises TopologyError, in one line, for an unknown link, for reports that contradict each other, or
    if no host with known GPUs is left.
    """
    files = [Path(path) for path in paths]
    probed = dict(probed or {})
    if not files and not probed:
        raise FileError(f"no file is given; wanted one or more of: {READ}")
    seen = [*probed.values(), *read_sources(files)]
    sources = [*probed, *(path.name for path in files)]
    # The fault may be in any of the files, or between two of them, so an error names all.
    with located(", ".join(sources)):
        return _Assembly(seen, dict(at or {}), peak_tflops or {}, memory_gib or {}).topology(name, sources)


class _Assembly:
    """The merged hosts of all sources, and what is known about their links."""

    def __init__(
        self,
        seen: Sequence[SourceReport],
        at: dict[str, str],
        peak_tflops: Mapping[str, float],
        memory_gib: Mapping[str, float],
    ) -> None:
        self.notes = [note for each in seen for note in each.notes]
        self.clusters: list[set[str]] = []
        self._stated = GivenHardware(peak_tflops, memory_gib)
        hosts = _merged(list(chain.from_iterable(_distinct(each.hosts) for each in seen)))
        # One host has several addresses, and each tool uses another of them.
        of_address = {known: host.name for host in hosts for known in (host.name, *host.addresses)}
        if strange := sorted(at.keys() - of_address.keys()):
            raise unknown("host", strange[0], of_address)
        self.clusters += [{of_address[host.name] for host in each.hosts} for each in seen if each.are_near]
        hosts = self._placed(hosts, {of_address[address]: region for address, region in at.items()})
        if without := [host.name for host in hosts if not host.gpus]:
            self.notes.append(f"left out, because no source reports their GPUs: {', '.join(without)}")
        with_gpus = [host for host in hosts if host.gpus]
        if not with_gpus:
            raise TopologyError("no source reports a GPU; wanted nvidia-smi -q -x of each host, or a list of nodes")
        self.hosts = [host for host in with_gpus if not self._stated.lacking(host)]
        if unknown_hosts := [host for host in with_gpus if self._stated.lacking(host)]:
            self._leave(unknown_hosts)
        # A missing GPU is only a note if other hosts remain, since most clusters have some odd node.
        self.notes += self._stated.notes(self.hosts)
        check_count(sum(len(host.gpus) for host in self.hosts))
        self.tests: dict[tuple[str, str], Measurement] = {}
        strange_ends: dict[str, None] = {}
        for test in chain.from_iterable(each.measurements for each in seen):
            ends = of_address.get(test.source), of_address.get(test.target)
            strange_ends |= dict.fromkeys(e for e, known in zip(test[:2], ends, strict=True) if known is None)
            if None not in ends:
                self.tests[ends] = test  # type: ignore[index]  # neither is None
        if strange_ends:
            self.notes.append(f"left out, because no host has this address: measurements of {', '.join(strange_ends)}")

    def _leave(self, hosts: Sequence[ReportedHost]) -> None:
        """Leave out the hosts with unknown GPUs, and note why. Raises TopologyError if no other host is left."""
        of_gpu: dict[str, list[str]] = {}
        for host in hosts:
            for gpu in self._stated.lacking(host):
                of_gpu.setdefault(gpu, []).append(host.name)
        wanted = self._stated.wanted(hosts)
        if self.hosts:
            named = ", ".join(f"{gpu!r} ({_few(names, 'hosts')})" for gpu, names in of_gpu.items())
            self.notes.append(f"left out, because these GPUs are not in the table: {named}, wanted {wanted}")
            return
        where = _few([host.name for host in hosts], "hosts")
        named = " and ".join(map(repr, of_gpu))
        raise TopologyError(
            f"{where}: {named} {'is' if len(of_gpu) == 1 else 'are'} not in the table of GPUs; wanted {wanted}"
        )

    def _placed(self, hosts: list[ReportedHost], at: dict[str, str]) -> list[ReportedHost]:
        """Return the hosts, moved to the regions that ``at`` gives.

        Other hosts of the same cluster and region move with them, if that region is not a known place and ``at`` gives
        only one new region for its hosts.
        """
        places = dict(at)
        region_of = {host.name: host.region for host in hosts}
        for cluster in self.clusters:
            for region in {region_of[name] for name in cluster}:
                there = [name for name in cluster if region_of[name] == region]
                given = {at[name] for name in there if name in at}
                # A region named by a cloud is kept if the map knows it.
                if len(given) == 1 and find_place(region) is None:
                    places |= dict.fromkeys(there, *given)
        return [replace(host, region=places.get(host.name, host.region)) for host in hosts]

    def topology(self, name: str, sources: Sequence[str]) -> Topology:
        devices = tuple(device for host in self.hosts for device in self._devices(host))
        at = {device.name: i for i, device in enumerate(devices)}
        places = {host.name: [at[own] for own in _names(host)] for host in self.hosts}
        latency_s, bytes_per_s = np.zeros((2, len(devices), len(devices)))
        noted: dict[str, list[str]] = {}
        estimates: dict[BandwidthEstimate, None] = {}
        for host in self.hosts:
            if len(here := places[host.name]) > 1:
                speeds, said = self._inside(host)
                noted.setdefault(said, []).append(host.name)
                for (i, j), speed in speeds.items():
                    latency_s[here[i], here[j]], bytes_per_s[here[i], here[j]] = speed.latency_s, speed.bytes_per_s
                    estimates |= (
                        {}
                        if speed.ends is None
                        else {BandwidthEstimate("inside hosts", speed.bytes_per_s, *speed.ends): None}
                    )
        self.notes += [f"inside {_few(hosts, 'hosts')}: {said}" for said, hosts in noted.items()]
        noted.clear()
        untold = []
        for a, b in permutations(self.hosts, 2):
            if (link := self._between(a, b)) is None:
                untold.append((a, b))
                continue
            noted.setdefault(link.said, []).append(f"{a.name} -> {b.name}")
            grid = np.ix_(places[a.name], places[b.name])
            latency_s[grid], bytes_per_s[grid] = link.latency_s, link.bytes_per_s
            if link.ends is not None:
                estimates[BandwidthEstimate(BETWEEN, link.bytes_per_s, *link.ends)] = None
        if untold:
            raise TopologyError(self._wanted(untold))
        self.notes += [f"{_few(ways, 'links')}: {said}" for said, ways in noted.items()]
        is_estimated = any(said.startswith("estimated") for said in noted)
        return Topology(
            devices,
            latency_s,
            bytes_per_s,
            name=name,
            description="; ".join([f"From {', '.join(sources)}", *self.notes]),
            link_spread=ESTIMATED_SPREAD if is_estimated else LINK_SPREAD,
            estimates=tuple(estimates),
        )

    def _devices(self, host: ReportedHost) -> Iterator[Device]:
        for own, gpu in zip(_names(host), host.gpus, strict=True):
            fields = self._stated.fields(gpu)
            if host.price_per_hour is not None:
                fields["price_per_hour"] = host.price_per_hour
            yield Device(name=own, region=host.region, host=host.name if len(host.gpus) > 1 else "", **fields)

    def _inside(self, host: ReportedHost) -> tuple[dict[tuple[int, int], LinkSpeed], str]:
        """Return the links between every two GPUs of a host, and their origin."""
        pairs = list(permutations(range(len(host.gpus)), 2))
        measured = host.inside_bytes_per_s
        of_test = "" if measured is None else f"{format_gbps(to_gbps(measured))} by NCCL's tests"
        codes = {*host.between.values()}
        # A test by NCCL has timed all pairs together, which is best unless the matrix says that they differ.
        if measured is not None and (len(codes) < 2 or not any(code.startswith("NV") for code in codes)):
            return dict.fromkeys(pairs, LinkSpeed(NVLINK_S, measured, of_test)), of_test
        if not codes:
            speed = inside(host)
            return dict.fromkeys(pairs, speed), speed.said
        pcie = inside(host, bridged=False)
        said = pcie.said
        least = max(measured or 0.0, host.least_inside_bytes_per_s or 0.0)
        speeds, some_pcie = {}, False
        for pair in pairs:
            if (code := host.between[pair]).startswith("NV"):
                rate = min(bridge_bytes_per_s(host.gpus[i], int(code[2:])) for i in pair)
                speeds[pair] = LinkSpeed(NVLINK_S, max(rate, least), said)
            else:
                # Never below what a test has shown.
                some_pcie = True
                speeds[pair] = LinkSpeed(
                    PCIE_S, max(pcie.bytes_per_s, least), said, pcie.ends if pcie.bytes_per_s > least else None
                )
        standards = f"{', '.join(sorted(codes))} from nvidia-smi, at the speeds of these standards"
        rest = [of_test] if of_test else []
        return speeds, ", ".join([standards, *([said] if some_pcie or host.pcie else []), *rest])

    def _wanted(self, untold: Sequence[tuple[ReportedHost, ReportedHost]]) -> str:
        """Say which link is unknown, and what would determine it: the places of hosts.

        If several hosts of a cluster have no known place, only one is named.
        """
        (a, b), named, noted = untold[0], [], set()
        for host in chain.from_iterable(untold):
            if host.name not in noted and find_place(host.region) is None:
                together = [cluster for cluster in self.clusters if host.name in cluster]
                noted |= {host.name}.union(*together)
                named.append(host.name + (f" ({host.region} is not a known place)" if host.region else ""))
        given = " ".join(f"--at {name.partition(' ')[0]}=CITY" for name in named[:MOST_NAMED])
        return (
            f"the link {a.name} -> {b.name} is unknown; wanted iperf3 --json between them, or where "
            f"{listed(named, MOST_NAMED)} {'is' if len(named) == 1 else 'are'}: {given}, at= in Python"
        )

    def _between(self, a: ReportedHost, b: ReportedHost) -> LinkSpeed | None:
        """Return the link from one host to another: measured, or else estimated. None if nothing determines it."""
        there, back = self.tests.get((a.name, b.name)), self.tests.get((b.name, a.name))
        # Most links are alike both ways, so one direction stands for the other.
        test = there or back
        timed_s = next((each.latency_s for each in (there, back) if each and each.latency_s is not None), None)
        places = find_place(a.region), find_place(b.region)
        # Within a cluster distance says nothing; its switches do.
        if any(a.name in cluster and b.name in cluster for cluster in self.clusters) and a.region == b.region:
            speed = between_near(a, b)
        elif places[0] is not None and places[1] is not None:
            _, latency_s, rate = link_between(places[0], places[1])
            speed = LinkSpeed(latency_s, rate, "estimated from their distance", (rate / FARTHER, rate * FARTHER))
        elif test is None or timed_s is None:
            return None
        if test is None:
            return speed
        how = f"measured by {test.tool}" + ("" if there else " the other way")
        if timed_s is None:
            return LinkSpeed(
                speed.latency_s, test.bytes_per_s, f"{how}, latency estimated as {format_s(speed.latency_s)}"
            )
        return LinkSpeed(timed_s, test.bytes_per_s, how)


def _distinct(hosts: Sequence[ReportedHost]) -> Iterator[ReportedHost]:
    """Yield the hosts of one source. Addresses that several hosts share are dropped, such as a gateway's."""
    often = Counter(chain.from_iterable(host.addresses for host in hosts))
    for host in hosts:
        yield replace(host, addresses=frozenset(each for each in host.addresses if often[each] == 1))


def _merged(hosts: Sequence[ReportedHost]) -> list[ReportedHost]:
    """Merge the reports about the same host, which are those that share a name or an address."""
    merged: list[ReportedHost] = []
    for host in hosts:
        same = [one for one in merged if ({one.name} | one.addresses) & ({host.name} | host.addresses)]
        # At the place of the first report, so that devices stay in the order of the files.
        where = merged.index(same[0]) if same else len(merged)
        for one in same:
            host = _joined(one, host)
            merged.remove(one)
        merged.insert(where, host)
    return merged


def _joined(a: ReportedHost, b: ReportedHost) -> ReportedHost:
    """Merge two reports on one host, under the first name. Raises TopologyError if they contradict each other."""
    gpus = a.gpus or b.gpus
    if a.gpus and b.gpus:
        if len(a.gpus) != len(b.gpus):
            raise TopologyError(
                f"{a.name}: one source has {counted(len(a.gpus), 'GPU')}, another {len(b.gpus)}; wanted one number"
            )
        # The report with more memory sizes is the fuller one.
        gpus = max(a.gpus, b.gpus, key=lambda each: sum(gpu.memory_bytes is not None for gpu in each))
    numbers = a.numbers or b.numbers
    between = _of_numbers(a.between or b.between, numbers)
    if between and gpus and len({i for i, _ in between}) not in (0, len(gpus)):
        n = len({i for i, _ in between})
        raise TopologyError(
            f"{a.name}: nvidia-smi topo has {counted(n, 'GPU')}, another source {len(gpus)}; wanted one number"
        )
    if a.region and b.region and a.region != b.region:
        raise TopologyError(f"{a.name} is in {a.region} by one source and in {b.region} by another; wanted one region")
    return ReportedHost(
        name=a.name,
        addresses=(a.addresses | b.addresses | {b.name}) - {a.name},
        gpus=gpus,
        numbers=numbers,
        region=a.region or b.region,
        price_per_hour=b.price_per_hour if a.price_per_hour is None else a.price_per_hour,
        between=between,
        pcie=a.pcie or b.pcie,
        least_inside_bytes_per_s=b.least_inside_bytes_per_s
        if a.least_inside_bytes_per_s is None
        else a.least_inside_bytes_per_s,
        has_best_network=a.has_best_network or b.has_best_network,
        inside_bytes_per_s=b.inside_bytes_per_s if a.inside_bytes_per_s is None else a.inside_bytes_per_s,
    )


def _of_numbers(
    between: Mapping[tuple[int, int], str], numbers: tuple[int, ...] | None
) -> Mapping[tuple[int, int], str]:
    """Return the connections between the GPUs with these driver numbers, by their positions in ``numbers``. They are
    returned unchanged without ``numbers``, or if they are by position already."""
    if numbers is None or len({i for i, _ in between}) <= max(numbers):
        return between
    return {(i, j): between[numbers[i], numbers[j]] for i, j in permutations(range(len(numbers)), 2)}


def _names(host: ReportedHost) -> list[str]:
    """Return the device names of a host: its own name if it has one GPU, else the name with a number for each GPU."""
    return [host.name] if len(host.gpus) == 1 else [f"{host.name}-{number}" for number in range(len(host.gpus))]


def _few(names: Sequence[str], what: str) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{len(names)} {what}"
