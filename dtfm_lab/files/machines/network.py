"""Merges what several sources say of one's machines into a network, and says what it took from where."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, permutations
from pathlib import Path
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import FileError, TopologyError
from dtfm_lab.domain.network import (
    LINK_SPREAD,
    Device,
    Topology,
    as_number,
    check_count,
    find_place,
    hardware_of,
    known_gpu,
    link_between,
)
from dtfm_lab.domain.registry import listed, unknown
from dtfm_lab.domain.units import GB, TERA, counted, format_gbps, format_s, to_gbps
from dtfm_lab.files.machines import clusters, host_tools, skypilot
from dtfm_lab.files.machines.seen import Gpu, Host, Measurement, Seen
from dtfm_lab.files.reading import located, read_mapping, read_text

MOST_BYTES = 2**26
"""Largest source: a catalogue of Amazon's has some 10 MB."""
ESTIMATED_SPREAD = 0.5
"""``link_spread`` of a network with a link that nobody measured: one standard deviation is a factor of 1.65."""
NEAR = 1e-4, 10e9 / 8
"""Seconds and bytes a second between two hosts of one cluster that nobody timed: ordinary 10 Gbit/s Ethernet."""
NVLINK_S, PCIE_S = 1e-5, 2e-5
"""Seconds of a message of no length inside a host, as the networks that come with the lab have them."""
NVLINK_GB_PER_S = {"P100": 20.0, "B200": 50.0, "RTX 3090": 14.06, "RTX A6000": 14.06, "A40": 14.06}
"""GB/s of one NVLink in one direction, where it is not 25 (V100, A100, H100): NVIDIA's data sheets, half of the totals
over the number of links."""
PCIE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of a PCIe lane in one direction, by generation (PCI-SIG, after coding)."""
USUAL_PCIE = 4, 16
MOST_NAMED = 4
"""Most hosts without a place that a refusal names."""

OF_TEXT: Sequence[tuple[Callable[[str], bool], Callable[[str, Path], Seen]]] = (
    (host_tools.is_smi, host_tools.read_smi),
    (host_tools.is_nccl, host_tools.read_nccl),
    (host_tools.is_topo, host_tools.read_topo),
    (clusters.is_slurm, clusters.read_slurm),
    (clusters.is_ssh, clusters.read_ssh),
)
OF_DATA: Sequence[tuple[Callable[[object], bool], Callable[[object, Path], Seen]]] = (
    (host_tools.is_iperf, host_tools.read_iperf),
    (clusters.is_kubernetes, clusters.read_kubernetes),
    (clusters.is_ray, clusters.read_ray),
)
READ = (
    "nvidia-smi -q -x, nvidia-smi topo -m, iperf3 --json, a test of NCCL, kubectl get nodes -o json, ray list nodes "
    "--format json, scontrol show node, sinfo -N -o '%N %G', an ssh config, a SkyPilot task (YAML) or catalogue (CSV)"
)


def network_from(
    paths: Iterable[str | os.PathLike[str]],
    *,
    at: Mapping[str, str] | None = None,
    peak_tflops: Mapping[str, float] | None = None,
    probed: Mapping[str, Seen] | None = None,
    name: str = "my-machines",
) -> Topology:
    """The network of the machines of which these files, outputs of tools, tell; see ``READ`` for the tools.

    ``at`` has regions of hosts by name. ``peak_tflops`` has TFLOP/s in half precision of GPUs that are not in the table
    of hardware, by their tools' names. ``probed`` is what was not read from files, by where it is from; hosts keep the
    names that it has. The description says what was measured, estimated and left out.

    Raises FileError for a file that no reader knows or that is broken, and TopologyError for hosts whose GPUs or links
    nothing tells; each in one line.
    """
    files = [Path(path) for path in paths]
    probed = dict(probed or {})
    if not files and not probed:
        raise FileError(f"no file is given; wanted one or more of: {READ}")
    offers: skypilot.Offers = {}
    tasks: list[tuple[Any, Path]] = []
    seen = [*probed.values()]
    for path in files:
        text = read_text(path, MOST_BYTES)
        data = _data(text, path)
        if skypilot.is_catalogue(text):
            offers |= skypilot.read_catalogue(text, path)
        elif skypilot.is_task(data):
            tasks.append((data, path))
        else:
            seen.append(_read(text, data, path))
    seen += [skypilot.read_task(data, path, offers) for data, path in tasks]
    if offers and not tasks:
        raise FileError("a catalogue has offers and no machines; wanted a SkyPilot task beside it that says which")
    sources = [*probed, *(path.name for path in files)]
    with located(", ".join(sources)):
        return _Assembly(seen, dict(at or {}), dict(peak_tflops or {})).topology(name, sources)


def ssh_config_among(paths: Iterable[str | os.PathLike[str]]) -> Path | None:
    """The first of these files that is an ssh config."""
    for path in map(Path, paths):
        text = read_text(path, MOST_BYTES)
        readers = (read for is_written, read in OF_TEXT if is_written(text))
        if text.lstrip()[:1] not in ("{", "[") and next(readers, None) is clusters.read_ssh:
            return path
    return None


def _data(text: str, path: Path) -> object:
    """What the file holds as JSON or, where its name says so, as YAML; None for other text."""
    if path.suffix.lower() in (".yaml", ".yml"):
        return read_mapping(path)
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{path}: line {error.lineno}, column {error.colno}: broken JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise FileError(
            f"{path}: holds JSON that is too deep or a number out of range; wanted a tool's output"
        ) from None


def _read(text: str, data: object, path: Path) -> Seen:
    for is_known, read in OF_DATA:
        if data is not None and is_known(data):
            return read(data, path)
    for is_written, read_written in OF_TEXT:
        if data is None and is_written(text):
            return read_written(text, path)
    raise FileError(f"{path.name}: is the output of no tool that is read; wanted {READ}")


class _Assembly:
    """The hosts of all sources, merged, and what is known between them."""

    def __init__(self, seen: Sequence[Seen], at: dict[str, str], peak_tflops: dict[str, float]) -> None:
        self.notes = [note for each in seen for note in each.notes]
        self.clusters: list[set[str]] = []
        self._peak_tflops = peak_tflops
        hosts = _merged(list(chain.from_iterable(_told_apart(each.hosts) for each in seen)))
        of_address = {known: host.name for host in hosts for known in (host.name, *host.addresses)}
        if strange := sorted(at.keys() - of_address.keys()):
            raise unknown("host", strange[0], of_address)
        self.clusters += [{of_address[host.name] for host in each.hosts} for each in seen if each.are_near]
        hosts = self._placed(hosts, {of_address[address]: region for address, region in at.items()})
        if without := [host.name for host in hosts if not host.gpus]:
            self.notes.append(f"left out, as nothing tells their GPUs: {', '.join(without)}")
        self.hosts = [host for host in hosts if host.gpus]
        if not self.hosts:
            raise TopologyError("no source tells of a GPU; wanted nvidia-smi -q -x of each host, or a list of nodes")
        check_count(sum(len(host.gpus) for host in self.hosts))
        self.tests: dict[tuple[str, str], Measurement] = {}
        strange_ends: dict[str, None] = {}
        for test in chain.from_iterable(each.measurements for each in seen):
            ends = of_address.get(test.source), of_address.get(test.target)
            strange_ends |= dict.fromkeys(e for e, known in zip(test[:2], ends, strict=True) if known is None)
            if None not in ends:
                self.tests[ends] = test  # type: ignore[index]  # neither is None
        if strange_ends:
            self.notes.append(f"left out, as no host has this address: measurements of {', '.join(strange_ends)}")

    def _placed(self, hosts: list[Host], at: dict[str, str]) -> list[Host]:
        """The hosts where ``at`` says they are. With a host whose region is no known place go those of its cluster that
        are there, too."""
        places = dict(at)
        region_of = {host.name: host.region for host in hosts}
        for cluster in self.clusters:
            for region in {region_of[name] for name in cluster}:
                there = [name for name in cluster if region_of[name] == region]
                given = {at[name] for name in there if name in at}
                if len(given) == 1 and find_place(region) is None:
                    places |= dict.fromkeys(there, *given)
        return [replace(host, region=places.get(host.name, host.region)) for host in hosts]

    def topology(self, name: str, sources: Sequence[str]) -> Topology:
        devices = tuple(device for host in self.hosts for device in self._devices(host))
        at = {device.name: i for i, device in enumerate(devices)}
        places = {host.name: [at[own] for own in _names(host)] for host in self.hosts}
        latency_s, bytes_per_s = np.zeros((2, len(devices), len(devices)))
        told: dict[str, list[str]] = {}
        for host in self.hosts:
            if len(here := places[host.name]) > 1:
                speeds, said = self._inside(host)
                told.setdefault(said, []).append(host.name)
                for (i, j), (seconds, rate) in speeds.items():
                    latency_s[here[i], here[j]], bytes_per_s[here[i], here[j]] = seconds, rate
        self.notes += [f"inside {_few(hosts, 'hosts')}: {said}" for said, hosts in told.items()]
        told.clear()
        untold = []
        for a, b in permutations(self.hosts, 2):
            if (link := self._between(a, b)) is None:
                untold.append((a, b))
                continue
            seconds, rate, said = link
            told.setdefault(said, []).append(f"{a.name} -> {b.name}")
            grid = np.ix_(places[a.name], places[b.name])
            latency_s[grid], bytes_per_s[grid] = seconds, rate
        if untold:
            raise TopologyError(self._wanted(untold))
        self.notes += [f"{_few(ways, 'links')}: {said}" for said, ways in told.items()]
        return Topology(
            devices,
            latency_s,
            bytes_per_s,
            name=name,
            description="; ".join([f"From {', '.join(sources)}", *self.notes]),
            link_spread=ESTIMATED_SPREAD if any(said.startswith("estimated") for said in told) else LINK_SPREAD,
        )

    def _devices(self, host: Host) -> Iterator[Device]:
        for own, gpu in zip(_names(host), host.gpus, strict=True):
            fields = self._hardware(host, gpu)
            if gpu.memory_bytes is not None:
                fields["memory_bytes"] = gpu.memory_bytes
            if host.price_per_hour is not None:
                fields["price_per_hour"] = host.price_per_hour
            yield Device(name=own, region=host.region, host=host.name if len(host.gpus) > 1 else "", **fields)

    def _hardware(self, host: Host, gpu: Gpu) -> dict[str, Any]:
        if (known := known_gpu(gpu.name, gpu.memory_bytes)) is not None:
            return {"gpu": known}
        if hardware_of(gpu.name) is not None:  # a whole computer, such as a laptop, by the table's own name
            return {"gpu": gpu.name}
        peak = next((v for k, v in self._peak_tflops.items() if k.casefold() == gpu.name.casefold()), None)
        if peak is None or gpu.memory_bytes is None:
            wanted = "its peak_tflops" if gpu.memory_bytes else "nvidia-smi -q -x of the host, which has its memory"
            raise TopologyError(f"{host.name}: {gpu.name!r} is not in the table of GPUs; wanted {wanted}")
        if (number := as_number(peak)) is None or not 0 < number * TERA < 1e30:
            raise TopologyError(f"peak_tflops of {gpu.name!r} is {peak!r}; wanted TFLOP/s in half precision")
        return {"gpu": gpu.name, "peak_flop_per_s": number * TERA}

    def _inside(self, host: Host) -> tuple[dict[tuple[int, int], tuple[float, float]], str]:
        """Seconds and bytes a second between every two GPUs of a host, and from where they are."""
        pairs = list(permutations(range(len(host.gpus)), 2))
        if host.inside_bytes_per_s is not None:
            rate = host.inside_bytes_per_s
            return dict.fromkeys(pairs, (NVLINK_S, rate)), f"{format_gbps(to_gbps(rate))} by NCCL's tests"
        generation, lanes = host.pcie or USUAL_PCIE
        pcie = PCIE_S, PCIE_GB_PER_S.get(generation, PCIE_GB_PER_S[4]) * lanes * GB
        said = f"PCIe {generation} x{lanes}" + ("" if host.pcie else ", estimated: nothing tells more")
        speeds = dict.fromkeys(pairs, pcie)
        if not host.between:
            return speeds, said
        kind = known_gpu(*host.gpus[0]) or ""
        for pair in pairs:
            if (code := host.between[pair]).startswith("NV"):
                speeds[pair] = NVLINK_S, int(code[2:]) * NVLINK_GB_PER_S.get(kind, 25.0) * GB
        return (
            speeds,
            f"{', '.join(sorted({*host.between.values()}))} as nvidia-smi says, at their standards' speeds, {said}",
        )

    def _wanted(self, untold: Sequence[tuple[Host, Host]]) -> str:
        """What tells the links that nothing tells: the place of each host that has none, of a cluster of one."""
        (a, b), named, told = untold[0], [], set()
        for host in chain.from_iterable(untold):
            if host.name not in told and find_place(host.region) is None:
                together = [cluster for cluster in self.clusters if host.name in cluster]
                told |= {host.name}.union(*together)
                named.append(host.name + (f" ({host.region} is no known place)" if host.region else ""))
        given = " ".join(f"--at {name.partition(' ')[0]}=CITY" for name in named[:MOST_NAMED])
        return (
            f"nothing tells the link {a.name} -> {b.name}; wanted iperf3 --json between them, or where "
            f"{listed(named, MOST_NAMED)} {'is' if len(named) == 1 else 'are'}: {given}, at= in Python"
        )

    def _between(self, a: Host, b: Host) -> tuple[float, float, str] | None:
        """Seconds, bytes a second and from where they are, from one host to another; None where nothing tells."""
        there, back = self.tests.get((a.name, b.name)), self.tests.get((b.name, a.name))
        test = there or back
        timed_s = next((each.latency_s for each in (there, back) if each and each.latency_s is not None), None)
        places = find_place(a.region), find_place(b.region)
        if any(a.name in cluster and b.name in cluster for cluster in self.clusters) and a.region == b.region:
            latency_s, bytes_per_s, said = *NEAR, "10 Gbit/s in one cluster"
        elif places[0] is not None and places[1] is not None:
            (_, latency_s, bytes_per_s), said = link_between(places[0], places[1]), "from their distance"
        elif test is None or timed_s is None:
            return None
        if test is None:
            return latency_s, bytes_per_s, f"estimated {said}"
        how = f"measured by {test.tool}" + ("" if there else " the other way")
        if timed_s is None:
            return latency_s, test.bytes_per_s, f"{how}, latency estimated as {format_s(latency_s)}"
        return timed_s, test.bytes_per_s, how


def _told_apart(hosts: Sequence[Host]) -> Iterator[Host]:
    """Hosts of one source, without addresses that several of them have, such as that of a gateway."""
    often = Counter(chain.from_iterable(host.addresses for host in hosts))
    for host in hosts:
        yield replace(host, addresses=frozenset(each for each in host.addresses if often[each] == 1))


def _merged(hosts: Sequence[Host]) -> list[Host]:
    """One of each host; sources that name one alike, or share an address, speak of the same."""
    merged: list[Host] = []
    for host in hosts:
        same = [one for one in merged if ({one.name} | one.addresses) & ({host.name} | host.addresses)]
        where = merged.index(same[0]) if same else len(merged)
        for one in same:
            host = _joined(one, host)
            merged.remove(one)
        merged.insert(where, host)
    return merged


def _joined(a: Host, b: Host) -> Host:
    """Both in one, under the first one's name."""
    gpus = a.gpus or b.gpus
    if a.gpus and b.gpus:
        if len(a.gpus) != len(b.gpus):
            raise TopologyError(
                f"{a.name}: one source has {counted(len(a.gpus), 'GPU')}, another {len(b.gpus)}; wanted one number"
            )
        gpus = max(a.gpus, b.gpus, key=lambda each: sum(gpu.memory_bytes is not None for gpu in each))
    between = a.between or b.between
    if between and gpus and len({i for i, _ in between}) not in (0, len(gpus)):
        n = len({i for i, _ in between})
        raise TopologyError(
            f"{a.name}: nvidia-smi topo tells of {counted(n, 'GPU')}, another source of {len(gpus)}; wanted one number"
        )
    if a.region and b.region and a.region != b.region:
        raise TopologyError(f"{a.name} is in {a.region} by one source and in {b.region} by another; wanted one region")
    return Host(
        name=a.name,
        addresses=(a.addresses | b.addresses | {b.name}) - {a.name},
        gpus=gpus,
        region=a.region or b.region,
        price_per_hour=b.price_per_hour if a.price_per_hour is None else a.price_per_hour,
        between=between,
        pcie=a.pcie or b.pcie,
        inside_bytes_per_s=b.inside_bytes_per_s if a.inside_bytes_per_s is None else a.inside_bytes_per_s,
    )


def _names(host: Host) -> list[str]:
    """The devices of a host: the host's own name where it has one GPU."""
    return [host.name] if len(host.gpus) == 1 else [f"{host.name}-{number}" for number in range(len(host.gpus))]


def _few(names: Sequence[str], what: str) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{len(names)} {what}"
