"""Missions about latency and bandwidth."""

from collections.abc import Callable, Mapping
from itertools import combinations
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.course.evidence import fresh_cases, near, number_from, require
from dtfm_lab.course.mission import Given, NotYet, mission
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate


def give_link(rng: np.random.Generator) -> Mapping[str, Any]:
    """A link between two cities."""
    return {"latency_ms": int(rng.integers(20, 200)), "bandwidth_gbps": int(rng.integers(2, 30)) / 10}


@mission(
    "half-and-half",
    lesson="02_network",
    title="Half latency, half bandwidth",
    takes=float,
    wanted="a number of bytes",
    give=give_link,
    hints=(
        "A message of b bytes takes latency + b / bandwidth. Which two parts are to be equal?",
        "Bandwidths are said in gigabits a second; eight bits are a byte.",
    ),
    answer="""
        answer = given.latency_ms / 1000 * given.bandwidth_gbps * 1e9 / 8
    """,
)
def half_and_half(size: float, given: Given) -> str:
    """A link has a latency of {latency_ms} ms and a bandwidth of {bandwidth_gbps} Gbit/s. For a message of how many
    bytes do the two cost the same time?
    """
    latency_s, bits_per_s = given.latency_ms / 1e3, given.bandwidth_gbps * 1e9
    wanted = latency_s * bits_per_s / 8
    near(
        size,
        wanted,
        slips={
            wanted * 8: "that is a number of bits",
            wanted * 1000: "that counts milliseconds as seconds",
            wanted / 1e6: "that is a number of megabytes",
            wanted * 8 / 1e6: "that is a number of megabits",
            wanted * 2: "that counts the way back too; a message goes one way",
        },
    )
    return f"Below {wanted / 1e6:.2f} MB this link's latency is the larger part, above it its bandwidth is."


@mission(
    "ring-by-hand",
    lesson="02_network",
    title="A ring, round by round",
    takes=FunctionType,
    wanted="a function of four numbers",
    hints=(
        "How many rounds until every part is summed somewhere? How many more until all devices have all sums?",
        "In a round each device sends one part, the n-th of the gradient, and that message pays latency, too.",
    ),
    answer="""
        def ring_s(n, n_bytes, latency_s, bandwidth_bytes_per_s):
            return 2 * (n - 1) * (latency_s + n_bytes / n / bandwidth_bytes_per_s)
        answer = ring_s
    """,
)
def ring_by_hand(function: Callable[..., Any], given: Given) -> str:
    """Hand in a function `ring_s(n, n_bytes, latency_s, bandwidth_bytes_per_s)` that returns the seconds in which a
    ring of `n` devices averages a gradient of `n_bytes`, all links alike. The judge is the simulator, which plays
    every message of rings that are drawn anew at each check.
    """
    rng = fresh_cases()
    for _ in range(4):
        # not of eight, where a part of the gradient in bits is as long as the whole in bytes
        n, latency_s = int(rng.choice([3, 4, 5, 6, 7, 9, 10, 11, 12])), float(rng.uniform(0.01, 0.1))
        bandwidth = float(10 ** rng.uniform(7, 9))
        n_bytes, wanted = _simulated_ring_s(n, latency_s, bandwidth, str(rng.choice(["tiny", "small", "gpt2-small"])))
        found = number_from(function, n, n_bytes, latency_s, bandwidth)
        send_s = n_bytes / n / bandwidth
        slips = {
            wanted / 2: "half of the rounds are missing: the sums have to come back",
            2 * n * (latency_s + send_s): "one round too many each way: nobody waits for a part of its own",
            2 * (n - 1) * (latency_s + n * send_s): "a round sends the n-th part of the gradient, not all of it",
            latency_s + 2 * (n - 1) * send_s: "every round waits for the latency, not only the first",
            2 * (n - 1) * send_s: "a round has a latency, too",
            2 * (n - 1) * (latency_s + 8 * send_s): "this bandwidth is in bytes a second; no bits are left to convert",
        }
        try:
            near(found, wanted, 1e-6, slips)
        except NotYet as error:
            asked = f"ring_s({n}, {n_bytes:.0f}, {latency_s:.4f}, {bandwidth:.4g})"
            raise NotYet(f"{asked} returned {found:.6g} s: {error}") from None
    return "Your function and a simulator that plays every message agree, on rings that neither had seen."


def _simulated_ring_s(n: int, latency_s: float, bandwidth: float, model: str) -> tuple[float, float]:
    """Bytes of the gradient, and seconds from the last backward until all devices have the average."""
    links = np.full((n, n), 1.0)
    network = Topology.from_matrices(latency_s=latency_s * links, bandwidth_bytes_per_s=bandwidth * links, gpu="H100")
    job = load_job("tiny", model=model, n_stages=1, n_replicas=n, global_batch=n, microbatch=1, synchronisation="ring")
    trace = simulate(evaluate(network, job, stages=[list(range(n))]))
    rows = trace.to_frame()
    return job.gradient_bytes, float(trace.iteration_s - rows["end_s"][rows["kind"] == "B"].max())


def give_upgrade(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan on a network without order, whose slowest link is not the one that is worth doubling."""
    job = load_job("tiny", n_stages=3, n_replicas=2, global_batch=24, microbatch=2, schedule="gpipe")
    while True:
        network = _scattered(rng, 6)
        plan = evaluate(network, job, stages=rng.permutation(6).reshape(3, 2).tolist())
        gains = _upgrade_gains(plan)
        best, second = sorted(gains.values(), reverse=True)[:2]
        if best > 1.3 * second and gains[_slowest(network)] < 0.5 * best:
            return {"plan": plan}


def _scattered(rng: np.random.Generator, n: int) -> Topology:
    """Devices with links drawn for each pair, named by rows of a table."""
    gbps = np.triu(10 ** rng.uniform(-1.7, 0, (n, n)), 1)
    latency_ms = np.triu(rng.uniform(2, 30, (n, n)), 1)
    names = ["ada", "alan", "barbara", "claude", "edsger", "grace", "john", "katherine"][:n]
    return Topology.from_matrices(latency_ms + latency_ms.T, gbps + gbps.T, names=names, name="scattered", gpu="T4")


def _upgrade_gains(plan: Plan) -> dict[frozenset[str], float]:
    """Seconds that twice the bandwidth of each pair of devices saves."""
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


@mission(
    "best-upgrade",
    lesson="02_network",
    title="Money for one link",
    takes=(list, tuple),
    wanted="two names of devices, such as ['ada', 'alan']",
    give=give_upgrade,
    hints=(
        "The slowest link of a network is worth nothing if little crosses it. Which links carry what others wait for?",
        "`lab.sensitivity(given.plan, factor=2)` tries every link; look at the rows `of` a link, for `bandwidth`.",
    ),
    answer="""
        gains = lab.sensitivity(given.plan, factor=2)
        links = gains[(gains["of"] == "link") & (gains["what"] == "bandwidth")]
        answer = links.sort_values("change_s").iloc[0]["name"].split(" - ")
    """,
)
def best_upgrade(pair: list[str], given: Given) -> str:
    """There is money to double the bandwidth of one link of `given.plan.topology`, in both directions; placement and
    schedule stay. Between which two devices does that shorten the iteration of `given.plan` most? Hand in their names
    as a list.
    """
    gains = _upgrade_gains(given.plan)
    chosen = frozenset(str(name) for name in pair)
    require(chosen in gains, f"found {list(pair)!r:.60}; wanted two of {', '.join(given.plan.topology.names)}")
    best_s, saved_s = max(gains.values()), gains[chosen]
    if saved_s < best_s * 0.999:
        slow = " It is the slowest link, but who waits for it?" if chosen == _slowest(given.plan.topology) else ""
        raise NotYet(f"that saves {saved_s * 1e3:.1f} ms an iteration; another link saves more.{slow}")
    nothing = sum(gain < 1e-3 * best_s for gain in gains.values())
    return f"It saves {best_s * 1e3:.0f} ms an iteration; on {nothing} of {len(gains)} links that would save nothing."


def give_mystery(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan priced on a map, and a trace of it on a network with one slower link, in one direction."""
    job = load_job("tiny", n_stages=4, n_replicas=2, global_batch=16, microbatch=2, schedule="gpipe")
    network = _scattered(rng, 8)
    plan = evaluate(network, job, stages=rng.permutation(8).reshape(4, 2).tolist())
    used = sorted({link for link in simulate(plan).to_frame()["link"] if link})
    source, target = str(rng.choice(used)).split(" -> ")
    share = float(rng.uniform(0.2, 0.6))
    before = float(network.bandwidth_bytes_per_s[network.index(source), network.index(target)])
    real = network.with_link(source, target, bandwidth_bytes_per_s=share * before, one_way=True)
    trace = simulate(evaluate(real, job, rank_map=plan.rank_map))
    return {"plan": plan, "trace": trace}


@mission(
    "mystery-link",
    lesson="02_network",
    title="The mystery link",
    takes=(list, tuple),
    wanted="[source, target, Gbit/s]",
    give=give_mystery,
    minutes=15,
    hints=(
        "`lab.simulate(given.plan)` is what should have happened. Lay the two traces side by side: what came late, and "
        "what merely waited for it?",
        "Waiting is never part of an action: a send lasts as long as its bytes occupy the link.",
        "Divide the seconds of each link's sends in one trace by those in the other: `trace.to_frame()` has `link`, "
        "`kind`, `start_s` and `end_s`.",
    ),
    answer="""
        def seconds(trace):
            rows = trace.to_frame()
            sends = rows[rows.kind.str.startswith("SEND")]
            return (sends.end_s - sends.start_s).groupby(sends.link).sum()

        longer = seconds(given.trace) / seconds(lab.simulate(given.plan))
        source, target = longer.idxmax().split(" -> ")
        _, gbps = given.plan.topology.to_matrices()
        answer = [source, target, gbps.loc[source, target] / longer.max()]
    """,
)
def mystery_link(answer: list[Any], given: Given) -> str:
    """`given.plan` was priced on the map of a network, and `given.trace` is what happened: one link, in one direction,
    has less bandwidth than its map says, and everything behind it is late. Find it. Hand in `[source, target, gbps]`,
    the bandwidth to 2 %.
    """
    require(len(answer) == 3, f"found {list(answer)!r:.60}; wanted [source, target, Gbit/s]")
    source, target, gbps = answer
    names = given.plan.topology.names
    require(
        source != target and all(isinstance(name, str) and name in names for name in (source, target)),
        f"found {[source, target]!r:.60}; wanted two of {', '.join(names)}",
    )
    sent_s, map_s = _sending_s(given.trace), _sending_s(given.plan)
    slow = str((sent_s / map_s).idxmax())
    if slow == f"{target} -> {source}":
        raise NotYet("these are the two devices, but the messages in the other direction are slow")
    require(
        f"{source} -> {target}" in map_s.index,
        f"nothing goes from {source} to {target} in this plan, so the trace says nothing about it",
    )
    require(slow == f"{source} -> {target}", f"messages from {source} to {target} take as long as the map says")
    require(isinstance(gbps, int | float | np.number) and not isinstance(gbps, bool), f"found {gbps!r:.40} Gbit/s")
    network = given.plan.topology
    on_map = float(network.bandwidth_bytes_per_s[network.index(source), network.index(target)]) * 8 / 1e9
    wanted = on_map * float(map_s[slow] / sent_s[slow])
    slips = {
        on_map: "that is what the map says",
        wanted / 8: "that is in gigabytes a second",
        wanted * 1000: "that is in megabits a second",
    }
    near(float(gbps), wanted, 0.02, slips)
    return (
        f"{slow} has {wanted:.3f} of {on_map:.3f} Gbit/s. Much was late, but only this was slow: `lab.compare` and "
        "`lab.refit` look for it in the same way."
    )


def _sending_s(of: Plan | Trace) -> pd.Series:
    """Seconds that each link's sends last, of a trace or of what a plan's would be."""
    rows = (simulate(of) if isinstance(of, Plan) else of).to_frame()
    sends = rows[rows["kind"].str.startswith("SEND")]
    return (sends["end_s"] - sends["start_s"]).groupby(sends["link"]).sum()
