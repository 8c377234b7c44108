"""Runs as processes over process groups: as over sockets, also where a worker is lost or a checkpoint is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_helpers import left_behind, small_plan
from workers_as_threads import train

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import gpt
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.multihost.export import spec_for
from dtfm_lab.runtime.protocol.run_spec import RunSpec
from dtfm_lab.simulation import build

MODEL = gpt(name="smallest", n_layers=4, d_model=16, n_heads=2, seq_len=8, vocab_size=256, tied=False)
PLAN = small_plan(model=MODEL, global_batch=4, dtype="fp32")


def test_a_worker_that_is_killed_is_replaced_and_no_loss_or_parameter_differs_from_threads() -> None:
    run = start(PLAN, "1f1b", iterations=8, carrier="groups")
    run.wait_for(2)
    run.kill("device-2")
    run.wait()
    assert left_behind(run.pid) == []
    (fault,) = run.faults
    assert fault.state_from == "device-3"
    undisturbed = train(PLAN, "1f1b", 8)
    assert list(run.losses) == undisturbed.losses
    assert run.parameter_digests == undisturbed.digests()


def test_a_checkpoint_over_groups_is_resumed_over_sockets(tmp_path: Path) -> None:
    first = start(PLAN, "gpipe", iterations=2, carrier="groups", checkpoint_folder=tmp_path)
    first.wait()
    rest = start(PLAN, "1f1b", iterations=2, resume_from=tmp_path)
    rest.wait()
    whole = start(PLAN, "1f1b", iterations=4, carrier="groups")
    whole.wait()
    assert [*first.losses, *rest.losses] == pytest.approx(whole.losses, abs=1e-6)


def test_sockets_are_used_but_between_gpus_where_nothing_is_asked_for() -> None:
    built = build(PLAN, "1f1b")

    def spec(**options: object) -> RunSpec:
        return RunSpec(plan=PLAN, schedule="1f1b", orders=built.orders, iterations=1, **options)

    assert not spec_for(PLAN).uses_groups
    assert not spec().uses_groups
    assert spec(carrier="groups").uses_groups
    assert not spec(carrier="groups").uses_nccl
    assert spec(runs_on="cuda", clock="real").uses_nccl
    assert not spec(runs_on="cuda", clock="real", carrier="sockets").uses_groups
    assert not spec(runs_on="cuda").uses_groups
    assert RunSpec.from_line(spec(carrier="groups").to_line()).carrier == "groups"


def test_another_carrier_is_refused_in_one_line() -> None:
    with pytest.raises(LabError, match=r"^no carrier named 'pigeons'; known: groups, sockets$"):
        lab.start(PLAN, carrier="pigeons")
