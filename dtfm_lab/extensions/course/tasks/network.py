"""Missions about latency and bandwidth."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.course.checks import (
    MissionsOf,
    Number,
    TextValues,
    Trial,
    once_per_reader,
    require,
)
from dtfm_lab.extensions.course.mission import Given, NotYet
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

lesson = MissionsOf("02_network")


def give_link(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return the latency (ms) and the bandwidth (Gbit/s) of a link between two cities."""
    return {"latency_ms": int(rng.integers(20, 200)), "bandwidth_gbps": int(rng.integers(2, 30)) / 10}


@lesson.number("half-and-half", give=give_link)
def half_and_half(given: Given) -> Number:
    latency_s, bits_per_s = given.latency_ms / 1e3, given.bandwidth_gbps * 1e9
    wanted = latency_s * bits_per_s / 8
    slips = {"bits": wanted * 8, "milliseconds": wanted * 1000, "megabytes": wanted / 1e6}
    slips |= {"megabits": wanted * 8 / 1e6, "way_back": wanted * 2}
    return Number(wanted, slips, {"megabytes": wanted / 1e6})


@lesson.function("ring-by-hand")
def ring_by_hand(rng: np.random.Generator) -> Iterator[Trial]:
    for _ in range(4):
        # not 8 devices: a shard of the gradient in bits would be the same number as the whole in bytes
        n, latency_s = int(rng.choice([3, 4, 5, 6, 7, 9, 10, 11, 12])), float(rng.uniform(0.01, 0.1))
        bandwidth = float(10 ** rng.uniform(7, 9))
        n_bytes, wanted = _simulated_ring_s(n, latency_s, bandwidth, str(rng.choice(["tiny", "small", "gpt2-small"])))
        send_s = n_bytes / n / bandwidth
        slips = {
            "half": wanted / 2,
            "round_too_many": 2 * n * (latency_s + send_s),
            "whole_gradient": 2 * (n - 1) * (latency_s + n * send_s),
            "one_latency": latency_s + 2 * (n - 1) * send_s,
            "no_latency": 2 * (n - 1) * send_s,
            "bits": 2 * (n - 1) * (latency_s + 8 * send_s),
        }
        about = f"of ({n}, {n_bytes:.0f}, {latency_s:.4f}, {bandwidth:.4g})"
        yield Trial((n, n_bytes, latency_s, bandwidth), wanted, slips, about=about)


def _simulated_ring_s(n: int, latency_s: float, bandwidth: float, model: str) -> tuple[float, float]:
    """Return the bytes of the gradient, and the seconds from the last backward until all devices have the average."""
    links = np.full((n, n), 1.0)
    network = Topology.from_matrices(latency_s=latency_s * links, bandwidth_bytes_per_s=bandwidth * links, gpu="H100")
    job = load_job("tiny", model=model, n_stages=1, n_replicas=n, global_batch=n, microbatch=1, synchronisation="ring")
    trace = simulate(evaluate(network, job, stages=[list(range(n))]))
    rows = trace.to_frame()
    return job.gradient_bytes, float(trace.iteration_s - rows["end_s"][rows["kind"] == "B"].max())


NAMES = ["ada", "alan", "barbara", "claude", "edsger", "grace"]


def give_upgrade(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a plan on a random network. Doubling the bandwidth of its slowest link is not the upgrade that saves
    most."""
    job = load_job("tiny", n_stages=3, n_replicas=2, global_batch=24, microbatch=2, schedule="gpipe")
    while True:
        gbps, latency_ms = np.triu(10 ** rng.uniform(-1.7, 0, (6, 6)), 1), np.triu(rng.uniform(2, 30, (6, 6)), 1)
        network = Topology.from_matrices(
            latency_ms + latency_ms.T, gbps + gbps.T, names=NAMES, name="scattered", gpu="T4"
        )
        plan = evaluate(network, job, stages=rng.permutation(6).reshape(3, 2).tolist())
        gains = _upgrade_gains(plan)
        best, second = sorted(gains.values(), reverse=True)[:2]
        if best > 1.3 * second and gains[_slowest(network)] < 0.5 * best:
            return {"plan": plan}


def _upgrade_gains(plan: Plan) -> dict[frozenset[str], float]:
    """Return, for each pair of devices, the seconds of an iteration that twice the bandwidth between them would
    save."""
    network, before_s = plan.topology, simulate(plan).iteration_s
    gains = {}
    for a, b in combinations(range(len(network)), 2):
        faster = network.with_link(a, b, bandwidth_bytes_per_s=2 * float(network.bandwidth_bytes_per_s[a, b]))
        after = evaluate(faster, plan.job, rank_map=plan.rank_map)
        gains[frozenset((network.names[a], network.names[b]))] = before_s - simulate(after).iteration_s
    return gains


def _slowest(network: Topology) -> frozenset[str]:
    a, b = np.unravel_index(int(network.bandwidth_bytes_per_s.argmin()), (len(network),) * 2)
    return frozenset((network.names[int(a)], network.names[int(b)]))


@once_per_reader
def gains_of(given: Given) -> dict[frozenset[str], float]:
    return _upgrade_gains(given.plan)


def most_by_one_link(given: Given, pair: Sequence[str]) -> Number:
    """Return the milliseconds of an iteration that are saved if bytes on the chosen link take no time."""
    plan, before_s = given.plan, simulate(given.plan).iteration_s
    a, b = (plan.topology.index(name) for name in pair)
    free = plan.topology.with_link(a, b, bandwidth_bytes_per_s=1e6 * float(plan.topology.bandwidth_bytes_per_s[a, b]))
    wanted = 1e3 * (before_s - simulate(evaluate(free, plan.job, rank_map=plan.rank_map)).iteration_s)
    doubled = 1e3 * gains_of(given)[frozenset(pair)]
    return Number(wanted, {"doubled": doubled, "twice": 2 * doubled, "seconds": wanted / 1e3})


@lesson.mission("best-upgrade", takes=(list, tuple), reason=most_by_one_link, give=give_upgrade)
def best_upgrade(pair: list[str], given: Given) -> TextValues:
    gains = gains_of(given)
    chosen = frozenset(str(name) for name in pair)
    require(chosen in gains, f"found {list(pair)!r:.60}; wanted two of {', '.join(given.plan.topology.names)}")
    best_s, saved_s = max(gains.values()), gains[chosen]
    if saved_s < best_s * 0.999:
        slow = " It is the slowest link, but what waits for it?" if chosen == _slowest(given.plan.topology) else ""
        raise NotYet(f"that saves {saved_s * 1e3:.1f} ms an iteration; another link saves more.{slow}")
    nothing = sum(gain < 1e-3 * best_s for gain in gains.values())
    return {"saved_ms": best_s * 1e3, "nothing": nothing, "links": counted(len(gains), "link")}
