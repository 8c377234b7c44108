"""Probe hosts over ``ssh``: their GPUs by NVIDIA's driver, and the links between every two of them.

Nothing is installed on a host. Each gets ``messages`` as a program for its python3, which listens on a free port. Hosts
connect to each other directly, because training does not send messages through this machine.
"""

import contextlib
import itertools
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeGuard

from dtfm_lab.domain.errors import LabError, RunError, TopologyError
from dtfm_lab.domain.network import LARGEST, Topology, as_number, check_text, hardware_of, known_gpu, shortened
from dtfm_lab.domain.units import format_gbps, from_gbps, from_ms, to_gbps, to_ms
from dtfm_lab.extensions.machines.network import network_from
from dtfm_lab.extensions.machines.probe.messages import REACH_S
from dtfm_lab.extensions.machines.probe.ssh_host import HostLost, SshHost, plain
from dtfm_lab.extensions.machines.probe.timing import bandwidth_of, checked_timing, one_way_s, sentence_of_pair
from dtfm_lab.extensions.machines.seen import MOST_GPUS, Measurement, ReportedGpu, ReportedHost, SourceReport
from dtfm_lab.extensions.machines.sources import ssh_config_among
from dtfm_lab.runtime.protocol.channels import ConnectionLost
from dtfm_lab.runtime.protocol.connections import is_loopback

MOST_HOSTS = 16
"""Maximum number of hosts of a probe."""
START_S = 45.0
"""Seconds within which all hosts must report their GPUs and listen."""
PAIRS_S = 100.0
"""Seconds for all pairs together. With the start, eight hosts take about two minutes."""
OVERRUN = 1.7
"""Factor by which a pair is expected to exceed its share of ``PAIRS_S``. On a slow line it takes about 1.5 to 2.1 times
its share, because every size is timed at least three times."""
LEAST_S = 1.0
"""Minimum seconds for a pair, both directions together."""
MOST_S = 6.0
"""Maximum seconds for a pair, both directions together."""
SILENT_S = 10.0
"""Maximum seconds without a byte between two hosts before their pair counts as lost."""
CLOSE_S = 3.0
"""Seconds for every ssh to end after its input has ended."""
TOOL = "the probe"
"""Name of the measuring tool, as the network's description gives it."""


def probe_over_ssh(
    hosts: Sequence[str],
    files: Sequence[str | os.PathLike[str]] = (),
    *,
    at: Mapping[str, str] | None = None,
    peak_tflops: Mapping[str, float] | None = None,
    memory_gib: Mapping[str, float] | None = None,
    gpus: Mapping[str, str] | None = None,
    report: Callable[[str], None] = lambda line: None,
    streams: int = 0,
    together: dict[tuple[str, str], float] | None = None,
) -> Topology:
    """Measure the network of hosts that answer to ``ssh`` without a prompt, in about two minutes.

    Nothing is installed on them. NVIDIA's driver reports their GPUs, and their python3 times messages between every two
    of them, directly. ``files``, ``at``, ``peak_tflops`` and ``memory_gib`` are as in ``lab.load_topology``. ssh reads
    an ssh config among the files. ``gpus`` names the hardware of hosts without nvidia-smi: ``{"ada": "MI300X:8"}``.
    ``report`` is called with a line of text about every step.

    With ``streams``, each pair also sends messages over this number of TCP streams at once, and ``together`` receives
    their bytes per second by pair. A host that fails is left out. A pair that does not reach each other is estimated if
    both places are known. The network's ``description`` says so.

    Raises RunError if fewer than two of several hosts are left, or if a single host fails. Raises LabError for wrong
    input.
    """
    given = _checked_names(hosts)
    stated = {name: _stated_gpus(name, gpu) for name, gpu in (gpus or {}).items()}
    if strange := sorted(stated.keys() - given.keys()):
        raise LabError(f"the GPU of {shortened(strange[0])} is given; wanted a host of the probe: {', '.join(given)}")
    with _Probe(given, ssh_config_among(files), stated, report, streams) as probe:

        def network(pairs: Iterable[Measurement]) -> Topology:
            where = f"a probe of {', '.join(probe.alive)} over ssh on {time.strftime('%Y-%m-%d')}"
            places = {host: region for host, region in (at or {}).items() if host not in probe.failed}
            return network_from(
                files, at=places, peak_tflops=peak_tflops, memory_gib=memory_gib, probed={where: probe.seen(pairs)}
            )

        probe.begin()
        if not files:
            probe.keep(name for name, host in probe.found.items() if host.gpus)
        probe.reach()
        # refuse what can be refused before two minutes are spent: a link that will not be measured, an unknown GPU
        planned = network(Measurement(*pair, 1.0, 1.0, TOOL) for way in probe.ways for pair in (way, way[::-1]))
        probe.keep(device.host or device.name for device in planned.devices)
        probe.time_pairs()
        if together is not None:
            together.update(probe.together)
        return network(probe.measured.values())


def _checked_names(hosts: Sequence[str]) -> dict[str, str]:
    """Return what to give to ssh for each host, by host name. The name leaves out a user before ``@``. Raises
    LabError."""
    hosts = [hosts] if isinstance(hosts, str) else hosts
    if not 1 <= len(hosts) <= MOST_HOSTS:
        raise LabError(f"{len(hosts)} hosts to probe; wanted 1 to {MOST_HOSTS}")
    given: dict[str, str] = {}
    for host in hosts:
        # A leading hyphen would be an option of ssh.
        if not isinstance(host, str) or not re.fullmatch(r"[^\s;-][^\s;]*", host) or host.endswith("@"):
            raise LabError(f"host {shortened(host)} is not a name for ssh; wanted one such as ada or user@10.0.0.1")
        check_text("host", name := host.rpartition("@")[2])
        if name in given:
            raise LabError(f"host {shortened(name)} is given twice; wanted each once")
        given[name] = host
    return given


def _stated_gpus(host: str, stated: str) -> tuple[ReportedGpu, ...]:
    """Return the GPUs of a host as its user states them. Raises TopologyError."""
    name, _, count = stated.partition(":")
    if known_gpu(name) is None and hardware_of(name) is None:
        raise TopologyError(f"{host}: {shortened(name)} is not in the table of GPUs; wanted one that is")
    if not re.fullmatch(r"\d{0,9}", count) or not 1 <= int(count or 1) <= MOST_GPUS:
        raise TopologyError(f"{host}: {name} are {shortened(count)}; wanted a whole number of GPUs, 1 to {MOST_GPUS}")
    return (ReportedGpu(name),) * int(count or 1)


class _Probe:
    """A running probe: the hosts that remain, and what was found about them. Leaving the context ends every ssh."""

    def __init__(
        self,
        given: Mapping[str, str],
        config: Path | None,
        stated: Mapping[str, tuple[ReportedGpu, ...]],
        report: Callable[[str], None],
        streams: int,
    ) -> None:
        self.alive: dict[str, SshHost] = {}
        self.found: dict[str, ReportedHost] = {}
        self.failed: dict[str, str] = {}
        """The reason for each host that was left out, by host name."""
        self.ways: dict[tuple[str, str], str] = {}
        """Address of the answering host by (timing host, answering host). Each pair that can be timed appears once."""
        self.measured: dict[tuple[str, str], Measurement] = {}
        self.together: dict[tuple[str, str], float] = {}
        """Bytes per second of several streams together, by (timing host, answering host). The timing host sends."""
        self._given, self._config, self._stated, self._report = given, config, stated, report
        self._streams = streams
        self._started: list[SshHost] = []
        self._reached_at: dict[str, tuple[list[str], int]] = {}
        """For each host, the addresses at which other hosts may reach it, and the port on which it listens."""
        self._unmeasured: dict[tuple[str, str], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self._started:
            host.hang_up()
        deadline_s = time.monotonic() + CLOSE_S
        for host in self._started:
            host.end(deadline_s)

    def begin(self) -> None:
        """Start the program on all hosts at once. Keep only the hosts that then listen."""
        # Random, so that a banner of the host cannot be taken for an answer.
        token, mark = secrets.token_hex(16), f"dtfm-{secrets.token_hex(8)}:"
        for name, given in self._given.items():
            self._started.append(SshHost(given, self._config, token, mark))
            self.alive[name] = self._started[-1]
        deadline_s = time.monotonic() + START_S
        for name, host in [*self.alive.items()]:
            with self._losing(name):
                hello = host.answer(deadline_s - time.monotonic())
                addresses, port = hello.get("addresses"), hello.get("port")
                if type(port) is not int or not 0 < port < 2**16 or not _are_addresses(addresses):
                    raise HostLost(f"listens at {plain(hello)}, wanted its addresses and port")
                self._reached_at[name] = list(dict.fromkeys([*addresses, host.address()])), port
                found, sentence = host.gpus(name)
                if name in self._stated:
                    found, sentence = ReportedHost(name=name, gpus=self._stated[name]), "its GPUs are as stated"
                known = frozenset(each for each in self._reached_at[name][0] if not is_loopback(each))
                self.found[name] = replace(found, addresses=known - {name})
                self._report(f"{name}: {sentence}")

    def keep(self, names: Iterable[str]) -> None:
        """Leave out all hosts except these. The others have no known GPU."""
        for name in set(self.alive).difference(names):
            self._lose(name, f"has no GPU that nvidia-smi or a file reports, wanted --gpu {name}=GPU to name it")

    def reach(self) -> None:
        """Let all hosts connect to all others at once, and note the pairs that do not reach each other."""
        names = [*self.alive]
        for name in names:
            self.alive[name].order(reach={other: self._reached_at[other] for other in names if other != name})
        said: dict[tuple[str, str], dict[str, Any]] = {}
        for name in names:
            with self._losing(name):
                reached = self.alive[name].answer(4 * REACH_S).get("reached")
                if not isinstance(reached, dict) or not all(isinstance(each, dict) for each in reached.values()):
                    raise HostLost(f"reached {plain(reached)}, wanted every other host")
                said |= {(name, other): reached.get(other, {}) for other in names}
        for a, b in itertools.combinations(self.alive, 2):
            ways = [way for way in ((a, b), (b, a)) if said[way].get("at") in self._reached_at[way[1]][0]]
            if ways:
                self.ways[ways[0]] = said[ways[0]]["at"]
                continue
            why = " and ".join(plain(said[way].get("why")) for way in ((a, b), (b, a)))
            self._leave(a, b, f"neither reaches the other ({why}), and training does not go through this machine")

    def time_pairs(self) -> None:
        """Time the pairs one after the other, so that none disturbs another."""
        ways = [*self.ways.items()]
        # the same time for all pairs: on a slow line, a shorter test overestimates the bandwidth
        seconds = min(max(PAIRS_S / OVERRUN / max(len(ways), 1), LEAST_S), MOST_S)
        for number, ((a, b), address) in enumerate(ways):
            if (a, b) not in self.ways:  # one of the two hosts was lost
                continue
            with self._losing(a):
                order: dict[str, Any] = {"address": address, "port": self._reached_at[b][1], "silence_s": SILENT_S}
                order |= {"streams": self._streams} if self._streams else {}
                self.alive[a].order(**order, seconds=seconds)
                answer = self.alive[a].answer((12 if self._streams else 8) * seconds + 3 * SILENT_S)
                if "lost" in answer:
                    self._leave(a, b, plain(answer["lost"]))
                    continue
                try:
                    timing = checked_timing(answer)
                except ConnectionLost as error:
                    raise HostLost(f"{error}, wanted those of messages to {b}") from None
                self._report(f"pair {number + 1} of {len(ways)}: {sentence_of_pair(a, b, timing)}")
                rate = as_number(answer.get("together_bytes_per_s"))
                if self._streams and rate is not None and 0 < rate < LARGEST:
                    self.together[a, b] = rate
                for one, other, way in ((a, b, "there"), (b, a, "back")):
                    rate = to_gbps(bandwidth_of(*one_way_s(timing["median_s"], timing[way])))
                    gbps, latency_ms = (float(f"{each:.4g}") for each in (rate, to_ms(timing["median_s"] / 2)))
                    self.measured[one, other] = Measurement(one, other, from_gbps(gbps), from_ms(latency_ms), TOOL)
        for name, host in [*self.alive.items()]:  # a host that only answered may have ended since
            with self._losing(name):
                host.order(reach={})
                host.answer(SILENT_S)

    def seen(self, measurements: Iterable[Measurement]) -> SourceReport:
        """Return what the probe knows, as the report of one source."""
        notes = [f"left out {name}: it {why}" for name, why in self.failed.items()]
        notes += [f"{a} - {b} not measured: {why}" for (a, b), why in self._unmeasured.items()]
        notes += [
            f"{a} -> {b}: {self._streams} TCP streams together {format_gbps(to_gbps(rate))}"
            for (a, b), rate in self.together.items()
        ]
        hosts = tuple(self.found[name] for name in self.alive)
        return SourceReport(hosts=hosts, measurements=tuple(measurements), notes=tuple(notes))

    def _leave(self, a: str, b: str, why: str) -> None:
        self._unmeasured[a, b] = why
        self._report(f"{a} - {b} not measured: {why}")

    @contextlib.contextmanager
    def _losing(self, name: str) -> Iterator[None]:
        try:
            yield
        except HostLost as error:
            self._lose(name, str(error))

    def _lose(self, name: str, why: str) -> None:
        """Leave a host out, with all its measurements. Raises RunError if too few are left."""
        self.alive.pop(name).hang_up()
        self.failed[name] = why
        for of_pairs in (self.ways, self.measured, self._unmeasured, self.together):
            for pair in [pair for pair in of_pairs if name in pair]:
                del of_pairs[pair]
        self._report(f"{name} is left out: it {why}")
        if len(self.alive) < min(2, len(self._given)):
            complaints = "; ".join(f"{name} {why}" for name, why in self.failed.items())
            raise RunError(f"{len(self.alive)} of {len(self._given)} hosts can be probed: {complaints}")


def _are_addresses(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and len(value) < 9 and all(isinstance(e, str) and len(e) < 256 for e in value)
