"""Real processes, every choice at once: they do what threads do, and what was predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_helpers import assert_as_predicted, kept_parameters, small_plan
from workers_as_threads import train

from dtfm_lab.runtime.client.launch import start

STEPS = 4
CHOICES = {
    "zb-h1": {"synchronisation": "ring", "gradient_compression": "int8", "recompute": True, "tied": True},
    "interleaved-1f1b": {"synchronisation": "hierarchical", "compression": "fp16", "synchronise_every": 2},
    "gpipe": {"synchronisation": "central", "tied": True, "synchronise_every": 2, "dtype": "fp32"},
}


@pytest.mark.parametrize("schedule", CHOICES)
def test_processes_train_what_threads_train_and_the_prediction_has_their_rows(schedule: str, tmp_path: Path) -> None:
    plan = small_plan(2, 3, global_batch=12, **CHOICES[schedule])
    run = start(plan, schedule, iterations=STEPS, checkpoint_folder=tmp_path)
    measured = run.wait()
    threads = train(plan, schedule, STEPS)
    assert measured.context.losses == pytest.approx(threads.losses, abs=1e-12)
    trained = kept_parameters(tmp_path)
    wanted = threads.parameters()
    assert trained.keys() == wanted.keys()
    assert all(np.array_equal(array, wanted[name]) for name, array in trained.items())
    for position in range(2):
        assert len({run.parameter_digests[position, replica] for replica in range(3)}) == 1, "replicas differ"

    comparison = assert_as_predicted(plan, measured)
    assert comparison.rows.notna().all().all()
    assert len(comparison.iterations) == STEPS
