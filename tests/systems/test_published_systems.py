"""Published rows are the plans of strategies: the grid that was measured, and nothing of their own."""

from dataclasses import replace

import pytest

from dtfm_lab.published.systems.megatron import measured, selene
from dtfm_lab.published.systems.torchtitan import plan_of as torchtitan
from dtfm_lab.published.systems.zero_bubble_memory import SCHEDULES, settings_of
from dtfm_lab.published.systems.zero_bubble_memory import plan_of as zero_bubble
from dtfm_lab.simulation import simulate
from dtfm_lab.systems import Budget, outcome_of
from dtfm_lab.systems.modelled.megatron import AS_SHIPPED, Megatron


@pytest.mark.parametrize("schedule", ["1F1B", "1F1B-I"])
@pytest.mark.parametrize("model", ["1.5B", "6.2B"])
def test_zero_bubbles_baselines_are_megatrons(model, schedule):
    """Their scripts name --no-overlap-p2p-communication, and recompute nothing."""
    ledgers = zero_bubble(model, schedule, message_s=1e-3, memory_traffic=True, transport="blocking")
    sizes = settings_of(model)
    strategy = Megatron(
        **AS_SHIPPED,
        transport="blocking",
        n_stages=sizes["stages"],
        tensor_parallel=1,
        stages_per_device=sizes["interleaved_chunks"] if schedule == "1F1B-I" else 1,
        checkpointing="none",
        attention="unfused",
        memory_traffic=True,
    )
    work = ledgers.job.with_fields(n_stages=None, n_replicas=None, schedule=None, stages_per_device=2)
    (plan,) = strategy.plans(ledgers.topology, work, Budget())
    assert plan.job.schedule == SCHEDULES[schedule]
    assert simulate(plan).iteration_s == simulate(ledgers).iteration_s


def test_the_measured_grids_take_all_gpus():
    for one in measured("Megatron-LM"):
        if one["gpus"] > 256:
            continue
        job = one.plan().job
        assert (job.tensor_parallel, job.n_stages) == (one["tensor_parallel"], one["stages"])
        assert job.tensor_parallel * job.n_stages * job.n_replicas == one["gpus"]
        assert job.checkpointing == "block"


def test_torchtitan_is_fsdp_with_selective_checkpointing():
    job = torchtitan(8, compiled=False).job
    assert (job.sharding, job.checkpointing, job.gradients_in, job.dtype) == ("zero-3", "selective", "fp32", "bf16")
    assert job.memory_traffic
    assert not torchtitan(8, compiled=True).job.memory_traffic


@pytest.mark.parametrize("one", [one for one in measured("Megatron-LM") if one["gpus"] <= 512 and one["table"] == 1])
def test_the_best_grid_is_the_one_that_megatrons_authors_chose(one):
    """Of all tensor-parallel degrees and numbers of stages that fit, at their micro-batch.

    In bf16, of which all 18 bytes a parameter are counted: of the 20 of fp16 4 are not.
    """
    chooses = replace(one.strategy, tensor_parallel=None, n_stages=None)
    best = outcome_of(chooses, selene(one["gpus"]), one.work.with_fields(dtype="bf16"), Budget(efficiency=0.64))
    assert best.considered > 1 + (one["gpus"] > 32) * 3
    assert (best.job.tensor_parallel, best.job.n_stages) == (one["tensor_parallel"], one["stages"])
