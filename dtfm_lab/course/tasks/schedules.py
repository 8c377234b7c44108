"""Missions about the order in which stages work."""

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from dtfm_lab.course.evidence import fresh_cases, near, number_from, require
from dtfm_lab.course.mission import Given, mission
from dtfm_lab.course.small_networks import equal_profile, row
from dtfm_lab.domain.schedule import Kind, Schedule
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.schedules import build_named, peak_activations

ROUNDING = 1.001
"""Iterations this close are equally long: messages have bytes, which take a little beside their latency."""
N_CASES = 4
"""Fresh random cases on which a function of the reader's own is tried."""


def give_pipeline(rng: np.random.Generator) -> Mapping[str, Any]:
    """Sizes of a pipeline, and milliseconds of its passes."""
    return {
        "n_stages": int(rng.integers(5, 25)),
        "n_microbatches": int(rng.integers(30, 130)),
        "forward_ms": int(rng.integers(10, 60)),
        "backward_ms": int(rng.integers(61, 120)),
    }


@mission(
    "bubble-share",
    lesson="08_schedules",
    title="The bubble's share",
    takes=float,
    wanted="a share between 0 and 1",
    give=give_pipeline,
    hints=(
        "A device computes M forwards and M backwards. How long does the iteration last, by the formula of section 2?",
        "Write idle time over the whole time; what becomes of f + b?",
    ),
    answer="""
        answer = (given.n_stages - 1) / (given.n_microbatches + given.n_stages - 1)
    """,
)
def bubble_share(share: float, given: Given) -> str:
    """GPipe on {n_stages} equal devices with free links, {n_microbatches} micro-batches a pipeline: a forward takes
    {forward_ms} ms, a backward {backward_ms} ms. Which share of the iteration is each device idle?
    """
    idle, working = given.n_stages - 1, given.n_microbatches
    wanted = idle / (working + idle)
    near(
        share,
        wanted,
        tolerance=0.002,
        slips={
            100 * wanted: "that is in per cent; wanted a share between 0 and 1",
            idle / working: "that is idle time in shares of the time at work; wanted in shares of the iteration",
            1 - wanted: "that is the share at work",
            given.n_stages / (working + given.n_stages): "the first device of a pipeline waits for nobody at first: "
            "count again how many passes the last one waits",
        },
    )
    return (
        f"{wanted:.1%}, whatever a pass takes: f + b stands above and below the line. Twice the micro-batches make "
        f"it {idle / (2 * working + idle):.1%}."
    )


@mission(
    "one-more-microbatch",
    lesson="08_schedules",
    title="What one more micro-batch costs 1F1B",
    takes=FunctionType,
    wanted="a function of (n_devices, forward_s, backward_s, hop_s)",
    minutes=15,
    hints=(
        "At most S micro-batches are on their way at the first device: no new one begins before one is back.",
        "How long is one on its way, from the begin of its first forward to the end of its last backward? It is "
        "computed S times forward and back, and crosses S - 1 hops twice.",
        "S of them are done in each such time, as a shop with S seats serves S guests an hour if each stays an hour.",
    ),
    answer="""
        def one_more(n_devices, forward_s, backward_s, hop_s):
            on_its_way_s = n_devices * (forward_s + backward_s) + 2 * (n_devices - 1) * hop_s
            return on_its_way_s / n_devices

        answer = one_more
    """,
)
def one_more_microbatch(function: Callable[..., Any], given: Given) -> str:
    """Equal devices in a row, each message takes `hop_s`, and 1F1B has long begun to take turns. Hand in a function of
    `(n_devices, forward_s, backward_s, hop_s)` that returns by how many seconds the iteration grows with one more
    micro-batch, in the mean over many. It is tried on random rows against the simulator.
    """
    rng = fresh_cases()
    for _ in range(N_CASES):
        n_devices = int(rng.integers(2, 8))
        forward_s, backward_s, hop_s = (float(x) for x in rng.uniform([0.5, 1, 0.5], [2, 3, 4]))
        profile = equal_profile(n_devices, forward_s, backward_s)
        short_s, long_s = (
            simulate(row([hop_s] * (n_devices - 1), times * n_devices), "1f1b", profile=profile).iteration_s
            for times in (4, 8)
        )
        wanted = (long_s - short_s) / (4 * n_devices)
        found = number_from(function, n_devices, forward_s, backward_s, hop_s)
        near(
            found,
            wanted,
            tolerance=1e-3,
            slips={
                forward_s + backward_s: "that holds where messages take no time",
                forward_s + backward_s + 2 * hop_s: "so it would be with one micro-batch on its way at each hop and "
                "nothing to do meanwhile; S micro-batches share the wait",
            },
        )
    return (
        "With at most S micro-batches on their way, S are done in each round trip. That is Little's law, and it holds "
        "for every schedule: to be as fast as the devices, hold as many as a round trip lasts turns."
    )


def give_slow_row(rng: np.random.Generator) -> Mapping[str, Any]:
    """A row of unequal slow links; forwards take 1 s and backwards 2 s."""
    n_devices, n_microbatches = int(rng.integers(6, 9)), int(rng.integers(48, 64))
    # hops that fill whole turns would make it a matter of rounding
    hops_s = [float(rng.choice([0.4, 0.8, 1.2, 1.8, 2.2, 2.6])) for _ in range(n_devices - 1)]
    return {
        "plan": row(hops_s, n_microbatches),
        "profile": equal_profile(n_devices),
        "hops_s": hops_s,
        "most": sum(_turns(hop_s) for hop_s in hops_s) + 1,
    }


def _turns(hop_s: float) -> int:
    """Turns, a forward and a backward of 3 s together, until a micro-batch is back from the next device."""
    return int(np.ceil((3 + 2 * hop_s) / 3))


@mission(
    "deep-enough",
    lesson="08_schedules",
    title="As short as GPipe, with few activations",
    takes=(list, tuple),
    wanted="a list of warm-ups, one for each device",
    give=give_slow_row,
    minutes=15,
    hints=(
        "Two neighbours: after its forward, the next device is reached one hop later, computes forward and back, and "
        "the gradient needs a hop too. For how many turns of 3 s must the device before have something to do?",
        "A device takes whole turns: round up, at every hop anew.",
        "The last device needs no forward ahead. Each device before needs those of its next neighbour, and the turns "
        "of the hop between them.",
    ),
    answer="""
        import math
        answer = [0]
        for hop_s in reversed(given.hops_s):
            answer.insert(0, answer[0] + math.ceil((3 + 2 * hop_s) / 3))
    """,
)
def deep_enough(warmups: list[int], given: Given) -> str:
    """A row of devices, forwards of 1 s and backwards of 2 s; messages over its hops, first to last, take {hops_s}
    seconds each way. (`given.plan` and `given.profile` are this row, for `lab.simulate`.) Hand in the warm-ups of
    `adaptive-1f1b`, one number a device, with which an iteration is as short as GPipe's though the first device holds
    at most {most} activations.
    """
    job = given.plan.job
    numbers = [int(each) for each in warmups if isinstance(each, (int, np.integer)) and not isinstance(each, bool)]
    require(len(numbers) == len(warmups), "warm-ups are whole numbers, one for each device")
    schedule = build_named("adaptive-1f1b", job.n_stages, job.n_microbatches, {"warmups": lambda: numbers})
    held = peak_activations(schedule)[0]
    require(held <= given.most, f"the first device holds {held} activations; wanted at most {given.most}")
    found_s = simulate(given.plan, schedule, profile=given.profile).iteration_s
    shortest_s = simulate(given.plan, "gpipe", profile=given.profile).iteration_s
    require(
        found_s <= ROUNDING * shortest_s,
        f"it takes {found_s:.1f} s with {held} activations held, GPipe {shortest_s:.1f} s",
    )
    return (
        f"{found_s:.1f} s with {held} activations instead of GPipe's {job.n_microbatches}. Where a hop is less than "
        f"half a turn, this doubles 1F1B's warm-up; where it is more, it takes more than that."
    )


PAPERS_ROW = {"n_devices": 8, "n_microbatches": 64, "hop_s": 0.6}
"""The row of lesson 08."""
WHOLE = (Kind.FORWARD, Kind.BACKWARD)
FEWER = 13
"""Doubled warm-ups hold 15 on it."""
SLOWER = 1.05


@mission(
    "two-fewer",
    lesson="08_schedules",
    title="A schedule of your own",
    takes=Schedule,
    wanted="a Schedule of 8 devices and 64 micro-batches",
    minutes=30,
    hints=(
        "Warm-ups that are less deep lose a whole round trip again and again, since a device that takes strict turns "
        "waits for a backward even where a forward could be computed. Which rule would not wait?",
        "Play it yourself: of all devices, the one that can begin something first does: a backward if its gradient is "
        "there, else a forward if it is there and fewer than 13 micro-batches are held, at later devices fewer still. "
        "Note down the order.",
        '`lab.Schedule.from_orders("mine", ["0F0 0F1 ... 0B0 ...", "1F0 ...", ...])` makes a Schedule of it.',
    ),
    answer="""
        def by_rule(n_devices, n_microbatches, forward_s, backward_s, hop_s, most):
            free_s = [0.0] * n_devices
            orders = [[] for _ in range(n_devices)]
            arrives_s = {("F", 0, m): 0.0 for m in range(n_microbatches)}  # what can be computed, and since when
            done = {(kind, device): 0 for kind in "FB" for device in range(n_devices)}
            for _ in range(2 * n_devices * n_microbatches):
                able = []
                for device in range(n_devices):
                    held = done["F", device] - done["B", device]
                    # a device near the end needs few: its gradients are back soon
                    for kind in "BF" if held < min(most - device, 2 * (n_devices - 1 - device) + 1) else "B":
                        number = done[kind, device]
                        if (kind, device, number) in arrives_s:
                            able.append((max(free_s[device], arrives_s[kind, device, number]), kind, device, number))
                start_s, kind, device, number = min(able)  # at the same time "B" comes before "F"
                end_s = free_s[device] = start_s + (forward_s if kind == "F" else backward_s)
                done[kind, device] += 1
                orders[device].append(f"{device}{kind}{number}")
                if kind == "F" and device == n_devices - 1:
                    arrives_s["B", device, number] = end_s
                elif kind == "F":
                    arrives_s["F", device + 1, number] = end_s + hop_s
                elif device > 0:
                    arrives_s["B", device - 1, number] = end_s + hop_s
            return [" ".join(order) for order in orders]

        answer = lab.Schedule.from_orders("by-rule", by_rule(8, 64, 1, 2, 0.6, most=13))
    """,
)
def two_fewer(schedule: Schedule, given: Given) -> str:
    """The row of section 3: 8 devices, 64 micro-batches, forwards of 1 s, backwards of 2 s, hops of 0.6 s. A doubled
    warm-up is as short as GPipe and holds 15 activations. Hand in a schedule of your own that holds at most 13 on every
    device, and takes at most 5 % longer than GPipe. Backwards are whole here, of 2 s each: `F` and `B`, no halves.
    """
    sizes = (schedule.n_devices, schedule.n_microbatches)
    require(sizes == (8, 64), f"it is of {sizes[0]} devices and {sizes[1]} micro-batches; wanted 8 and 64")
    halves = [action for program in schedule.programs for action in program if action.kind not in WHOLE]
    require(not halves, "its backwards come in two halves; wanted whole ones, B")
    held = max(peak_activations(schedule))
    require(held <= FEWER, f"a device holds {held} activations; wanted at most {FEWER}")
    plan, n_stages = row([PAPERS_ROW["hop_s"]] * 7, 64), schedule.n_stages
    require(n_stages == 8, f"it has {n_stages} stages on 8 devices; wanted one stage a device")
    found_s = simulate(plan, schedule, profile=equal_profile(8)).iteration_s
    shortest_s = simulate(plan, "gpipe", profile=equal_profile(8)).iteration_s
    require(
        found_s <= SLOWER * shortest_s,
        f"it takes {found_s:.1f} s with {held} activations held, {found_s / shortest_s - 1:.1%} longer than GPipe's "
        f"{shortest_s:.1f} s",
    )
    return (
        f"{found_s:.1f} s, {found_s / shortest_s - 1:.1%} more than GPipe's {shortest_s:.1f} s, with {held} "
        f"activations. Strict turns are a rule of 1F1B, not of nature."
    )
