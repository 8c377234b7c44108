"""Missions about real runs: what wins them, and what does not."""

import numpy as np
import pytest
from mission_cases import assert_not_won, assert_won_by_its_answer

import dtfm_lab as lab


@pytest.mark.slow
def test_predicted_within_5():
    name = "predicted-within-5"
    predicted, measured = assert_won_by_its_answer(name)
    plan = lab.missions.given(name).plan
    assert_not_won(name, [measured, measured], because="measured itself")
    assert_not_won(name, [measured, predicted], because="was simulated")
    assert_not_won(name, [lab.simulate(plan, "1f1b"), measured], because="not from the profile")
    fitted = lab.refit(lab.compare(predicted, measured), plan).predicted
    assert_not_won(name, [fitted, measured], because="or from a fit")
    assert_not_won(name, [predicted], [predicted, 1.0], because="wanted a list of 2 traces")
    short = lab.run(plan, "1f1b", iterations=1)
    assert_not_won(name, [lab.simulate(plan, like=short), short], because="ran for 1 iterations")


@pytest.mark.slow
def test_mystery_link_measured():
    name = "mystery-link-measured"
    measured, link = assert_won_by_its_answer(name)
    given = lab.missions.given(name)
    back = " -> ".join(reversed(link.split(" -> ")))
    assert_not_won(name, [measured, back], because="the way back")
    assert_not_won(name, [measured, link.split(" -> ")[0]], because="is a device")
    assert_not_won(name, [measured, "ada -> alan"], [measured, "ada -> no one"], because="took what was drawn")
    assert_not_won(name, [link, measured], [measured, 3], [measured], because="wanted [measured")
    as_drawn = lab.run(given.plan, "1f1b", iterations=4)
    assert_not_won(name, [as_drawn, link], because="not on emulated=given.secretly")


def test_line_through_outliers():
    name = "line-through-outliers"
    assert_won_by_its_answer(name)

    def least_squares(sizes, seconds):
        slope, latency_s = np.polyfit(sizes, seconds, 1)
        return latency_s, 1 / slope

    assert_not_won(name, least_squares, because="least squares")
    assert_not_won(name, lambda sizes, seconds: (0.05, 1e7), because="of a link of")
    assert_not_won(name, lambda sizes, seconds: 0.05, because="wanted (latency_s, bytes_per_s)")
    assert_not_won(name, lambda sizes, seconds: 1 / 0, because="raised ZeroDivisionError")


@pytest.mark.slow
def test_survive_a_kill():
    name = "survive-a-kill"
    calm, disturbed = assert_won_by_its_answer(name)
    assert_not_won(name, [calm, calm], [disturbed, calm], because="wanted [undisturbed, disturbed]")
    given = lab.missions.given(name)
    other_seed = lab.run(given.plan, "1f1b", iterations=6, seed=1)
    assert_not_won(name, [other_seed, disturbed], because="the losses differ")
    assert_not_won(name, [lab.simulate(given.plan), disturbed], because="was simulated")
    bystander = next(one for one in given.plan.topology.names if one != given.victim)
    assert_not_won(name, [calm, killed_once(given.plan, bystander)], because=f"wanted {given.victim}")


@pytest.mark.slow
def test_no_peer_left():
    name = "no-peer-left"
    calm, _ = assert_won_by_its_answer(name)
    given = lab.missions.given(name)
    one = killed_once(given.plan, given.plan.stages[given.stage][0])
    assert_not_won(name, [calm, one], because="one alone is replaced from the other")
    assert_not_won(name, [calm, calm], because="no worker was lost")


def killed_once(plan, device):
    """The measured trace of a run that loses one worker."""
    run = lab.start(plan, "1f1b", iterations=6)
    run.wait_for(1)
    run.kill(device)
    return run.wait()


def test_checkpoint_every():
    name = "checkpoint-every"
    right, given = assert_won_by_its_answer(name), lab.missions.given(name)
    assert_not_won(name, right * given.devices**0.5, because="one device alone")
    assert_not_won(name, right / 2**0.5, because="in the middle")
    assert_not_won(name, right / 60, because="minutes")
    assert_not_won(name, right * 1.1, because="above it")
