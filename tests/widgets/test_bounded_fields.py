"""Every field of the lab is bounded before anything is computed from it, and a refusal leaves all as it was."""

from __future__ import annotations

from typing import Any

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.network.document_conversion import LIMITS, document_of, topology_of
from dtfm_lab.widgets.planner.job_controls import JobControls
from dtfm_lab.widgets.shell.workspace import restore_state, state_of


@pytest.mark.parametrize("batch", [99_999_999_999_999_999_999, 10**9 + 1, 0, -3])
def test_a_batch_out_of_range_is_refused_at_once_and_the_old_one_works_again(batch) -> None:
    state = LabState(topology=lab.load_topology("lecture-hall"))
    controls = JobControls(state, lab.load_job("small"))
    before, sizes, typed = state.job, controls.microbatch.options, controls.batch.value
    controls.batch.value = batch
    assert state.job is None
    assert "global_batch" in state.message
    assert "\n" not in state.message
    assert controls.microbatch.options == sizes
    controls.batch.value = typed
    assert (state.job, state.message) == (before, "")
    controls.batch.value = 2 * typed
    assert state.job.global_batch == 2 * typed
    state.history.undo()
    assert state.job == before


async def test_a_refused_job_is_no_reason_for_a_lab_without_one_after_a_restart() -> None:
    first, other = (lab.Lab("lecture-hall", autosave=False, live=False) for _ in range(2))
    job = first.job
    first.plan_panel.job_controls.batch.value = 10**20
    assert first.job is None
    restore_state(state_of(first.lab_state, first.panels), other.lab_state, other.panels)
    assert other.job == job


def drawn_with(part: str, key: str, number: float) -> dict[str, Any]:
    document = document_of(lab.load_topology("lecture-hall"))
    if part == "links":
        ends = {"source": "ada", "target": "john", "latency_ms": 1.0, "bandwidth_gbps": 1.0}
        return document | {"links": [ends | {key: number}]}
    if part == "between":
        pair = {"regions": ["front", "back"], "latency_ms": 1.0, "bandwidth_gbps": 1.0}
        return document | {"between": [pair | {key: number}]}
    if part == "default":
        return document | {"default": document["default"] | {key: number}}
    first, *others = document[part]
    return document | {part: [first | {key: number}, *others]}


@pytest.mark.parametrize(
    ("part", "key"),
    [
        *(
            (part, key)
            for part in ("links", "default", "regions", "between")
            for key in ("latency_ms", "bandwidth_gbps")
        ),
        *(("devices", key) for key in ("uplink_gbps", "downlink_gbps", "price_per_hour")),
    ],
)
def test_what_is_drawn_has_limits_that_are_told_in_one_line(part, key) -> None:
    least, most = LIMITS[key]
    topology_of(drawn_with(part, key, least))
    topology_of(drawn_with(part, key, most))
    for number in (2 * most, -1.0 if least == 0 else least / 2):
        with pytest.raises(TopologyError, match=rf"{key}.*wanted|{key}.*found") as refused:
            topology_of(drawn_with(part, key, number))
        assert "\n" not in str(refused.value)
