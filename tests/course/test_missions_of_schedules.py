"""Missions about schedules: what wins them, and what does not."""

import pytest
from mission_cases import READERS, assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab
from dtfm_lab.course import missions
from dtfm_lab.course.small_networks import equal_profile, row


def test_bubble_share():
    assert_won_by_its_answer("bubble-share")
    given = missions["bubble-share"].given(READERS[0])
    idle, working = given.n_stages - 1, given.n_microbatches
    share = idle / (working + idle)
    assert_not_won("bubble-share", 100 * share, because="per cent")
    assert_not_won("bubble-share", idle / working, because="at work")
    assert_not_won("bubble-share", share * 1.05, because="above")


def test_one_more_microbatch():
    assert_won_by_its_answer("one-more-microbatch")
    wrong = "one-more-microbatch"
    assert_not_won(wrong, lambda n_devices, forward_s, backward_s, hop_s: forward_s + backward_s, because="no time")
    assert_not_won(wrong, lambda n, forward_s, backward_s, hop_s: forward_s + backward_s + 2 * hop_s, because="share")
    assert_not_won(wrong, lambda *_: 4.05, because="it")
    assert_not_won(wrong, lambda *_: "4.05", because="wanted a number")
    assert_not_won(wrong, lambda: 4.05, because="TypeError")


def test_deep_enough():
    assert_won_by_its_answer("deep-enough")
    given = missions["deep-enough"].given(READERS[0])
    right = worked_answer("deep-enough", READERS[0])
    plain = list(range(len(right) - 1, -1, -1))
    assert_not_won("deep-enough", plain, because="GPipe")
    assert_not_won("deep-enough", [64] * len(right), because="wanted at most")
    assert_not_won("deep-enough", [each + 1 for each in right], because=f"wanted at most {given.most}")
    shallower = [max(each - 1, 0) for each in right[:-1]] + [0]
    assert_not_won("deep-enough", shallower, because="it takes")
    assert_not_won("deep-enough", right[:-1], because="one a device")
    assert_not_won("deep-enough", [*right[:-1], 0.5], because="whole numbers")


def test_what_adaptive_chooses_is_deep_enough():
    given = missions["deep-enough"].given(READERS[0])
    trace = lab.simulate(given.plan, "adaptive-1f1b", profile=given.profile)
    ahead = [order.split("B")[0].count("F") - 1 for order in trace.context.orders]
    assert missions["deep-enough"].verdict(ahead, READERS[0])


def test_two_fewer():
    assert_won_by_its_answer("two-fewer")
    assert_not_won("two-fewer", lab.schedules["gpipe"](8, 64), because="holds 64")
    assert_not_won("two-fewer", lab.schedules["1f1b"](8, 64), because="longer than GPipe")
    doubled = [14, 12, 10, 8, 6, 4, 2, 0]
    assert_not_won("two-fewer", lab.schedules["adaptive-1f1b"](8, 64, warmups=doubled), because="holds 15")
    cut = lab.schedules["adaptive-1f1b"](8, 64, warmups=[min(each, 12) for each in doubled])
    assert_not_won("two-fewer", cut, because="longer than GPipe")
    assert_not_won("two-fewer", lab.schedules["zb-h1"](8, 64), because="two halves")
    assert_not_won("two-fewer", lab.schedules["1f1b"](4, 64), because="wanted 8 and 64")
    assert_not_won("two-fewer", lab.schedules["interleaved-1f1b"](8, 64), because="a device holds")


@pytest.mark.parametrize(("n_devices", "n_microbatches", "hop_s"), [(8, 64, 0.6), (5, 40, 1.7), (3, 12, 0.0)])
def test_gpipe_pays_for_each_hop_once_there_and_once_back(n_devices, n_microbatches, hop_s):
    trace = lab.simulate(row([hop_s] * (n_devices - 1), n_microbatches), "gpipe", profile=equal_profile(n_devices))
    formula_s = 3 * (n_microbatches + n_devices - 1) + 2 * (n_devices - 1) * hop_s
    assert trace.iteration_s == pytest.approx(formula_s, rel=1e-6)
