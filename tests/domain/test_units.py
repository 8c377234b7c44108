"""Numbers as people read them: three or four figures and a unit, never an exponent."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from dtfm_lab.domain.units import format_range, format_s

SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


@given(st.floats(1e-9, 1e7))
@example(0.9996)
@example(0.0009996)
@example(9999.7)
def test_seconds_are_told_without_an_exponent_and_within_half_a_percent(seconds):
    told = re.fullmatch(r"([\d,]*\d(?:\.\d+)?) (s|ms|µs)", format_s(seconds))
    assert told, format_s(seconds)
    if seconds > 1e-8:
        assert abs(float(told[1].replace(",", "")) * SECONDS[told[2]] / seconds - 1) <= 5.1e-3


@given(st.floats(1e-6, 1e5), st.floats(1, 3))
def test_from_which_second_to_which_is_told_in_one_unit(low_s, times):
    assert re.fullmatch(r"([\d.,]+ to )?[\d.,]+ (s|ms|µs)", format_range(low_s, low_s * times))
