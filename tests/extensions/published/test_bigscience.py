"""BigScience's trials on A100s: the shapes of their models, the cut of their stages."""

import pytest

from dtfm_lab.extensions.published.row import numbers
from dtfm_lab.extensions.published.systems.bigscience import Shape, blocks_of_stages, plan_of

LINES = numbers("bigscience_a100.csv")


def test_the_layers_of_a_size_are_those_that_seconds_and_flop_per_second_imply():
    for line in LINES:
        shape = Shape.of(line)
        gpus = int(line["nodes"]) * 8
        flop = float(line["tflops_per_gpu"]) * 1e12 * float(line["seconds_per_iteration"]) * gpus
        counted = flop / (8 * 2048 * int(line["gbs"])) / (12 * shape.width**2)
        if not line["layers"]:  # FLOP/s of later tables count the table of words, too
            assert counted == pytest.approx(shape.layers, abs=0.05)


@pytest.mark.parametrize(
    ("n_blocks", "n_stages", "counts"),
    [
        (80, 4, (20,) * 4),
        (78, 12, (*[7] * 11, 1)),
        (70, 12, (5, *[6] * 10, 5)),  # embedding and head count as a block each
        (13, 6, (3, 3, 3, 2, 1, 1)),  # the lab has no empty stage
    ],
)
def test_every_stage_is_filled_up_and_the_last_has_the_rest(n_blocks, n_stages, counts):
    assert blocks_of_stages(n_blocks, n_stages) == counts
    assert sum(counts) == n_blocks


def test_the_grid_of_a_line_is_that_of_its_plan():
    line = {**LINES[0], "precision": "bf16", "zero": "0", "gbs": "2050"}
    plan = plan_of(line)
    assert plan.placement.devices.shape == (4, 12)
    assert {device.gpus for device in plan.topology.devices} == {8}
    assert (plan.job.global_batch, plan.job.sharding, plan.job.gradients_in) == (2040, "none", "fp32")
