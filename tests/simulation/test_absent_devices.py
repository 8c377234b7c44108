"""A plan without devices that have left: those who hold their stage elsewhere do all of their work, and no more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, PlanError, UnknownName
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.schedule import COMPUTE, PASSES

MODEL = gpt(name="even", n_layers=8, d_model=32, n_heads=2, seq_len=16, vocab_size=256, tied=False)


def planned(n_stages: int, n_replicas: int, **fields: object) -> lab.Plan:
    n = n_stages * n_replicas
    network = Topology.from_matrices(
        np.full((n, n), 0.1), np.full((n, n), 0.5), regions=list("ab" * n)[:n], name="even", gpu="laptop"
    )
    sizes = {"global_batch": 24, "microbatch": 1, "model": MODEL, "schedule": "1f1b"}
    job = lab.load_job("tiny", n_stages=n_stages, n_replicas=n_replicas, **(sizes | fields))
    return lab.evaluate(network, job, stages=np.arange(n).reshape(n_stages, n_replicas).tolist())


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "adaptive-1f1b"])
@pytest.mark.parametrize(
    "fields",
    [
        {"synchronisation": "ring", "transport": "blocking"},
        {"synchronisation": "hierarchical", "microbatches_per_replica": (8, 7, 5, 4)},
        {"synchronisation": "tree", "gradient_compression": "int8"},
    ],
)
def test_every_pass_is_done_once_by_peers_of_its_stage_who_share_it_evenly(
    schedule: str, fields: dict[str, object]
) -> None:
    plan = planned(2, 4, schedule=schedule, **fields)
    gone = (plan.stages[0][1], plan.stages[1][0], plan.stages[1][3])
    trace = lab.simulate(plan.changed(absent=gone))
    done: Counter[object] = Counter()
    by_device: Counter[str] = Counter()
    busy_s: Counter[str] = Counter()
    for number, replica, seconds in zip(trace.action, trace.replica, trace.end_s - trace.start_s, strict=True):
        action = trace.actions[number]
        name = trace.device(action, int(replica))
        assert name not in gone
        done[action] += action.kind in PASSES
        by_device[name] += action.kind in PASSES
        busy_s[name] += seconds * (action.kind in COMPUTE)
    each = trace.context.stages_per_device * (3 if schedule == "zb-h1" else 2)
    assert Counter(done.values())[1] == sum(done.values()) == 24 * 2 * each
    assert max(busy_s.values()) <= trace.iteration_s
    assert trace.compute_share == pytest.approx(sum(busy_s.values()) / 5 / trace.iteration_s)
    counts = plan.job.microbatch_counts
    extra = [by_device[plan.stages[0][r]] - counts[r] * each for r in (0, 2, 3)]
    assert sum(extra) == counts[1] * each
    assert max(extra) - min(extra) <= each


def test_without_messages_the_passes_of_a_stage_take_its_work_over_who_is_left() -> None:
    plan = planned(1, 3, global_batch=18)
    whole, shared = (lab.simulate(one) for one in (plan, plan.changed(absent=(plan.stages[0][1],))))
    ends = [max(one.end_s[[one.actions[a].kind in PASSES for a in one.action]]) for one in (whole, shared)]
    assert ends[1] == pytest.approx(ends[0] * 9 / 6)


def test_an_absent_device_is_told_and_kept_in_files(tmp_path: Path) -> None:
    plan = planned(2, 2)
    shared = plan.changed(absent=(plan.stages[1][0],))
    assert "without device-2" in repr(shared)
    lab.save(shared, tmp_path / "plan.json")
    again = lab.load_plan(tmp_path / "plan.json")
    assert again.absent == shared.absent
    trace = lab.simulate(again)
    lab.save(trace, tmp_path / "trace.json")
    read = lab.load_trace(tmp_path / "trace.json")
    assert read.context.plan.absent == shared.absent
    assert lab.simulate(plan, like=read).iteration_s == pytest.approx(trace.iteration_s)
    assert lab.compare(trace, read).iteration_error == 0


def test_what_nobody_can_share_is_refused_in_one_line() -> None:
    plan = planned(2, 2)
    with pytest.raises(UnknownName, match="no placed device named 'device-9'"):
        plan.changed(absent=("device-9",))
    says = r"^stage 1 has lost device-2 and device-3, all that hold it; wanted one of them$"
    with pytest.raises(PlanError, match=says):
        plan.changed(absent=tuple(plan.stages[1]))
    for field, value in {"sharding": "zero-1", "synchronise_every": 4, "overlap": True}.items():
        other = planned(2, 2, **{field: value})
        with pytest.raises(JobError, match=rf"{field} is {value} where peers share a lost device's work; wanted"):
            lab.simulate(other.changed(absent=(other.stages[0][0],)))
