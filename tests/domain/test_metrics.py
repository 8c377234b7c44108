"""Throughput, utilisation and money follow from the iteration, or are unknown."""

from dataclasses import replace

import pytest

from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import RunContext, Span, Subplan, Trace, TracedPlan

PLAN = TracedPlan(
    devices=(("a", "b"), ("c", "d")),
    tokens=6000,
    flop=8e15,
    peak_flop_per_s=((2e15, 2e15), (1e15, 3e15)),
    price_per_hour=((1.0, 2.0), (3.0, 3.0)),
)
KNOWN = RunContext(
    source="simulated",
    clock="model",
    schedule="gpipe",
    links="specified",
    plan=PLAN,
)
UNKNOWN = dict.fromkeys(KNOWN.metrics(1.0))


def test_rates_are_per_second_and_money_per_hour():
    told = KNOWN.metrics(2.0)
    assert told["tokens_per_s"] == 3000
    assert told["pflops"] == 4
    assert told["mfu"] == 4 / 8
    assert told["price_per_iteration"] == pytest.approx(9 * 2 / 3600)
    assert told["price_per_million_tokens"] == pytest.approx(9 * 2 / 3600 / 6000 * 1e6)


@pytest.mark.parametrize(
    ("changed", "unknown"),
    [
        ({"plan": replace(PLAN, tokens=0)}, {"tokens_per_s", "price_per_million_tokens"}),
        ({"plan": replace(PLAN, flop=0.0)}, {"pflops", "mfu"}),
        ({"plan": replace(PLAN, peak_flop_per_s=())}, {"mfu"}),
        (
            {"plan": replace(PLAN, price_per_hour=((1.0, 0.0), (3.0, 3.0)))},
            {"price_per_iteration", "price_per_million_tokens"},
        ),
        ({"clock": "virtual"}, {"mfu", "price_per_iteration", "price_per_million_tokens"}),
    ],
    ids=["tokens", "flop", "peaks", "a price", "seconds of another machine"],
)
def test_what_is_unknown_is_told_as_such(changed, unknown):
    told = replace(KNOWN, **changed).metrics(2.0)
    assert {name for name, value in told.items() if value is None} == unknown


def test_no_time_at_all_has_no_rate():
    told = KNOWN.metrics(0.0)
    assert told == UNKNOWN | {"price_per_iteration": 0, "price_per_million_tokens": 0}


def test_a_trace_tells_those_of_its_typical_iteration():
    lengths_s = [9.0, 2.0, 3.0]
    trace = Trace.from_spans(KNOWN, [Span(i, 0, Action(0, Kind.FORWARD, 0), 0, s) for i, s in enumerate(lengths_s)])
    assert trace.metrics == KNOWN.metrics(3.0)


MEASURED = RunContext(
    source="measured", clock="paced", schedule="1f1b", links="emulated", plan=TracedPlan(devices=(("a",), ("b",)))
)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "paced clock, messages by the link model, on CPU"),
        ({"source": "simulated", "clock": "model", "links": "specified"}, "model clock, specified links"),
        ({"clock": "real", "links": "real", "runs_on": "cuda"}, "real clock, real links, on CUDA"),
        ({"stand_in": "tiny-gpt"}, "paced clock, messages by the link model, on CPU, tiny-gpt as model"),
        (
            {"rehearsed": Subplan((0, 1, 2, 3), (0, 1), 8, 4), "stand_in": "tiny-gpt"},
            "paced clock, messages by the link model, on CPU, rehearsing stages 0 to 3 of 8, pipelines 0 and 1 of 4, "
            "tiny-gpt as model",
        ),
    ],
)
def test_clock_links_hardware_part_and_stand_in_are_named(changes, says):
    assert replace(MEASURED, **changes).provenance == says
