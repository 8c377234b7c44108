"""A run trains on the text that it is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from run_helpers import small_plan

import dtfm_lab as lab


def test_a_users_own_text_is_trained_on(tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_bytes(b"ab" * 500)
    losses = lab.run(small_plan(2, 1, dtype="fp32"), iterations=20, learning_rate=1e-2, text=text).context.losses
    assert losses[-1] < np.log(2), "better than guessing one of two letters"
