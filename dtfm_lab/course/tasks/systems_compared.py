"""Missions about training systems: a network on which one wins, and the assumption that explains another."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dtfm_lab.course.evidence import require, same_job, same_network
from dtfm_lab.course.mission import Given, mission
from dtfm_lab.course.small_networks import two_rooms
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_job
from dtfm_lab.systems import Outcome, Strategy, outcome_of, variant
from dtfm_lab.systems.modelled.megatron import AS_SHIPPED

RIVALS = ("ddp", "deepspeed-pipeline", "dt-fm")
"""Each on all devices, with the micro-batch of the job."""
CLEARLY = 1.05
"""Times the winner's seconds that the next must take at least."""
SINGLE_CHANGES: tuple[dict[str, Any], ...] = (
    {"order": "pp-dp"},
    {"overlap": True},
    {"sharding": "zero-1"},
    {"devices": "tried"},
    {"transport": "overlapped"},
    {"synchronisation": "tree"},
    {"stages_per_device": 2},
    {"gradient_dtype": "fp16"},
)
"""Assumptions of Megatron-LM as it is without flags, each changed to its other value."""


def give_winner(rng: np.random.Generator) -> Mapping[str, Any]:
    """Eight devices, a batch, and the system that is to win."""
    return {"network": two_rooms(rng), "batch": int(rng.choice([48, 64, 96])), "winner": str(rng.choice(RIVALS))} | {
        "systems": _rivals()
    }


def _rivals() -> list[Strategy]:
    return [variant(name, devices="all", microbatches="given") for name in RIVALS]


@mission(
    "a-system-that-wins-here",
    lesson="14_systems",
    title="A network on which it wins",
    takes=Topology,
    wanted="a Topology with the given devices",
    minutes=10,
    give=give_winner,
    hints=(
        "What does each send in an iteration: gradients of the whole model, or activations at a few boundaries?",
        "`lab.crossings(given.network, job, between='regions')` says at which bandwidth another becomes fastest.",
        "`given.network.scaled(bandwidth=0.1)` is a network of the same devices; so is one with another link.",
    ),
    answer="""
        import dataclasses
        import numpy as np

        job = lab.load_job("gpt2-small", global_batch=given.batch)
        rooms = np.array([device.region for device in given.network.devices])
        apart = rooms[:, None] != rooms[None, :]
        for bytes_per_s in (2.5e6, 125e6, 2.5e9):
            answer = dataclasses.replace(
                given.network,
                latency_s=np.where(apart, 1e-3, given.network.latency_s),
                bandwidth_bytes_per_s=np.where(apart, bytes_per_s, given.network.bandwidth_bytes_per_s),
            )
            found = lab.strategies(answer, job, systems=given.systems)
            if found.best.strategy.name == given.winner:
                break
    """,
)
def a_system_that_wins_here(network: Topology, given: Given) -> str:
    """Your `network` has eight V100s in two rooms. Change any of its links, but no device, until `{winner}` trains
    `gpt2-small` with a batch of {batch} faster than both others of `ddp`, `deepspeed-pipeline` and `dt-fm`, each on all
    eight devices (`given.systems`), whose iterations are to take at least 1.05 times as long. Hand in the network.
    """
    require(len(network) == len(given.network), f"it has {len(network)} devices; wanted the eight of your network")
    plain = replace(
        network, latency_s=given.network.latency_s, bandwidth_bytes_per_s=given.network.bandwidth_bytes_per_s
    )
    same_network(replace(plain, message_bytes=None, message_s=None), given.network)
    job = load_job("gpt2-small", global_batch=given.batch)
    found = {one.name: outcome_of(one, network, job) for one in _rivals()}
    seconds = {name: one.iteration_s for name, one in found.items() if one.iteration_s is not None}
    first = min(seconds, key=lambda name: seconds[name], default="none")
    require(first == given.winner, f"fastest here is {first}; wanted {given.winner}")
    next_s = min((s for name, s in seconds.items() if name != first), default=np.inf)
    require(
        next_s >= CLEARLY * seconds[first],
        f"the next takes {next_s / seconds[first]:.3f} times as long; wanted {CLEARLY} times or more",
    )
    return (
        f"{found[first].title} takes {seconds[first]:.3g} s, the next {next_s / seconds[first]:.2f} times as long: no "
        "system is the fastest, only the fastest on a network."
    )


def give_rooms(rng: np.random.Generator) -> Mapping[str, Any]:
    """Eight devices, and a job for them."""
    return {"network": two_rooms(rng), "job": load_job("gpt2-small", global_batch=64), "shipped": AS_SHIPPED}


@mission(
    "which-assumption",
    lesson="14_systems",
    title="Which assumption explains it?",
    takes=Outcome,
    wanted='an Outcome of lab.strategies, such as found["megatron (transport overlapped)"]',
    minutes=10,
    give=give_rooms,
    hints=(
        "`given.shipped` is what it does without flags; `lab.systems.strategies['megatron']().assumed` lists all.",
        "`lab.systems.variant('megatron', **given.shipped | {'overlap': True})` has one of them changed; "
        "`lab.strategies(network, job, systems=[...])` takes several.",
        "Try `order`, `transport`, `overlap`, `gradient_dtype`, `sharding` and `devices`, each alone.",
    ),
    answer="""
        changes = [
            {"order": "pp-dp"}, {"transport": "overlapped"}, {"overlap": True}, {"synchronisation": "tree"},
            {"stages_per_device": 2}, {"gradient_dtype": "fp16"}, {"sharding": "zero-1"}, {"devices": "tried"},
        ]
        variants = [lab.systems.variant("megatron", **given.shipped | change) for change in changes]
        answer = lab.strategies(given.network, given.job, systems=variants).best
    """,
)
def which_assumption(outcome: Outcome, given: Given) -> str:
    """On your `network`, Megatron-LM without flags (`given.shipped`) trains your `job` slower than it could. Which one
    assumption of its model, changed alone, saves most? Hand in the outcome of that variant:
    `lab.strategies(network, job, systems=[...])[its name]`. (Shape and tensor parallelism are its user's choice
    already, and do not count.)
    """
    strategy = outcome.strategy
    require(strategy.name == "megatron", f"this is {strategy.title}; wanted Megatron-LM with one assumption changed")
    shipped = variant("megatron", **AS_SHIPPED)
    changed = [one.name for one in strategy.assumptions if getattr(strategy, one.field) != getattr(shipped, one.field)]
    require(len(changed) == 1, f"{len(changed)} assumptions are changed ({', '.join(changed) or 'none'}); wanted one")
    require(changed[0] not in ("n_stages", "tensor_parallel"), f"{changed[0]} is tried already in every value")
    same_network(outcome.plan.topology, given.network)
    same_job(outcome.job, given.job, "model", "global_batch")
    again_s = outcome_of(strategy, given.network, given.job).iteration_s
    before_s = outcome_of(shipped, given.network, given.job).iteration_s
    variants = [variant("megatron", **AS_SHIPPED | change) for change in SINGLE_CHANGES]
    others = [outcome_of(one, given.network, given.job) for one in variants]
    best_s = min(one.iteration_s for one in others if one.iteration_s is not None)
    assert again_s is not None, "an outcome with a plan has seconds"
    assert before_s is not None, "eight V100s hold this model"
    require(again_s < before_s, f"{changed[0]} saves nothing here")
    require(again_s <= best_s * 1.001, f"{changed[0]} saves {before_s - again_s:.3g} s; another one saves more")
    return f"{changed[0]} alone makes {again_s:.3g} s of {before_s:.3g} s. On another network it may be another one."
