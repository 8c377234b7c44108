"""Training systems on real workers: predicted order, equal losses where the mathematics is equal, and refusals."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from run_helpers import left_behind, small_plan, until

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, UnknownName
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.systems.strategy_runs import StrategyRuns

sys.path.insert(0, str(Path(__file__).parents[1] / "systems"))
from fixed_systems import fixed

RARELY = {"synchronise_every": 4, "mathematics": "replicas average in every fourth iteration"}
SYSTEMS = [
    fixed("gpipe", 4, 1, schedule="gpipe"),
    fixed("1f1b", 2, 2, schedule="1f1b", transport="blocking", synchronisation="ring"),
    fixed("data-parallel", 1, 4, synchronisation="ring"),
    fixed("data-parallel-int8", 1, 4, synchronisation="ring", gradient_compression="int8", mathematics="rounds"),
    fixed("zero-1", 1, 4, sharding="zero-1", synchronisation="sharded"),
    fixed("diloco", 1, 4, synchronisation="ring", **RARELY),
    fixed("streaming-diloco", 1, 4, synchronisation="ring", fragments=2, **RARELY),
    fixed("zero-3", 1, 4, sharding="zero-3", synchronisation="sharded"),
    fixed("seldom", 1, 4, synchronise_every=100),
    fixed("nowhere", 3, 4),
]
JOB = small_plan(2, 2).job
TOPOLOGY = lab.Topology.from_matrices(
    np.full((4, 4), 10.0), np.full((4, 4), 0.02), name="slow lines", gpu="laptop", peak_flop_per_s=5e10
)
"""Messages take most of an iteration: on the virtual clock they take what was predicted however busy the machine is."""


@pytest.fixture(scope="module")
def runs() -> StrategyRuns:
    seen: list[int] = []
    found = lab.run_strategies(
        TOPOLOGY,
        JOB,
        systems=SYSTEMS,
        iterations=8,
        clock="virtual",
        progress=lambda r: seen.append(len(r)),
    )
    assert seen == list(range(1, len(SYSTEMS) + 1))
    print(found.to_frame().to_string())
    return found


def test_systems_are_measured_in_the_predicted_order(runs: StrategyRuns) -> None:
    assert len(runs.measured) == 7
    assert runs.out_of_order() == []
    assert runs.out_of_order(clear=0.15, by="model") == []


def test_losses_are_equal_where_the_mathematics_is(runs: StrategyRuns) -> None:
    losses = {one.name: one.measured.context.losses for one in runs.measured}
    alike = [one.name for one in runs.measured if not one.outcome.strategy.mathematics]
    assert sorted(alike) == ["1f1b", "data-parallel", "gpipe", "zero-1"]
    for name in alike:
        assert losses[name] == pytest.approx(losses["gpipe"], abs=1e-9), name
    for name in ("data-parallel-int8", "diloco", "streaming-diloco"):
        assert not np.allclose(losses[name], losses["gpipe"], atol=1e-7), name
    reached = runs.time_to_loss()
    assert reached[[one.name for one in runs.measured]].notna().all()


def test_what_workers_cannot_play_is_a_row_with_the_reason(runs: StrategyRuns) -> None:
    reasons = {one.name: one.reason for one in runs if one.measured is None}
    assert "sharding is zero-3, which can be simulated but not run" in reasons["zero-3"]
    assert "seldom averages once in 100 iterations, and 8 would run" in reasons["seldom"]
    assert set(reasons) == {"zero-3", "seldom", "nowhere"}
    assert all(reason and "\n" not in reason for reason in reasons.values())


def test_all_train_a_stand_in_where_one_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def note(plan, schedule, options):
        asked.append(options.stand_in)
        raise LabError("no run today")

    monkeypatch.setattr("dtfm_lab.runtime.client.launch.prepare", note)
    runs = lab.run_strategies(TOPOLOGY, JOB.with_fields(dtype="fp16"), systems=SYSTEMS[:3])
    assert [one.reason for one in runs] == ["no run today"] * 3
    assert asked == ["stand-in"] * 3


def test_ctrl_c_keeps_what_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, calls = Run.wait, []

    def interrupted_the_second_time(run: Run, progress=None):
        calls.append(run)
        if len(calls) == 1:
            return wait(run)

        def interrupt(event):
            if event["event"] == "iteration":
                raise KeyboardInterrupt

        return wait(run, interrupt)

    monkeypatch.setattr(Run, "wait", interrupted_the_second_time)
    runs = lab.run_strategies(TOPOLOGY, JOB, systems=SYSTEMS[:4], iterations=20, clock="virtual")
    assert [one.name for one in runs] == ["gpipe", "1f1b"]
    assert runs["gpipe"].measured.n_iterations == 20
    assert 1 <= runs["1f1b"].measured.n_iterations < 20
    assert runs["1f1b"].reason.startswith("stopped after ")
    assert "stopped after 2 of 4 systems" in runs.sentence
    until(lambda: not calls[1].running)
    assert left_behind(calls[1].pid) == []


def test_mistakes_are_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownName, match="no system named 'megatrn'"):
        lab.run_strategies("lecture-hall", "tiny", systems="megatrn")
    with pytest.raises(UnknownName, match="no clock named 'vitual'"):
        lab.run_strategies("lecture-hall", "tiny", clock="vitual")
