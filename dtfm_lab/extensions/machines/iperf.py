"""Read tests of ``iperf3 --json`` or ``--json-stream`` between two hosts, written by a client or a server."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.units import format_gbps, to_gbps
from dtfm_lab.extensions.machines.seen import Measurement, SourceReport, ToolOutput
from dtfm_lab.files.reading import parse

STATES_LIMITS = 3, 10
"""First version of iperf3 whose output states the limit set by ``-b`` (esnet/iperf #1167)."""
OF_A_ROUND_RATE = 0.003
"""Relative tolerance within which a rate counts as round: 1, 2 or 5 times a power of ten.

A TCP test at a round rate counts as limited by ``-b`` if this version of iperf3 does not state limits. An unlimited
test is not at a round rate: it reaches the line rate minus headers, such as 941 Mbit/s.
"""


class _Ends(ToolOutput):
    local_host: str
    remote_host: str


class _Test(ToolOutput):
    protocol: str = "TCP"
    reverse: int = 0
    num_streams: int = 1
    target_bitrate: float | None = None
    """Limit of each stream in bit/s, set by ``-b``: 0 without a limit, None if the output does not state it. The
    default for UDP is 1 Mbit/s."""
    fqrate: float = 0.0
    """Limit of each stream in bit/s, set by ``--fq-rate``; 0 without a limit."""


class _Start(ToolOutput):
    connected: list[_Ends] = Field(min_length=1)
    version: str = ""
    accepted_connection: dict[str, Any] | None = None
    connecting_to: dict[str, Any] | None = None
    test_start: _Test


class _Rate(ToolOutput):
    bits_per_second: float = Field(ge=0, allow_inf_nan=False)
    lost_percent: float = Field(default=0, ge=0, le=100, allow_inf_nan=False)


class _Sender(ToolOutput):
    min_rtt: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Minimum round trip of the connection in microseconds; None if it is not reported."""


class _Stream(ToolOutput):
    sender: _Sender = _Sender()


class _IperfEnd(ToolOutput):
    sum_received: _Rate | None = None
    sum_sent: _Rate | None = None
    sum: _Rate | None = None
    sum_received_bidir_reverse: _Rate | None = None
    sum_sent_bidir_reverse: _Rate | None = None
    streams: list[_Stream] = Field(default_factory=list)


class _Iperf(ToolOutput):
    start: _Start
    end: _IperfEnd


def is_iperf(data: object) -> bool:
    return isinstance(data, dict) and "start" in data and ("intervals" in data or "error" in data)


def is_event(data: object) -> bool:
    """Return True for a line of ``--json-stream``."""
    return isinstance(data, dict) and isinstance(data.get("event"), str) and "data" in data


def tests_of(events: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the tests of a stream of events, each as ``--json`` would print it. A test that was cut off has no
    ``end``."""
    test: dict[str, Any] = {}
    for event in events:
        if event["event"] == "start" and test:
            yield test
            test = {}
        if event["event"] in ("start", "end", "error"):
            test.setdefault("intervals", [])
            test[event["event"]] = event["data"]
    if test:
        yield test


def read_iperf(data: object, path: Path) -> SourceReport:
    """Read the bandwidth at which data arrived, from sender to receiver, and the latency: half of TCP's minimum round
    trip.

    With ``--bidir``, the bandwidth in the other direction is read too. In a server's output ``local_host`` is the
    server: the client sends, unless the test was reversed. Raises FileError if the test failed or has not ended, or if
    no data was received.
    """
    if isinstance(data, dict) and data.get("error"):
        raise FileError(f"{path.name}: iperf3 failed: {shortened(data['error'])}; wanted a finished test")
    if isinstance(data, dict) and "end" not in data:
        raise FileError(f"{path.name}: holds a test of iperf3 that has no end; wanted a finished test")
    measured = parse(_Iperf, data, path.name)
    ends, test = measured.start.connected[0], measured.start.test_start
    rate = _received(measured.end.sum_received or measured.end.sum, measured.end.sum_sent)
    back = _received(measured.end.sum_received_bidir_reverse, measured.end.sum_sent_bidir_reverse)
    if not rate:
        raise FileError(f"{path.name}: no data was received; wanted a test that received data")
    client, server = ends.local_host, ends.remote_host
    # Only a server accepts, so the file is the server's, and its two ends are swapped.
    if measured.start.accepted_connection is not None and measured.start.connecting_to is None:
        client, server = server, client
    source, target = (server, client) if test.reverse else (client, server)
    tool = _checked(measured.start, max(rate, back), path)
    round_trips = [stream.sender.min_rtt for stream in measured.end.streams if stream.sender.min_rtt]
    # Half the shortest round trip, in microseconds: the others waited in queues.
    latency_s = min(round_trips) / 2e6 if round_trips else None
    both = [(source, target, rate), (target, source, back)]
    return SourceReport(measurements=tuple(Measurement(a, b, way / 8, latency_s, tool) for a, b, way in both if way))


def _received(received: _Rate | None, sent: _Rate | None) -> float:
    """Return bits per second received. A server that sends does not learn what arrived, so its sent rate counts."""
    rate = received if received is not None and received.bits_per_second else sent
    return 0.0 if rate is None else rate.bits_per_second * (1 - rate.lost_percent / 100)


def _checked(start: _Start, bits_per_s: float, path: Path) -> str:
    """Return the tool's name for the network's description. Raises FileError if an option limited the rate of the test,
    or may have limited it."""
    test, wanted = start.test_start, "wanted a test without -u or -b"
    limits = [each for each in (test.target_bitrate, test.fqrate) if each]
    limit_bits_per_s = min(limits, default=0.0) * test.num_streams
    # At nine tenths of a limit, the limit was measured and not the link.
    if 0 < 0.9 * limit_bits_per_s < bits_per_s:
        sent = format_gbps(to_gbps(limit_bits_per_s / 8))
        raise FileError(f"{path.name}: iperf3 was limited to {sent}, and reached it; {wanted}")
    version = re.search(r"\b(\d{1,4})\.(\d{1,4})", start.version[:200])
    states_limits = version is None or (int(version[1]), int(version[2])) >= STATES_LIMITS
    if test.target_bitrate is not None or (states_limits and test.protocol.upper() == "TCP"):
        return "iperf3"
    named = f"iperf3 {version[1]}.{version[2]}" if version else "iperf3"
    if test.protocol.upper() != "TCP":
        raise FileError(
            f"{path.name}: a test of {shortened(test.protocol)} sends what -b says, 1 Mbit/s by default, and {named} "
            f"does not record the limit; {wanted}"
        )
    # Old versions do not record -b, but a link is hardly ever at a round number.
    if _is_round(bits_per_s):
        raise FileError(
            f"{path.name}: the rate is {format_gbps(to_gbps(bits_per_s / 8))}, as if -b had limited it, and {named} "
            f"does not say whether it did; {wanted}, or by iperf3 3.10 or newer"
        )
    return f"{named} (which does not say whether -b limited the rate)"


def _is_round(bits_per_s: float) -> bool:
    """Return True if the rate is almost exactly round (``OF_A_ROUND_RATE``), as a person would set it."""
    power = 10.0 ** (len(f"{bits_per_s:.0f}") - 1)
    return any(abs(bits_per_s / (power * digit) - 1) < OF_A_ROUND_RATE for digit in (1, 2, 5, 10))
