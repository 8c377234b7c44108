"""Numbers as people read them: three or four figures and a unit, never an exponent."""

import re
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.units import format_range, format_s, format_share, format_times, signed_share

SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


@given(st.floats(1e-9, 119.9))
@settings(max_examples=25)
@example(0.9996)
@example(0.0009996)
def test_seconds_are_told_without_an_exponent_and_within_half_a_percent(seconds):
    told = re.fullmatch(r"(\d+(?:\.\d+)?) (s|ms|µs)", format_s(seconds))
    assert told, format_s(seconds)
    if seconds > 1e-8:
        assert abs(float(told[1]) * SECONDS[told[2]] / seconds - 1) <= 5.1e-3


UNITS_S = {"d": 86400, "h": 3600, "min": 60, "s": 1}


@given(st.floats(120, 1e9))
@settings(max_examples=50)
@example(3599.7)
@example(86399.0)
def test_long_durations_are_told_in_two_neighbouring_units(seconds):
    parts = re.findall(r"([\d,]+) (d|h|min|s)", format_s(seconds))
    assert " ".join(map(" ".join, parts)) == format_s(seconds)
    units = [unit for _, unit in parts]
    begin = list(UNITS_S).index(units[0])
    assert units == list(UNITS_S)[begin : begin + len(units)]
    assert len(units) <= 2
    told_s = sum(int(n.replace(",", "")) * UNITS_S[unit] for n, unit in parts)
    smallest_s = list(UNITS_S.values())[begin + 1]
    assert abs(told_s - seconds) <= smallest_s / 2


def test_long_durations_read_as_people_say_them():
    texts = {119.96: "2 min", 725: "12 min 5 s", 3599.6: "1 h", 5278: "1 h 28 min", 183_600: "2 d 3 h"}
    assert {seconds: format_s(seconds) for seconds in texts} == texts
    assert format_s(-725) == "-12 min 5 s"


@given(st.floats(1e-6, 1e5), st.floats(1, 3))
@settings(max_examples=25)
def test_from_which_second_to_which_is_told_in_one_unit(low_s, times):
    assert re.fullmatch(r"([\d.,]+ to )?[\d.,]+ (s|ms|µs)", format_range(low_s, low_s * times))


PACKAGE = Path(__file__).parents[2] / "dtfm_lab"


@given(st.floats(-10, 10), st.integers(0, 2))
@settings(max_examples=25)
def test_a_percentage_has_a_space_and_a_difference_a_sign_where_it_is_not_nothing(share, digits):
    assert re.fullmatch(r"-?[\d.]+ %", format_share(share, digits))
    told = signed_share(share, digits)
    assert told.strip("+\u2212") == format_share(abs(share), digits)
    assert told[0].isdigit() == (float(told.strip("+\u2212 %")) == 0)
    assert told[0] == ("\u2212" if share < 0 else "+") or told[0].isdigit()


def test_percentages_are_written_by_one_helper():
    """plotly's own formats, ``%{y:.0%}``, have none."""
    by_hand = re.compile(r"(?<![%{])\{[^{}]*:[+z]*\.\d%\}")
    files = PACKAGE.rglob("*.py")
    assert [path.name for path in files if by_hand.search(path.read_text())] == []


@given(st.floats(1, 1e6))
@settings(max_examples=25)
def test_times_behind_at_most_are_never_too_few(times):
    assert float(format_times(times).replace(",", "")) >= times * (1 - 1e-9)
