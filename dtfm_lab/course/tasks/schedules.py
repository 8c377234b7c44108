"""Missions about the order in which stages work."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtfm_lab.course.checks import MissionsOf, Number, require
from dtfm_lab.course.mission import Given
from dtfm_lab.course.small_networks import equal_profile, row
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.schedules import build_named, peak_activations

lesson = MissionsOf("08_schedules")

ROUNDING = 1.001
"""Iterations this close are equally long: messages have bytes, which take a little beside their latency."""


def give_pipeline(rng: np.random.Generator) -> Mapping[str, Any]:
    """Sizes of a pipeline, and milliseconds of its passes."""
    return {
        "n_stages": int(rng.integers(5, 25)),
        "n_microbatches": int(rng.integers(30, 130)),
        "forward_ms": int(rng.integers(10, 60)),
        "backward_ms": int(rng.integers(61, 120)),
    }


@lesson.number("bubble-share", give=give_pipeline)
def bubble_share(given: Given) -> Number:
    idle, working = given.n_stages - 1, given.n_microbatches
    wanted = idle / (working + idle)
    return Number(
        wanted,
        f"{wanted:.1%}, whatever a pass takes: f + b stands above and below the line. Twice the micro-batches make "
        f"it {idle / (2 * working + idle):.1%}.",
        slips={
            100 * wanted: "that is in per cent; wanted a share between 0 and 1",
            idle / working: "that is idle time in shares of the time at work; wanted in shares of the iteration",
            1 - wanted: "that is the share at work",
            given.n_stages / (working + given.n_stages): "the first device of a pipeline waits for nobody at first: "
            "count again how many passes the last one waits",
        },
        within=0.002,
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


@lesson.mission("deep-enough", takes=(list, tuple), give=give_slow_row)
def deep_enough(warmups: list[int], given: Given) -> str:
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
