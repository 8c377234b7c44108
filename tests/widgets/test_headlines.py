"""Five hundred random edits of networks and jobs: every number and name of the headline is one of the plans'."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from plan_widgets import JOB, irregular

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import Cancellation, Difference, adapt_plan, simulated
from dtfm_lab.planning.adapting import nearest
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner import short_searches
from dtfm_lab.widgets.planner.edits import EditHistory
from dtfm_lab.widgets.planner.plan_words import describe_moves
from dtfm_lab.widgets.shell.bar import bar_numbers
from dtfm_lab.widgets.shell.headline import headline

SAME = 0.0051
"""Share below which a number may be told as unchanged, and no device may have moved."""


class Shown(NamedTuple):
    """What stood on the screen after an edit, and what stood there before."""

    lead: str
    rest: str
    before: Plan
    after: Plan
    slower: bool
    """Whether the edit only made links slower."""
    of_network: bool
    """Whether the network was edited and the job was not."""


def edited(rng: np.random.Generator, topology: Topology, job: Job, whole: Topology) -> tuple[Topology, Job, bool]:
    """A random edit, and whether it can only slow things down."""
    what = rng.choice(["link", "link", "region", "region", "device", "leaves", "joins", "batch"])
    factor = float(rng.choice([0.05, 0.2, 0.5, 0.98, 1.02, 2, 10]))
    a, b = (int(i) for i in rng.choice(len(topology), 2, replace=False))
    if what in ("link", "region"):
        mask = np.zeros((len(topology),) * 2, dtype=bool)
        regions = np.array([d.region or d.name for d in topology.devices])
        ends = (
            (regions == regions[a], regions == regions[b]) if what == "region" else (np.eye(len(topology))[[a, b]] > 0)
        )
        mask |= np.outer(ends[0], ends[1])
        mask |= mask.T
        bandwidth = np.where(mask, topology.bandwidth_bytes_per_s * factor, topology.bandwidth_bytes_per_s)
        return replace(topology, bandwidth_bytes_per_s=bandwidth), job, factor < 1
    if what == "device":
        devices = list(topology.devices)
        devices[a] = replace(devices[a], peak_flop_per_s=devices[a].peak_flop_per_s * factor, gpu="own")
        return replace(topology, devices=tuple(devices)), job, factor < 1
    needed = (job.n_stages or 1) * (job.n_replicas or 1)
    if what == "leaves" and len(topology) > max(needed, len(whole) - 3):
        return topology.subset([name for name in topology.names if name != topology.names[a]]), job, False
    if what == "joins":
        return whole, job, False
    if what == "batch" and job.model is not None:
        return topology, job.with_fields(global_batch=int(rng.choice([8, 16, 32]))), False
    return topology, job, False


def story(topology: Topology, job: Job, seed: int, n_edits: int, objective: str | None = None) -> list[Shown]:
    """Edits one after the other, each followed by what the live lab does; every third is one of a drag."""
    rng, clock = np.random.default_rng(seed), [0.0]
    found = short_searches.first_plan(topology, job, Cancellation(), {"objective": objective} if objective else {})
    assert found is not None
    state = LabState(topology=topology, job=job, plan=found.plan)
    history = EditHistory(state, lambda: clock[0])
    state.plan = replace(found.plan)  # seen by the history
    shown = []
    since: list[bool] = []
    for i in range(n_edits):
        in_drag = i % 3 == 2
        clock[0] += 0.1 if in_drag else 60.0
        new_topology, new_job, slower = edited(rng, state.topology, state.job, topology)
        since = [*since, slower] if in_drag else [slower]
        state.topology, state.job = new_topology, new_job
        if not state.plan_is_stale:
            continue
        found = short_searches.replanned(state.plan, new_topology, new_job, Cancellation(), history.before)
        assert found is not None
        state.plan = found.plan
        if i % 10 == 9:
            found = short_searches.improved(found, new_job, Cancellation(), 0.05)
            assert found is not None
            state.plan = found.plan
        before, state.schedule = (
            history.before,
            state.plan.job.schedule_name,
        )  # as the schedule's panel follows the plan
        said = headline(state, before, found, "")
        changed = before.topology.fingerprint != new_topology.fingerprint
        shown.append(
            Shown(said.lead, said.rest, before.plan, state.plan, all(since), changed and before.job == new_job)
        )
        numbers = [number for number in bar_numbers(state, before) if number["was"]]
        for number in numbers if " → " in said.lead.rsplit(": ", 1)[-1] else ():
            told = said.lead.rsplit(": ", 1)[-1]
            if number["label"].startswith("Iteration") == (state.plan.objective == "iteration"):
                assert told == f"{number['was']} → {number['value']}.", "the bar and the headline say one thing"
    return shown


def value(plan: Plan) -> float:
    if plan.objective == "communication":
        return plan.cost.total_s
    again = lab.simulate(plan).iteration_s
    assert plan.iteration_s == pytest.approx(again)
    return again


def carried(plan: Plan, topology: Topology) -> Plan | None:
    """The plan as it is on another network, priced by the public functions alone."""
    if not {name for group in plan.stages for name in group} <= set(topology.names):
        return None
    ranks: list[int | None] = [None] * len(topology)
    for r, pipeline in enumerate(plan.pipelines):
        for s, name in enumerate(pipeline):
            ranks[topology.index(name)] = r * len(pipeline) + s
    there = replace(lab.evaluate(topology, plan.job, rank_map=ranks), objective=plan.objective)
    return there if plan.objective == "communication" else simulated(there)


def is_close(text: str, seconds: float) -> bool:
    return text in {format_s(seconds), format_s(seconds * (1 + 1e-9)), format_s(seconds * (1 - 1e-9))}


def check(one: Shown) -> None:
    """Hold every statement against the plans."""
    was, now = value(one.before), value(one.after)
    told = one.lead.rsplit(": ", 1)[-1].rstrip(".").removeprefix("communication cost ").split("; the iteration")[0]
    if told.startswith("stays "):
        assert abs(now - was) <= SAME * was
        assert is_close(told.removeprefix("stays ").removeprefix("about "), now)
    elif " → " in told and ": " in one.lead:
        assert is_close(told.split(" → ")[0], was)
        assert is_close(told.split(" → ")[1], now)
    by_cost = one.after.objective == "communication"  # the order of its stages has no direction
    same_places = one.before.stages == one.after.stages
    choices = [(p.job.schedule_name, p.blocks_per_stage, p.job.checkpoints) for p in (one.before, one.after)]
    if "The plan stays" in one.rest:
        assert choices[0] == choices[1]
        pipelines = [
            {frozenset(p) if by_cost else tuple(p) for p in plan.pipelines} for plan in (one.before, one.after)
        ]
        assert pipelines[0] == pipelines[1]
    held = carried(one.before, one.after.topology) if one.of_network else None
    back = carried(one.after, one.before.topology) if one.of_network else None
    fits = held is not None and (held.job.model is None or lab.memory(held).fits)
    held_s = value(held) if fits else None
    if held_s is not None:
        assert now <= held_s * (1 + SAME), "no plan is worse than the one that was there"
        if not same_places and not by_cost:
            assert now <= held_s * (1 - 0.0049), "no device moves for nothing"
    if match := re.search(r"The old plan would take ([\d.,]+ \S+) now", one.rest):
        assert held_s is not None
        assert is_close(match[1], held_s)
    if match := re.search(r"before the edit it would come to ([\d.,]+ \S+), too", one.rest):
        assert back is not None
        assert is_close(match[1], value(back))
    if one.slower and one.of_network and now < was * (1 - SAME):
        assert "The search found a better plan" in one.rest, "a slower link never looks faster"
    for group, stage in re.findall(r"(?:^|, |\. )(\S+) (?:stage \d+ → |into stage )(\d+)", one.rest):
        there = [d.name for d in one.after.topology.devices if group in (d.name, d.region)]
        assert there, f"{group} is drawn"
        if not by_cost:
            assert set(there) <= set(one.after.stages[int(stage)])


def two_cities() -> Topology:
    return lab.load_topology("lecture-hall")


@pytest.mark.parametrize("seed", range(5))
def test_headlines_of_plans_for_seconds_hold(seed: int) -> None:
    topology = two_cities()
    job = lab.load_job("small")
    for one in story(topology, job if seed % 2 else job.freed("n_stages", "n_replicas", "microbatch"), seed, 60):
        check(one)


@pytest.mark.parametrize("seed", range(4))
def test_headlines_of_plans_for_communication_hold(seed: int) -> None:
    for one in story(irregular(18, seed), JOB, seed, 50):
        check(one)


def test_regions_that_change_places_are_named_as_regions() -> None:
    topology, job = lab.load_topology("worldwide"), lab.load_job("gpt3-xl").with_fields(n_stages=8, n_replicas=8)
    job = job.with_fields(microbatch=1, schedule="gpipe")
    regions = list(dict.fromkeys(device.region for device in topology.devices))
    stages = [[d.name for d in topology.devices if d.region == region] for region in regions]

    def planned() -> Plan:
        return simulated(replace(lab.evaluate(topology, job, stages=stages), objective="iteration"))

    before = planned()
    stages[1], stages[5] = stages[5], stages[1]
    swapped = describe_moves(Difference(before, planned()))
    assert swapped in {f"{a} and {b} swapped stages" for a in regions for b in regions}
    assert regions[1] in swapped
    assert regions[5] in swapped
    stages[1][0], stages[2][0] = stages[2][0], stages[1][0]
    told = describe_moves(Difference(before, planned()))
    assert f"7 of {regions[5]} stage 5 → 1" in told, "a part of a region is counted"
    stages[:] = [list(column) for column in zip(*stages, strict=True)]
    told = describe_moves(Difference(before, planned()))
    assert re.match(r"\d\d of 64 devices moved", told), "where all regions break up, nobody is named"


def test_of_interchangeable_devices_those_stay_that_can() -> None:
    topology = lab.load_topology("islands")
    before = lab.plan(topology, lab.load_job("small"), seed=0, steps=3)
    grid = before.placement.devices.copy()
    names = np.array(topology.names)[grid]
    regions = {device.name: device.region for device in topology.devices}
    rng = np.random.default_rng(1)
    for region in set(regions.values()):
        of_region = [place for place in np.ndindex(grid.shape) if regions[names[place]] == region]
        shuffled = [grid[of_region[i]] for i in rng.permutation(len(of_region))]
        for place, device in zip(of_region, shuffled, strict=True):
            grid[place] = device
    other = replace(before, placement=Placement(grid))
    assert other.stages != before.stages
    again = nearest(other, before)
    assert again.stages == before.stages
    assert again.iteration_lower_bound_s == before.iteration_lower_bound_s is not None, "it holds for every placement"
    assert again.iteration_s == pytest.approx(before.iteration_s)
    first = nearest(other, None)
    assert first.iteration_s == pytest.approx(before.iteration_s)
    stage_of = {name: stage for stage, group in enumerate(first.stages) for name in group}
    for region in set(regions.values()):
        of_region = [stage_of.get(name, 99) for name in topology.names if regions[name] == region]
        assert of_region == sorted(of_region), "a first plan has them in the order of its stages"


def test_a_job_with_an_open_shape_is_planned_anew_where_its_devices_have_left() -> None:
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("small")
    open_job = job.freed("n_stages", "n_replicas", "microbatch")
    plan = lab.plan(topology, job.with_fields(n_stages=8, n_replicas=1), seed=0, steps=2)
    found = short_searches.replanned(plan, topology.subset(topology.names[:3]), open_job, Cancellation())
    assert found is not None
    assert found.plan.job.n_tasklets <= 3
    assert "stages x replicas" in found.change.sentence


def test_a_plan_keeps_what_it_chose_where_the_job_names_its_shape_only() -> None:
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("small")
    plan = lab.plan(topology, job, seed=0, steps=3)
    assert job.shaped
    assert job.schedule is None
    there = adapt_plan(plan, topology.with_link(0, 1, bandwidth_gbps=50), job)
    assert there.job == plan.job
