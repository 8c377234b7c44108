"""Missions about compression and local updates: what wins them, and what does not."""

from dataclasses import replace

import pytest
from mission_cases import READERS, assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab
from dtfm_lab.course import missions


def test_times_fewer_bytes():
    assert_won_by_its_answer("times-fewer-bytes")
    given = missions["times-fewer-bytes"].given(READERS[0])
    assert_not_won("times-fewer-bytes", 4 * given.every, because="scales")
    assert_not_won("times-fewer-bytes", 4 * given.block / (given.block + 4), because="how many iterations")
    assert_not_won("times-fewer-bytes", 1.0, because="below")


def test_slowest_codec():
    assert_won_by_its_answer("slowest-codec")
    right = worked_answer("slowest-codec", READERS[0])
    assert_not_won("slowest-codec", right / 2, because="both ends")
    assert_not_won("slowest-codec", right * 8, because="bytes a second")
    assert_not_won("slowest-codec", right * 1.1, because="above")


def test_which_h():
    assert_won_by_its_answer("which-h")
    given = missions["which-h"].given(READERS[0])
    plain_s = given.iterations[1] * (given.compute_s + given.averaging_s)
    assert_not_won("which-h", plain_s, because="fewest iterations")
    last = max(given.iterations)
    seldom_s = given.iterations[1] * (given.compute_s + given.averaging_s / last)
    assert_not_won("which-h", seldom_s, because="more iterations")
    assert_not_won("which-h", 8.0, because="below")


def test_a_simulated_trace_reaches_no_loss():
    given = missions["sooner-at-the-loss"].given(READERS[0])
    fast = lab.with_job(given.plan, compression="int8", synchronise_every=8)
    assert_not_won("sooner-at-the-loss", lab.simulate(fast, "1f1b"), because="simulated")


@pytest.mark.slow
def test_sooner_at_the_loss():
    assert_won_by_its_answer("sooner-at-the-loss")
    given = missions["sooner-at-the-loss"].given(READERS[0])
    plain = lab.run(given.plan, "1f1b", iterations=6)
    assert_not_won("sooner-at-the-loss", plain, because="wanted below 3.0")
    pretended = replace(plain, context=replace(plain.context, losses=(2.9,) * 6))
    assert_not_won("sooner-at-the-loss", pretended, because="whole numbers")


@pytest.mark.slow
def test_rounding_alone_is_not_soon_enough_and_other_networks_do_not_count():
    given = missions["sooner-at-the-loss"].given(READERS[0])
    rounded = lab.run(lab.with_job(given.plan, compression="int8"), "1f1b", iterations=24)
    assert_not_won("sooner-at-the-loss", rounded, because="whole numbers every time")
    apart = lab.with_job(given.plan, synchronise_every=100)
    assert_not_won("sooner-at-the-loss", lab.run(apart, "1f1b", iterations=3), because="never averaged")
    faster = replace(given.plan, topology=given.plan.topology.scaled(bandwidth=10))
    assert_not_won("sooner-at-the-loss", lab.run(faster, "1f1b", iterations=3), because="own links")
