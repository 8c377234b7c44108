"""Missions about systems, co-design and published numbers: what wins them, and what does not."""

from dataclasses import replace

import numpy as np
from mission_cases import assert_not_won, assert_won_by_its_answer

import dtfm_lab as lab


def test_a_system_that_wins_here():
    name = "a-system-that-wins-here"
    assert_won_by_its_answer(name)
    given = lab.missions.given(name)
    everywhere = [given.network.scaled(bandwidth=times) for times in (0.01, 0.1, 1, 10, 100)]
    won = [bool(lab.missions.check(name, one)) for one in everywhere]
    assert not all(won), "any network wins"
    assert_not_won(name, everywhere[won.index(False)], because="wanted")
    assert_not_won(name, lab.load_topology("worldwide"), because="it has 64 devices")
    faster = replace(given.network, devices=tuple(replace(one, gpu="A100") for one in given.network.devices))
    assert_not_won(name, faster, because="another network")


def test_which_assumption():
    name = "which-assumption"
    assert_won_by_its_answer(name)
    given = lab.missions.given(name)
    none, tree, two = (
        lab.systems.variant("megatron", **given.shipped | changes)
        for changes in ({}, {"synchronisation": "tree"}, {"overlap": True, "gradient_dtype": "fp16"})
    )
    found = lab.strategies(given.network, given.job, systems=[none, tree, two, "ddp"])
    assert_not_won(name, found[none.label], because="0 assumptions are changed (none)")
    assert_not_won(name, found[tree.label], because="saves nothing here")
    assert_not_won(name, found[two.label], because="2 assumptions")
    assert_not_won(name, found["ddp"], because="wanted Megatron-LM")
    weak = lab.systems.variant("megatron", **given.shipped | {"sharding": "zero-1"})
    assert_not_won(
        name, lab.strategies(given.network, given.job, systems=[weak]).best, because="another one saves more"
    )


def test_make_it_compute_bound():
    name = "make-it-compute-bound"
    assert_won_by_its_answer(name)
    plan = lab.missions.given(name).plan
    assert_not_won(name, plan, because="would remain; wanted half or more")
    assert_not_won(name, lab.with_job(plan, global_batch=128), because="wanted 64 at most")
    assert_not_won(name, lab.with_job(plan, global_batch=64, compression="int8"), because="compression")
    assert_not_won(name, lab.with_job(plan, global_batch=64, synchronise_every=8), because="synchronise_every")
    alone = lab.evaluate(plan.topology, lab.load_job("tiny", n_stages=1, n_replicas=1, global_batch=64), stages=[[0]])
    assert_not_won(name, alone, because="3 laptops are idle")
    faster = plan.topology.scaled(bandwidth=10)
    assert_not_won(name, lab.evaluate(faster, plan.job, stages=plan.stages), because="another network")


def test_least_batch():
    name = "least-batch"
    assert_won_by_its_answer(name)

    def one_replica(compute_s, synchronise_s, n_replicas, target):
        return max(1, int(np.ceil(target / (1 - target) * synchronise_s / compute_s)))

    def of_averaging(compute_s, synchronise_s, n_replicas, target):
        return n_replicas * max(1, int(np.ceil(target * synchronise_s / compute_s)))

    assert_not_won(name, one_replica, because="batch of one replica")
    assert_not_won(name, of_averaging, because="not of the whole iteration")
    assert_not_won(name, lambda *_: 64, because="it returns")
    assert_not_won(name, lambda *_: None, because="wanted a number")


def test_what_was_measured():
    name = "what-was-measured"
    transport, efficiency = assert_won_by_its_answer(name)
    other = {"overlapped": "blocking", "blocking": "overlapped"}[transport]
    assert_not_won(name, [other, efficiency], because="but not both")
    assert_not_won(name, [transport, efficiency * 100], because="per cent")
    assert_not_won(name, [transport, efficiency * 1.05], because="above")
    assert_not_won(name, [transport, "0.3"], because="wanted a number")
    assert_not_won(name, ["quick", efficiency], because="wanted one of")


def test_judged_on_the_unseen():
    name = "judged-on-the-unseen"
    assert_won_by_its_answer(name)

    def on_its_own(full_s, measured_s):
        full, measured = np.array(full_s), np.array(measured_s)
        return list(measured * np.median(full / measured) / full - 1)

    def by_the_mean(full_s, measured_s):
        full, measured = np.array(full_s), np.array(measured_s)
        reached = full / measured
        others = np.array([np.delete(reached, i).mean() for i in range(len(full))])
        return list(measured * others / full - 1)

    assert_not_won(name, on_its_own, because="leave it out")
    assert_not_won(name, lambda full, measured: [0.0] * len(full), because="differ from the wanted")
    assert_not_won(name, lambda full, measured: [0.1], because="wanted one each")
    assert not lab.missions.check(name, by_the_mean)
