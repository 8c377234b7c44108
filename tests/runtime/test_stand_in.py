"""Where a job's own model cannot be trained here a small one is, while messages and programs stay the job's."""

from __future__ import annotations

import re
from types import SimpleNamespace

import psutil
import pytest
from run_helpers import assert_as_predicted, even_plan, spec_of
from workers_as_threads import train

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, LabError
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import SMALL_MODEL, Trace
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.client.run_checks import chosen_stand_in, stand_in_for, why_not_trained
from dtfm_lab.runtime.protocol.run_options import RunSpec

SMALL = {"n_layers": 4, "d_model": 8, "n_heads": 2, "seq_len": 8, "vocab_size": 256}
WIDE = {"n_layers": 4, "d_model": 256, "n_heads": 4, "seq_len": 64, "vocab_size": 1000}
UNTRAINABLE = {
    "dtype": ({"dtype": "bf16"}, "dtype is bf16; workers on a CPU run fp32 or fp64"),
    "family": ({"model": "qwen2-0.5b"}, "model qwen2-0.5b is of the llama family; workers build gpt only"),
    "layers": ({"model": gpt(**SMALL, d_ff=9)}, "has other layers than the GPT that workers build"),
    "positions": ({"model": gpt(**SMALL, n_positions=9)}, "as many learned positions as seq_len, 8"),
    "vocabulary": ({"model": gpt(**SMALL | {"vocab_size": 200})}, "vocab_size is 200; wanted 256 or more, for bytes"),
    "size": ({"model": "gpt3-175b", "dtype": "fp32"}, "4 workers need some .* GiB on this machine"),
}


@pytest.mark.parametrize("what", UNTRAINABLE)
def test_what_workers_cannot_train_is_known_by_its_reason_and_stood_in_for(what: str) -> None:
    fields, says = UNTRAINABLE[what]
    job = even_plan(**fields).job
    assert re.search(says, why_not_trained(job))
    model = stand_in_for(job)
    assert (model.n_blocks, model.tied) == (job.modelled().n_blocks, job.modelled().tied)
    assert why_not_trained(spec_of(even_plan(**fields), stand_in=model).trained) == ""


def test_a_job_that_can_be_trained_is() -> None:
    assert why_not_trained(even_plan().job) == ""
    assert why_not_trained(even_plan(dtype="fp64").job) == ""


@pytest.mark.parametrize(
    "coding", [("none", "none"), ("fp16", "fp16"), ("int8", "int8"), ("int8", "none")], ids="-".join
)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_what_the_job_codes_is_coded_and_nothing_else(dtype: str, coding: tuple[str, str]) -> None:
    plan = even_plan(dtype=dtype, compression=coding[0], gradient_compression=coding[1])
    trained = spec_of(plan, stand_in=stand_in_for(plan.job)).trained
    assert trained.dtype == "fp32"
    assert trained.codes_activations == plan.job.codes_activations
    assert trained.codes_gradients == plan.job.codes_gradients


def test_a_model_of_ones_own_stands_in_with_the_ends_tied_as_the_jobs() -> None:
    own = gpt(**SMALL, name="own", tied=False)
    tied = chosen_stand_in(even_plan(dtype="fp16", model="gpt2-small"), own, cannot=False)
    assert tied is not None
    assert tied.tied
    assert chosen_stand_in(even_plan(), own, cannot=False) == own
    with pytest.raises(JobError, match="stand_in model llama-2-7b is of the llama family"):
        start(even_plan(), stand_in="llama-2-7b")
    with pytest.raises(JobError, match="4 blocks, too few for 8 stages"):
        start(even_plan(8, 1), stand_in=own)
    with pytest.raises(LabError, match="stand_in is 3; wanted a model by name"):
        start(even_plan(), stand_in=3)


def test_a_machine_too_small_even_for_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = even_plan()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**20))
    with pytest.raises(
        JobError, match=r"4 workers need some 0\.3 GiB on this machine, 0\.0 are free; wanted a smaller"
    ):
        start(plan)


def test_a_run_trains_the_stand_in_as_one_process_does_and_sends_what_the_job_would() -> None:
    plan = even_plan(dtype="bf16", model=gpt(**WIDE), compression="int8", global_batch=8)
    run = start(plan, "1f1b", iterations=3)
    measured = run.wait()
    context = measured.context
    assert context.stand_in == SMALL_MODEL
    assert context.losses == pytest.approx(train_of(run.spec), abs=1e-6)
    assert_sent_as_by(measured, plan)
    comparison = assert_as_predicted(plan, measured)
    for trace in (comparison.predicted, measured):
        assert trace.metrics["tokens_per_s"] is None, "at the stand-in's speed the job has none"


def test_on_the_paced_clock_computations_take_what_the_jobs_own_would() -> None:
    plan = even_plan(2, 1, dtype="fp16", model=gpt(**WIDE), global_batch=4)
    measured = lab.run(plan, "1f1b", iterations=1, clock="paced", time_scale=0.5)
    drawn = {row[:3]: row.seconds for row in lab.simulate(plan, "1f1b").context.profile}
    for row in measured.context.profile:
        if row.kind in (Kind.FORWARD, Kind.BACKWARD):
            assert row.seconds == pytest.approx(drawn[row[:3]])
    assert measured.context.plan.tokens == plan.job.tokens


def train_of(spec: RunSpec) -> list[float]:
    """The same in one process of threads, coding included."""
    plan = lab.evaluate(spec.plan.topology, spec.trained, rank_map=spec.plan.rank_map)
    return train(plan, spec.built, spec.iterations).losses


def assert_sent_as_by(measured: Trace, plan: Plan) -> None:
    wanted_s = plan.job.activation_bytes / plan.topology.bandwidth_bytes_per_s[0, 1]
    sent = measured.to_frame().query("kind in ('SEND_F', 'SEND_B')")
    assert len(sent)
    assert (sent["end_s"] - sent["start_s"]).to_numpy() == pytest.approx(wanted_s)
