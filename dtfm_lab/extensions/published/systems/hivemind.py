"""Predict hivemind over clouds and continents: seconds of its averaging rounds and of its epochs, with RoBERTa-XLM of
560 million parameters in data parallelism. Also predict what TCP streams reach on the same links.

A peer averages one part of the gradient for all others, and streams the other parts to the peers that average them, all
at once (``sharded-at-once``). A part is averaged when every peer has sent it, and the next part waits for that
(``TensorPartReducer`` of hivemind's averaging/partition.py). So all streams of a host keep step. A stream reads its own
window as it comes in, then waits until the host has read the other peers' windows. That delay adds to the round trip.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import LINUX_WINDOW_BYTES, Topology, slow_start_s, streams_bandwidth
from dtfm_lab.domain.schedule import COMPUTE
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.units import by_key, from_gbps, from_ms, to_gbps
from dtfm_lab.extensions.published.calibration import median, own_factor
from dtfm_lab.extensions.published.row import Evidence, Row, assumptions, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import measured_model
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

MATCHMAKING_S = 5.0
"""Minimum seconds in which peers find each other before a round, according to the authors."""
ALONE = {"T4": 208.8, "A10": 462.5, "RTX8000": 431.8, "8 V100": 1811.4}
"""Samples/s of RoBERTa-XLM on each kind of host without hivemind, from the source's own runs."""
PREMISES = "RTX8000", "8 V100"
"""Kinds of hosts on the authors' own premises, a site in Germany."""
IPERF_S = 10.0
"""Default duration of an iperf test in seconds. Its mean includes the stream's slow start."""
MOST_RATE = from_gbps(10.0)
"""Bytes/s that no host was observed to exceed when receiving from its peers."""
STALLED = "160"
"""Number of streams in the test that reached only a hundredth of a Gbit/s. That test is left out."""
UNSTABLE = "F-B", "F-C"
"""Experiments that the paper calls unstable."""
ONE_ZONE = "one zone"
NEAR = "E-A", "F-A"
"""Experiments with hosts on the premises and in a cloud on the same continent. Links matter least in these."""
ASSUMED = assumptions()["hivemind"]
Pair = tuple[str, str]


class TcpStream(NamedTuple):
    """Measured speed and round trip of one stream between two places."""

    bytes_per_s: float
    round_trip_s: float


class Peer(NamedTuple):
    """One process of hivemind."""

    host: str
    """Kind of host, one of ``ALONE``."""
    place: str


@dataclass(frozen=True)
class Software:
    """Hivemind's effect on a host: how fast it receives, and extra seconds per round."""

    taken_bytes_per_s: Mapping[str, float]
    """Bytes/s that a host receives from all of its peers together, by kind of host. Hosts on the premises have the T4's
    value."""
    premises_s: float = 0.0
    """Seconds added to a round if a host on the premises takes part."""


@dataclass(frozen=True)
class HivemindRun:
    """One run with hivemind: a line of the measurements."""

    line: dict[str, str]

    @property
    def name(self) -> str:
        return self.line["run"]

    @property
    def experiment(self) -> str:
        return self.line["experiment"]

    @property
    def batch(self) -> float:
        """Samples per epoch."""
        return float(self.line["target_batch"])

    @property
    def averaging_s(self) -> float:
        return float(self.line["epoch_s"]) - float(self.line["compute_s"])

    @property
    def peers(self) -> list[Peer]:
        """The peers, from text such as ``1 RTX8000 in RTX8000 + 2 T4 in us``."""
        found: list[Peer] = []
        for part in self.line["peers"].split(" + "):
            n, host_and_place = part.split(" ", maxsplit=1)
            host, place = host_and_place.split(" in ")
            found += [Peer(host, place)] * int(n)
        return found

    @property
    def group(self) -> str:
        """Name of the run's group: where its peers are, which decides the round's seconds."""
        places = [peer.place for peer in self.peers]
        if set(places) & set(PREMISES):
            return "premises and cloud"
        if len(set(places)) == 1:
            return ONE_ZONE
        if self.experiment.startswith("D"):
            return "two clouds"
        return "continents, one peer a place" if len(set(places)) == len(places) else "continents, several a place"

    @property
    def share(self) -> float:
        """Samples/s relative to the same hosts without hivemind."""
        return float(self.line["local_sps"]) / sum(ALONE[peer.host] for peer in self.peers)

    @property
    def gradient_elements(self) -> int:
        return round(1e6 * float(self.line["params_million"]))


def runs() -> list[HivemindRun]:
    """Return all runs of the measurements."""
    return [HivemindRun(line) for line in numbers("wan_hivemind_roberta.csv")]


# ---------------------------------------------------------------------------------------------------------------------
# Links


def _tests() -> dict[tuple[Pair, int, bool], list[TcpStream]]:
    """Return the link tests by what was tested.

    A key has three parts: the two places in alphabetical order, the number of streams, and True if the test belongs to
    the series with several streams.
    """

    lines = [line for line in numbers("wan_links.csv") if line["threads"] != STALLED]

    def tested(line: dict[str, str]) -> tuple[tuple[Pair, int, bool], TcpStream]:
        first, second = sorted((line["from_place"], line["to_place"]))
        key = (first, second), int(line["threads"]), "multi-threaded" in line["experiment"]
        return key, TcpStream(from_gbps(float(line["gbps_mean"])), from_ms(float(line["ping_ms_mean"])))

    return by_key(tested(line) for line in lines)


def _mean(tests: list[TcpStream]) -> TcpStream:
    return TcpStream(*(float(np.mean(column)) for column in zip(*tests, strict=True)))


@cache
def single_streams() -> dict[Pair, TcpStream]:
    """Return what one stream reaches between two places, or within one: the mean of the tests with one stream. The
    series with several streams is left out."""
    return {pair: _mean(tests) for (pair, n, series), tests in _tests().items() if n == 1 and not series}


def network(peers: list[Peer], software: Software) -> Topology:
    """Return a network of these peers. Each link has the speed that a stream of hivemind reaches between its two
    peers."""
    n = len(peers)
    latency_s, reached = np.zeros((n, n)), np.ones((n, n))
    for i, a in enumerate(peers):
        for j, b in enumerate(peers):
            if i == j:
                continue
            first, second = sorted((a.place, b.place))
            alone = single_streams()[first, second]
            here = a.place == b.place  # within a place a stream fills its link, elsewhere its window
            window_bytes = LINUX_WINDOW_BYTES if here else alone.bytes_per_s * alone.round_trip_s
            taken = min(software.taken_bytes_per_s.get(peer.host, math.inf) for peer in (a, b))
            # All other peers send at the same time, and share what this one takes.
            others_s = (n - 2) * window_bytes / taken
            link = min(alone.bytes_per_s if here else math.inf, taken / (n - 1))
            reached[i, j] = streams_bandwidth(link, alone.round_trip_s + others_s, window_bytes=window_bytes)
            latency_s[i, j] = alone.round_trip_s / 2
    return Topology.from_matrices(latency_s=latency_s, bandwidth_bytes_per_s=reached, name="hivemind")


# ---------------------------------------------------------------------------------------------------------------------
# Rounds and epochs


def averaging_seconds(run: HivemindRun, software: Software) -> float:
    """Return the seconds of a round: the peers find each other and average their gradients."""
    peers = run.peers
    n = len(peers)
    job = Job(
        name="hivemind",
        model=measured_model("RoBERTa-XLM", [run.gradient_elements]),
        n_stages=1,
        n_replicas=n,
        global_batch=n,
        microbatch=1,
        dtype="fp16",
        synchronisation="sharded-at-once",
    )
    plan = evaluate(network(peers, software), job, stages=[list(range(n))])
    # Only the averaging is timed here, so computing takes no time.
    nothing = [ComputeTime(0, peer, kind, 0.0) for peer in range(n) for kind in COMPUTE]
    extra_s = software.premises_s if {peer.host for peer in peers} & set(PREMISES) else 0.0
    return simulate(plan, profile=nothing).iteration_s + MATCHMAKING_S + extra_s


def _own_rate(run: HivemindRun, host: str) -> float:
    """Return the bytes/s at which a host must receive, so that the predicted seconds of the round equal the measured
    ones."""

    def seconds(share: float) -> float:
        return averaging_seconds(run, Software({host: share * MOST_RATE}))

    return MOST_RATE * own_factor(seconds, run.averaging_s)


@dataclass(frozen=True)
class Fits:
    """What each run tells about hivemind, by the run's name. A run is predicted from what the others tell."""

    rates: Mapping[str, tuple[str, float]]
    """Kind of host, and the bytes/s that it receives according to this run. For the runs within one zone."""
    extras_s: Mapping[str, float]
    """Measured seconds of an averaging round minus the seconds predicted from ``rates`` alone, for runs of the
    experiments in ``NEAR``."""
    shares: Mapping[str, float]
    """Speed of a host with hivemind, as a share of its speed without."""

    @classmethod
    def of(cls, measured: Sequence[HivemindRun]) -> "Fits":
        """Return the rates, the extra seconds and the shares of these runs."""
        within = (run for run in measured if run.group == ONE_ZONE)
        rates = {run.name: (host := run.peers[0].host, _own_rate(run, host)) for run in within}
        software = Software(cls(rates, {}, {}).rates_without(""))
        near = (run for run in measured if run.experiment[:3] in NEAR)
        extras_s = {run.name: run.averaging_s - averaging_seconds(run, software) for run in near}
        return cls(rates, extras_s, {run.name: run.share for run in measured})

    def rates_without(self, name: str) -> dict[str, float]:
        """Return the median rate of the other runs in bytes/s, by kind of host. Hosts on the premises get the T4's."""
        rates = by_key(own for other, own in self.rates.items() if other != name)
        found = {host: median(each) for host, each in rates.items()}
        return found | dict.fromkeys(PREMISES, found["T4"])

    def software_for(self, run: HivemindRun) -> Software:
        """Return hivemind's receive rates (bytes/s) and extra seconds per round: the medians of ``rates`` and
        ``extras_s`` without this run."""
        extras_s = [extra_s for name, extra_s in self.extras_s.items() if name != run.name]
        return Software(self.rates_without(run.name), median(extras_s))

    def share_for(self, run: HivemindRun) -> float:
        """Return the median of ``shares`` over the other runs."""
        return median([share for name, share in self.shares.items() if name != run.name])


@published("hivemind")
def hivemind() -> Iterator[Row]:
    """Yield seconds of the rounds, and of the epochs including the hosts' computing; then the speeds of TCP streams."""
    measured = runs()
    fits = Fits.of(measured)
    for run in measured:
        software, share = fits.software_for(run), fits.share_for(run)
        averaging_s = averaging_seconds(run, software)
        epoch_s = run.batch / (share * sum(ALONE[peer.host] for peer in run.peers)) + averaging_s
        yield _row(run, "synchronisation", run.averaging_s, averaging_s, _fitted(run, software))
        fitted = f"{_fitted(run, software)}; {share:.3f} of the hosts' own speed, to all other runs"
        yield _row(run, "iteration", float(run.line["epoch_s"]), epoch_s, fitted)
    yield from _stream_rows()


def _row(run: HivemindRun, quantity: str, measured_s: float, predicted_s: float, fitted: str) -> Row:
    return Row(
        group=run.group,
        setting=f"{run.experiment}, {run.line['placement']}, batch {run.batch:g}",
        quantity=quantity,
        unit="s",
        published=measured_s,
        predicted=predicted_s,
        evidence=Evidence.LEAVE_ONE_OUT,
        assumptions=ASSUMED["rounds"],
        fitted=fitted,
        note="unstable, as its authors say" if run.experiment[:3] in UNSTABLE else "",
    )


def _fitted(run: HivemindRun, software: Software) -> str:
    hosts = sorted({"T4" if peer.host in PREMISES else peer.host for peer in run.peers})
    rates = " and ".join(
        f"{to_gbps(software.taken_bytes_per_s[host]):.2f} Gbit/s of a host of {host}" for host in hosts
    )
    premises = {peer.host for peer in run.peers} & set(PREMISES)
    extra = f"; {software.premises_s:.1f} s of the premises, to other runs of E-A and F-A" if premises else ""
    return f"{rates}, to other runs within one zone{extra}"


def _stream_rows() -> Iterator[Row]:
    """Yield the Gbit/s of one TCP stream and of several, predicted from Linux's default window, the slow start, and the
    places' own links."""
    for ((first, second), n, series), tests in _tests().items():
        # Two streams in one place have no distance to test.
        if first == second:
            continue
        measured, (own,) = _mean(tests), {_own_link(first, second)}
        opened = 1 - slow_start_s(measured.round_trip_s) / IPERF_S
        reached = opened * streams_bandwidth(own, measured.round_trip_s, n)
        again = ", series of several streams" if series else ""
        yield Row(
            group="TCP streams of the premises" if {first, second} & set(PREMISES) else "TCP streams between zones",
            setting=f"{first} and {second}, {n} stream{'s' * (n > 1)}{again}",
            quantity="bandwidth",
            unit="Gbit/s",
            published=to_gbps(measured.bytes_per_s),
            predicted=to_gbps(float(reached)),
            evidence=Evidence.PURE if own > n * LINUX_WINDOW_BYTES / measured.round_trip_s else Evidence.PROFILED,
            assumptions=ASSUMED["streams"],
        )


def _own_link(first: str, second: str) -> float:
    """Return the bytes/s of the slower of two places' own links. The premises' links are unknown and count as
    infinitely fast."""
    within = (single_streams().get((place, place)) for place in (first, second))
    return min((each.bytes_per_s for each in within if each), default=math.inf)
