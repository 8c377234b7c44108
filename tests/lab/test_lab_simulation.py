"""The names that a user types to simulate, and what they hand on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dtfm_lab as lab

PLAN = lab.plan("lecture-hall", "tiny", steps=2)


def test_a_schedule_is_a_name_a_noun_or_a_file(tmp_path: Path) -> None:
    job = PLAN.job
    named = lab.simulate(PLAN, "zb-h1")
    built = lab.schedules["zb-h1"](job.n_stages, job.n_microbatches)
    assert lab.simulate(PLAN, built).to_frame().equals(named.to_frame())
    for ending in ("txt", "csv"):
        path = lab.save(built, tmp_path / f"mine.{ending}")
        assert lab.load_schedule(path).orders == built.orders
        for given in (path, str(path)):
            assert lab.simulate(PLAN, given).iteration_s == named.iteration_s
            assert lab.memory(PLAN, given).peak_bytes.tolist() == lab.memory(PLAN, "zb-h1").peak_bytes.tolist()
        assert lab.sweep(PLAN, schedule=[path, "zb-h1"])["iteration_s"].nunique() == 1
        assert lab.sweep(PLAN, schedule=path)["iteration_s"].tolist() == [named.iteration_s]


def test_a_file_that_is_no_schedule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lab.LabError, match=r"none\.csv: no such file"):
        lab.simulate(PLAN, tmp_path / "none.csv")
    with pytest.raises(lab.LabError, match="no pipeline schedule named 'zbh1'; did you mean 'zb-h1'"):
        lab.simulate(PLAN, "zbh1")


def test_another_job_keeps_the_placement_and_is_priced_anew() -> None:
    coded = lab.with_job(PLAN, compression="int8", synchronisation="ring")
    assert coded.placement.devices.tolist() == PLAN.placement.devices.tolist()
    assert (coded.job.compression, coded.job.synchronisation) == ("int8", "ring")
    assert coded.cost.total_s < PLAN.cost.total_s
    assert lab.with_job(PLAN).cost.total_s == pytest.approx(PLAN.cost.total_s, rel=1e-12)
    with pytest.raises(lab.LabError, match="2 stages x 4 replicas, the plan places 4 x 2"):
        lab.with_job(PLAN, n_stages=2, n_replicas=4)
    with pytest.raises(lab.LabError, match="no job field named 'recomput'; did you mean 'recompute'"):
        lab.with_job(PLAN, recomput=True)


def test_a_sweep_is_a_simulation_of_the_same_placement_with_another_job() -> None:
    row = lab.sweep(PLAN, schedule="1f1b", compression="int8", synchronisation="ring").iloc[0]
    trace = lab.simulate(lab.with_job(PLAN, compression="int8", synchronisation="ring"), "1f1b")
    assert row["iteration_s"] == trace.iteration_s
    assert row["tokens_per_s"] == trace.metrics["tokens_per_s"]


def test_rows_come_one_by_one() -> None:
    points, gains = [], []
    lab.sweep(PLAN, bandwidth=[1, 2], progress=points.append)
    assert [(point.number, point.total) for point in points] == [(1, 2), (2, 2)]
    assert len(lab.explain(PLAN).sensitivity("1f1b", what="compute", progress=gains.append)) == 8
    assert [gain.number for gain in gains] == list(range(1, 9))


def test_advice_is_silent_where_all_fit() -> None:
    assert lab.memory(PLAN).fits
    assert lab.memory(PLAN).advice == ""


def test_a_chrome_trace_is_json(tmp_path: Path) -> None:
    path = lab.save(lab.simulate(PLAN), tmp_path / "trace.chrome.json")
    assert json.loads(path.read_text())["traceEvents"]
