"""Scripts for Linux's ``tc`` that make the links between real hosts as slow as the drawn ones.

A host shapes what it sends: each other host has a class of its own (htb) that holds the rate, and in it a queue
(netem) that holds the delay, one way. The way back is shaped by the other host. tc tells hosts apart by address,
not devices: where two hosts share several links, all take the slowest one's numbers. Links within a host stay as
they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import to_gbps, to_ms
from dtfm_lab.runtime.multihost.hosts import Host
from dtfm_lab.runtime.protocol.run_spec import RunSpec

FIRST_CLASS = 0x10
PACKET_BYTES = 1500


@dataclass(frozen=True)
class Shaped:
    """One way from a host to another."""

    target: Host
    latency_s: float
    bandwidth_bytes_per_s: float
    n_links: int
    """between devices of the two"""
    alike: bool
    """whether all of them are drawn with these numbers"""


def shaped_ways(spec: RunSpec, hosts: Sequence[Host], source: Host) -> list[Shaped]:
    """What a host's script does; hosts of the same address are one machine, and left out."""
    network = spec.plan.topology if spec.emulated is None else spec.emulated
    return [_way(spec, network, source, host) for host in hosts if host.address != source.address]


def _way(spec: RunSpec, network: Topology, source: Host, target: Host) -> Shaped:
    ours, theirs = ([spec.device(*spec.workers[rank]) for rank in host.workers] for host in (source, target))
    latency_s, bandwidth = (m[np.ix_(ours, theirs)] for m in (network.latency_s, network.bandwidth_bytes_per_s))
    alike = bool(np.ptp(latency_s) == 0 and np.ptp(bandwidth) == 0)
    return Shaped(target, float(latency_s.max()), float(bandwidth.min()), latency_s.size, alike)


def shape_script(source: Host, ways: Sequence[Shaped]) -> str:
    """Shell script that shapes what the host sends; to be run there as root."""
    if not ways:
        return _script([f"# host {source.name} has nobody to send to", "exit 0"])
    lines = [
        f"# Makes what host {source.name} sends as slow as drawn. Run it here, as root; unshape.sh undoes it.",
        "# Delays are one way, of what this host sends: the way back is shaped by the other host's script, and",
        "# ping between two shaped hosts shows the sum of both. They come on top of the real network's own.",
        "# Needs tc (iproute2) and the kernel modules sch_htb and sch_netem.",
        "set -eu",
        "",
        *_interface(source, ways[0].target),
        "",
        "address_of() {",
        "    found=$(getent ahostsv4 \"$1\" | awk 'NR == 1 { print $1 }')",
        '    if [ -z "$found" ]; then echo "no address of $1 is known" >&2; exit 1; fi',
        '    echo "$found"',
        "}",
        "",
        'tc qdisc del dev "$interface" root 2> /dev/null || true',
        'tc qdisc add dev "$interface" root handle 1: htb',
    ]
    for number, way in enumerate(ways, start=FIRST_CLASS):
        lines += ["", *_class(number, way)]
    return _script(lines)


def unshape_script(source: Host, ways: Sequence[Shaped]) -> str:
    """Undoes ``shape_script``."""
    if not ways:
        return _script([f"# host {source.name} shapes nothing", "exit 0"])
    return _script(
        [
            f"# Undoes shape.sh on host {source.name}. Run it here, as root.",
            "set -eu",
            "",
            *_interface(source, ways[0].target),
            "",
            'tc qdisc del dev "$interface" root',
        ]
    )


def _interface(source: Host, target: Host) -> list[str]:
    if source.interface is not None:
        return [f"interface=${{1:-{source.interface}}}"]
    route = f"ip -o route get \"$(getent ahosts {quote(target.address)} | awk 'NR == 1 {{ print $1 }}')\""
    return [
        "interface=${1:-}",
        'if [ -z "$interface" ]; then',
        f"    interface=$({route} | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p')",
        "fi",
    ]


def _class(number: int, way: Shaped) -> Iterator[str]:
    rate_bit = max(round(8 * way.bandwidth_bytes_per_s), 8)
    delay_us = round(way.latency_s * 1e6)
    told = "" if way.alike else f", the slowest of {way.n_links} drawn links"
    yield (
        f"# to {way.target.name}: {to_ms(way.latency_s):.4g} ms one way, "
        f"{to_gbps(way.bandwidth_bytes_per_s):.4g} Gbit/s{told}"
    )
    class_id = f"1:{number:x}"
    yield f'tc class add dev "$interface" parent 1: classid {class_id} htb rate {rate_bit}bit quantum 6000'
    if delay_us:
        # netem drops what does not fit: all that is under way at full rate, half as much again, and a queue
        packets = 1000 + math.ceil(1.5 * way.latency_s * way.bandwidth_bytes_per_s / PACKET_BYTES)
        yield (
            f'tc qdisc add dev "$interface" parent {class_id} handle {number:x}: '
            f"netem delay {delay_us}us limit {min(packets, 10**9)}"
        )
    if ":" in way.target.address:
        match = f"protocol ipv6 prio 2 u32 match ip6 dst {way.target.address}/128"
    else:
        yield f"address=$(address_of {quote(way.target.address)})"
        match = 'protocol ip prio 1 u32 match ip dst "$address"/32'
    yield f'tc filter add dev "$interface" parent 1: {match} flowid {class_id}'


def _script(lines: Sequence[str]) -> str:
    return "\n".join(["#!/bin/sh", *lines]) + "\n"
