"""Missions of the tour: what wins them, and what does not."""

from mission_cases import assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab


def test_one_left_the_hall():
    assert_won_by_its_answer("one-left-the-hall")
    network = lab.missions.given("one-left-the-hall").network
    everybody = lab.plan(network, lab.load_job("tiny", n_stages=4, n_replicas=2), seed=0, steps=2)
    assert_not_won("one-left-the-hall", everybody, because="wanted less than 0.25 s")
    before = lab.plan("lecture-hall", "tiny", seed=0, steps=2)
    assert_not_won("one-left-the-hall", before, because="another network")
    rare = lab.load_job("tiny", n_stages=None, n_replicas=None, synchronise_every=8)
    assert_not_won("one-left-the-hall", lab.plan(network, rare, seed=0, steps=2), because="synchronise_every")


def test_who_works_most():
    assert_won_by_its_answer("who-works-most")
    plan = lab.missions.given("who-works-most").plan
    fastest = max(plan.topology.devices, key=lambda device: device.peak_flop_per_s).name
    assert_not_won("who-works-most", fastest, because="It is fast")
    right = worked_answer("who-works-most")
    others = [name for name in plan.topology.names if name != right]
    assert_not_won("who-works-most", *others, because="another one for more")
    assert_not_won("who-works-most", "zoe", because="no device of given.plan")
