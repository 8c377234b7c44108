"""Adapters beside frozen weights: what is trained, held, sent and computed, by hand, by torch and by small plans."""

from dataclasses import replace

import numpy as np
import pytest
from every_plan import FAMILIES, check_bound, drawn, frozen
from pinned_jobs import pinned_job
from test_choices_planned import chosen, seconds_of_plans
from test_iteration_replay import assert_lacking, random_plan, replayed

import dtfm_lab as lab
from dtfm_lab.costs.memory import static_memory
from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import MODELS, LayerKind, frozen_bytes, with_adapters
from dtfm_lab.planning.iteration.problem import pass_table

LLAMA = MODELS["llama-3-8b"]
GPU = lab.Topology.from_matrices([[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], gpu=["A100", "A100"])


def llama(**fields: object) -> lab.Job:
    shape = {"n_stages": 1, "n_replicas": 1, "global_batch": 8, "seq_len": 2048}
    return pinned_job("llama-3-8b", **{"adapters": 16} | shape | fields)


def test_adapters_have_the_parameters_that_peft_prints():
    # "trainable params: 41,943,040 || all params: 8,072,204,288", all seven matrices of a block at rank 16
    model = with_adapters(LLAMA, 16)
    assert (model.parameters, model.frozen_elements) == (41_943_040, 8_072_204_288 - 41_943_040)


def test_a_gpt_has_four_adapted_matrices_and_a_tied_head_holds_a_copy():
    gpt2, d = MODELS["gpt2-small"], 768
    model = with_adapters(gpt2, 4)
    assert model.parameters == 12 * 4 * ((d + 3 * d) + 2 * d + 2 * (d + 4 * d))
    assert model.frozen_elements == gpt2.parameters + gpt2.vocab_size * d
    assert model.n_positions == gpt2.n_positions
    with pytest.raises(JobError, match="wanted at most 1024"):
        model.with_seq_len(2048)


def test_memory_by_hand():
    blocks = sum(one.parameters for one in LLAMA.layers if one.kind is LayerKind.BLOCK)
    rest, trained = LLAMA.parameters - blocks, 41_943_040
    for job, each, states in (
        (llama(), 2, 12),
        (llama(frozen_weights="int8"), 1, 12),
        (llama(frozen_weights="nf4", optimizer="adam-8bit"), 4.127 / 8, 4 + 2),
    ):
        held = static_memory(job, 1)
        assert held.frozen[0] == pytest.approx(2 * rest + each * blocks, abs=1)
        assert held.total[0] - held.frozen[0] == trained * (2 + 2 + states)
    assert static_memory(pinned_job("llama-3-8b", n_stages=1, n_replicas=1, optimizer="adam-8bit"), 1).total[0] == (
        LLAMA.parameters * (2 + 2 + 6)
    )


def test_what_replicas_send_are_the_adapters_gradients():
    job = llama(n_replicas=2)
    assert job.stage_gradient_bytes == (2 * 41_943_040,)
    assert lab.evaluate(GPU, job, stages=[[0, 1]]).cost.group_s.max() == pytest.approx(
        GPU.round_trip_s(2 * 41_943_040 / 2).max()
    )


def test_the_backward_has_the_flop_that_torch_counts():
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    model = with_adapters(MODELS["gpt2-small"], 8).with_seq_len(64)
    d, heads, rank, tokens = model.d_model, model.n_heads, 8, model.seq_len

    def weights(n: int, m: int) -> list["torch.Tensor"]:
        shapes = ((n, m, False), (n, rank, True), (rank, m, True))
        return [torch.zeros(*size, requires_grad=trains, device="meta") for *size, trains in shapes]

    def adapted(x: "torch.Tensor", of: list["torch.Tensor"]) -> "torch.Tensor":
        return x @ of[0] + x @ of[1] @ of[2]

    blocks = [[weights(d, 3 * d), weights(d, d), weights(d, 4 * d), weights(4 * d, d)] for _ in range(3)]

    def flop(n_blocks: int) -> tuple[int, int]:
        x = torch.zeros(tokens, d, device="meta")
        with FlopCounterMode(display=False) as counter:
            for qkv, out, up, down in blocks[:n_blocks]:
                q, k, v = adapted(x, qkv).view(tokens, 3, heads, -1).permute(1, 2, 0, 3)
                attended = (q @ k.transpose(1, 2)).softmax(-1) @ v
                x = x + adapted(attended.transpose(0, 1).reshape(tokens, d), out)
                x = x + adapted(torch.relu(adapted(x, up)), down)
            forward = counter.get_total_flops()
            x.sum().backward()
        return forward, counter.get_total_flops() - forward

    # the input of the first block needs no gradient, so a block is what a third one adds to two
    forward, backward = np.subtract(flop(3), flop(2))
    block, head = model.layers[1], model.layers[-1].forward_flop
    assert block.forward_flop == forward
    counted = 12 * backward + head  # a frozen head passes its gradient back once
    assert model.backward.whole * model.forward_flop == pytest.approx(counted)


def test_frozen_weights_take_two_thirds_of_the_seconds_or_a_little_more():
    whole, adapters = (lab.evaluate(GPU, llama(adapters=rank), stages=[[0]]) for rank in (None, 16))
    ratio = lab.simulate(adapters, efficiency=0.4).iteration_s / lab.simulate(whole, efficiency=0.4).iteration_s
    backward = adapters.job.modelled().backward.whole
    flop = adapters.job.modelled().forward_flop / whole.job.modelled().forward_flop
    assert ratio == pytest.approx(flop * (1 + backward) / 3)
    assert 2 / 3 < ratio < 0.72


@pytest.mark.parametrize("checkpointing", ["none", "block"])
@pytest.mark.parametrize("microbatch", [1, 4])
def test_quantised_weights_are_restored_before_each_product(checkpointing, microbatch):
    """Whatever the micro-batch: in the forward, in the backward and where blocks are computed again."""
    how = {"memory_traffic": True, "checkpointing": checkpointing, "microbatch": microbatch, "global_batch": 4}
    job = llama(**how, frozen_weights="nf4")
    same, nf4 = (lab.evaluate(GPU, each, stages=[[0]]) for each in (llama(**how), job))
    blocks = sum(layer.frozen_elements for layer in job.modelled().layers if layer.kind is LayerKind.BLOCK)
    once_s = (4.127 / 8 + 2 + 2) * blocks / 2039e9
    passes = (2 + (checkpointing == "block")) * 4 / microbatch
    seconds = [lab.simulate(each, efficiency=0.4).iteration_s for each in (same, nf4)]
    assert seconds[1] - seconds[0] == pytest.approx(passes * once_s, rel=1e-3)
    table = [pass_table(each.job, GPU.devices[:1], 0.4) for each in (same, nf4)]
    whole = [each.forward_s[0, -1] + each.backward_s[0, -1] for each in table]
    assert (whole[1] - whole[0]) * 4 / microbatch == pytest.approx(passes * once_s, rel=1e-3)


@pytest.mark.parametrize("sharding", ["none", "zero-1", "zero-2", "zero-3"])
@pytest.mark.parametrize("seed", range(60, 63))
def test_no_plan_of_a_small_network_is_faster_than_its_bound(seed, sharding):
    case = chosen(drawn(seed, most_devices=3), "sharding", sharding)
    how = {"frozen_weights": "int8", "checkpointing": "block", "recompute": False}
    case = replace(case, job=case.job.with_fields(model=frozen(case.job.model), **how))
    family = "whole" if sharding == "zero-3" else list(FAMILIES)[seed % 3]
    check_bound(case, family, seconds_of_plans(case, family, np.random.default_rng(seed), 60))


def test_the_bound_stays_a_number_where_a_frozen_embedding_has_nothing_to_exchange():
    two = lab.Topology.from_matrices(np.full((2, 2), 5.0), np.ones((2, 2)), gpu=["A100", "T4"])
    shape = {"n_stages": 1, "n_replicas": 2, "microbatch": 1, "global_batch": 24}
    with np.errstate(invalid="raise"):
        plan = lab.plan(two, lab.load_job("gpt2-small", **shape, adapters=8, sharding="zero-2"), steps=2)
    assert 0 < plan.iteration_lower_bound_s <= plan.iteration_s


def test_the_replay_takes_the_simulators_seconds_and_counts_the_memory_of_the_report():
    rng = np.random.default_rng(5)
    for _ in range(8):
        plan = random_plan(rng, "sharded", measured=False)
        counts = {what: getattr(plan.job, what) for what in ("blocks_per_stage", "microbatches_per_replica", "warmups")}
        plan = plan.changed(job=plan.job.with_fields(model=frozen(plan.job.modelled()), **counts))
        report = lab.memory(plan)
        assert report.static.frozen.min() > 0
        assert_lacking(plan, report.peak_bytes)
        assert replayed(plan)[0] == pytest.approx(lab.simulate(plan).iteration_s, rel=1e-12)


def test_a_model_that_does_not_fit_fits_with_adapters():
    laptop = lab.Topology.from_matrices([[0.0]], [[0.0]], gpu=["RTX 4090"])
    with pytest.raises(lab.LabError, match="fits no plan"):
        lab.plan(laptop, lab.load_job("llama-3-8b", global_batch=8, seq_len=1024), objective="iteration", steps=1)
    job = lab.load_job("llama-3-8b", global_batch=8, seq_len=1024, adapters=16, frozen_weights="nf4")
    plan = lab.plan(laptop, job, objective="iteration", steps=2)
    assert lab.memory(plan).fits
    assert plan.iteration_lower_bound_s <= plan.iteration_s == lab.simulate(plan).iteration_s


def test_replicas_that_split_frozen_weights_hold_and_gather_what_is_kept():
    quantised = {"n_replicas": 2, "sharding": "zero-3", "frozen_weights": "nf4"}
    one, job = llama(frozen_weights="nf4"), llama(**quantised)
    assert static_memory(job, 1).frozen[0] == pytest.approx(static_memory(one, 1).frozen[0] / 2, abs=1)
    blocks = [layer for layer in job.modelled().layers if layer.kind is LayerKind.BLOCK]
    ends = [layer for layer in job.modelled().layers if layer.kind is not LayerKind.BLOCK]
    at_once = sum(frozen_bytes(job, layer) for layer in [*ends, *blocks[:2]]) + 2 * sum(
        layer.parameters for layer in blocks[:2]
    )
    assert static_memory(job, 1).parameters[0] == pytest.approx(41_943_040 + at_once, abs=1)
    full = llama(**quantised | {"frozen_weights": "same"})
    seconds = [lab.simulate(lab.evaluate(GPU, each, stages=[[0, 1]])).iteration_s for each in (job, full)]
    assert seconds[1] > 2 * seconds[0]  # over 1 Gbit/s messages are nearly all


def test_files_hold_adapters(tmp_path):
    job = llama(frozen_weights="nf4", optimizer="adam-8bit")
    assert lab.load_job(lab.save(job, tmp_path / "job.yaml")) == job
    plan = lab.evaluate(GPU, job, stages=[[1]])
    assert lab.load_plan(lab.save(plan, tmp_path / "plan.json")).job == job


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"adapters": 0}, "adapters is 0; wanted"),
        ({"adapters": None, "frozen_weights": "nf4"}, "no weight is frozen; wanted adapters, or same"),
        ({"frozen_weights": "nf3"}, "frozen_weights"),
        ({"optimizer": "sgd"}, "optimizer"),
    ],
)
def test_mistakes_end_in_one_line(fields, says):
    with pytest.raises(lab.LabError, match=says):
        llama(**fields)


def test_adapters_come_once_to_a_known_model_and_are_not_run():
    with pytest.raises(JobError, match="has adapters already"):
        lab.with_job(lab.evaluate(GPU, llama(), stages=[[0]]), adapters=8)
    with pytest.raises(JobError, match="of no shape that is known"):
        with_adapters(replace(LLAMA, family="module"), 8)
    with pytest.raises(JobError, match="trains adapters, which can be simulated but not run"):
        lab.run(lab.evaluate(GPU, llama(), stages=[[0]]), iterations=1)
