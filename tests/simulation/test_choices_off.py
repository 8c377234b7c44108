"""With every choice of a job off, predictions are those from before the choices existed, to the last digit."""

from __future__ import annotations

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation import memory

AVERAGES = ("sharded", "sharded-at-once", "central", "ring", "hierarchical")
SCHEDULES = ("gpipe", "1f1b", "adaptive-1f1b", "zb-h1", "interleaved-1f1b")
BEFORE: dict[int, tuple[str, str, int]] = {
    0: ("0x1.c48081d46ce18p-2", "0x1.c48081d46ce18p-2", 35306752),
    1: ("0x1.91bbecb3eb924p-2", "0x1.91bbecb3eb924p-2", 33553920),
    6: ("0x1.c0d0087a49e61p-3", "0x1.c0fb2a7948906p-3", 27490944),
    7: ("0x1.6aeacd4fba11ap-2", "0x1.6bb653c3ace41p-2", 30390532),
    8: ("0x1.6442905274230p-2", "0x1.6442905274230p-2", 22663936),
    12: ("0x1.f1b4ee401a2c4p-3", "0x1.f1b4ee401a2c4p-3", 17584896),
    13: ("0x1.8256524658fe8p-2", "0x1.82ea0160ee903p-2", 50343424),
    18: ("0x1.18dcabd3ede01p-2", "0x1.18dcabd3ede01p-2", 18911616),
    19: ("0x1.3f9ae476e9e8ep-1", "0x1.3fa4c1a6bf6f8p-1", 18765824),
    20: ("0x1.cd080c9363bd3p-3", "0x1.cd1f2884b3f1dp-3", 23958400),
    24: ("0x1.c8542861b267bp-2", "0x1.c8542861b267bp-2", 19829760),
}
"""By seed: seconds of an iteration on links and on NICs, and bytes of all devices' peaks together."""


def drawn(seed: int) -> Plan:
    """A plan of another size, network, schedule, way of averaging and compression for each seed."""
    rng = np.random.default_rng(seed)
    n_stages, n_replicas = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    n = n_stages * n_replicas
    topology = Topology.from_matrices(
        rng.uniform(0.1, 80, (n, n)),
        rng.uniform(0.01, 20, (n, n)),
        regions=[("a", "b", "")[i] for i in rng.integers(0, 3, n)],
        gpu=[("A100", "T4", "V100")[i] for i in rng.integers(0, 3, n)],
    )
    model = gpt(n_layers=8, d_model=64, n_heads=4, seq_len=64, vocab_size=512, tied=bool(seed % 2))
    job = lab.Job(
        model=model,
        n_stages=n_stages,
        n_replicas=n_replicas,
        global_batch=4 * n_replicas if seed % 5 == 4 else int(rng.integers(n_replicas, 5 * n_replicas)),
        microbatch=1,
        dtype=("fp16", "fp32")[seed % 2],
        schedule=SCHEDULES[seed % 5],
        synchronisation=AVERAGES[seed // 5 % 5],
        synchronise_every=(1, 1, 3)[seed % 3],
        compression=("none", "int8", "fp16")[seed // 3 % 3],
        recompute=seed % 4 == 3,
    )
    return lab.evaluate(topology, job, stages=rng.permutation(n).reshape(n_stages, n_replicas).tolist())


def figures(plan: Plan) -> tuple[str, str, int]:
    pairs_s, nics_s = (lab.simulate(plan, queueing=one, efficiency=0.4).iteration_s for one in ("pairs", "nics"))
    return pairs_s.hex(), nics_s.hex(), int(memory(plan).peak_bytes.sum())


@pytest.mark.parametrize("seed", BEFORE)
def test_a_prediction_is_that_of_before_to_the_last_digit(seed):
    assert figures(drawn(seed)) == BEFORE[seed]
