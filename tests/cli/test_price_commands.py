"""The commands about seconds and dollars: frontier, and worth and explain of a plan for seconds."""

import json

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
def plan_file(shell, tmp_path):
    status, _, err = shell("plan", *NETWORK, "--objective", "iteration", "--steps", "1", "-o", "plan.json")
    assert status == 0, err
    return "plan.json"


def test_a_frontier_is_a_table_or_json(shell):
    limits = ("--steps", "1", "--searches", "3", "--typical-prices")
    status, out, err = shell("frontier", *NETWORK, *limits, "--json")
    assert status == 0, err
    data = json.loads(out)
    assert data["points"]
    assert [point["iteration_s"] for point in data["points"]] == sorted(p["iteration_s"] for p in data["points"])
    assert data["points"][0]["plan"]["rank_map"]
    assert "prices are in US dollars" in shell("frontier", *NETWORK, *limits)[1]


def test_worths_of_a_plan_for_seconds_are_of_its_iteration(shell, plan_file):
    status, out, err = shell("explain", "--worth", plan_file, "--steps", "1", "--json")
    assert status == 0, err
    assert json.loads(out)["seconds"] == "of an iteration"
    status, out, _ = shell("explain", "--worth", plan_file, "--steps", "1")
    assert "planned anew" in out
