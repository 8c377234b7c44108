"""What a user may get wrong about hours: seconds, options of policies, an availability with nobody in it."""

import re
import sys

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, TraceError
from dtfm_lab.extensions.elasticity.policy import Policy, PolicyEvent, Response

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
        ("restart", "loses_steps", 1, "true or false"),
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
    with pytest.raises(TraceError, match=r"present is \[1, 2\]; wanted intervals by device name"):
        lab.Availability.from_intervals([1, 2], 10)


@pytest.mark.parametrize(
    ("table", "batch", "says"),
    [
        ({1: float("nan")}, 8, "table: nan samples per second of 1 devices; wanted a number, 0 or more"),
        ({1: float("inf")}, 8, "table: inf samples per second of 1 devices"),
        ({1: -1.0}, 8, "table: -1.0 samples per second of 1 devices"),
        ({1: 10**400}, 8, "samples per second of 1 devices"),
        ({1: "fast"}, 8, "table: 'fast' samples per second of 1 devices"),
        ({"one": 1.0}, 8, "table: 'one' devices; wanted a whole number, 1 to 4,096"),
        ({1.5: 1.0}, 8, "table: 1.5 devices"),
        ({0: 1.0}, 8, "table: 0 devices"),
        ({1: 1e300}, 8, "take 8e-300 s for a batch of 8; wanted 1e-06 s or more"),
        ({1: 1.0}, 1e-300, "take 1e-300 s for a batch"),
        ({1: 1.0}, float("inf"), "take inf s for a batch"),
        ({1: 1.0}, 10**400, "with a table; wanted the samples per step"),
    ],
)
def test_a_table_that_cannot_be_is_refused(table, batch, says):
    with pytest.raises(LabError, match=re.escape(says)):
        lab.replay(table, batch, lab.Availability.from_intervals({"ada": [(0, 600)]}, 600), "oobleck")


@pytest.mark.parametrize("end_s", [1e300, 4e8, float("nan"), float("inf"), -1])
def test_hours_of_more_than_ten_years_are_refused(end_s):
    with pytest.raises(TraceError, match=r"ends after .* s; wanted more than 0, at most 3.16e\+08 \(ten years\)"):
        lab.Availability.from_intervals({"ada": [(0, 600)]}, end_s)
    with pytest.raises(TraceError, match=r"sampled until .* s; wanted more than 0, at most 3.16e\+08"):
        lab.Availability.sampled(["ada"], end_s, mean_life_s=1e9, mean_absence_s=1e9)


def test_a_replay_that_would_take_too_long_says_what_to_change(monkeypatch):
    monkeypatch.setattr(sys.modules["dtfm_lab.extensions.elasticity.replay"], "MOST_TURNS", 1000)
    hours = lab.Availability.from_intervals({"ada": [(0, 1e5)]}, 1e5)
    with pytest.raises(LabError, match=r"more than 1,000 changes, checkpoints and questions by second .*; wanted"):
        lab.replay({1: 1.0}, 8, hours, lab.policies["varuna"](every_s=60))


def test_a_policy_that_asks_again_at_once_late_in_the_hours_does_not_stop_them():
    """At 300 million seconds a float has no room for a nanosecond."""

    class Impatient(Policy):
        def decide(self, situation):
            operation = situation.fleet.operation(situation.present) if situation.present else None
            again = 0.0 if situation.asked is PolicyEvent.CHANGE else None
            return Response(operation, again=again)

    hours = lab.Availability.from_intervals({"ada": [(3e8, 3.0001e8)]}, 3.0001e8)
    assert lab.replay({1: 1.0}, 8, hours, Impatient()).end_s[-1] == 3.0001e8
