"""Missions of the first two lessons: plan around a slow laptop, see which device works most, and say when cities
win."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted, format_share
from dtfm_lab.extensions.course.checks import (
    TRAINED,
    MissionsOf,
    Number,
    TextValues,
    fits,
    plan_of,
    require,
)
from dtfm_lab.extensions.course.mission import Given, NotYet
from dtfm_lab.files import load_job, load_topology
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

tour = MissionsOf("00_tour")

LIMIT_S = 0.25


def give_hall(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return the lecture hall, with one laptop on a slow line."""
    hall = load_topology("lecture-hall")
    slow = hall.names[int(rng.integers(len(hall)))]
    network: Topology = hall
    for name in hall.names:
        if name != slow:
            network = network.with_link(slow, name, latency_ms=60, bandwidth_gbps=0.01)
    return {"network": network, "slow": slow}


@tour.mission("one-left-the-hall", takes=Plan, give=give_hall, job=lambda _: load_job("tiny"))
def one_left_the_hall(plan: Plan, given: Given) -> TextValues:
    plan_of(plan, given.network, load_job("tiny"), "global_batch", *TRAINED)
    iteration_s = simulate(plan).iteration_s
    require(iteration_s < LIMIT_S, f"an iteration takes {iteration_s:.3f} s; wanted less than {LIMIT_S} s")
    return {"iteration_s": iteration_s}


def give_waiting(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a random plan on the lecture hall, whose laptops have random speeds."""
    hall, job = load_topology("lecture-hall"), load_job("tiny", n_stages=4, n_replicas=2)
    peaks = rng.uniform(0.02, 0.2, len(hall)).tolist()
    uneven = Topology.from_matrices(
        *hall.to_matrices(), name="uneven laptops", gpu="laptop", peak_tflops=peaks, memory_gib=16
    )
    return {"plan": evaluate(uneven, job, stages=rng.permutation(len(hall)).reshape(4, 2).tolist())}


def most_a_minute(given: Given, name: str) -> Number:
    """Return the maximum iterations per minute on any network. The busiest device limits them, because it computes in
    every iteration."""
    rows = simulate(given.plan).bubble
    busy_s, now_s = float(rows.busy_s.max()), float(rows.iteration_s.iloc[0])
    return Number(60 / busy_s, {"now": 60 / now_s, "seconds": busy_s})


@tour.mission("who-works-most", takes=str, reason=most_a_minute, give=give_waiting)
def who_works_most(name: str, given: Given) -> TextValues:
    rows = simulate(given.plan).bubble
    require(name in set(rows.device), f"{name!r:.40} is not in given.plan; its devices are {', '.join(rows.device)}")
    busy_s = rows.set_index("device").busy_s / rows.iteration_s.iloc[0]
    if busy_s[name] < busy_s.max():
        peak = {device.name: device.peak_flop_per_s for device in given.plan.topology.devices}
        because = " It is fast, so it is done early." if peak[name] == max(peak.values()) else ""
        raise NotYet(
            f"{name} computes for {format_share(busy_s[name], 0)} of the iteration; another one does longer.{because}"
        )
    return {"name": name, "busy": format_share(busy_s[name], 0), "mean": format_share(busy_s.mean(), 0)}


why = MissionsOf("01_why_decentralise")


def give_rents(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return the seconds of an iteration and the number of devices, in a data centre and in cities. The data centre has
    a price per device-hour, too."""
    hall_s = int(rng.integers(60, 120)) / 10
    return {
        "hall_devices": int(rng.integers(8, 25)),
        "hall_s": hall_s,
        "hall_price": int(rng.integers(120, 400)) / 100,
        "cities_devices": int(rng.integers(26, 65)),
        "cities_s": round(hall_s * float(rng.uniform(1.5, 4)), 1),
    }


@why.number("break-even-price", give=give_rents)
def break_even_price(given: Given) -> Number:
    whole = given.hall_devices * given.hall_price
    wanted = whole * given.hall_s / (given.cities_devices * given.cities_s)
    slips = {"together": whole * given.hall_s / given.cities_s, "as_fast": whole / given.cities_devices}
    slips |= {"as_many": given.hall_price * given.hall_s / given.cities_s}
    slips |= {"faster": whole * given.cities_s / (given.cities_devices * given.hall_s)}
    return Number(wanted, slips, {"slower": given.cities_s / given.hall_s})


TOKENS_PER_S = 70_000
MOST_BATCH = 4096


def give_cities(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return four GPUs in each of four cities, with their price per hour, and a data centre's price in dollars per
    billion tokens."""
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


def tokens_that_pay(given: Given, plan: Plan) -> Number:
    """Return the tokens per second at which a token on all sixteen GPUs costs as much as in the data centre."""
    per_hour = len(given.cities) * given.price
    wanted = per_hour / 3600 / given.dollars * 1e9
    return Number(wanted, {"one_gpu": wanted / len(given.cities), "an_hour": wanted * 3600})


@why.mission("cities-win", takes=Plan, reason=tokens_that_pay, give=give_cities, job=lambda _: load_job("gpt3-xl"))
def cities_win(plan: Plan, given: Given) -> TextValues:
    plan_of(plan, given.cities, load_job("gpt3-xl"), *TRAINED)
    batch = plan.job.global_batch
    require(batch <= MOST_BATCH, f"a batch has {counted(batch, 'sequence')}; wanted at most {MOST_BATCH:,}")
    fits(plan)
    iteration_s = simulate(plan).iteration_s
    tokens_per_s = plan.job.tokens / iteration_s
    dollars = plan.price_per_hour / 3600 / tokens_per_s * 1e9
    require(tokens_per_s >= TOKENS_PER_S, f"it trains {tokens_per_s:,.0f} tokens a second; wanted {TOKENS_PER_S:,}")
    require(dollars < given.dollars, f"a billion tokens cost {dollars:.2f} dollars; wanted less than {given.dollars}")
    return {"dollars": dollars, "tokens_per_s": tokens_per_s}
