"""A run that goes on from a checkpoint does what it would have done without stopping."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from run_helpers import small_plan
from workers_as_threads import train

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime.client.launch import start


def test_two_iterations_and_two_more_are_four(tmp_path: Path) -> None:
    plan = small_plan(2, 2, global_batch=8)
    whole = train(plan, plan.job.schedule_name, 4)
    lab.run(plan, iterations=2, checkpoint_folder=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = start(plan, iterations=2, resume_from=tmp_path, checkpoint_folder=tmp_path)
    rest = run.wait()
    assert run.spec.first_iteration == 2
    assert rest.context.losses == tuple(whole.losses[2:])
    assert sorted(set(rest.iteration.tolist())) == [2, 3]
    assert lab.compare(lab.simulate(plan, like=rest), rest).rows["iteration"].min() == 2

    with pytest.raises(LabError, match=r"of model small .*; wanted that of this run, tiny"):
        start(lab.with_job(plan, model="tiny"), resume_from=tmp_path)
    with pytest.raises(LabError, match="holds iteration-000004 of another run, this one begins after iteration 0"):
        start(plan, checkpoint_folder=tmp_path)
    with pytest.warns(UserWarning, match="was trained with seed 0, now 1"):
        start(plan, resume_from=tmp_path, seed=1).stop()
