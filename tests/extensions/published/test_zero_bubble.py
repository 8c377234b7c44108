"""Bubbles of Zero Bubble's table 5, and what its authors' calculation of interleaved 1F1B leaves out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.extensions.published.systems.zero_bubble import bubble

passes = st.tuples(st.floats(0.5, 3), st.floats(0.5, 3), st.floats(0.5, 3))


@given(st.integers(2, 6), st.integers(1, 4), st.integers(2, 3), passes, st.floats(0, 0.5))
@settings(max_examples=30)
def test_leaving_waits_out_makes_no_bubble_larger(n_stages, rounds, per_device, pass_s, message_s):
    left_out, awaited = (
        bubble(
            "interleaved-1f1b",
            n_stages,
            rounds * n_stages,
            pass_s,
            message_s,
            stages_per_device=per_device,
            as_published=as_published,
        )
        for as_published in (True, False)
    )
    assert left_out <= awaited + 1e-12
    if message_s == 0:
        assert left_out == pytest.approx(awaited)


@given(st.integers(2, 6), st.integers(1, 4), passes)
def test_without_messages_bubbles_are_those_of_the_textbook(n_stages, rounds, pass_s):
    n = rounds * n_stages
    busy_s, first_s = n * sum(pass_s), (n_stages - 1) * sum(pass_s)
    assert bubble("1f1b", n_stages, n, pass_s, 0.0) == pytest.approx(first_s / (busy_s + first_s))
    halved = bubble("interleaved-1f1b", n_stages, n, pass_s, 0.0, stages_per_device=2)
    assert halved == pytest.approx(first_s / 2 / (busy_s + first_s / 2))
