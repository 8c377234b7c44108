"""A run folder that was damaged or written by hand is one line: any value in any place of spec.json and run.json."""

from __future__ import annotations

import contextlib
import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_helpers import small_plan, spec_of

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.extensions.hosts.export import export, spec_for
from dtfm_lab.extensions.hosts.hosts import RunHost, load_run_folder
from dtfm_lab.runtime.protocol.run_options import RunSpec

LINE = json.loads(spec_of(small_plan(2, 2), notes=("a note",), slow_worker=(1, 2.0)).to_line())
DEEP: list[Any] = []
for _ in range(900):
    DEEP = [DEEP]
SCALARS = [None, True, 0, -1, 1, 1.5, 2**63, 10**30, float("nan"), float("inf"), 1e300, "", "x", "../../etc", "\x00"]
HOSTILE = st.sampled_from([*SCALARS, [], {}, [[]], [None], [1, 2], {"a": 1}, DEEP])


def places(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something is in nested lists and mappings; of a list the first two."""
    inside: list[Any] = list(value) if isinstance(value, dict) else []
    inside = list(range(min(len(value), 2))) if isinstance(value, list) else inside
    return [before, *(place for key in inside for place in places(value[key], (*before, key)))]


@contextlib.contextmanager
def refused_in_one_line() -> Iterator[None]:
    """What the block raises, if anything, is a LabError of one line."""
    told = ""
    try:
        yield
    except LabError as error:
        told = str(error)
    assert "\n" not in told


@given(st.sampled_from(places(LINE)[1:]), HOSTILE, st.booleans())
@settings(max_examples=80, deadline=None)
def test_any_value_in_any_place_of_a_specification_is_taken_or_refused_in_one_line(place, value, removes) -> None:
    values = copy.deepcopy(LINE)
    at = values
    for key in place[:-1]:
        at = at[key]
    if removes:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    with refused_in_one_line():
        hash(RunSpec.from_line(json.dumps(values)))


def test_a_specification_comes_back_as_it_was() -> None:
    spec = RunSpec.from_line(json.dumps(LINE))
    assert (spec.notes, spec.slow_worker) == (("a note",), (1, 2.0))
    assert json.loads(spec.to_line()) == LINE


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the run's specification is broken JSON: Expecting value"),
        ("[" * 100_000, "the run's specification is broken JSON: it is nested too deeply"),
        ("9" * 5000, "the run's specification is broken JSON: "),
        ("[1]", "the run's specification: input should be "),
        ("{}", "the run's specification: plan: field required"),
        (json.dumps(LINE | {"slow_worker": 7}), "slow_worker: input should be a valid tuple; found 7"),
        (json.dumps(LINE | {"orders": "F0"}), "orders: input should be a valid tuple"),
        (json.dumps(LINE | {"iterations": 10**30}), "iterations: "),
        (json.dumps(LINE | {"plan": LINE["plan"] | {"dtfm_plan": 9}}), "dtfm_plan is version 9"),
        (json.dumps({k: v for k, v in LINE.items() if k != "secret"}), "secret: field required"),
    ],
)
def test_a_damaged_specification_is_refused(text: str, says: str) -> None:
    with pytest.raises(FileError) as refused:
        RunSpec.from_line(text)
    assert says in str(refused.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    hosts = [RunHost(name=name, address="127.0.0.1", workers=(rank,)) for rank, name in enumerate("ab")]
    return export(spec_for(small_plan(1, 2), iterations=2), tmp_path / "run", hosts, port=5000)


RUN_FILE = ("dtfm_run", "workers", "crew_address", "crew_port", "hosts", "await_s", "silent_s")


@given(st.sampled_from(RUN_FILE), HOSTILE)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_run_json_is_taken_or_refused_in_one_line(folder: Path, key: str, value: object) -> None:
    path = folder / "run.json"
    before = path.read_text()
    path.write_text(json.dumps(json.loads(before) | {key: value}))
    with refused_in_one_line():
        assert 0 < load_run_folder(folder).port < 2**16
    path.write_text(before)


def test_an_agent_refuses_a_damaged_folder_in_one_line(folder: Path) -> None:
    (folder / "spec.json").write_text('{"plan": [')
    command = [sys.executable, "-m", "dtfm_lab.extensions.hosts.hosted", str(folder), "--host", "a"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    says = "dtfm_lab.extensions.hosts.hosted: run/spec.json: the run's specification is broken JSON: "
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1
