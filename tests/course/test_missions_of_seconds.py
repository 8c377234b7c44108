"""Missions about communication cost against seconds: what wins them, and what does not."""

import numpy as np
from mission_cases import READERS, assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab
from dtfm_lab.course import missions


def test_the_closed_form_charges_what_overlaps():
    assert_won_by_its_answer("charged-too-much")
    given = missions["charged-too-much"].given(READERS[0])
    hops, count = given.n_stages - 1, given.n_microbatches
    assert np.isclose(worked_answer("charged-too-much"), hops * count / (count + hops - 1))
    assert_not_won("charged-too-much", float(hops), because="fill and drain")
    assert_not_won("charged-too-much", (hops + 1) * count / (count + hops), because="one hop less")
    assert_not_won("charged-too-much", (count + hops - 1) / (hops * count), because="other way round")


def test_proven_and_beaten():
    assert_won_by_its_answer("proven-and-beaten")
    given = missions["proven-and-beaten"].given(READERS[0])
    proven, faster = worked_answer("proven-and-beaten")
    assert_not_won("proven-and-beaten", [faster, proven], because="a placement exists that costs less")
    assert_not_won("proven-and-beaten", [proven, proven], because="dearer in communication")
    assert_not_won("proven-and-beaten", [proven], [1.0, 2.0], because="two Plans")
    by_chance = (
        lab.evaluate(given.network, given.job, groups=np.random.default_rng(seed).permutation(8).reshape(4, 2).tolist())
        for seed in range(20)
    )
    slow = max(by_chance, key=lambda plan: plan.iteration_s)
    assert_not_won("proven-and-beaten", [proven, slow], because="at least 5 % less")
    uneven = lab.evaluate(
        given.network,
        given.job.with_fields(blocks_per_stage=(3, 3, 9, 9)),
        stages=faster.placement.devices.tolist(),
    )
    assert_not_won("proven-and-beaten", [proven, uneven], because="blocks_per_stage")


def test_reverse_the_order():
    assert_won_by_its_answer("reverse-the-order")
    given, right = missions["reverse-the-order"].given(READERS[0]), worked_answer("reverse-the-order")
    names = list(right.names)
    gbps = np.full((4, 4), given.ends_mbps / 1000)
    alike = lab.Topology.from_matrices(np.full((4, 4), 0.1), gbps, names=names)
    assert_not_won("reverse-the-order", alike, because="wanted the first to be lower")
    same_kind = lab.Topology.from_matrices(*right.to_matrices(), names=names, gpu="A100")
    assert_not_won("reverse-the-order", same_kind, because="times as long")
    faster_link = lab.Topology.from_matrices(np.full((4, 4), 0.1), gbps * 2, names=names)
    assert_not_won("reverse-the-order", faster_link, because="Mbit/s; wanted")
    assert_not_won("reverse-the-order", lab.load_topology("lecture-hall"), because="wanted ada")
