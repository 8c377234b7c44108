"""Missions of the first two lessons: plan around a slow laptop, see who waits, and say when cities win."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtfm_lab.course.checks import (
    TRAINED,
    MissionsOf,
    Number,
    fits,
    iteration_again_s,
    plan_of,
    require,
)
from dtfm_lab.course.mission import Given, NotYet
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import load_job, load_topology
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

tour = MissionsOf("00_tour")

LIMIT_S = 0.25


def give_hall(rng: np.random.Generator) -> Mapping[str, Any]:
    """The lecture hall, with one laptop on a slow line."""
    hall = load_topology("lecture-hall")
    slow = hall.names[int(rng.integers(len(hall)))]
    network: Topology = hall
    for name in hall.names:
        if name != slow:
            network = network.with_link(slow, name, latency_ms=60, bandwidth_gbps=0.01)
    return {"network": network, "slow": slow}


@tour.mission(
    "one-left-the-hall",
    title="One laptop has left the hall",
    takes=Plan,
    wanted="a Plan of given.network for tiny",
    give=give_hall,
    minutes=3,
    hints=(
        "Must all eight take part? What does the slow laptop bring, and what do the others wait for?",
        "`lab.load_job('tiny', n_stages=None, n_replicas=None)` leaves stages and replicas to `lab.plan`.",
    ),
    answer="""
        answer = lab.plan(given.network, lab.load_job("tiny", n_stages=None, n_replicas=None), seed=0, steps=2)
    """,
)
def one_left_the_hall(plan: Plan, given: Given) -> str:
    """In `lecture-hall`, {slow} has moved to the cafeteria, onto a line of 10 Mbit/s (`given.network`). Hand in a plan
    of that network for the job `tiny`, in any number of stages and replicas, whose iteration takes less than 0.25 s.
    """
    plan_of(plan, given.network, load_job("tiny"), "global_batch", *TRAINED)
    iteration_s = iteration_again_s(plan)
    require(iteration_s < LIMIT_S, f"an iteration takes {iteration_s:.3f} s; wanted less than {LIMIT_S} s")
    return f"{iteration_s:.3f} s: {given.slow} is idle, and all others are faster for it. Not every device helps."


def give_waiting(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan of the lecture hall by chance, in which one device waits clearly longest."""
    hall, job = load_topology("lecture-hall"), load_job("tiny", n_stages=4, n_replicas=2)
    peaks = rng.uniform(0.02, 0.2, len(hall)).tolist()
    uneven = Topology.from_matrices(
        *hall.to_matrices(), name="uneven laptops", gpu="laptop", peak_tflops=peaks, memory_gib=16
    )
    return {"plan": evaluate(uneven, job, stages=rng.permutation(len(hall)).reshape(4, 2).tolist())}


@tour.mission(
    "who-works-most",
    title="Who works most?",
    takes=str,
    wanted="the name of a device",
    give=give_waiting,
    minutes=3,
    hints=(
        "`lab.simulate(given.plan)` is a trace. `lab.figures.gantt(trace)` draws it: whose line is fullest?",
        "`trace.bubble` has a row for each device; `busy_s` are the seconds in which it computes.",
    ),
    answer="""
        rows = lab.simulate(given.plan).bubble
        answer = rows.device[rows.busy_s.idxmax()]
    """,
)
def who_works_most(name: str, given: Given) -> str:
    """`given.plan` puts `tiny` on eight laptops of unequal speeds, placed by chance. Simulate it. Which device computes
    for most of the iteration? Hand in its name.
    """
    rows = simulate(given.plan).bubble
    require(name in set(rows.device), f"{name!r:.40} is no device of given.plan; they are {', '.join(rows.device)}")
    busy_s = rows.set_index("device").busy_s / rows.iteration_s.iloc[0]
    if busy_s[name] < busy_s.max():
        peak = {device.name: device.peak_flop_per_s for device in given.plan.topology.devices}
        because = " It is fast, so it is done early." if peak[name] == max(peak.values()) else ""
        raise NotYet(f"{name} computes for {busy_s[name]:.0%} of the iteration; another one for more.{because}")
    return f"{name} computes for {busy_s[name]:.0%} of the iteration, the mean device for {busy_s.mean():.0%}."


why = MissionsOf("01_why_decentralise")


def give_rents(rng: np.random.Generator) -> Mapping[str, Any]:
    """Seconds and devices in a data centre and in cities, and the price in the data centre."""
    hall_s = int(rng.integers(60, 120)) / 10
    return {
        "hall_devices": int(rng.integers(8, 25)),
        "hall_s": hall_s,
        "hall_price": int(rng.integers(120, 400)) / 100,
        "cities_devices": int(rng.integers(26, 65)),
        "cities_s": round(hall_s * float(rng.uniform(1.5, 4)), 1),
    }


@why.number(
    "break-even-price",
    title="What may a city cost?",
    wanted="dollars an hour of one device",
    give=give_rents,
    hints=(
        "Both train the same batch, so both spend the same number of tokens. What does an iteration cost in each?",
        "Devices x price x seconds: one equation, one unknown.",
    ),
    answer="""
        answer = given.hall_devices * given.hall_price * given.hall_s / (given.cities_devices * given.cities_s)
    """,
)
def break_even_price(given: Given) -> Number:
    """A data centre trains a batch in {hall_s} s with {hall_devices} devices of {hall_price} dollars an hour each.
    Cities train the same batch in {cities_s} s with {cities_devices} devices. At how many dollars an hour of *one* of
    their devices does a token cost the same in both?
    """
    whole = given.hall_devices * given.hall_price
    wanted = whole * given.hall_s / (given.cities_devices * given.cities_s)
    slower = given.cities_s / given.hall_s
    return Number(
        wanted,
        f"Below {wanted:.2f} dollars the cities are cheaper by the token, though {slower:.1f} times as slow.",
        slips={
            whole * given.hall_s / given.cities_s: "that is the price of all devices of the cities together",
            whole / given.cities_devices: "that forgets that the cities take longer for the same batch",
            given.hall_price * given.hall_s / given.cities_s: "that forgets that there are not as many devices",
            whole * given.cities_s / (given.cities_devices * given.hall_s): "whoever takes longer must be cheaper",
        },
    )


TOKENS_PER_S = 70_000
MOST_BATCH = 4096


def give_cities(rng: np.random.Generator) -> Mapping[str, Any]:
    """Four GPUs in each of four cities at a price, and what a data centre asks for the same work."""
    world = load_topology("worldwide")
    few = world.subset(f"{city}-{i}" for city in ("Oregon", "Virginia", "London", "Frankfurt") for i in range(4))
    price = int(rng.integers(20, 60)) / 100
    cities = Topology.from_matrices(
        *few.to_matrices(),
        regions=[d.region for d in few.devices],
        name="four cities",
        gpu="RTX 4090",
        price_per_hour=price,
    )
    return {"cities": cities, "price": price, "dollars": round(price * float(rng.uniform(59, 63)), 2)}


@why.mission(
    "cities-win",
    title="Make the cities win",
    takes=Plan,
    wanted="a Plan of given.cities for gpt3-xl",
    give=give_cities,
    minutes=15,
    hints=(
        "One GPU alone is cheapest by the token and far too slow; all of them on a small batch wait for the network.",
        "Which bytes do not grow with the batch, while the computing does? (The table of batches in the lesson.)",
        "`lab.load_job('gpt3-xl', global_batch=...)`, then `lab.plan` with a seed and a few steps.",
    ),
    answer="""
        answer = lab.plan(given.cities, lab.load_job("gpt3-xl", global_batch=4096), seed=0, steps=1)
    """,
)
def cities_win(plan: Plan, given: Given) -> str:
    """`given.cities` are sixteen GPUs of {price} dollars an hour each, in four cities. A data centre trains `gpt3-xl`
    for {dollars} dollars a billion tokens. Hand in a plan of `given.cities` for `gpt3-xl` that costs less and still
    trains at least 70,000 tokens a second. The model, its precision, uncompressed messages and averaging in every
    iteration stay, and a batch has at most 4096 sequences; all else is yours.
    """
    plan_of(plan, given.cities, load_job("gpt3-xl"), *TRAINED)
    batch = plan.job.global_batch
    require(batch <= MOST_BATCH, f"a batch has {batch} sequences; wanted at most {MOST_BATCH}")
    fits(plan)
    iteration_s = iteration_again_s(plan)
    tokens_per_s = plan.job.tokens / iteration_s
    dollars = plan.price_per_hour / 3600 / tokens_per_s * 1e9
    require(tokens_per_s >= TOKENS_PER_S, f"it trains {tokens_per_s:,.0f} tokens a second; wanted {TOKENS_PER_S:,}")
    require(dollars < given.dollars, f"a billion tokens cost {dollars:.2f} dollars; wanted less than {given.dollars}")
    return (
        f"{dollars:.2f} dollars and {tokens_per_s:,.0f} tokens a second. What crosses the sea once an iteration counts "
        "less, the more is computed between."
    )
