"""The model that small networks train by default."""

from __future__ import annotations

import math

import pytest
import torch

import dtfm_lab as lab
from dtfm_lab.domain.job import SMALL
from dtfm_lab.files import override
from dtfm_lab.lab.plans import default_job
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.batches import TextBatches
from dtfm_lab.runtime.worker.stages import TransformerBlock, build_stages, next_token_loss
from dtfm_lab.runtime.worker.training_state import learning_rate_at

ALONE = override(lab.load_job("small"), n_stages=1, n_replicas=1)


def test_it_has_five_million_parameters_and_is_the_default_of_small_networks() -> None:
    job = default_job(lab.load_topology("lecture-hall"))
    assert job == lab.load_job("small")
    assert SMALL.parameters > 5e6
    assert SMALL.parameters == sum(p.numel() for p in build_stages(ALONE, 1, [0], 0)[0].parameters())


def test_in_ten_iterations_it_knows_more_of_unseen_text_than_how_frequent_each_byte_is() -> None:
    torch.set_num_threads(1)
    model = build_stages(ALONE, 1, [0], seed=0)[0]
    optimizer = torch.optim.AdamW(model.parameters())
    batches = TextBatches(None, SMALL.seq_len, ALONE.global_batch, seed=0)
    for iteration in range(10):
        inputs, targets = batches.batch(iteration)
        loss = next_token_loss(model(inputs), targets)
        if iteration == 0:
            assert loss.item() == pytest.approx(math.log(256), abs=0.1), "an untrained model guesses bytes evenly"
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = learning_rate_at(RunSpec.learning_rate, iteration)
        optimizer.step()
    with torch.no_grad():
        inputs, targets = batches.held_out_batch()
        assert next_token_loss(model(inputs), targets).item() < batches.unigram_entropy


@pytest.mark.parametrize("n_stages", [1, 3, 8])
def test_weights_depend_on_seed_and_layer_and_never_on_the_cut(n_stages: int) -> None:
    def weights(cut: int, seed: int) -> dict[str, torch.Tensor]:
        job = override(lab.load_job("tiny"), n_stages=cut, n_replicas=1)
        stages = build_stages(job, cut, range(cut), seed)
        return {name: p for stage in stages.values() for name, p in stage.named_parameters()}

    whole, cut, other = weights(1, 0), weights(n_stages, 0), weights(1, 1)
    assert all(torch.equal(p, cut[name]) for name, p in whole.items())
    assert not torch.equal(whole["0.token.weight"], other["0.token.weight"])


def test_what_is_added_to_the_residual_stream_begins_smaller_the_deeper_the_model() -> None:
    model = build_stages(ALONE, 1, [0], seed=0)[0]
    for block in (layer for layer in model if isinstance(layer, TransformerBlock)):
        for layer in (block.attention_out, block.mlp_out):
            assert layer.weight.std().item() == pytest.approx(0.02 / math.sqrt(2 * SMALL.n_blocks), rel=0.02)
        assert block.mlp_in.weight.std().item() == pytest.approx(0.02, rel=0.02)
