"""What a user may get wrong about hours: seconds, options of policies, an availability with nobody in it."""

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, TraceError

NETWORK = lab.load_topology("lecture-hall")
NOBODY = lab.Availability.from_intervals({NETWORK.devices[0].name: []}, 600)


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "30"])
@pytest.mark.parametrize("name", ["start_s", "restart_s", "regroup_s", "checkpoint_s", "notice_s"])
def test_seconds_that_are_none_are_named(name, wrong):
    with pytest.raises(TraceError, match=rf"^{name} is .*; wanted seconds, 0 or more$"):
        lab.replay({1: 1.0}, 8, NOBODY, "oobleck", **{name: wrong})


@pytest.mark.parametrize(
    ("policy", "option", "wrong", "wanted"),
    [
        ("restart", "every_s", -5, "a number, 0 or more"),
        ("restart", "every_s", "often", "a number, 0 or more"),
        ("restart", "joins", "step", "loss or checkpoint"),
        ("oobleck", "joins", "checkpoint", "loss or step"),
        ("oobleck", "meanwhile", 1, "true or false"),
        ("varuna", "every_steps", -1, "a whole number, 0 or more"),
        ("varuna", "every_steps", 2.5, "a whole number, 0 or more"),
        ("diloco", "local_steps", 0, "1 or more"),
    ],
)
def test_an_option_of_a_policy_is_of_its_kind(policy, option, wrong, wanted):
    with pytest.raises(TraceError, match=rf"^{option} of policy {policy} is .*; wanted {wanted}$"):
        lab.policies[policy](**{option: wrong})


@pytest.mark.parametrize("policy", lab.policies)
def test_where_nobody_ever_comes_nothing_happens(policy):
    history = lab.replay(NETWORK, "small", NOBODY, policy)
    assert (history.samples, history.seconds["stopped"]) == (0, 600)
    assert history.share_of_bound == 1


def test_a_policy_without_hours_is_refused():
    with pytest.raises(LabError, match="policy is 'oobleck' without an availability; wanted both, or neither"):
        lab.run(lab.plan(NETWORK, "small", steps=1), policy="oobleck")


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (lab.Job.from_bytes(2, 2, 1e6, 1e6), "holds message sizes only; simulating or running it needs a model"),
        ("llama-3-8b", "fits no plan on lecture-hall: wanted more memory"),
    ],
)
def test_a_job_that_no_plan_fits_is_refused_by_its_reason(job, says):
    with pytest.raises(LabError, match=says):
        lab.replay(NETWORK, job, NOBODY, "restart")


def test_a_policy_that_lets_replicas_step_alone_is_named_where_the_job_does_not():
    job = lab.load_job("small", sharding="zero-1")
    with pytest.raises(LabError, match=r"policy diloco sets synchronise_every to its 7 local_steps: .* another policy"):
        lab.replay(NETWORK, job, NOBODY, "diloco", local_steps=7)
    assert lab.replay(NETWORK, job, NOBODY, "restart").samples == 0


def test_intervals_are_by_the_names_of_devices():
    with pytest.raises(TraceError, match=r"\[1, 2\] is there; wanted intervals by the names of devices"):
        lab.Availability.from_intervals([1, 2], 10)
