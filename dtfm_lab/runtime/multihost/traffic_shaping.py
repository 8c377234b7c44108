"""Scripts for Linux's ``tc`` that make the links between real hosts as slow as the drawn ones.

A host shapes the traffic that it sends: each other host has a class (htb) with the link's rate, and in it a queue
(netem) with the link's one-way delay. The other host shapes the opposite direction. tc distinguishes hosts by address,
not devices: several links between two hosts all get the slowest one's numbers. Links within a host are not shaped.

Where the network names the host of a machine's devices, they share its card: all classes to other machines are
children of one class with the card's rate. Each child is sure of an equal share of it and borrows the rest, up to its
link's own rate. The card's rate is that of its fastest link to another host.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import to_gbps, to_ms
from dtfm_lab.runtime.multihost.hosts import Host
from dtfm_lab.runtime.protocol.run_spec import RunSpec

FIRST_CLASS = 0x10
"""Number of the first class and queue; a hexadecimal number in the script."""
CARD_CLASS = "1:1"
"""The class of a shared card, of which those of the directions are children."""
PACKET_BYTES = 1500


@dataclass(frozen=True)
class ShapedDirection:
    """The traffic of one host to another."""

    target: Host
    latency_s: float
    bandwidth_bytes_per_s: float
    n_links: int
    """Number of drawn links between devices of the two hosts."""
    alike: bool
    """Whether all of these links have the same latency and bandwidth."""


def shaped_directions(spec: RunSpec, hosts: Sequence[Host], source: Host) -> list[ShapedDirection]:
    """The directions that a host shapes. Hosts of the same address are one machine and left out."""
    network = spec.plan.topology if spec.emulated is None else spec.emulated
    return [_direction_to(spec, network, source, host) for host in hosts if host.address != source.address]


def _direction_to(spec: RunSpec, network: Topology, source: Host, target: Host) -> ShapedDirection:
    ours, theirs = ([spec.device(*spec.workers[rank]) for rank in host.workers] for host in (source, target))
    latency_s, bandwidth = (m[np.ix_(ours, theirs)] for m in (network.latency_s, network.bandwidth_bytes_per_s))
    alike = bool(np.ptp(latency_s) == 0 and np.ptp(bandwidth) == 0)
    return ShapedDirection(target, float(latency_s.max()), float(bandwidth.min()), latency_s.size, alike)


def card_bytes_per_s(spec: RunSpec, source: Host) -> float | None:
    """Rate of the network card that the machine's devices share; None where the network names no host of theirs.

    Raises LabError where they belong to several hosts of the network.
    """
    network = spec.plan.topology if spec.emulated is None else spec.emulated
    devices = [spec.device(*spec.workers[rank]) for rank in source.workers]
    hosts = {network.devices[device].host for device in devices}
    if hosts <= {""}:
        return None
    if len(hosts) > 1:
        found = ", ".join(sorted(host or "none" for host in hosts))
        raise LabError(f"host {source.name}: its devices are drawn on several hosts ({found}); wanted those of one")
    others = [i for i, device in enumerate(network.devices) if device.host not in hosts]
    return float(network.bandwidth_bytes_per_s[np.ix_(devices, others)].max()) if others else None


def shape_script(source: Host, directions: Sequence[ShapedDirection], card_rate: float | None = None) -> str:
    """A shell script that shapes what the host sends, to be run there as root; ``card_rate`` in bytes/s."""
    if not directions:
        return _script([f"# host {source.name} has nobody to send to", "exit 0"])
    lines = [
        f"# Makes what host {source.name} sends as slow as drawn. Run it here, as root; unshape.sh undoes it.",
        "# Delays are one way, of what this host sends: the way back is shaped by the other host's script, and",
        "# ping between two shaped hosts shows the sum of both. They come on top of the real network's own.",
        "# Needs tc (iproute2) and the kernel modules sch_htb and sch_netem.",
        "set -eu",
        "",
        *_interface(source, directions[0].target),
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
    if card_rate is not None:
        card_bit = _bits(card_rate)
        lines += ["", f"# the card that this host's devices share: {to_gbps(card_rate):.4g} Gbit/s, borrowed in turn"]
        lines += [f'tc class add dev "$interface" parent 1: classid {CARD_CLASS} htb rate {card_bit}bit quantum 6000']
    share = None if card_rate is None else card_rate / len(directions)
    for number, direction in enumerate(directions, start=FIRST_CLASS):
        lines += ["", *_class_lines(number, direction, share)]
    return _script(lines)


def unshape_script(source: Host, directions: Sequence[ShapedDirection]) -> str:
    """A shell script that undoes ``shape_script``."""
    if not directions:
        return _script([f"# host {source.name} shapes nothing", "exit 0"])
    return _script(
        [
            f"# Undoes shape.sh on host {source.name}. Run it here, as root.",
            "set -eu",
            "",
            *_interface(source, directions[0].target),
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


def _bits(bytes_per_s: float) -> int:
    return max(round(8 * bytes_per_s), 8)


def _class_lines(number: int, direction: ShapedDirection, share: float | None) -> Iterator[str]:
    """Class, queue and filter of a direction; ``share`` is what it is sure of where it borrows from the card."""
    rate_bit = _bits(direction.bandwidth_bytes_per_s)
    delay_us = round(direction.latency_s * 1e6)
    which = "" if direction.alike else f", the slowest of {direction.n_links} drawn links"
    yield (
        f"# to {direction.target.name}: {to_ms(direction.latency_s):.4g} ms one way, "
        f"{to_gbps(direction.bandwidth_bytes_per_s):.4g} Gbit/s{which}"
    )
    class_id = f"1:{number:x}"
    if share is None:
        yield f'tc class add dev "$interface" parent 1: classid {class_id} htb rate {rate_bit}bit quantum 6000'
    else:
        sure_bit = min(_bits(share), rate_bit)
        yield (
            f'tc class add dev "$interface" parent {CARD_CLASS} classid {class_id} '
            f"htb rate {sure_bit}bit ceil {rate_bit}bit quantum 6000"
        )
    if delay_us:
        # netem drops packets beyond its limit: all that are in flight at full rate, half as many again, and a queue
        packets = 1000 + math.ceil(1.5 * direction.latency_s * direction.bandwidth_bytes_per_s / PACKET_BYTES)
        yield (
            f'tc qdisc add dev "$interface" parent {class_id} handle {number:x}: '
            f"netem delay {delay_us}us limit {min(packets, 10**9)}"
        )
    if ":" in direction.target.address:
        match = f"protocol ipv6 prio 2 u32 match ip6 dst {direction.target.address}/128"
    else:
        yield f"address=$(address_of {quote(direction.target.address)})"
        match = 'protocol ip prio 1 u32 match ip dst "$address"/32'
    yield f'tc filter add dev "$interface" parent 1: {match} flowid {class_id}'


def _script(lines: Sequence[str]) -> str:
    return "\n".join(["#!/bin/sh", *lines]) + "\n"
