"""What a terminal says of a plan: few words for many devices, what was chosen, and what the job pinned."""

import json
from pathlib import Path

import pytest

from dtfm_lab import lab

CLUSTER = """
dtfm_topology: 1
name: hall
regions:
  - {name: node, count: 40, gpu: H100, per_host: 8, latency_ms: 0.05, bandwidth_gbps: 100,
     inside_host: {latency_ms: 0.01, bandwidth_gbps: 3600}}
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "hall.yaml").write_text(CLUSTER)
    return str(tmp_path / "hall.yaml")


def evaluated(shell, cluster, tmp_path, stages, *more):
    (tmp_path / "stages.json").write_text(json.dumps({"stages": stages}))
    shape = ("--stages", str(len(stages)), "--replicas", str(len(stages[0])), "--batch", "32", "--microbatch", "1")
    placed = ("--placement", str(tmp_path / "stages.json"))
    status, out, err = shell("evaluate", cluster, "--job", "tiny", *shape, *placed, *more)
    assert status == 0, err
    return out


def test_many_devices_are_a_row_a_stage_by_host(shell, cluster, tmp_path):
    out = evaluated(shell, cluster, tmp_path, [list(range(16)), list(range(16, 32))])
    assert "16 on node-host-0 and node-host-1" in out
    assert "16 on node-host-2 and node-host-3" in out
    assert "idle: 8 of 40, all of node-host-4" in out
    assert "node-17" not in out


def test_what_many_devices_wait_for_is_a_row_a_stage_too(shell, cluster, tmp_path):
    shape = ("--stages", "2", "--replicas", "16", "--batch", "32", "--microbatch", "1")
    plan_file = str(tmp_path / "plan.json")
    for objective in ("iteration", "communication"):
        made = ("plan", cluster, "--job", "tiny", *shape, "--steps", "1", "--objective", objective, "-o", plan_file)
        assert shell(*made)[0] == 0
        out = shell("explain", plan_file)[1]
        rows = [line for line in out.splitlines() if line.startswith((" 0 ", " 1 ", " node-"))]
        if objective == "iteration":
            assert [line.split()[0:3] for line in rows] == [["0", "16", "on"], ["1", "16", "on"]]
            assert "8 idle: " in out
        else:
            assert len(rows) == 24
            assert "the 24 of 40 devices whose best exchange" in out


def test_few_devices_are_named(shell, cluster, tmp_path):
    out = evaluated(shell, cluster, tmp_path, [[0, 1], [2, 3]])
    assert "node-0 node-1" in out
    assert "idle: 36 of 40: node-host-1 to node-host-4 and 4 of node-host-0" in out


def test_all_names_are_in_the_json(shell, cluster, tmp_path):
    out = evaluated(shell, cluster, tmp_path, [[0, 1], [2, 3]], "--json")
    found = json.loads(out)
    assert found["idle_devices"] == [f"node-{i}" for i in range(4, 40)]
    assert found["chosen"] is None
    assert found["pinned"] is None


def test_what_was_chosen_and_what_is_pinned_is_said(shell):
    arguments = ("plan", "lecture-hall", "--job", "tiny", "--steps", "2", "--objective", "iteration")
    arguments += ("--stages", "2", "--replicas", "auto")
    _, out, _ = shell(*arguments)
    chosen = next(line for line in out.splitlines() if line.startswith("chosen: "))
    pinned = next(line for line in out.splitlines() if line.startswith("pinned: "))
    assert "2 stages" in pinned
    assert "=auto opens " in pinned
    assert "checkpointing none" in chosen
    assert " replica" in chosen
    found = json.loads(shell(*arguments, "--json")[1])
    assert found["pinned"]["n_stages"] == 2
    assert found["chosen"]["n_replicas"] == found["n_replicas"]
    assert not found["chosen"].keys() & found["pinned"].keys()


def test_a_pinned_field_is_opened_as_the_line_says(shell):
    arguments = ("plan", "lecture-hall", "--job", "tiny", "--steps", "2", "--objective", "iteration")
    found = json.loads(shell(*arguments, "--set", "tensor_parallel=auto", "--json")[1])
    assert found["chosen"]["tensor_parallel"] == 1


def test_the_repr_of_a_plan_names_no_crowd(cluster):
    network = lab.load_topology(cluster)
    job = lab.load_job("tiny", n_stages=1, n_replicas=32, global_batch=32, microbatch=1)
    plan = lab.evaluate(network, job, stages=[list(range(32))])
    assert plan.idle_words == "idle: 8 of 40, all of node-host-4"
    assert len(repr(plan)) < 200


def test_a_network_is_a_row_for_each_pair_of_regions_with_hosts_apart(prints, cluster):
    lines = prints("show", cluster).splitlines()
    assert lines[-2].split() == ["node", "node", str(40 * 39 - 5 * 8 * 7), "0.05", "100"]
    assert lines[-1].split() == ["node", "node,", "same", "host", str(5 * 8 * 7), "0.01", "3600"]
