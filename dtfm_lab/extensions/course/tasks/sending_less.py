"""Missions about compression and local updates, and how they affect the loss."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.course.checks import MissionsOf, Number, TextValues, really_measured, require
from dtfm_lab.extensions.course.mission import Given
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

lesson = MissionsOf("13_compression_and_local_updates")


def give_messages(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return how many values share a scale when gradients are rounded, and the iterations between two averages."""
    return {"block": int(rng.choice([16, 32, 64, 128])), "every": int(rng.integers(3, 40))}


@lesson.number("times-fewer-bytes", give=give_messages)
def times_fewer_bytes(given: Given) -> Number:
    rounded = 4 * given.block / (given.block + 4)
    slips = {"no_scales": 4 * given.every, "once": rounded, "rounding": 4.0, "inverse": 1 / (rounded * given.every)}
    return Number(rounded * given.every, slips, {"rounded": rounded}, within=0.005)


def give_local_updates(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return the seconds of computing and of averaging, and the iterations to reach a loss for each H, the iterations
    between two averages."""
    first, worse = int(rng.integers(200, 400)), float(rng.uniform(0.02, 0.06))
    iterations = {every: round(first * (1 + worse * (every - 1) ** 0.8)) for every in (1, 2, 4, 8, 16, 32, 64)}
    return {
        "compute_s": int(rng.integers(20, 80)) / 100,
        "averaging_s": int(rng.integers(15, 80)) / 10,
        "iterations": iterations,
    }


@lesson.number("which-h", give=give_local_updates)
def which_h(given: Given) -> Number:
    to_loss = {every: n * (given.compute_s + given.averaging_s / every) for every, n in given.iterations.items()}
    best = min(to_loss, key=lambda every: to_loss[every])
    most = max(to_loss)
    slips = {
        "fewest": to_loss[1],
        "shortest": to_loss[most],
        "one_iteration": given.compute_s + given.averaging_s / best,
        "as_few": given.iterations[1] * (given.compute_s + given.averaging_s / most),
    }
    text_values = {"best": best, "most": most, "at_once_s": to_loss[1], "rarest_s": to_loss[most]}
    # Two ways may give the same number, and a right answer is not a mistake.
    return Number(to_loss[best], {k: v for k, v in slips.items() if v != to_loss[best]}, text_values, within=0.002)


LOSS = 3.0
"""Loss to reach, in nats per byte. A run of ``tiny`` on eight sequences per iteration reaches it within some twenty
iterations."""
LEFT = 0.2
"""Messages may add at most this share of the seconds that they add without compression and with an average in every
iteration."""
MEAN_OF = 5
"""Iterations over which the training loss is averaged."""
TEXT_NATS = 3.06
"""Unigram entropy of the lab's own text, in nats per byte. A run with another value was on another text."""
AT_LEAST = 0.5
"""An iteration that is shorter than this share of the simulated one with free messages cannot have been measured."""


def give_laptops(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a plan of four laptops for the job that they have to train, and the speed of the slow links between
    them."""
    gbps, latency_ms = int(rng.integers(50, 100)) / 1000, int(rng.integers(2, 9))
    network = Topology.from_matrices(
        np.full((4, 4), latency_ms),
        np.full((4, 4), gbps),
        name="four-laptops",
        names=["ada", "alan", "barbara", "claude"],
        gpu="laptop",
    )
    job = load_job("tiny", n_stages=2, n_replicas=2, global_batch=8, microbatch=2)
    plan = evaluate(network, job, stages=[["ada", "alan"], ["barbara", "claude"]])
    return {"plan": plan, "mbps": round(1000 * gbps), "latency_ms": latency_ms}


@lesson.mission("sooner-at-the-loss", takes=Trace, give=give_laptops)
def sooner_at_the_loss(trace: Trace, given: Given) -> TextValues:
    really_measured(trace)
    context, plan = trace.context, given.plan
    same_network_as(trace, plan.topology)
    require(context.clock == "virtual", f"the clock is {context.clock}; wanted virtual")
    shape = (len(context.devices), len(context.devices[0]))
    require(shape == (2, 2), f"it ran {counted(shape[0], 'stage')} of {counted(shape[1], 'replica')}; wanted 2 of 2")
    require(not context.stand_in, "a small model was trained instead; wanted the job's own model")
    plain = simulate(plan, "1f1b").context
    require(
        (context.plan.tokens, context.plan.flop) == (plain.plan.tokens, plain.plan.flop),
        f"an iteration has {context.plan.tokens} tokens and {context.plan.flop:.3g} FLOP; wanted "
        f"{plain.plan.tokens} and {plain.plan.flop:.3g}, those of given.plan's model and batch",
    )
    entropy = context.unigram_entropy
    require(entropy is not None and abs(entropy - TEXT_NATS) < 0.05, "it was trained on another text")
    n_done, every = len(context.losses), context.synchronise_every
    require(
        every <= n_done,
        f"{counted(n_done, 'iteration')} never averaged, because replicas average every {every}",
    )
    # A mean of several, since single losses go up and down.
    means = np.convolve(context.losses, np.ones(MEAN_OF) / MEAN_OF, mode="valid")
    below = np.flatnonzero(means < LOSS)
    require(len(below) > 0, f"the mean loss of five iterations falls to {means.min(initial=9.9):.2f}; wanted below 3.0")
    spent_s, wanted_s, whole_s = _seconds(trace, plan)
    require(
        spent_s <= wanted_s,
        f"an iteration takes {spent_s:.3f} s; uncompressed averages every time take {whole_s:.3f} s; wanted at most "
        f"{wanted_s:.3f} s",
    )
    n_needed = int(below[0]) + MEAN_OF
    return {"iterations": counted(n_needed, "iteration"), "taken_s": n_needed * spent_s, "times": whole_s / spent_s}


def same_network_as(trace: Trace, network: Topology) -> None:
    """Raise NotYet unless the trace is of a run on this network, by its fingerprint, over emulated links."""
    require(
        trace.context.plan.topology_fingerprint == network.fingerprint,
        f"it ran on {trace.context.topology or 'another network'}; wanted given.plan's own links",
    )
    require(trace.context.links == "emulated", f"its links were {trace.context.links}; wanted emulated links")


def _seconds(trace: Trace, plan: Any) -> tuple[float, float, float]:
    """Return the seconds per iteration: measured, maximum allowed, and simulated without compression and with an
    average in every iteration.

    The last two follow from simulations with the trace's own profile, so that slow and fast machines are judged alike.
    Raises NotYet if the measured seconds are too short to be real.
    """
    computing = [time for time in trace.context.profile if time.kind.value in ("F", "B", "STEP", "REDUCE")]
    free = plan.changed(topology=plan.topology.scaled(bandwidth=1e6, latency=1e-6))
    whole_s, free_s = (simulate(each, "1f1b", profile=computing).iteration_s for each in (plan, free))
    spent_s = trace.iteration_s
    require(spent_s > AT_LEAST * free_s, "its iterations are shorter than the computations in its profile")
    return spent_s, free_s + LEFT * (whole_s - free_s), whole_s
