"""Turn a topology into the mapping that ``topology_yaml`` reads.

People read these files, so the most common speeds are written as defaults and the rest as exceptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from dtfm_lab.domain.network import LINK_SPREAD, BandwidthEstimate, CollectiveSpeed, Device, MeasuredGpu, Topology
from dtfm_lab.domain.units import TERA, BoolArray, FloatArray, GiB, IntArray, by_key, to_gbps, to_ms

Speed = tuple[float, float]
"""Latency in ms and bandwidth in Gbit/s."""


def topology_to_mapping(topology: Topology, *, hosts: bool = True) -> dict[str, Any]:
    """Return a mapping from which ``topology_from_mapping`` makes an equal topology.

    Numbers that were entered in milliseconds and Gbit/s are read back exactly. Others may differ in the last bit or two
    of a float. Uplinks and downlinks of devices replace single links if that saves lines. Without ``hosts``, there is
    no section ``hosts``, because the canvas cannot draw it. Speeds inside hosts are then written as regions' speeds or
    as single links.
    """
    latency_ms, gbps = to_ms(topology.latency_s), to_gbps(topology.bandwidth_bytes_per_s)
    devices = [_device_mapping(d) for d in topology.devices]
    lines = _entries(topology, latency_ms, gbps, hosts=hosts)
    # Many single links may follow from few NICs, which make a shorter file.
    if len(lines["links"]) > len(topology):
        up, down = _nics(gbps)
        cap_gbps = np.minimum(up[:, None], down[None, :])
        capped = _entries(topology, latency_ms, gbps, hosts=hosts, cap_gbps=cap_gbps)
        # A NIC takes a line as well, so it has to save more lines than it needs.
        if len(capped["links"]) + len(topology) < len(lines["links"]):
            lines = capped
            for device, device_up, device_down in zip(devices, up, down, strict=True):
                device |= {"uplink_gbps": float(device_up), "downlink_gbps": float(device_down)}
    data: dict[str, Any] = {"dtfm_topology": 1, "name": topology.name}
    data |= {"description": topology.description} if topology.description else {}
    data |= {} if topology.link_spread == LINK_SPREAD else {"link_spread": topology.link_spread}
    data |= {"collectives": [_collective(one) for one in topology.collectives]} if topology.collectives else {}
    data |= {"estimates": [_estimate(one) for one in topology.estimates]} if topology.estimates else {}
    data |= {"default": lines["default"]} if lines["default"] else {}
    data |= {"regions": lines["regions"], "devices": devices}
    data |= {"hosts": lines["hosts"]} if lines["hosts"] else {}
    data |= {"between": lines["between"], "links": lines["links"]}
    return data | _measured(topology)


def _collective(speed: CollectiveSpeed) -> dict[str, Any]:
    return {name: value for name, value in asdict(speed).items() if value is not None}


def _estimate(estimate: BandwidthEstimate) -> dict[str, Any]:
    gbps = ("bandwidth_gbps", estimate.bandwidth_bytes_per_s), ("least_gbps", estimate.least_bytes_per_s)
    rates = dict((*gbps, ("most_gbps", estimate.most_bytes_per_s)))
    return {"links": estimate.where} | {name: float(to_gbps(rate)) for name, rate in rates.items()}


def _measured(topology: Topology) -> dict[str, Any]:
    """Return the file's ``measured``: block times by GPU, and message times by size for each measured directed link.

    Empty if nothing was measured.
    """
    gpus = {device.gpu: device.measured for device in topology.devices if device.measured is not None}
    found = _messages(topology) | ({"gpus": [_measured_gpu(*one) for one in gpus.items()]} if gpus else {})
    return {"measured": found} if found else {}


def _measured_gpu(gpu: str, measured: MeasuredGpu) -> dict[str, Any]:
    blocks = [
        {name: getattr(one, name) for name in ("d_model", "n_heads", "seq_len", "microbatch")}
        | {"forward_ms": float(to_ms(one.forward_s)), "backward_ms": float(to_ms(one.backward_s))}
        for one in measured.blocks
    ]
    numbers = {"block_launch_ms": float(to_ms(measured.block_launch_s)), "step_gib": measured.step_bytes / GiB}
    texts = {name: getattr(measured, name) for name in ("host", "date", "versions")}
    more = {name: value for name, value in (numbers | texts).items() if value}
    return {"gpu": gpu, "dtype": measured.dtype} | more | {"blocks": blocks}


def _messages(topology: Topology) -> dict[str, Any]:
    """Return times by message size with one entry per measured directed link; empty if none was measured."""
    if topology.message_bytes is None or topology.message_s is None:
        return {}
    names, times = topology.names, to_ms(topology.message_s)
    links = [
        {"from": names[i], "to": names[j], "message_ms": times[i, j].tolist()}
        for i, j in np.argwhere(~np.isnan(times[:, :, 0]))
    ]
    return {"message_bytes": topology.message_bytes.tolist(), "links": links}


def _nics(gbps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the narrowest uplink and downlink of each device, (N,) each, that do not reduce any link's bandwidth."""
    apart = gbps.copy()
    np.fill_diagonal(apart, 0.0)
    return apart.max(axis=1), apart.max(axis=0)


def _uncapped(region_of: list[str], gbps: FloatArray, cap_gbps: FloatArray) -> FloatArray:
    """Return (N, N) bandwidths within and between regions without the effect of NICs.

    For each region and pair of regions, it is the largest bandwidth below the cap of the devices' NICs. If no bandwidth
    is below the cap, it is the largest bandwidth of the network.
    """
    lines = np.full_like(gbps, gbps[~np.eye(len(gbps), dtype=bool)].max())
    members = {r: [i for i, region in enumerate(region_of) if region == r] for r in region_of}
    for a, b in product(members, members):
        block = np.ix_(members[a], members[b])
        if (unexplained := gbps[block][gbps[block] < cap_gbps[block]]).size:
            lines[block] = unexplained.max()
    return lines


def _entries(
    topology: Topology, latency_ms: FloatArray, gbps: FloatArray, *, hosts: bool, cap_gbps: FloatArray | None = None
) -> dict[str, Any]:
    """Return the file's ``default``, ``regions``, ``between``, ``hosts`` and ``links``.

    With ``cap_gbps``, (N, N), the file also has uplinks and downlinks. They cap the bandwidths that ``default``,
    ``regions`` and ``between`` give.
    """
    n = len(topology)
    region_of, host_of = _codes([d.region for d in topology.devices]), _codes([d.host for d in topology.devices])
    if cap_gbps is None:
        line_gbps, cap_gbps = gbps, np.full_like(gbps, np.inf)
    else:
        line_gbps = _uncapped([d.region for d in topology.devices], gbps, cap_gbps)
    real = _Speeds.of(latency_ms, gbps)
    lines = real if line_gbps is gbps else _Speeds.of(latency_ms, line_gbps)
    apart = ~np.eye(n, dtype=bool)
    across = apart & ((region_of[:, None] != region_of[None, :]) | (region_of < 0)[:, None])
    default = lines.commonest(across if across.any() else apart)
    members = {r: np.array([i for i in range(n) if topology.devices[i].region == r]) for r in topology.regions if r}
    inside_hosts = apart & (host_of[:, None] == host_of[None, :]) & (host_of >= 0)[:, None]
    stated: dict[tuple[str, str], Speed | None] = {}
    for region, ids in members.items():
        grid = np.ix_(ids, ids)
        between_hosts = apart[grid] & ~inside_hosts[grid]
        chosen = between_hosts if hosts and between_hosts.any() else apart[grid]
        stated[region, region] = lines.commonest(chosen, grid)
    between = []
    for a, b in combinations(members, 2):
        there, back = lines.codes[np.ix_(members[a], members[b])], lines.codes[np.ix_(members[b], members[a])].T
        speeds = lines.most_common(there), lines.most_common(back)
        # One way, if the two directions differ; else one line for both.
        if speeds[0] != speeds[1]:
            for source, target, s in ((a, b, speeds[0]), (b, a, speeds[1])):
                if s != default:
                    stated[source, target] = s
                    between.append({"from": source, "to": target, **_speed(s)})
        elif (s := lines.most_common(np.concatenate([there.ravel(), back.ravel()]))) != default:
            stated[a, b] = stated[b, a] = s
            between.append({"regions": [a, b], **_speed(s)})

    line_ms, wanted_gbps = (np.full((n, n), np.nan if default is None else default[k]) for k in (0, 1))
    for (a, b), speed in stated.items():
        grid = np.ix_(members[a], members[b])
        line_ms[grid], wanted_gbps[grid] = (np.nan, np.nan) if speed is None else speed
    wrong = ((line_ms != latency_ms) | (np.minimum(wanted_gbps, cap_gbps) != gbps)) & apart
    inside: dict[str, Speed] = {}
    for host, in_host in _members(topology).items() if hosts else ():
        grid = np.ix_(in_host, in_host)
        if wrong[grid].any():
            commonest = real.commonest(apart[grid], grid) or (0.0, 0.0)
            wrong[grid] = ((latency_ms[grid] != commonest[0]) | (gbps[grid] != commonest[1])) & apart[grid]
            inside[host] = commonest
    return {
        "default": _speed(default),
        "regions": [{"name": r} | _speed(stated[r, r]) for r in members],
        "hosts": [{"name": host} | _speed(speed) for host, speed in inside.items()],
        "between": between,
        "links": _links(topology.names, wrong, real),
    }


def _links(names: Sequence[str], wrong: BoolArray, real: _Speeds) -> list[dict[str, Any]]:
    """Return a line for each directed link whose speed the rest of the file does not state: those in ``wrong``, (N, N).

    If both directions are in ``wrong`` and equally fast, they share a line.
    """
    links: list[dict[str, Any]] = []
    for i, j in np.argwhere(np.triu(wrong | wrong.T)).tolist():
        apart = [(a, b) for a, b in ((i, j), (j, i)) if wrong[a, b]]
        if len(apart) == 2 and real.codes[i, j] == real.codes[j, i]:
            links.append({"between": [names[i], names[j]], **_speed(real.at(i, j))})
        else:
            links += [{"from": names[a], "to": names[b], **_speed(real.at(a, b))} for a, b in apart]
    return links


@dataclass(frozen=True, eq=False)
class _Speeds:
    """The speeds of all ordered pairs as integer codes, because a network of thousands of devices has millions of
    pairs."""

    codes: IntArray
    """(N, N) code of each pair's speed, in order of first appearance."""
    latencies_ms: FloatArray
    """(codes,) latency of each code."""
    bandwidths_gbps: FloatArray

    @classmethod
    def of(cls, latency_ms: FloatArray, gbps: FloatArray) -> _Speeds:
        import pandas as pd  # takes a while to load

        (slow, latencies), (fast, bandwidths) = (pd.factorize(each.ravel()) for each in (latency_ms, gbps))
        codes, pairs = pd.factorize(slow * len(bandwidths) + fast)
        slow, fast = np.divmod(np.asarray(pairs), len(bandwidths))
        return cls(codes.reshape(latency_ms.shape), np.asarray(latencies)[slow], np.asarray(bandwidths)[fast])

    def at(self, i: int, j: int) -> Speed:
        return self._speed(int(self.codes[i, j]))

    def commonest(self, chosen: BoolArray, grid: Any = ...) -> Speed | None:
        """Return the most common speed of the chosen pairs; None if no pair is chosen.

        ``grid`` selects a part of the matrix; ``chosen`` has its shape.
        """
        return self.most_common(self.codes[grid][chosen])

    def most_common(self, codes: IntArray) -> Speed | None:
        """Return the most common of these speeds (the first if tied); None if ``codes`` is empty."""
        if not codes.size:
            return None
        flat = codes.ravel()
        counts = np.bincount(flat)
        most = np.flatnonzero(counts == counts.max())
        return self._speed(int(most[0] if len(most) == 1 else flat[np.isin(flat, most).argmax()]))

    def _speed(self, code: int) -> Speed:
        return float(self.latencies_ms[code]), float(self.bandwidths_gbps[code])


def _codes(names: Sequence[str]) -> IntArray:
    """Return (N,) an integer code for each name, -1 for an empty one."""
    import pandas as pd  # takes a while to load

    return np.asarray(pd.factorize(np.array([name or None for name in names], dtype=object))[0])


def _members(topology: Topology) -> dict[str, list[int]]:
    """Return the devices of each host, ordered by first device. Devices without a host are left out."""
    return by_key((device.host, i) for i, device in enumerate(topology.devices) if device.host)


def _device_mapping(device: Device) -> dict[str, Any]:
    data: dict[str, Any] = {"name": device.name}
    data |= {"region": device.region} if device.region else {}
    data |= {"host": device.host} if device.host else {}
    data |= {"gpu": device.gpu, "peak_tflops": device.peak_flop_per_s / TERA, "memory_gib": device.memory_bytes / GiB}
    data |= {"price_per_hour": device.price_per_hour} if device.price_per_hour else {}
    if device.gpus > 1:
        inner = to_ms(device.inner_latency_s), to_gbps(device.inner_bandwidth_bytes_per_s)
        data |= {"gpus": device.gpus, "inner": _speed(inner)}
    data |= {"position": list(device.position)} if device.position else {}
    return data


def _speed(speed: Speed | None) -> dict[str, float]:
    return {} if speed is None else {"latency_ms": speed[0], "bandwidth_gbps": speed[1]}
