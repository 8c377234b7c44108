"""A plan beside what nobody planned: same job, same links, each predicted and measured."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_helpers import small_plan

import dtfm_lab as lab
from dtfm_lab import cli
from dtfm_lab import lab as story
from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.runtime.client.baselines import BASELINES, COLUMNS, BaselineRun, baseline_runs, baseline_table

NAMES = ["this plan", "random placement", "file order", "data parallel only"]


@pytest.fixture(scope="module")
def rows() -> list[BaselineRun]:
    rows: list[BaselineRun] = []
    story.baselines(small_plan(2, 2, global_batch=8), "1f1b", seed=3, iterations=2, progress=rows.append)
    return rows


def test_each_placement_is_priced_predicted_and_measured(rows: list[BaselineRun]) -> None:
    table = baseline_table(rows)
    assert list(table["placement"]) == NAMES
    assert list(table.columns) == list(COLUMNS)
    assert (table[["reason", "lacks"]] == "").all().all()
    assert table[["cost_s", "predicted_s", "measured_s"]].gt(0).all().all()
    assert table["stages"].tolist() == [2, 2, 2, 1]
    assert table["replicas"].tolist() == [2, 2, 2, 4]
    assert (table["sequences"] == 8).all()
    assert {row.measured.context.losses for row in rows[:3]} == {rows[0].measured.context.losses}, "where is not what"
    assert [row.number for row in rows] == [1, 2, 3, 4]


def test_placements_are_what_they_are_called() -> None:
    plan = small_plan(2, 2)
    in_order = BASELINES["file order"](plan, 0)
    assert [name for pipeline in in_order.pipelines for name in pipeline] == list(plan.topology.names)
    drawn = [BASELINES["random placement"](plan, seed).rank_map for seed in range(5)]
    assert BASELINES["random placement"](plan, 0).rank_map == drawn[0], "a seed is a placement"
    assert len({tuple(ranks) for ranks in drawn}) > 1


@pytest.mark.parametrize(("n_sequences", "n_replicas"), [(8, 4), (6, 4), (3, 3)])
def test_data_parallelism_takes_as_many_devices_as_the_batch_can_be_shared_out_to(n_sequences, n_replicas) -> None:
    alone = BASELINES["data parallel only"](small_plan(4, 1, global_batch=n_sequences), 0)
    assert (alone.job.n_stages, alone.job.n_replicas) == (1, n_replicas)
    assert sum(alone.job.microbatch_counts) == n_sequences


@pytest.fixture
def only_data_parallelism(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in BASELINES if name != "data parallel only"]:
        monkeypatch.delitem(BASELINES, name)


@pytest.mark.usefixtures("only_data_parallelism")
def test_a_batch_for_one_device_alone_is_a_reason() -> None:
    *_, last = baseline_runs(small_plan(2, 1, global_batch=1), iterations=1)
    assert last.measured is None
    assert "its micro-batches, 1 in all, cannot be shared out to 2 of 2 devices or more" in last.reason
    row = baseline_table([last]).iloc[0]
    assert np.isnan(row["measured_s"])


@pytest.mark.usefixtures("only_data_parallelism")
def test_a_model_that_no_device_could_hold_whole_is_shown_beside_its_measurement() -> None:
    plan = small_plan(4, 1, global_batch=4)
    limit_bytes = lab.memory(plan, "1f1b").peak_bytes.max() * 1.5
    devices = tuple(replace(device, memory_bytes=limit_bytes) for device in plan.topology.devices)
    weak = lab.evaluate(replace(plan.topology, devices=devices), plan.job, rank_map=plan.rank_map)
    first, last = baseline_runs(weak, "1f1b", iterations=1)
    assert first.lacks == ""
    assert "do not fit" in last.lacks
    assert last.measured is not None


def test_given_message_sizes_grow_with_what_a_device_holds() -> None:
    plan = small_plan(2, 2, gradient_bytes=1e6, activation_bytes=1e6)
    assert BASELINES["data parallel only"](plan, 0).job.gradient_bytes == 2e6


def test_interrupted_it_keeps_the_rows_so_far(monkeypatch: pytest.MonkeyPatch, rows: list[BaselineRun]) -> None:
    def two_and_a_sigint(*_, **__):
        yield from rows[:2]
        raise KeyboardInterrupt

    monkeypatch.setattr("dtfm_lab.runtime.client.baselines.baseline_runs", two_and_a_sigint)
    assert list(story.baselines(small_plan())["placement"]) == NAMES[:2]


def test_from_the_shell(
    rows: list[BaselineRun], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = {}

    def as_before(plan, schedule, progress, **options):
        given.update(options, schedule=schedule)
        return baseline_table(rows)

    monkeypatch.setattr(story, "baselines", as_before)
    path = str(lab.save(small_plan(), tmp_path / "plan.json"))
    arguments = ["dtfm-lab", "run", "--baselines", path, "--workers", "2x1", "--iterations", "2", "--json"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert not left.value.code
    rows_shown = json.loads(capsys.readouterr().out)["placements"]
    assert [row["placement"] for row in rows_shown] == NAMES
    assert given == {"schedule": None, "iterations": 2, "workers": (2, 1)}


def test_all_train_a_stand_in_where_one_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def note(plan, schedule, options):
        asked.append((plan.job.n_stages, schedule, options.stand_in))
        raise UnknownName("no run today")

    monkeypatch.setattr("dtfm_lab.runtime.client.launch.prepare", note)
    plan = small_plan(dtype="fp16")
    with pytest.raises(UnknownName, match="no run today"):
        list(baseline_runs(plan, "gpipe"))
    assert asked == [(2, "gpipe", "stand-in")]
