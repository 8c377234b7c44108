"""The whole lab as a file: what comes back is what was there, to the bit, and a broken file is one line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files import workspaces
from dtfm_lab.files.workspaces import PackedColumn, WorkspaceState, load_workspace, save_workspace, workspace_to_mapping


@pytest.fixture(scope="module")
def state() -> WorkspaceState:
    plan = lab.evaluate("lecture-hall", "tiny", stages=[[0, 1], [3, 2], [4, 7], [6, 5]])
    plan = replace(plan, planner="evolutionary", seed=0, generation=3)
    return WorkspaceState(
        topology=plan.topology,
        job=plan.job,
        plan=plan,
        schedule="1f1b",
        queueing="nics",
        choices={"compression": "int8", "recompute": True},
        predicted=lab.simulate(plan, "1f1b"),
        measured=lab.simulate(plan, "gpipe", queueing="nics"),
        settings={"network": {"document": {"name": "drawn", "devices": [1, 2.5, "é"]}}, "run": {"clock": "paced"}},
    )


def equal_traces(one: Trace, other: Trace) -> bool:
    columns = ("iteration", "replica", "action", "start_s", "end_s", "after")
    same = all(getattr(one, c).tobytes() == getattr(other, c).tobytes() for c in columns)
    return same and one.context == other.context and one.actions == other.actions


def test_a_round_trip_gives_equal_nouns_and_settings(state: WorkspaceState, tmp_path: Path) -> None:
    back = load_workspace(save_workspace(state, tmp_path / "lab.json"))
    assert back.topology.fingerprint == state.topology.fingerprint
    assert back.topology.devices == state.topology.devices, "positions too"
    assert back.job == state.job
    assert back.plan.cost.total_s == state.plan.cost.total_s
    assert back.plan.placement.devices.tolist() == state.plan.placement.devices.tolist()
    assert (back.plan.planner, back.plan.seed, back.plan.generation) == ("evolutionary", 0, state.plan.generation)
    assert equal_traces(back.predicted, state.predicted)
    assert equal_traces(back.measured, state.measured)
    assert (back.schedule, back.queueing, back.choices) == ("1f1b", "nics", state.choices)
    assert back.settings == state.settings


def test_a_network_that_has_changed_since_the_plan_comes_back_beside_it(state: WorkspaceState, tmp_path: Path) -> None:
    drawn = state.topology.scaled(latency=1 / 3)
    back = load_workspace(save_workspace(WorkspaceState(topology=drawn, plan=state.plan), tmp_path / "lab.json"))
    assert back.topology.fingerprint == drawn.fingerprint
    assert back.plan.topology.fingerprint == state.plan.topology.fingerprint


def test_a_blank_lab_is_a_workspace_too(tmp_path: Path) -> None:
    back = load_workspace(save_workspace(WorkspaceState(), tmp_path / "lab.json"))
    assert (back.topology, back.job, back.plan, back.predicted, back.measured) == (None,) * 5


def test_a_trace_that_is_too_long_is_left_out_and_said_to_be(
    state: WorkspaceState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "MOST_ROWS", len(state.predicted) - 1)
    (told, _) = state.left_out
    assert told.startswith(f"the predicted trace has {len(state.predicted):,} rows")
    back = load_workspace(save_workspace(state, tmp_path / "lab.json"))
    assert back.predicted is None
    assert back.plan is not None


def test_a_failure_leaves_the_older_file(state: WorkspaceState, tmp_path: Path) -> None:
    path = save_workspace(state, tmp_path / "lab.json")
    before = path.read_bytes()
    with pytest.raises(FileError, match="no plain value"):
        save_workspace(WorkspaceState(settings={"run": {"clock": object()}}), path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["lab.json"]


def broken(state: WorkspaceState, tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(workspace_to_mapping(state) | changes))
    return path


def test_what_is_damaged_is_one_line_that_says_where(state: WorkspaceState, tmp_path: Path) -> None:
    whole = workspace_to_mapping(state)
    column = whole["predicted"]["start_s"]
    network = whole["plan"]["topology"]
    for changes, said in (
        ({"dtfm_workspace": 2}, "broken.json: dtfm_workspace is version 2; this release reads version 1"),
        ({"schedul": "x"}, "did you mean 'schedule'"),
        ({"plan": {"dtfm_plan": 1}}, "plan"),
        ({"plan": None}, "topology refers to the plan, which is missing"),
        ({"topology": network | {"latency_s": [[0.0]]}}, "wanted (8, 8)"),
        ({"topology": network | {"latency_s": [[0.0], [1.0, 2.0]]}}, "topology: "),
        ({"job": {"name": "x"}}, "job"),
        ({"predicted": whole["predicted"] | {"start_s": column | {"zlib": "!!"}}}, "predicted: start_s: is damaged"),
        ({"predicted": whole["predicted"] | {"start_s": column | {"length": 3}}}, "holds more rows; wanted the 3"),
        ({"predicted": whole["predicted"] | {"start_s": column | {"length": 10**9}}}, "wanted 0 to"),
        ({"predicted": whole["predicted"] | {"action": column}}, "predicted: action: holds <f8; wanted <i8"),
        ({"settings": {"run": 3}}, "settings"),
        ({"choices": {"foo": 1}}, "choices: 'foo' is not a field of a job"),
        ({"queueing": "trains"}, "no queueing named 'trains'; known: nics, pairs"),
        ({"schedule": "two\nlines"}, "wanted text without control characters"),
    ):
        with pytest.raises(FileError, match=re.escape(said)):
            load_workspace(broken(state, tmp_path, **changes))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40))
@settings(max_examples=25)
def test_a_column_comes_back_to_the_bit(values: list[float]) -> None:
    array = np.array(values, dtype=float)
    assert PackedColumn.of(array).unpacked("<f8").tobytes() == array.tobytes()
