"""A backward may be split or its forward repeated: the numbers stay, the work moves."""

from __future__ import annotations

import pytest
import torch
from run_helpers import small_plan
from torch.utils.flop_counter import FlopCounterMode

from dtfm_lab.runtime.worker.autograd_stage import AutogradStage
from dtfm_lab.runtime.worker.stages import build_stages
from dtfm_lab.runtime.worker.training_state import TrainingState

BATCH = [(torch.arange(16)[None], torch.arange(1, 17)[None]), (torch.arange(16, 32)[None], torch.arange(17, 33)[None])]
STAGES = (0, 1, 2)
"""the first, one in the middle, the last"""


def passes(stage: int, **options: bool) -> tuple[AutogradStage, TrainingState]:
    """One stage of three, its gradients at zero."""
    job = small_plan(3, 1).job
    module = build_stages(job, 3, [stage], seed=0)[stage]
    kind = {"split_backward": False, "recompute": False, "is_last": stage == 2} | options
    return AutogradStage(module, (1, 16, 32), 2, **kind), TrainingState([module], local_updates=False)


def tensor(seed: int, stage: int, of_stage: int) -> torch.Tensor | None:
    """What another stage sends; None where there is none."""
    if stage == of_stage:
        return None
    return torch.randn(512, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def whole(stage: int, **options: bool) -> tuple[list[torch.Tensor | None], torch.Tensor]:
    """Outputs, gradients sent back, losses and the weights' gradients of two micro-batches."""
    run, flat = passes(stage, **options)
    outputs = [run.forward(m, tensor(m, stage, 0), BATCH) for m in (0, 1)]
    back = [run.backward(m, tensor(9 + m, stage, 2), BATCH) for m in (0, 1)]
    return [*outputs, *back, torch.tensor(list(run.losses.values()))], flat.gradients


def split(stage: int, **options: bool) -> tuple[list[torch.Tensor | None], torch.Tensor]:
    """The same, every weight's gradient made when all inputs' are."""
    run, flat = passes(stage, split_backward=True, **options)
    outputs = [run.forward(m, tensor(m, stage, 0), BATCH) for m in (0, 1)]
    back = [run.backward_input(m, tensor(9 + m, stage, 2), BATCH) for m in (0, 1)]
    assert not flat.gradients.any(), "the first half makes no weight's gradient"
    for m in (0, 1):
        run.backward_weight(m)
    return [*outputs, *back, torch.tensor(list(run.losses.values()))], flat.gradients


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    ("play", "options"),
    [(whole, {"recompute": True}), (whole, {"checkpoints_blocks": True}), (split, {}), (split, {"recompute": True})],
)
def test_split_or_recomputed_backwards_give_the_bits_of_whole_ones(play, options, stage):
    wanted, wanted_gradients = whole(stage)
    found, gradients = play(stage, **options)
    assert torch.equal(gradients, wanted_gradients)
    assert gradients.any()
    assert (found[2] is None) == (stage == 0), "all but the first stage send a gradient back"
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.equal(ours, theirs)


def test_blocks_are_computed_again_in_the_backward():
    def flop_of(checkpoints: bool) -> tuple[int, int]:
        run, _ = passes(1, checkpoints_blocks=checkpoints)
        forward = flop(lambda: run.forward(0, tensor(0, 1, 0), BATCH))
        return forward, flop(lambda: run.backward(0, tensor(9, 1, 2), BATCH))

    (forward, backward), (same, more) = flop_of(False), flop_of(True)
    assert same == forward
    assert backward < more <= backward + forward  # torch stops behind the last tensor that the backward needs


def flop(work) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


@pytest.mark.parametrize("stage", STAGES)
def test_the_halves_of_a_backward_share_its_work_and_repeat_none(stage):
    run, _ = passes(stage)
    forward = flop(lambda: run.forward(0, tensor(0, stage, 0), BATCH))
    backward = flop(lambda: run.backward(0, tensor(9, stage, 2), BATCH))
    halves, _ = passes(stage, split_backward=True)
    halves.forward(0, tensor(0, stage, 0), BATCH)
    first = flop(lambda: halves.backward_input(0, tensor(9, stage, 2), BATCH))
    second = flop(lambda: halves.backward_weight(0))
    assert first + second == backward
    assert second == forward, "a product for each of the forward's with weights; attention is not counted in either"


@pytest.mark.parametrize("stage", STAGES)
def test_the_second_half_repeats_no_forward(stage):
    seconds = []
    for recompute in (False, True):
        halves, _ = passes(stage, split_backward=True, recompute=recompute)
        halves.forward(0, tensor(0, stage, 0), BATCH)
        halves.backward_input(0, tensor(9, stage, 2), BATCH)
        seconds.append(flop(lambda halves=halves: halves.backward_weight(0)))
    assert seconds[0] == seconds[1] > 0


def test_recomputation_saves_no_activations():
    saved: dict[bool, list[torch.Tensor]] = {False: [], True: []}
    for recompute, found in saved.items():
        run, _ = passes(1, recompute=recompute)
        with torch.autograd.graph.saved_tensors_hooks(lambda t, found=found: found.append(t) or t, lambda t: t):
            run.forward(0, tensor(0, 1, 0), BATCH)
    assert saved[False]
    assert not saved[True]
