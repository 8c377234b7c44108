"""Every edit is followed by a new plan, the newest edit only, and what changed is told; then its bound rises."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from loops import WAIT_S, until
from plan_widgets import JOB, irregular

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.planning import Cancellation, adapt_plan, evaluate, simulated
from dtfm_lab.planning.adapting import starting_plans
from dtfm_lab.planning.iteration.rising_bounds import rising_bounds
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner import replanning as module
from dtfm_lab.widgets.planner.replanning import BackgroundBound, LiveReplanning
from dtfm_lab.widgets.planner.short_searches import replanned, without_checkpointing
from dtfm_lab.widgets.shell.bar import bar_numbers
from dtfm_lab.widgets.shell.headline import describe_edit, headline


def a_lab_state(n: int = 16) -> tuple[LabState, LiveReplanning]:
    topology = irregular(n)
    lab_state = LabState(topology=topology, job=JOB, plan=lab.plan(topology, JOB, seed=0, steps=3))
    return lab_state, LiveReplanning(lab_state, live=False)


def slower(lab_state: LabState, latency_s: float = 0.5):
    """The same network, one link of the plan's slow."""
    first, second = lab_state.plan.stages[0][0], lab_state.plan.stages[0][1]
    return lab_state.topology.with_link(first, second, latency_s=latency_s)


async def test_an_edit_replans_from_the_current_plan_and_tells_what_changed():
    lab_state, replanning = a_lab_state()
    replanning.switch.value = True
    before, lab_state.topology = lab_state.plan, slower(lab_state)
    await until(lambda: lab_state.plan is not before)
    assert not lab_state.plan_is_stale
    carried = adapt_plan(before, lab_state.topology, JOB)
    assert lab_state.plan.cost.total_s <= carried.cost.total_s * (1 + 1e-9)
    assert replanning.last.change.before.plan is before


async def test_the_plan_at_hand_is_shown_on_the_edited_network_before_the_search_answers():
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("tiny", n_stages=2, n_replicas=2)
    lab_state = LabState(topology=topology, job=job, plan=lab.plan(topology, job, objective="iteration", steps=1))
    replanning, shown = LiveReplanning(lab_state, live=False), []
    replanning.show_at_hand = lambda plan: lambda: shown.append((plan, lab_state.plan_is_stale))
    replanning.switch.value = True
    before, lab_state.topology = lab_state.plan, slower(lab_state)
    await until(lambda: lab_state.plan is not before)
    assert [(plan.stages, stale) for plan, stale in shown] == [(before.stages, True)]
    assert shown[0][0].topology is lab_state.topology
    lost = lab_state.plan.stages[0][0]
    lab_state.topology = lab_state.topology.subset([name for name in lab_state.topology.names if name != lost])
    await until(lambda: not lab_state.plan_is_stale)
    assert len(shown) == 1, "with a device less it cannot serve as it was"


async def test_without_a_plan_a_first_one_is_made_and_then_looked_at_again():
    lab_state = LabState()
    replanning, plans = LiveReplanning(lab_state), []
    lab_state.observe(lambda change: plans.append(change["new"]), "plan")
    lab_state.topology, lab_state.job = irregular(), JOB
    await until(lambda: len(plans) == 1 + len(module.BUDGETS_S[1:]))
    costs = [plan.cost.total_s for plan in plans]
    assert costs == sorted(costs, reverse=True), "a longer search never shows a worse plan"
    assert replanning.took_s > 0


async def test_it_keeps_the_processor_free_for_a_run_and_for_a_search_that_was_asked_for():
    for step in ("run", "plan"):
        lab_state, _ = a_lab_state()
        lab_state.set_busy(step, working=True)
        live, plans = LiveReplanning(lab_state), []
        lab_state.observe(lambda change, plans=plans: plans.append(change["new"]), "plan")
        lab_state.topology = slower(lab_state)
        if step == "run":
            await until(lambda live=live: live.last is not None)
        await asyncio.sleep(1.0)
        assert len(plans) == (step == "run"), "the answer to the edit only; a search that goes on will set its own"


async def test_a_search_that_only_looks_on_ends_when_a_run_begins(monkeypatch):
    monkeypatch.setattr(module, "BUDGETS_S", (0.015, 600.0, 600.0))
    lab_state, replanning = a_lab_state()
    replanning.switch.value = True
    lab_state.topology = slower(lab_state)
    await until(lambda: replanning._looks_further)
    lab_state.set_busy("run", working=True)
    await until(lambda: replanning._task is None)


def test_an_edit_is_told_by_the_pair_of_regions_or_devices_that_it_changed():
    topology = lab.load_topology("worldwide")
    one = topology.with_link("Tokyo-1", "Oregon-1", bandwidth_bytes_per_s=1e6)
    assert describe_edit(topology, one, None, None) == "Oregon-1 – Tokyo-1 0.523 → 0.008 Gbit/s"
    assert describe_edit(topology, topology, None, None) == ""
    smaller = topology.subset(topology.names[:-1])
    assert describe_edit(topology, smaller, None, None) == f"{topology.names[-1]} left"
    assert describe_edit(smaller, topology, None, None) == f"{topology.names[-1]} joined"
    job = lab.load_job("gpt3-xl")
    larger = job.with_fields(global_batch=2 * job.global_batch)
    assert describe_edit(topology, topology, job, larger) == f"Batch {job.global_batch:,} → {2 * job.global_batch:,}"


async def test_off_nothing_happens_and_switched_on_it_catches_up():
    lab_state, replanning = a_lab_state()
    before, lab_state.topology = lab_state.plan, slower(lab_state)
    await asyncio.sleep(0.1)
    assert lab_state.plan is before
    replanning.switch.value = True
    await until(lambda: lab_state.plan is not before)
    assert not lab_state.plan_is_stale


async def test_of_many_edits_in_a_row_only_the_newest_is_planned_for(monkeypatch):
    lab_state, replanning = a_lab_state()
    edited, asked, plans = threading.Event(), [], []

    def held(plan, topology, *rest):
        asked.append(topology)
        edited.wait(WAIT_S)  # the first search lasts until the last edit
        return replanned(plan, topology, *rest)

    monkeypatch.setattr(module, "replanned", held)
    lab_state.observe(lambda change: plans.append(change["new"]), "plan")
    replanning.switch.value = True
    first = lab_state.topology = slower(lab_state)
    await until(lambda: asked)
    for i in range(25):
        lab_state.topology = slower(lab_state, 0.2 + i / 100)
        await asyncio.sleep(0)
    edited.set()
    await until(lambda: not lab_state.plan_is_stale)
    assert asked == [first, lab_state.topology]
    assert all(plan.topology is lab_state.topology for plan in plans)


async def test_every_plan_is_foreseen_before_it_is_set(monkeypatch):
    """A longer search's plan, too: its chart would be old for a moment, until it is predicted."""
    monkeypatch.setattr(module, "RESTS_S", (0.0, 0.0))
    monkeypatch.setattr(module, "BUDGETS_S", (0.015, 0.05, 0.05))
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("tiny")
    lab_state = LabState(topology=topology, job=job)
    replanning, foreseen, late = LiveReplanning(lab_state, live=False), [], []
    replanning.foresee = foreseen.append
    lab_state.observe(lambda change: late.append(change["new"]) if change["new"] not in foreseen else None, "plan")
    replanning.switch.value = True
    await until(lambda: lab_state.plan is not None and not replanning.is_answering and not lab_state.searches_on)
    await until(lambda: replanning._task is None)
    assert len(foreseen) >= 2
    assert late == []


async def test_an_answer_to_an_edit_before_the_newest_is_not_shown(monkeypatch):
    lab_state, replanning = a_lab_state()
    edited, asked, shown = threading.Event(), [], []

    def late(plan, topology, job, cancelled, *rest):
        asked.append(topology)
        edited.wait(WAIT_S)
        return replanned(plan, topology, job, Cancellation(), *rest)

    monkeypatch.setattr(module, "replanned", late)
    lab_state.observe(lambda change: shown.append(change["new"].topology is lab_state.topology), "plan")
    replanning.switch.value = True
    lab_state.topology = slower(lab_state)
    await until(lambda: asked)
    lab_state.topology = slower(lab_state, 0.9)
    edited.set()
    await until(lambda: not lab_state.plan_is_stale)
    assert len(asked) == 2
    assert shown
    assert all(shown)


async def test_a_plan_that_was_chosen_meanwhile_is_not_replaced_by_what_a_longer_search_finds(monkeypatch):
    lab_state, replanning = a_lab_state()
    chosen, searched = threading.Event(), threading.Event()

    def improved(found, *rest):
        searched.set()
        chosen.wait(WAIT_S)
        return found

    monkeypatch.setattr(module, "improved", improved)
    replanning.switch.value = True
    lab_state.topology = slower(lab_state)
    await until(searched.is_set)
    stages = [list(group) for group in lab_state.plan.stages]
    own = lab.evaluate(lab_state.topology, JOB, stages=stages[::-1])
    lab_state.plan = own
    chosen.set()
    await until(lambda: replanning._task is None)
    assert lab_state.plan is own


async def test_a_device_that_is_gone_is_replaced_by_an_idle_one():
    topology = irregular(18)
    found = lab.plan(topology, JOB, seed=0, steps=3)
    spare, far = (topology.names[i] for i in found.idle_devices)
    for name in set(topology.names) - {far}:  # no plan uses it, however long the search
        topology = topology.with_link(name, far, latency_s=60.0)
    before = evaluate(topology, JOB, stages=found.stages)
    lab_state = LabState(topology=topology, job=JOB, plan=before)
    replanning, gone = LiveReplanning(lab_state), before.stages[1][2]
    lab_state.topology = topology.subset([name for name in topology.names if name != gone])
    await until(lambda: lab_state.plan is not before)
    changes = replanning.last.change.difference.devices.set_index("device")["change"]
    assert changes[gone] == "removed"
    assert list(changes[changes == "come in"].index) == [spare]
    assert [lab_state.topology.names[i] for i in lab_state.plan.idle_devices] == [far]


async def test_what_does_not_fit_is_one_calm_line_until_it_fits_again():
    lab_state, replanning = a_lab_state()
    replanning.switch.value = True
    before, whole = lab_state.plan, lab_state.topology
    lab_state.topology = whole.subset(whole.names[:15])
    await until(lambda: "4 stages x 4 replicas need 16 devices" in lab_state.not_planned)
    await asyncio.sleep(0.2)
    assert lab_state.plan is before
    assert lab_state.message == ""
    assert headline(lab_state, None, replanning.last, "").kind == "error"
    lab_state.topology = whole
    assert lab_state.not_planned == ""
    lab_state.topology = whole.subset(whole.names[:15])
    lab_state.job = Job.from_bytes(3, 5, 1e9, 5e8)
    await until(lambda: lab_state.plan is not before)
    assert len(lab_state.plan.stages) == 3


async def test_a_model_that_is_too_large_is_said_at_once_with_what_would_fit():
    topology = lab.load_topology("lecture-hall")
    lab_state = LabState(topology=topology, job=lab.load_job("small"))
    replanning = LiveReplanning(lab_state)
    await until(lambda: lab_state.plan is not None)
    lab_state.job = lab.load_job("llama-3-8b")
    await until(lambda: bool(lab_state.not_planned))
    lead, rest, kind = headline(lab_state, replanning.history.before, replanning.last, "of the old plan")
    assert (lead, kind) == ("Job llama-3-8b fits no plan on lecture-hall:", "error")
    assert rest.startswith("wanted more memory, or a smaller model; ")
    assert bar_numbers(lab_state, None) == [], "those of another job's plan are no answer"
    lab_state.job = lab.load_job("small").with_fields(global_batch=8)
    await until(lambda: not lab_state.plan_is_stale)
    assert lab_state.not_planned == ""


async def test_a_plan_of_a_network_that_has_changed_meanwhile_is_brought_up_to_date():
    lab_state, replanning = a_lab_state()
    old = lab_state.plan
    replanning.switch.value = True
    lab_state.topology = slower(lab_state)
    await until(lambda: not lab_state.plan_is_stale)
    lab_state.plan = old  # as by a search that began before the edit
    await until(lambda: not lab_state.plan_is_stale)


def test_too_few_devices_for_the_shape_leave_a_plan_of_fewer_pipelines_at_once():
    topology, job = irregular(), lab.load_job("small", n_stages=None, n_replicas=None, global_batch=24)
    shaped = job.with_fields(n_stages=4, n_replicas=3, schedule="1f1b")
    before = simulated(evaluate(topology, shaped, stages=np.arange(12).reshape(4, 3).tolist()))
    before = before.changed(objective="iteration", iteration_s=before.iteration_s, left_open=job.left_open)
    rest = topology.subset([name for name in topology.names if name != before.stages[1][1]][:11])
    found = replanned(before, rest, job, Cancellation())
    (fewer, *_) = (simulated(one) for one in starting_plans(before, rest))
    assert fewer.placement.devices.shape == (4, 2)
    assert found.plan.iteration_s <= fewer.iteration_s * (1 + 1e-9)


def test_the_stages_keep_their_numbers_where_they_can():
    before = lab.plan(irregular(), JOB, seed=0, steps=3)
    after = replanned(before, before.topology.with_link(0, 1, latency_s=0.4), JOB, Cancellation()).plan
    kept, turned = (
        sum(len(set(a) & set(b)) for a, b in zip(before.stages, stages, strict=True))
        for stages in (after.stages, after.stages[::-1])
    )
    assert kept >= turned


def test_what_is_given_up_says_nothing():
    given_up = Cancellation()
    given_up.set()
    plan = lab.plan(irregular(), JOB, seed=0, steps=1)
    assert replanned(plan, irregular(seed=1), JOB, given_up) is None


@pytest.mark.parametrize("edit", ["region", "name"])
def test_an_edit_that_no_placement_is_priced_by_leaves_a_plan_made_by_hand(edit):
    topology = irregular()
    names = topology.names
    by_hand = evaluate(topology, JOB, stages=[names[first : first + 4] for first in range(0, 16, 4)])
    first, *others = topology.devices
    again = replanned(by_hand, replace(topology, devices=(replace(first, **{edit: "x"}), *others)), JOB, Cancellation())
    assert again.plan.placement.devices.tolist() == by_hand.placement.devices.tolist()
    assert (again.plan.planner, again.plan.cost.total_s) == (by_hand.planner, by_hand.cost.total_s)


def test_a_placement_that_stays_is_still_the_work_of_who_made_it():
    topology = irregular()
    best = lab.plan(topology, JOB, seed=0, steps=3)
    by_hand = evaluate(topology, JOB, stages=best.stages)
    hardly = topology.with_link(0, 1, latency_s=float(topology.latency_s[0, 1]) * (1 + 1e-9))
    again = replanned(by_hand, hardly, JOB, Cancellation()).plan
    assert again.stages == by_hand.stages
    assert again.planner == "given"
    assert again.lower_bound_s <= again.cost.total_s


async def test_a_job_that_leaves_more_open_is_planned_anew_though_the_plan_is_still_one_of_it():
    job = lab.load_job("small").with_fields(microbatch=8)
    lab_state = LabState(topology=lab.load_topology("lecture-hall"), job=job)
    replanning = LiveReplanning(lab_state)
    await until(lambda: lab_state.plan is not None and replanning._task is None)
    before = lab_state.plan.iteration_s
    lab_state.job = job.with_fields(microbatch=None)
    assert not lab_state.plan_is_stale
    await until(lambda: lab_state.plan.iteration_s < before / 1.5 and replanning._task is None)
    assert lab_state.plan.job.microbatch < 8
    replanning.switch.value = False


async def test_an_edit_that_is_undone_brings_its_plan_back():
    lab_state, replanning = a_lab_state()
    replanning.switch.value = True
    first, before = lab_state.topology, lab_state.plan.cost.total_s
    lab_state.topology = slower(lab_state)
    await until(lambda: not lab_state.plan_is_stale)
    lab_state.topology = first
    await until(lambda: not lab_state.plan_is_stale)
    assert lab_state.plan.cost.total_s <= before * (1 + 1e-9)
    replanning.switch.value = False


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOUND_REST_S", 0.01)
    monkeypatch.setattr(module, "BOUND_FRAME_S", 0.01)


def a_bounded_plan() -> LabState:
    topology = lab.load_topology("lecture-hall").subset(range(3))
    job = lab.load_job("tiny", n_stages=None, n_replicas=None)
    found = lab.plan(topology, job, objective="iteration", steps=2, seed=0)
    assert found.iteration_s is not None
    for _ in rising_bounds(topology, job, found.iteration_s):
        pass  # compiles the kernels, which takes longer on a fresh machine than a bound may rise in vain
    plan = replace(found, iteration_lower_bound_s=0.1 * found.iteration_s)
    return LabState(topology=topology, job=job, plan=plan)


async def test_the_bar_says_how_far_the_bound_has_risen_since_the_plan_was_found():
    state = a_bounded_plan()
    rising = BackgroundBound(state)
    before = state.plan.speed_up_left
    state.set_busy("plan", True)
    assert not rising.rises  # what is searched for has the processor to itself
    state.set_busy("plan", False)
    await until(lambda: state.bound_s > 0.1 * state.plan.iteration_s)
    assert state.bound_s <= state.plan.iteration_s
    note = next(number["note"] for number in bar_numbers(state, None) if number["label"].startswith("Iteration"))
    assert f"at most {before:.2f}" not in note
    rising.end()
    assert not rising.rises


@pytest.mark.parametrize("what", ["plan", "run", "edit"])
async def test_whatever_else_is_asked_ends_it_and_its_thread(what, monkeypatch):
    began, closed = threading.Event(), threading.Event()

    def endless(*_: object, **__: object) -> Iterator[float]:
        try:
            began.set()
            while True:
                time.sleep(1e-3)
                yield 0.0
        finally:
            closed.set()

    monkeypatch.setattr(module, "rising_bounds", endless)
    state = a_bounded_plan()
    rising = BackgroundBound(state)
    state.set_busy("what-if", True)
    await until(began.is_set)
    if what == "edit":
        state.topology = state.topology.scaled(bandwidth=0.5)
    else:
        state.set_busy(what, True)
        assert not rising.rises
    await until(closed.is_set)
    assert state.bound_s == 0


async def test_a_placement_of_one_s_own_and_a_plan_for_the_communication_have_no_bound_that_rises():
    state = a_bounded_plan()
    rising = BackgroundBound(state)
    own = replace(state.plan, iteration_lower_bound_s=None)
    for plan in (own, replace(state.plan, objective="communication")):
        state.plan = plan
        assert not rising.rises


def test_activations_are_not_computed_again_for_nothing() -> None:
    job = lab.load_job("tiny")
    found = lab.plan("lecture-hall", job, steps=1, seed=0)
    fields = found.job.with_fields(checkpointing="selective", warmups=found.job.warmups)
    bound_s = found.iteration_lower_bound_s
    worse = replace(simulated(found.changed(job=fields)), iteration_lower_bound_s=bound_s)
    better = without_checkpointing(worse, job)
    assert (better.job.checkpoints, better.iteration_s) == ("none", found.iteration_s)
    assert (better.iteration_lower_bound_s, better.planner, better.seconds) == (bound_s, found.planner, found.seconds)
    assert without_checkpointing(better, job) is better
    assert without_checkpointing(worse, job.with_fields(checkpointing="selective")) is worse, "the job asks for it"
    small = [replace(device, memory_bytes=lab.memory(worse).peak_bytes.max()) for device in worse.topology.devices]
    tight = simulated(worse.changed(topology=replace(worse.topology, devices=tuple(small))))
    assert without_checkpointing(tight, job) is tight, "it would not fit"
