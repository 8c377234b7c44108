"""Workers that synchronise in buckets under the last backward: what they train, and what was predicted of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_helpers import small_plan
from test_recovery import after_iteration, assert_as_undisturbed, run_with
from training_alone import train_alone
from workers_as_threads import train

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.runtime.client.launch import start

STEPS = 3
OVERLAP: dict[str, Any] = {"overlap": True, "bucket_bytes": 1.0}


@pytest.mark.parametrize(
    ("schedule", "fields"),
    [
        *((name, {}) for name in ("gpipe", "1f1b", "zb-h1", "interleaved-1f1b")),
        ("1f1b", {"synchronisation": "central", "recompute": True}),
        ("interleaved-1f1b", {"synchronisation": "central", "bucket_bytes": 2e5}),
        ("zb-h1", {"synchronisation": "hierarchical"}),
        ("gpipe", {"bucket_bytes": 2e5}),
    ],
    ids=str,
)
def test_where_sums_keep_their_order_nothing_differs(schedule: str, fields: dict[str, Any]) -> None:
    serial = small_plan(2, 3, global_batch=12, **{name: fields[name] for name in fields if name != "bucket_bytes"})
    overlapped = small_plan(2, 3, global_batch=12, **(OVERLAP | fields))
    one, other = train(serial, schedule, STEPS), train(overlapped, schedule, STEPS)
    assert other.losses == one.losses
    wanted = one.parameters()
    assert all(np.array_equal(array, wanted[name]) for name, array in other.parameters().items())
    assert any(span.action.kind is Kind.PART for span in other.spans)


@pytest.mark.parametrize("n_stages", [1, 2])
@pytest.mark.parametrize(
    "fields", [{"synchronisation": "ring"}, {"tied": True}, {"microbatches_per_replica": (3, 5, 4)}], ids=str
)
def test_any_others_train_what_one_process_trains(n_stages: int, fields: dict[str, Any]) -> None:
    plan = small_plan(n_stages, 3, global_batch=12, **(OVERLAP | fields))
    losses, parameters = train_alone(plan.job, STEPS)
    found = train(plan, "1f1b", STEPS)
    assert found.losses == pytest.approx(losses, abs=1e-9)
    found_parameters = found.parameters()  # of a tied head, a copy of the embedding, too
    for name, wanted in parameters.items():
        np.testing.assert_allclose(found_parameters[name], wanted, atol=1e-9, rtol=0, err_msg=name)


def test_processes_follow_the_prediction_and_survive_a_kill() -> None:
    plan = small_plan(schedule="1f1b", synchronisation="ring", **OVERLAP)
    run = run_with(plan, after_iteration(2, lambda run: run.kill("device-2")), iterations=12)
    assert_as_undisturbed(run)
    measured = run.trace()
    comparison = lab.compare(lab.simulate(plan, like=measured), measured)
    assert len(comparison.rows) == len(measured)
    messages = comparison.rows[comparison.rows["lane"] != "compute"]
    assert messages["duration_s_error"].abs().max() < 1e-9


@pytest.mark.parametrize(
    ("fields", "options"), [({"synchronise_every": 2}, {}), ({}, {"clock": "paced"}), ({"sharding": "zero-1"}, {})]
)
def test_what_workers_cannot_overlap_is_refused_in_one_line(fields: dict[str, Any], options: dict[str, Any]) -> None:
    with pytest.raises(JobError) as refused:
        start(small_plan(**(OVERLAP | fields)), **options)
    assert "\n" not in str(refused.value)
