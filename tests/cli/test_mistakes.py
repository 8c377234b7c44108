"""Names, prices and arguments that are mistaken on the command line: each is refused in one line."""

import json

import pytest

LONG = "x" * 400


def test_typical_prices_are_an_option_of_a_plan(shell):
    priced = ("plan", "lecture-hall", "--job", "tiny", "--objective", "price", "--steps", "1", "--json")
    status, _, err = shell(*priced, "--typical-prices")  # laptops have none in the table
    assert (status, "no device of lecture-hall has a price" in err) == (2, True)
    few = ("plan", "raspberry-pi", "--job", "tiny", "--steps", "1", "--typical-prices", "--json")
    assert json.loads(shell(*few)[1])["price_per_hour"] > 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", LONG),
        ("show", f"{LONG}.json"),
        ("plan", "lecture-hall", "--job", LONG),
        ("plan", "lecture-hall", "--job", f"{LONG}.yaml"),
        ("plan", "lecture-hall", "--job", "tiny", "--set", f"model={LONG}"),
        ("simulate", "--sweep", f"{LONG}.json", "--vary", "bandwidth=1"),
        ("strategies", "lecture-hall", "--flags", LONG),
        ("compare", LONG, LONG),
    ],
    ids=" ".join,
)
def test_a_name_too_long_for_a_file_is_refused_as_any_other(shell, arguments):
    status, out, line = shell(*arguments)
    assert (status, out, line.count("\n")) == (2, "", 1)
    assert LONG[:50] in line
