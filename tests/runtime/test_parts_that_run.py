"""A part of a large plan runs, and is what is predicted; links may secretly be those of another network."""

from __future__ import annotations

import numpy as np
import pytest
from run_helpers import assert_as_predicted, even_plan, small_plan
from training_alone import train_alone

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, TopologyError, TraceError
from dtfm_lab.domain.plan import Plan, cut_subplan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.runtime.client.launch import MOST_WORKERS, start, what_runs


def check_prediction(plan: Plan, measured: Trace) -> None:
    predicted = lab.simulate(plan, like=measured)
    assert predicted.context.rehearsed == measured.context.rehearsed
    assert_as_predicted(plan, measured)


def test_a_part_trains_what_one_process_trains_of_it_and_the_whole_plan_predicts_it() -> None:
    whole = small_plan(2, 3, global_batch=12, microbatch=2, blocks_per_stage=(3, 1))
    assert what_runs(whole, np.int64(5))[0].placement.devices.shape == (2, 2)
    run = start(whole, iterations=2, workers=(1, 2))
    measured = run.wait()
    part = run.spec.plan
    assert part.placement.devices.shape == (1, 2)
    assert measured.context.losses == pytest.approx(train_alone(part.job, 2)[0], abs=1e-9)
    assert measured.context.plan.topology_fingerprint == whole.topology.fingerprint
    check_prediction(whole, measured)
    check_prediction(part, measured)
    assert lab.memory(whole, trace=measured).devices == part.device_names
    assert len(lab.explain(whole).sensitivity(like=measured))
    with pytest.raises(TraceError, match="wanted the same"):
        lab.simulate(small_plan(2, 2), like=measured)


def test_a_plan_for_more_devices_than_one_machine_carries_is_rehearsed() -> None:
    large = even_plan(4, 10, global_batch=40, microbatch=1)
    part, kept = what_runs(large, None)
    assert (len(kept.stages), len(kept.pipelines)) == (4, 2)
    assert part.job.global_batch == 8
    assert what_runs(large, MOST_WORKERS)[0].job.n_replicas == 8
    with pytest.raises(LabError, match="4 stages x 10 pipelines need 40 on this machine; wanted at most 32"):
        start(large, workers=40)
    small = even_plan(4, 2)
    assert what_runs(small, None) == (small, None)


def test_a_schedule_for_all_stages_is_refused_where_the_first_ones_run() -> None:
    schedule = lab.schedules["1f1b"](4, 4)
    with pytest.raises(LabError, match="schedule 1f1b is of 4 devices and 4 micro-batches; job tiny wants 2 and 4"):
        start(even_plan(4, 1, global_batch=8), schedule, workers=2)


def test_links_of_another_network_are_emulated_and_not_known_to_the_prediction() -> None:
    plan = small_plan(2, 2)
    first, second = (plan.topology.names[int(d)] for d in plan.placement.devices[:, 0])
    slower = plan.topology.with_link(first, second, bandwidth_bytes_per_s=1e5)
    measured = lab.run(plan, iterations=2, emulated=slower)
    assert measured.context.plan.topology_fingerprint == plan.topology.fingerprint
    rows = lab.compare(lab.simulate(plan, like=measured), measured).rows.merge(
        measured.to_frame()[["iteration", "replica", "stage", "kind", "microbatch", "peer", "link"]]
    )
    sent = rows[rows["lane"] == "send"]
    wrong = sent[sent["duration_s_error"].abs() > 1e-9]
    assert set(wrong["link"]) <= {f"{first} -> {second}", f"{second} -> {first}"}
    assert len(wrong)
    assert cut_subplan(plan, measured.context.rehearsed) is plan


def test_a_network_of_another_size_or_on_real_links_is_refused() -> None:
    with pytest.raises(TopologyError, match="network lecture-hall has 8 devices; wanted 4, as many as the plan"):
        start(small_plan(), emulated="lecture-hall")
    with pytest.raises(LabError, match="on the real clock, which emulates no links"):
        start(small_plan(), clock="real", emulated=small_plan().topology)
    with pytest.raises(LabError, match="emulated is 3; wanted a network"):
        start(small_plan(), emulated=3)
