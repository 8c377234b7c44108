"""Missions about when to decentralise: prices, dollars for tokens, and a plan with which cities win."""

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from dtfm_lab.course.evidence import (
    TRAINED,
    fresh_cases,
    iteration_again_s,
    near,
    number_from,
    require,
    same_job,
    same_network,
)
from dtfm_lab.course.mission import Given, NotYet, mission
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import load_job, load_topology
from dtfm_lab.simulation.memory import memory


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


@mission(
    "break-even-price",
    lesson="01_why_decentralise",
    title="What may a city cost?",
    takes=float,
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
def break_even_price(price: float, given: Given) -> str:
    """A data centre trains a batch in {hall_s} s with {hall_devices} devices of {hall_price} dollars an hour each.
    Cities train the same batch in {cities_s} s with {cities_devices} devices. At how many dollars an hour of *one* of
    their devices does a token cost the same in both?
    """
    whole = given.hall_devices * given.hall_price
    wanted = whole * given.hall_s / (given.cities_devices * given.cities_s)
    near(
        price,
        wanted,
        slips={
            whole * given.hall_s / given.cities_s: "that is the price of all devices of the cities together",
            whole / given.cities_devices: "that forgets that the cities take longer for the same batch",
            given.hall_price * given.hall_s / given.cities_s: "that forgets that there are not as many devices",
            whole * given.cities_s / (given.cities_devices * given.hall_s): "whoever takes longer must be cheaper",
        },
    )
    slower = given.cities_s / given.hall_s
    return f"Below {wanted:.2f} dollars the cities are cheaper by the token, though {slower:.1f} times as slow."


@mission(
    "dollars-by-hand",
    lesson="01_why_decentralise",
    title="A billion tokens, please",
    takes=FunctionType,
    wanted="a function of four numbers",
    hints=(
        "How many iterations are a billion tokens? How many hours are they?",
        "Prices are by the hour, iterations are in seconds; all devices are paid, also those that wait.",
    ),
    answer="""
        def dollars(price_per_hour, n_devices, iteration_s, tokens):
            hours = 1e9 / tokens * iteration_s / 3600
            return hours * n_devices * price_per_hour
        answer = dollars
    """,
)
def dollars_by_hand(function: Callable[..., Any], given: Given) -> str:
    """Hand in a function `dollars(price_per_hour, n_devices, iteration_s, tokens)` that returns the dollars of a
    billion tokens: `n_devices` of that price each take `iteration_s` seconds for an iteration of that many tokens.
    """
    rng = fresh_cases()
    for _ in range(5):
        price, n, seconds, tokens = (
            rng.uniform(0.1, 5),
            int(rng.integers(2, 100)),
            rng.uniform(1, 60),
            rng.integers(10**5, 10**7),
        )
        found = number_from(function, float(price), n, float(seconds), int(tokens))
        wanted = price * n * seconds / 3600 / int(tokens) * 1e9
        try:
            near(
                found,
                wanted,
                1e-6,
                slips={
                    wanted * 3600: "an hour has 3600 seconds",
                    wanted / n: "that pays one device only",
                    wanted / 1e9: "that is for one token; wanted a billion",
                    wanted / 1e3: "that is for a million tokens; wanted a billion",
                },
            )
        except NotYet as error:
            asked = f"dollars({price:.2f}, {n}, {seconds:.1f}, {tokens})"
            raise NotYet(f"{asked} returned {found:.6g}: {error}") from None
    return "That is `plan.price_per_billion_tokens`, and the fair number for comparing plans of different batches."


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


@mission(
    "cities-win",
    lesson="01_why_decentralise",
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
    same_network(plan.topology, given.cities)
    same_job(plan.job, load_job("gpt3-xl"), *TRAINED)
    batch = plan.job.global_batch
    require(batch <= MOST_BATCH, f"a batch has {batch} sequences; wanted at most {MOST_BATCH}")
    report = memory(plan)
    require(report.fits, f"it does not fit its devices: {report.sentence}")
    iteration_s = iteration_again_s(plan)
    tokens_per_s = plan.job.tokens / iteration_s
    dollars = plan.price_per_hour / 3600 / tokens_per_s * 1e9
    require(tokens_per_s >= TOKENS_PER_S, f"it trains {tokens_per_s:,.0f} tokens a second; wanted {TOKENS_PER_S:,}")
    require(dollars < given.dollars, f"a billion tokens cost {dollars:.2f} dollars; wanted less than {given.dollars}")
    return (
        f"{dollars:.2f} dollars and {tokens_per_s:,.0f} tokens a second. What crosses the sea once an iteration counts "
        "less, the more is computed between."
    )
