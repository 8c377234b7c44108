"""Runs equal a trainer in numpy that shares no code with them, and no token sees what comes after it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from reference_trainer import Gpt, Numbers, Text, train_by_reference
from run_helpers import small_plan
from training_alone import LEARNING_RATE
from workers_as_threads import train

from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import override
from dtfm_lab.runtime.worker.batches import TextBatches
from dtfm_lab.runtime.worker.stages import build_stages

STEPS = 8
"""past the warm-up of the learning rate, which is five"""


def plan_of(n_stages: int, n_replicas: int, *, tied: bool = False, **fields: object) -> Plan:
    model = gpt(name="reference", n_layers=4, d_model=16, n_heads=2, seq_len=8, vocab_size=256, tied=tied)
    return small_plan(n_stages, n_replicas, model=model, **({"global_batch": 6} | fields))


def initial(job: Job) -> Numbers:
    """The product's, as numbers."""
    (whole,) = build_stages(override(job, n_stages=1, dtype="fp64"), 1, [0], 0).values()
    return {name: p.detach().numpy().copy() for name, p in whole.named_parameters()}


@cache
def reference(sizes: tuple[int, ...], *, tied: bool = False, every: int = 1) -> tuple[list[float], list[Numbers]]:
    job = plan_of(1, 1, tied=tied).job
    model = Gpt(n_heads=2, n_blocks=4, tied=tied)
    rate = {"learning_rate": LEARNING_RATE, "every": every}
    return train_by_reference(model, initial(job), Text(seq_len=8), sizes, STEPS, **rate)


def assert_equal(found: Numbers, wanted: Numbers, atol: float = 1e-9) -> None:
    for name, array in found.items():
        own = wanted["0.token.weight" if name.endswith("logits.weight") and name not in wanted else name]
        np.testing.assert_allclose(array, own, atol=atol, rtol=0, err_msg=name)
    assert wanted.keys() <= found.keys()


def test_the_references_derivatives_are_those_of_its_loss():
    rng = np.random.default_rng(0)
    model, tokens = Gpt(n_heads=2, n_blocks=4, tied=True), Text(seq_len=8).batch(0, 0, 2)
    parameters = {name: p + rng.normal(0, 0.02, p.shape) for name, p in initial(plan_of(1, 1, tied=True).job).items()}
    _, gradients = model.loss_and_gradients(parameters, tokens)
    for name, gradient in gradients.items():
        direction = rng.normal(size=gradient.shape)
        up, down = (
            model.loss_and_gradients(parameters | {name: parameters[name] + sign * 1e-5 * direction}, tokens)[0]
            for sign in (1, -1)
        )
        assert (up - down) / 2e-5 == pytest.approx((gradient * direction).sum(), rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize(
    ("n_stages", "n_replicas", "schedule", "tied"),
    [
        (1, 1, "gpipe", False),
        (1, 1, "gpipe", True),
        (2, 3, "zb-h1", True),
        (4, 2, "1f1b", False),
        (2, 1, "interleaved-1f1b", True),
    ],
)
def test_one_process_and_pipelines_equal_the_reference(n_stages, n_replicas, schedule, tied):
    losses, (parameters, *_) = reference((6,), tied=tied)
    trained = train(plan_of(n_stages, n_replicas, tied=tied), schedule, STEPS)
    assert trained.losses == pytest.approx(losses, abs=1e-9)
    for replica in range(n_replicas):
        assert_equal(trained.parameters(replica), parameters)


@pytest.mark.parametrize("synchronisation", ["ring", "hierarchical"])
def test_replicas_of_different_sizes_equal_the_reference(synchronisation):
    plan = plan_of(2, 3, synchronisation=synchronisation, global_batch=10)
    assert plan.job.microbatch_counts == (4, 3, 3)
    losses, (parameters, *_) = reference((10,))
    trained = train(plan, "1f1b", STEPS)
    assert trained.losses == pytest.approx(losses, abs=1e-9)
    assert_equal(trained.parameters(2), parameters)


@pytest.mark.parametrize("sizes", [(3, 3), (4, 3)])
def test_local_steps_equal_the_reference(sizes):
    plan = plan_of(2, 2, synchronise_every=3, global_batch=sum(sizes))
    losses, replicas = reference(sizes, every=3)
    trained = train(plan, "1f1b", STEPS)
    assert trained.losses == pytest.approx(losses, abs=1e-9)
    for replica, wanted in enumerate(replicas):
        assert_equal(trained.parameters(replica), wanted)
    assert not np.allclose(replicas[0]["0.position"], replicas[1]["0.position"], atol=1e-6), "between two averages"


def test_single_precision_is_near_the_reference():
    losses, _ = reference((6,))
    assert train(plan_of(2, 1, dtype="fp32"), "1f1b", STEPS).losses == pytest.approx(losses, abs=1e-4)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("n_stages", [1, 2, 4])
def test_a_later_token_changes_nothing_before_it_and_everything_from_it_on(n_stages, tied):
    job = plan_of(n_stages, 1, tied=tied).job
    stages = build_stages(job, n_stages, range(n_stages), 0)
    tokens = torch.arange(8)[None] * 31 % 256

    def logits(of: torch.Tensor) -> torch.Tensor:
        x = of
        for stage in range(n_stages):
            x = stages[stage](x)
        return x[0]

    with torch.no_grad():
        before = logits(tokens)
        for t in range(8):
            changed = tokens.clone()
            changed[0, t] = 255 - changed[0, t]
            same = (logits(changed) == before).all(-1).tolist()
            assert same == [True] * t + [False] * (8 - t)


def test_every_training_byte_but_none_that_is_held_out_is_drawn(tmp_path):
    """The first and the last sequence of the training text are drawn; the bytes of the last tenth never are."""
    path = tmp_path / "text"
    path.write_bytes(bytes(range(50)))
    own = TextBatches(str(path), 8, 64, seed=3)
    drawn = [torch.cat([inputs, targets[:, -1:]], dim=1) for inputs, targets in map(own.batch, range(30))]
    for step, tokens in enumerate(drawn):
        assert np.array_equal(tokens.numpy(), Text(seq_len=8, path=path).batch(3, step, 64))
    assert {int(start) for tokens in drawn for start in tokens[:, 0]} == set(range(50 - 9 - 8))
    assert max(int(tokens.max()) for tokens in drawn) == 50 - 9 - 1
