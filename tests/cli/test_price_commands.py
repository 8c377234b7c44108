"""The commands about seconds and dollars: frontier, and worth and explain of a plan for seconds."""

import pytest

NETWORK = ("four.yaml", "--job", "gpt3-xl", "--batch", "16")
FOUR = """
dtfm_topology: 1
typical_prices: true
default: {latency_ms: 0.05, bandwidth_gbps: 25}
regions: [{name: a100, count: 2, gpu: A100}, {name: rtx, count: 2, gpu: RTX 4090}]
"""


@pytest.fixture(autouse=True)
def network(shell, tmp_path):
    (tmp_path / "four.yaml").write_text(FOUR)


@pytest.fixture
def plan_file(prints):
    prints("plan", *NETWORK, "--objective", "iteration", "--steps", "1", "-o", "plan.json")
    return "plan.json"


def test_a_frontier_is_a_table_or_json(prints, tells):
    limits = ("--steps", "1", "--searches", "3", "--typical-prices")
    data = tells("frontier", *NETWORK, *limits)
    assert data["points"]
    assert [point["iteration_s"] for point in data["points"]] == sorted(p["iteration_s"] for p in data["points"])
    assert data["points"][0]["plan"]["rank_map"]
    assert "prices are in US dollars" in prints("frontier", *NETWORK, *limits)


def test_worths_of_a_plan_for_seconds_are_of_its_iteration(prints, tells, plan_file):
    assert tells("explain", "--worth", plan_file, "--steps", "1")["seconds"] == "of an iteration"
    assert "planned again" in prints("explain", "--worth", plan_file, "--steps", "1")
