"""What-ifs without a browser: sliders moved in Python, on an event loop like the kernel's."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import WAIT_S, until

import dtfm_lab as lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.widgets.lab_state import LabState, roles_of
from dtfm_lab.widgets.what_if import WhatIfPanel
from dtfm_lab.widgets.what_if.answer import MEASURES, ONE_TO_ONE, PARTS, SAME, Answers, WhatIfAnswer, percent, reason
from dtfm_lab.widgets.what_if.setting import WhatIfSetting, batches_of, microbatches_of, with_valid
from dtfm_lab.widgets.what_if.setting_controls import FACTOR_STOPS


def a_plan(network: str = "lecture-hall", **job) -> Plan:
    return lab.plan(lab.load_topology(network), lab.load_job("tiny", **job), steps=3)


def a_lab_state(plan: Plan) -> LabState:
    lab_state = LabState()
    lab_state.topology, lab_state.job, lab_state.plan = plan.topology, plan.job, plan
    return lab_state


def shows(panel: WhatIfPanel, setting: WhatIfSetting | None = None) -> Callable[[], bool]:
    """The answer is there, and of what is turned to."""
    return lambda: panel.last is not None and panel.last.setting == (setting or panel.setting)


def answer_of(plan: Plan, setting: WhatIfSetting) -> WhatIfAnswer:
    return Answers(plan).answer(setting)


def test_an_answer_is_what_lab_simulate_says() -> None:
    plan = a_plan()
    base = WhatIfSetting.of(plan, "gpipe", "pairs")
    for turned in (
        {"bandwidth": 0.5, "latency": 3.0},
        {"microbatch": 1, "schedule": "1f1b", "queueing": "nics"},
        {"compression": "int8", "synchronisation": "ring", "synchronise_every": 4},
        {"recompute": True, "global_batch": 32},
    ):
        setting = with_valid(base, turned)
        assert setting.changes_from(base) == turned
        answer = answer_of(plan, setting)
        of_the_job = {name: value for name, value in turned.items() if name in setting.job_changes}
        tried = lab.evaluate(
            plan.topology.scaled(latency=setting.values["latency"], bandwidth=setting.values["bandwidth"]),
            lab.with_job(plan, **of_the_job).job,
            rank_map=plan.rank_map,
        )
        trace = lab.simulate(tried, **setting.simulated_with)
        assert answer.iteration_s == pytest.approx(trace.iteration_s, rel=1e-9)
        assert answer.mfu == pytest.approx(trace.metrics["mfu"], rel=1e-9)
        assert answer.communication_s == pytest.approx(tried.cost.total_s, rel=1e-9)
        assert answer.peak_bytes == lab.memory(tried, trace=trace).peak_bytes[lab.memory(tried, trace=trace).worst]


def test_only_batches_that_divide_are_offered() -> None:
    job = a_plan(global_batch=48, microbatch=2).job
    for batch in batches_of(job, job.microbatch, job.global_batch, job.global_batch):
        assert batch % (job.n_replicas * job.microbatch) == 0
    assert {24, 48, 96} <= set(batches_of(job, job.microbatch, 48, 48))


def test_what_is_no_setting_is_left_out() -> None:
    base = WhatIfSetting.of(a_plan(), "gpipe", "pairs")
    nonsense = {
        "bandwidth": "2", "latency": 1e9, "microbatch": True, "global_batch": -1, "compression": "zip",
        "synchronisation": None, "recompute": 1, "schedule": [], "queueing": {}, "colour": "blue",
    }  # fmt: skip
    assert with_valid(base, nonsense) == base
    assert with_valid(base, base.values) == base


def test_a_change_is_told_with_its_share() -> None:
    plan = a_plan()
    base = answer_of(plan, WhatIfSetting.of(plan, "gpipe", "pairs"))
    slower = answer_of(plan, with_valid(base.setting, {"bandwidth": 0.1}))
    known = [measure for measure in MEASURES if getattr(base, measure.name) is not None]
    assert {measure.cells(base, base)[2] for measure in known} == {""}, "nothing differs from itself"
    changed = {measure.name: measure.cells(slower, base)[2] for measure in known}
    assert changed["iteration_s"] == percent(slower.iteration_s / base.iteration_s - 1)
    assert changed["iteration_s"].startswith(("+", "×"))
    assert changed["tokens_per_s"].startswith("-")
    assert changed["bubble"] == f"{100 * (slower.bubble - base.bubble):+.1f} points"
    assert percent(-0.5) == "-50 %"
    assert slower.setting.describe_changes(base.setting) == "bandwidth × 0.1"


async def test_without_a_plan_nothing_can_be_turned() -> None:
    panel = WhatIfPanel(LabState())
    assert "No plan yet" in panel.answer.value
    assert panel.controls.by_name["bandwidth"].disabled
    for each in (panel.pin, panel.use, panel.back):
        assert each.disabled
        assert "No plan yet" in each.tooltip, "a button that does nothing says why"
    assert all(slider["why_not"] for slider in panel.controls.sliders.sliders)
    assert json.loads(json.dumps(panel.settings()))["setting"] is None


async def test_a_slider_is_answered_and_the_newest_wins() -> None:
    panel = WhatIfPanel(a_lab_state(a_plan()))
    await until(shows(panel))
    assert "the plan as it is" in panel.answer.value
    for factor in (0.2, 0.5, 2.0, 4.0):
        panel.controls.by_name["bandwidth"].value = factor
    await until(shows(panel))
    assert panel.last.setting.values["bandwidth"] == 4.0
    assert panel.last.iteration_s == answer_of(panel.answers.plan, panel.setting).iteration_s
    assert "bandwidth × 4" in panel.answer.value
    assert "from FLOP" not in panel.numbers.value
    trace = lab.simulate(panel.answers.plan)
    panel._lab_state.predicted = replace(trace, context=replace(trace.context, clock="virtual"))
    assert "from FLOP" in panel.numbers.value, "the bar's seconds are of a profile now, these are not"
    panel.back.click()
    await until(lambda: "the plan as it is" in panel.answer.value)
    assert panel.back.disabled


async def test_the_large_sliders_turn_the_controls_and_follow_them() -> None:
    panel = WhatIfPanel(a_lab_state(a_plan()))
    view = panel.controls.sliders
    by_key = {slider["key"]: slider for slider in view.sliders}
    assert [by_key[key]["texts"][view.values[key]] for key in ("bandwidth", "latency")] == ["× 1", "× 1"]
    view.values = view.values | {"bandwidth": by_key["bandwidth"]["texts"].index("× 0.5")}
    assert panel.setting.values["bandwidth"] == 0.5, "as the slider says"
    assert all(float(text.removeprefix("× ")) in FACTOR_STOPS for text in by_key["bandwidth"]["texts"])
    batches = [value for _, value in panel.controls.by_name["global_batch"].options]
    view.values = view.values | {"global_batch": 0}
    assert panel.setting.values["global_batch"] == batches[0]
    panel.controls.by_name["latency"].value = 10.0
    assert view.values["latency"] == len(by_key["latency"]["texts"]) - 1
    assert {slider["note"] for slider in view.sliders} == {"same placement"}
    view.values = {"bandwidth": 10_000, "latency": "high"}
    assert panel.setting.values["latency"] == 10.0, "what is no stop is left out"


@pytest.fixture(scope="module")
def worldwide() -> Plan:
    return a_plan("worldwide", n_stages=8, n_replicas=8)


@settings(max_examples=5)
@given(st.floats(0.1, 10), st.sampled_from(["bandwidth", "latency"]))
def test_a_reason_is_of_the_part_that_changed_most(worldwide: Plan, factor: float, name: str) -> None:
    plan = worldwide
    base = answer_of(plan, WhatIfSetting.of(plan, "1f1b", "pairs"))
    now = answer_of(plan, base.setting.with_values(**{name: factor}))
    assert sum(now.parts.values()) == pytest.approx(now.iteration_s)
    words = reason(now, base)
    if abs(now.iteration_s - base.iteration_s) <= SAME * base.iteration_s:
        assert "does not change it" in words
        return
    sign = 1 if now.iteration_s > base.iteration_s else -1
    part = max(now.parts, key=lambda each: sign * (now.parts[each] - base.parts[each]))
    assert words.startswith(PARTS[part])
    power = abs(np.log(now.parts[part] / base.parts[part]) / np.log(factor))
    assert ("one to one" in words) == (power >= ONE_TO_ONE)


async def test_the_network_plays_what_is_asked_with_the_plan_that_suits_it(worldwide: Plan) -> None:
    state = a_lab_state(worldwide)
    panel = WhatIfPanel(state)
    await until(shows(panel))
    assert (state.tried, state.shown_tasks) == (None, {})
    panel.controls.by_name["bandwidth"].value = 10.0
    await until(lambda: panel.anew is not None and panel.anew[0] == panel.setting)
    _, anew = panel.anew
    assert "replanned" in panel.numbers.value
    assert anew is None or anew.trace.iteration_s < panel.last.iteration_s
    assert state.tried is (panel.last.prediction.trace if anew is None else anew.trace)
    assert state.shown_tasks == ({} if anew is None else roles_of(anew.plan))
    state.shown_panes = ("schedule",)
    assert (state.tried, state.shown_tasks) == (None, {}), "another pane is of the plan at hand"
    state.shown_panes = ("what-if",)
    assert state.tried is not None
    panel.back.click()
    await until(shows(panel))
    await until(lambda: state.tried is None)


async def test_a_micro_batch_keeps_the_batches_that_it_divides() -> None:
    panel = WhatIfPanel(a_lab_state(a_plan(global_batch=32, microbatch=1, n_stages=4, n_replicas=2)))
    await until(shows(panel))
    offered = {value for _, value in panel.controls.by_name["global_batch"].options}
    assert {2, 32} <= offered
    panel.controls.by_name["microbatch"].value = 4
    await until(shows(panel))
    offered = {value for _, value in panel.controls.by_name["global_batch"].options}
    assert 2 not in offered, "2 replicas x 4 sequences are 8"
    assert panel.controls.by_name["global_batch"].value == 32
    panel.controls.by_name["global_batch"].value = 8
    await until(shows(panel))
    assert {value for _, value in panel.controls.by_name["microbatch"].options} == {1, 2, 4}


async def test_what_a_schedule_refuses_is_one_calm_line() -> None:
    lab_state = a_lab_state(a_plan(n_stages=8, n_replicas=1))
    panel = WhatIfPanel(lab_state)
    await until(shows(panel))
    panel.controls.by_name["schedule"].value = "interleaved-1f1b"
    await until(lambda: bool(panel.problem.value))
    assert "8 blocks" in panel.problem.value, "which 16 stages are too many for"
    assert panel.last is None
    assert lab_state.message == "", "said in place"
    panel.controls.by_name["schedule"].value = "1f1b"
    await until(shows(panel))
    assert panel.problem.value == ""
    lab_state.schedule = "interleaved-1f1b"  # the lab itself is turned to what cannot be: other settings are answered
    panel.controls.by_name["schedule"].value = "gpipe"
    await until(shows(panel))
    assert "gpipe" in panel.answer.value


async def test_a_job_of_message_sizes_only_is_refused_in_place() -> None:
    from dtfm_lab.domain.job import Job

    plan = lab.evaluate(lab.load_topology("lecture-hall"), Job.from_bytes(4, 2, 1e6, 1e5), rank_map=list(range(8)))
    panel = WhatIfPanel(a_lab_state(plan))
    assert "message sizes only" in panel.problem.value
    assert panel.controls.by_name["bandwidth"].disabled


async def test_pins_are_answered_loaded_and_removed() -> None:
    panel = WhatIfPanel(a_lab_state(a_plan()))
    await until(shows(panel))
    panel.pin.click()
    panel.controls.by_name["bandwidth"].value = 0.1
    await until(shows(panel))
    panel.pin.click()
    panel.pin.click()
    assert [pin.name for pin in panel.pins.pins] == ["the plan", "bandwidth × 0.1", "bandwidth × 0.1 (2)"]
    await until(lambda: all(pin.is_computed for pin in panel.pins.pins))
    first, _, last = (chip.children for chip in panel.pins.chips.children)
    assert first[0].description.startswith("the plan · ")
    first[0].click()
    await until(shows(panel))
    assert panel.controls.by_name["bandwidth"].value == 1.0
    last[1].click()
    assert len(panel.pins.chips.children) == 2


async def test_a_setting_is_taken_over_into_lab_and_network() -> None:
    lab_state = a_lab_state(a_plan())
    panel = WhatIfPanel(lab_state)
    await until(shows(panel))
    for name, value in {"schedule": "1f1b", "compression": "int8", "latency": 2.0, "queueing": "nics"}.items():
        panel.controls.by_name[name].value = value
    await until(shows(panel))
    scaled = lab_state.plan.topology.scaled(latency=2.0)
    panel.use.click()
    assert (lab_state.schedule, lab_state.queueing, lab_state.choices["compression"]) == ("1f1b", "nics", "int8")
    assert "global_batch" not in lab_state.choices, "the batch as planned is no choice, and follows the next plan's"
    assert lab_state.chosen_plan.topology.fingerprint == lab_state.plan.topology.fingerprint
    assert lab_state.topology.fingerprint == scaled.fingerprint
    lab_state.plan = lab.plan(lab_state.topology, lab_state.job, steps=2)
    assert panel.controls.by_name["latency"].value == 1.0, "the network is now what was tried"


async def test_what_was_not_turned_follows_the_lab_and_what_was_stays() -> None:
    lab_state = a_lab_state(a_plan())
    panel = WhatIfPanel(lab_state)
    panel.controls.by_name["compression"].value = "fp16"
    lab_state.schedule = "zb-h1"
    assert panel.setting.values["schedule"] == "zb-h1"
    assert panel.setting.values["compression"] == "fp16"
    await until(shows(panel))
    lab_state.plan = None
    assert "No plan yet" in panel.answer.value


async def test_a_slow_answer_shows_how_far_it_is_and_can_be_stopped() -> None:
    plan = a_plan()
    lab_state = a_lab_state(plan)
    panel = WhatIfPanel(lab_state)
    await until(shows(panel))
    before = panel.last
    quick = panel.answers.with_base

    may_end = threading.Event()

    def slow(*given):
        assert may_end.wait(WAIT_S)
        return quick(*given)

    panel.answers.with_base = slow
    panel.controls.by_name["bandwidth"].value = 2.0
    await until(lambda: "actions" in panel.chart.busy)
    assert lab_state.busy == ("what-if",)
    panel.stop.click()
    may_end.set()
    await until(lambda: panel.chart.busy == "")
    assert lab_state.busy == ()
    assert panel.last == before
    may_end.clear()
    panel.controls.by_name["bandwidth"].value = 3.0
    await until(lambda: panel.chart.busy != "")
    panel.stop.click()
    panel.controls.by_name["bandwidth"].value = 4.0  # at once, while the stopped one is still under way
    may_end.set()
    await until(lambda: panel.last.setting.values["bandwidth"] == 4.0)


async def test_settings_come_back_now_or_with_the_next_plan() -> None:
    plan = a_plan()
    panel = WhatIfPanel(a_lab_state(plan))
    await until(shows(panel))
    panel.controls.by_name["latency"].value, panel.controls.by_name["synchronise_every"].value = 0.3, 8
    panel.controls.by_name["microbatch"].value = panel.controls.by_name["microbatch"].options[-1][1]
    await until(shows(panel))
    panel.pin.click()
    kept = json.loads(json.dumps(panel.settings()))
    other_state = LabState()
    other = WhatIfPanel(other_state)
    other.restore(kept)
    assert other.setting is None
    assert other.settings() == kept, "nothing is forgotten until there is a plan"
    other_state.plan = plan
    assert other.settings() == kept
    await until(shows(other))
    await until(lambda: all(pin.is_computed for pin in other.pins.pins))
    other.restore({"setting": {"bandwidth": "wide", "global_batch": 7}, "pins": 3, "colour": 1})
    assert other.setting.values["latency"] == 1.0, "what is not said is as in the lab"
    assert other.setting.values["global_batch"] == plan.job.global_batch


@given(st.integers(1, 5000), st.integers(1, 16), st.just(0) | st.integers(1, 15))
@settings(max_examples=40)
def test_micro_batches_are_those_that_divide_the_batch_and_leave_each_replica_one(each: int, n: int, over: int) -> None:
    job = lab.load_job("tiny", n_stages=1, n_replicas=n, global_batch=n, microbatch=1)
    batch = each * n + over % n
    offered = microbatches_of(job, batch, 1)
    assert offered == [size for size in range(1, each + 1) if (batch if batch % n else each) % size == 0]
    for size in offered:
        assert min(job.with_fields(global_batch=batch, microbatch=size).microbatch_counts) >= 1


def test_an_answer_keeps_the_shares_of_the_pipelines_where_it_can() -> None:
    plan = a_plan(global_batch=24, microbatch=2)
    uneven = plan.changed(job=replace(plan.job, microbatches_per_replica=(9, 3)))
    base = WhatIfSetting.of(uneven, "1f1b", "pairs")
    for changes, counts in (({}, (9, 3)), ({"microbatch": 1}, (18, 6)), ({"global_batch": 26}, (7, 6))):
        setting = base.with_values(**changes)
        assert setting.on(uneven).job.microbatch_counts == counts
        assert answer_of(uneven, setting).iteration_s == lab.simulate(setting.on(uneven), "1f1b").iteration_s


async def test_numbers_beyond_a_jobs_are_passed_over_at_once() -> None:
    panel = WhatIfPanel(a_lab_state(a_plan()))
    base, began = panel.base, time.monotonic()
    for most in (10**9, 10**12, 10**40, float("inf")):
        panel.restore(
            {"setting": {"microbatch": 1, "global_batch": most}, "pins": [{"setting": {"microbatch": most}}] * 999}
        )
    assert time.monotonic() - began < 120, "999 pins of a job of that size would take days"
    assert panel.setting.values["schedule"] == base.values["schedule"]
    assert len(panel.pins.pins) <= 100
