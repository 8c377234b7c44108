"""Training systems on real workers: measured in the predicted order, equal losses where the mathematics is equal."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from fixed_systems import fixed
from run_helpers import small_plan

import dtfm_lab as lab
from dtfm_lab.domain.trace import Trace
from dtfm_lab.extensions.systems.api import Outcomes

RARELY = {"synchronise_every": 4, "mathematics": "replicas average in every fourth iteration"}
SYSTEMS = [
    fixed("gpipe", 4, 1, schedule="gpipe"),
    fixed("data-parallel", 1, 4, synchronisation="ring"),
    fixed("zero-1", 1, 4, sharding="zero-1", synchronisation="sharded"),
    fixed("streaming-diloco", 1, 4, synchronisation="ring", fragments=2, **RARELY),
]
TOPOLOGY = lab.Topology.from_matrices(
    np.full((4, 4), 10.0), np.full((4, 4), 0.006), name="slow lines", gpu="laptop", peak_flop_per_s=5e10
)
"""Messages take most of an iteration: on the virtual clock they take what was predicted however busy the machine is."""


@pytest.fixture(scope="module")
def found() -> Outcomes:
    return lab.strategies(TOPOLOGY, small_plan(2, 2).job, systems=SYSTEMS)


@pytest.fixture(scope="module")
def runs(found: Outcomes) -> dict[str, Trace]:
    return {one.name: lab.run(one.plan, iterations=4, clock="virtual") for one in found}


def test_systems_are_measured_in_the_predicted_order(found: Outcomes, runs: dict[str, Trace]) -> None:
    model_s = {one.name: one.iteration_s for one in found}
    like_s = {one.name: lab.simulate(one.plan, like=runs[one.name]).iteration_s for one in found}
    for predicted_s in (like_s, model_s):
        in_order = sorted(predicted_s, key=predicted_s.__getitem__)
        for first, second in combinations(in_order, 2):
            if predicted_s[second] > 1.15 * predicted_s[first]:
                assert runs[first].iteration_s < runs[second].iteration_s, (first, second)


def test_losses_are_equal_where_the_mathematics_is(found: Outcomes, runs: dict[str, Trace]) -> None:
    losses = {name: run.context.losses for name, run in runs.items()}
    alike = [one.name for one in found if not one.strategy.mathematics]
    assert sorted(alike) == ["data-parallel", "gpipe", "zero-1"]
    for name in alike:
        assert losses[name] == pytest.approx(losses["gpipe"], abs=1e-9), name
    assert not np.allclose(losses["streaming-diloco"], losses["gpipe"], atol=1e-7)
