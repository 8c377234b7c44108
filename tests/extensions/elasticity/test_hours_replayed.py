"""Laws of a replayed history: nothing is lost from the books, nobody looks ahead, and nobody beats foresight."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from simulated_fleets import SimulatedFleet

from dtfm_lab.domain.errors import PlanError, UnknownName
from dtfm_lab.extensions.elasticity.api import (
    PlannedFleet,
    Policy,
    ReconfigurationCosts,
    TableFleet,
    foresight,
    policies,
    policy_of,
    replay,
)
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.history import History, TimeUse
from dtfm_lab.extensions.elasticity.policies.restart import daly_s, young_s
from dtfm_lab.extensions.elasticity.policy import Response, Situation, WorkKept
from dtfm_lab.files import load_job, load_topology

TABLE = {2: 10.0, 3: 14.0, 4: 19.0, 5: 18.0, 6: 28.0, 8: 40.0}
"""Samples a second by devices; five are slower than four, as in measured tables."""


def drawn(rng: np.random.Generator, n_devices: int, end_s: float = 4000.0) -> Availability:
    """Devices that come and go at random, some of them together."""
    present: dict[str, list[tuple[float, float]]] = {}
    shared = rng.uniform(0, end_s, 3)
    for device in range(n_devices):
        edges = np.sort(rng.uniform(0, end_s, 2 * rng.integers(0, 5)))
        begins, ends = edges[::2].copy(), edges[1::2].copy()
        if len(ends) and rng.random() < 0.4:  # together with others, at the same instant
            at = rng.choice(shared)
            clash = [i for i, (begin, end) in enumerate(zip(begins, ends, strict=True)) if begin < at <= end]
            ends[clash] = at
        if len(begins) and rng.random() < 0.5:
            begins[0] = 0.0
        if len(ends) and rng.random() < 0.5:
            ends[-1] = end_s
        present[f"d{device}"] = list(zip(begins.tolist(), ends.tolist(), strict=True))
    return Availability.from_intervals(present, end_s, name="drawn")


def any_costs(rng: np.random.Generator) -> ReconfigurationCosts:
    return ReconfigurationCosts(
        start_s=float(rng.choice([0.0, 20.0, 45.0])),
        restart_s=float(rng.uniform(0, 120)),
        regroup_s=float(rng.uniform(0, 20)),
        checkpoint_s=float(rng.choice([0.0, 3.0, 15.0])),
        notice_s=float(rng.choice([0.0, 0.0, 60.0])),
    )


def cases(n: int) -> Iterator[tuple[Availability, TableFleet, str, Policy, ReconfigurationCosts]]:
    names = list(policies)
    for seed in range(n):
        rng = np.random.default_rng(seed)
        fleet = SimulatedFleet(
            n_devices=8, samples_per_s=TABLE, batch=float(rng.choice([64, 512])), pipeline=int(rng.choice([1, 2]))
        )
        name = names[seed % len(names)]
        every = {"every_steps": int(rng.integers(1, 20))} if rng.random() < 0.3 else {}
        yield drawn(rng, 8), fleet, name, policy_of(name, **every), any_costs(rng)


def test_every_second_and_every_sample_is_accounted_for_and_nobody_beats_foresight():
    for availability, fleet, name, policy, costs in cases(400):
        history = replay(availability, fleet, policy, costs, name=name)
        seconds = history.seconds
        assert sum(seconds[state.name.lower()] for state in TimeUse) == pytest.approx(availability.end_s), name
        frame = history.to_frame()
        training = frame[frame.state == "training"]
        assert (frame.steps[frame.state != "training"] == 0).all()
        # all that was worked on is a step that counts, but for the one under way at the end
        step_s = np.array([history.operations[i].step_s for i in training.operation])
        work = ((training.end_s - training.start_s) / step_s).sum() if len(training) else 0.0
        assert -1e-6 <= work - training.steps.sum() < 1 + 1e-6, name
        limit = foresight(availability, fleet, costs, full_batch=policy.full_batch)[1][-1]
        assert history.samples - history.skipping_samples <= limit * (1 + 1e-9), name
        serving = {i: operation.devices for i, operation in enumerate(history.operations)}
        for row in training.itertuples():
            there = availability.present_at((row.start_s + row.end_s) / 2)
            assert {availability.devices[i] for i in serving[row.operation]} <= set(there), name


def test_nobody_looks_ahead():
    """What happened until a moment is the same, whatever comes after it."""
    for number, (availability, fleet, name, policy, costs) in enumerate(cases(150)):
        now_s = 700.0 + 10 * number
        sighted = ReconfigurationCosts(**{**costs.__dict__, "notice_s": 0.0})
        whole = replay(availability, fleet, policy, sighted, name=name)
        part = replay(availability.until(now_s), fleet, policy, sighted, name=name)
        until = int(np.searchsorted(whole.end_s, now_s, side="left"))
        n = min(until, len(part.end_s) - 1)
        np.testing.assert_array_equal(whole.start_s[:n], part.start_s[:n])
        working = [(h.operations[i].devices if i >= 0 else None) for h in (whole, part) for i in h.operation[:n]]
        assert working[:n] == working[n:], name


def steady(n: int, end_s: float, leaves: tuple[float, ...] = ()) -> Availability:
    ends = [*leaves, *[end_s] * (n - len(leaves))]
    return Availability.from_intervals({f"d{i}": [(0.0, leave)] for i, leave in enumerate(ends)}, end_s)


def test_without_changes_the_steps_that_fit_are_made():
    fleet = TableFleet(n_devices=4, samples_per_s=TABLE, batch=190.0)  # steps of 10 s
    for name in policies:
        policy = policy_of(name, every_s=math.inf)
        history = replay(steady(4, 1000.0), fleet, policy, ReconfigurationCosts(start_s=45.0, restart_s=30.0))
        n = policy.local_steps
        assert history.samples == 190.0 * n * ((1000 - 45 - 30) // (10 * n)), name
        assert history.seconds["stopped"] == 45.0
        assert history.seconds["reconfiguring"] == 30.0


def test_a_loss_costs_a_restart_and_what_no_checkpoint_holds():
    """Four devices, steps of 10 s, a checkpoint of 5 s after every fourth; one leaves 77 s after the beginning."""
    fleet = TableFleet(n_devices=4, samples_per_s={3: 19.0, 4: 19.0}, batch=190.0)
    costs = ReconfigurationCosts(start_s=0.0, restart_s=20.0, checkpoint_s=5.0)
    history = replay(steady(4, 200.0, (97.0,)), fleet, policy_of("restart", every_steps=4, every_s=math.inf), costs)
    # 20 s restart, 4 steps, 5 s, 3 steps and 2 s: the newest checkpoint has 4; 20 s restart, steps from 117 s on
    assert history.seconds["redone"] == pytest.approx(32.0)
    # of the steps that are executed every fourth is followed by a checkpoint: the eighth, then the twelfth
    assert history.samples == 190.0 * (4 + 1 + 4 + 2)
    assert history.seconds["checkpoint"] == pytest.approx(15.0)
    (loss,) = history.losses
    assert (loss.devices, loss.serving, loss.redone_s, loss.samples) == (("d0",), 1, pytest.approx(32.0), 570.0)
    assert loss.pause_s == pytest.approx(20.0)


def test_work_that_is_shared_loses_no_step_and_regrouping_loses_one():
    fleet = TableFleet(n_devices=4, samples_per_s={3: 9.5, 4: 19.0}, batch=190.0)
    lost = steady(4, 205.0, (105.0,))
    costs = ReconfigurationCosts(start_s=0.0, restart_s=0.0, regroup_s=7.0)
    shared = replay(lost, fleet, policy_of("swarm"), costs)
    assert shared.samples == 190.0 * (10 + 1 + (205 - 115) // 20)  # half a step at half the pace takes as long again
    for name in ("swarm", "goodput"):  # goodput shares, as regrouping would take seconds and be no faster
        again = replay(lost, fleet, policy_of(name, keeps_step=False), costs)
        assert again.seconds["redone"] == pytest.approx(5.0)
        assert again.samples == 190.0 * (10 + (205 - 105) // 20)
    regrouped = replay(lost, fleet, policy_of("oobleck"), costs)
    assert regrouped.seconds["redone"] == pytest.approx(5.0)
    assert regrouped.samples == 190.0 * (10 + (205 - 112) // 20)
    # the others work until they average, at 110 s, and refuse the step: three quarters of the batch from then on
    smaller = replay(lost, fleet, policy_of("torchft"), ReconfigurationCosts(start_s=0.0, restart_s=0.0, regroup_s=0.0))
    assert smaller.samples == 190.0 * 10 + 190.0 * 0.75 * 9
    assert (smaller.seconds["redone"], smaller.seconds["reconfiguring"]) == pytest.approx((5.0, 5.0))


def test_a_lost_island_loses_its_steps_since_the_last_average_and_the_others_none():
    """Four islands of one device, steps of 10 s, averages every 50 s; the loss is in the third round."""
    fleet = TableFleet(n_devices=4, samples_per_s={3: 9.5, 4: 19.0}, batch=190.0)
    costs = ReconfigurationCosts(start_s=0.0, restart_s=0.0)
    history = replay(steady(4, 410.0, (120.0,)), fleet, policy_of("diloco", local_steps=5), costs)
    assert history.local_steps == 5
    assert history.samples == 190.0 * 5 * (2 + 0.75 * 6)
    assert history.seconds["reconfiguring"] == history.seconds["redone"] == 0.0


def test_who_comes_joins_the_islands_at_the_next_average():
    fleet = TableFleet(n_devices=4, samples_per_s={3: 9.5, 4: 19.0}, batch=190.0)
    there = {f"d{i}": [(0.0, 600.0)] for i in range(3)} | {"d3": [(130.0, 600.0)]}
    costs = ReconfigurationCosts(start_s=0.0, restart_s=0.0, regroup_s=0.0)
    history = replay(Availability.from_intervals(there, 600.0), fleet, policy_of("diloco", local_steps=5), costs)
    assert history.samples == 190.0 * 5 * (2 + (600 - 200) // 50)  # rounds of 100 s, then of 50 s


def test_an_announced_departure_costs_no_work_where_the_notice_suffices():
    fleet = TableFleet(n_devices=4, samples_per_s={3: 19.0, 4: 19.0}, batch=190.0)
    lost = steady(4, 300.0, (150.0,))
    told = replay(
        lost,
        fleet,
        policy_of("parcae"),
        ReconfigurationCosts(start_s=0.0, restart_s=0.0, regroup_s=10.0, notice_s=30.0),
    )
    assert told.samples == 190.0 * 30
    assert told.seconds["redone"] == 0
    soon = ReconfigurationCosts(start_s=0.0, restart_s=0.0, regroup_s=10.0, notice_s=4.0)
    late = replay(steady(4, 300.0, (153.0,)), fleet, policy_of("parcae"), soon)
    assert late.seconds["redone"] == pytest.approx(3.0)
    assert late.samples == 190.0 * (15 + (300 - 159) // 10)


def test_who_comes_stops_the_work_once():
    """A fifth device is taken in after the step under way, and regrouping takes its seconds once."""
    fleet = TableFleet(n_devices=5, samples_per_s={4: 19.0, 5: 38.0}, batch=190.0)  # steps of 10 s, then of 5 s
    present = {f"d{i}": [(0.0, 205.0)] for i in range(4)} | {"d4": [(103.0, 205.0)]}
    hours = Availability.from_intervals(present, 205.0)
    for name in ("swarm", "parcae", "goodput"):
        history = replay(hours, fleet, policy_of(name), ReconfigurationCosts(start_s=0.0, restart_s=0.0, regroup_s=7.0))
        assert history.seconds["reconfiguring"] == pytest.approx(7.0), name
        assert history.samples == 190.0 * (11 + (205 - 117) // 5), name


def test_the_best_interval_of_checkpoints_is_where_young_and_daly_say():
    """Sweeping the interval on losses at random finds its best near the two formulas."""
    rng = np.random.default_rng(1)
    mean_s, checkpoint_s, end_s = 3000.0, 30.0, 600_000.0
    losses = np.cumsum(rng.exponential(mean_s, 400))
    losses = losses[losses < end_s - 100]
    # a lost device comes back at once, as another one
    present = {"rock": [(0.0, end_s)], "a": [], "b": []}
    edges = [0.0, *losses.tolist(), end_s]
    for number, (begin, end) in enumerate(pairwise(edges)):
        present["ab"[number % 2]].append((begin, end))
    availability = Availability.from_intervals(present, end_s)
    fleet = TableFleet(n_devices=3, samples_per_s={1: 1.0, 2: 1.0, 3: 1.0}, batch=10.0)
    costs = ReconfigurationCosts(start_s=0.0, restart_s=10.0, checkpoint_s=checkpoint_s)

    def samples(every_s: float) -> float:
        return replay(availability, fleet, policy_of("restart", every_s=every_s), costs).samples

    tried = {every_s: samples(every_s) for every_s in (60, 120, 240, 420, 600, 1200, 2400, 4800)}
    best = max(tried, key=tried.__getitem__)
    young, daly = young_s(checkpoint_s, mean_s), daly_s(checkpoint_s, mean_s)
    assert young == pytest.approx(math.sqrt(2 * 30 * 3000))
    assert daly == pytest.approx(young, rel=0.1)
    assert best in (240, 420, 600)
    assert samples(daly) >= 0.99 * tried[best]
    assert daly_s(100.0, 40.0) == 40.0


@pytest.fixture(scope="module")
def planned() -> PlannedFleet:
    return PlannedFleet(network=load_topology("lecture-hall"), job=load_job("tiny", n_stages=None, n_replicas=None))


def test_plans_of_alike_fleets_are_searched_once_and_serve_who_is_there(planned: PlannedFleet):
    everybody = frozenset(range(planned.n_devices))
    whole = planned.operation(everybody)
    assert whole is not None
    for gone in range(planned.n_devices):
        left = planned.operation(everybody - {gone}, whole)
        assert left is not None
        assert left.devices <= everybody - {gone}
        assert left.plan is not None
        assert left.samples == whole.samples
    assert len(planned._planned) <= 1 + len(set(planned._class_of.tolist()))


def test_planned_histories_keep_the_laws(planned: PlannedFleet):
    rng = np.random.default_rng(5)
    for number, name in enumerate(2 * list(policies)):
        availability = drawn(rng, planned.n_devices, 600.0).on(planned.network)
        costs = ReconfigurationCosts(
            start_s=5.0, restart_s=10.0, regroup_s=1.0, checkpoint_s=1.0, notice_s=20.0 * (number % 2)
        )
        policy = policy_of(name)
        history = replay(availability, planned, policy, costs, name=name)
        assert sum(history.seconds[state.name.lower()] for state in TimeUse) == pytest.approx(600.0)
        limit = foresight(availability, planned, costs, full_batch=policy.full_batch)[1][-1]
        assert history.samples - history.skipping_samples <= limit * (1 + 1e-9), name


def test_state_moves_only_to_who_lacks_it(planned: PlannedFleet):
    everybody = frozenset(range(planned.n_devices))
    whole = planned.operation(everybody)
    assert whole is not None
    assert planned.move_s(whole, whole) == 0.0
    assert planned.move_s(None, whole) == 0.0


class Stubborn(Policy):
    """Goes on whatever happens, though a device that serves has left."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None:
            return Response(now.fleet.operation(now.present))
        return Response(now.operation, keeps=WorkKept.STEP)


class Silent(Stubborn):
    """Has nothing to say of what happens."""

    def decide(self, now: Situation) -> Response | None:
        return super().decide(now) if now.operation is None else None


@pytest.mark.parametrize("policy", [Stubborn, Silent])
def test_a_policy_that_works_with_who_has_left_is_refused(policy: type[Policy]):
    fleet = TableFleet(n_devices=4, samples_per_s=TABLE, batch=190.0)
    says = f"policy {policy.__name__} uses d0 at 50 s, not online then; wanted devices that are online"
    with pytest.raises(PlanError, match=says):
        replay(steady(4, 200.0, (50.0,)), fleet, policy(), ReconfigurationCosts(start_s=0.0))


def test_what_makes_no_hours_is_refused():
    with pytest.raises(UnknownName, match="no policy named 'oblek'; did you mean 'oobleck'"):
        policy_of("oblek")
    with pytest.raises(PlanError, match=r"has 4 devices, the fleet 8; wanted availability.on\(network\)"):
        replay(steady(4, 200.0), TableFleet(n_devices=8, samples_per_s=TABLE, batch=1.0), policy_of("oobleck"))
    with pytest.raises(PlanError, match="table of 0 rows"):
        TableFleet(n_devices=8, samples_per_s={}, batch=1.0)


def test_a_history_says_its_dollars_and_its_losses():
    fleet = TableFleet(n_devices=4, samples_per_s=TABLE, batch=190.0)
    history: History = replay(
        steady(4, 3600.0, (1800.0,)),
        fleet,
        policy_of("oobleck"),
        ReconfigurationCosts(),
        price_per_hour=np.full(4, 2.0),
    )
    assert history.dollars == pytest.approx(2 * 3.5)
    assert history.dollars_per_million_samples == pytest.approx(7e6 / history.samples)
    assert list(history.losses_frame().columns) == ["time_s", "devices", "serving", "redone_s", "samples", "pause_s"]
