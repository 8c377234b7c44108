"""What a terminal says of a plan: few words for many devices, what was chosen, and what the job pinned."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dtfm_lab import lab
from dtfm_lab.domain.units import in_figures

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


def test_a_smaller_last_host_is_a_note_wherever_a_network_is_read(shell, cluster, tmp_path):
    (tmp_path / "odd.yaml").write_text(CLUSTER.replace("count: 40", "count: 42"))
    note = "note: 42 GPUs in hosts of 8: the last host has 2\n"
    shape = ("--stages", "1", "--replicas", "2", "--batch", "4", "--microbatch", "1", "--steps", "1")
    for arguments in (("show", "odd.yaml"), ("plan", "odd.yaml", "--job", "tiny", *shape)):
        status, out, err = shell(*arguments)
        assert (status, err) == (0, note)
        assert "last host" not in out
        assert json.loads(shell(*arguments, "--json")[1])
    assert shell("show", cluster)[2] == ""


def test_a_plan_says_its_batch_and_its_throughput(shell, cluster, tmp_path):
    out = evaluated(shell, cluster, tmp_path, [[0, 1], [2, 3]])
    found = json.loads(evaluated(shell, cluster, tmp_path, [[0, 1], [2, 3]], "--json"))
    assert ", batch of 32 sequences of 64 tokens in micro-batches of 1: 16 per pipeline" in out.splitlines()[0]
    assert found["sequences_per_iteration"] == 32
    assert found["gpus_in_use"] == 4
    rate = 32 * 64 / found["iteration_s"]
    assert found["tokens_per_s"] == pytest.approx(rate)
    assert found["tokens_per_s_per_gpu"] == pytest.approx(rate / 4)
    words = f"{in_figures(rate, 4)} tokens/s ({in_figures(rate / 4, 4)} per GPU in use)"
    assert next(line for line in out.splitlines() if line.startswith("iteration ")).partition(", ")[2].startswith(words)


def test_a_plan_that_nearly_fills_a_gpu_says_so_in_one_line(shell, cluster, tmp_path):
    needs = json.loads(evaluated(shell, cluster, tmp_path, [[0, 1], [2, 3]], "--json"))["memory"]["peak_bytes"]
    for share, begins in ((0.93, "memory is tight: node-"), (0.8, "memory: node-")):
        Path(cluster).write_text(CLUSTER.replace("gpu: H100", f"gpu: H100, memory_gib: {needs / share / 2**30:.9f}"))
        out = evaluated(shell, cluster, tmp_path, [[0, 1], [2, 3]])
        last = out.splitlines()[-1]
        assert last.startswith(begins)
        assert ("Treat it as not fitting" in last) == (share > 0.9)
        caution = json.loads(evaluated(shell, cluster, tmp_path, [[0, 1], [2, 3]], "--json"))["memory"]["caution"]
        assert caution == (last.partition(": ")[2] if share > 0.9 else "")


def test_beside_a_plan_that_fills_a_gpu_one_is_searched_that_leaves_memory_free(prints):
    home = str(Path(__file__).parents[1] / "data" / "home" / "home.yaml")
    wanted = ("plan", home, "--job", "llama-3-8b", "--batch", "32", "--seq-len", "2048", "--steps", "1")
    out = prints(*wanted).splitlines()
    leaving = "leaving 10 % of the memory free (--set fragmentation=0.1), "
    assert [line for line in out if line.startswith("memory is tight: ")]
    assert [line for line in out if line.startswith(f"{leaving}an iteration takes ")]
    free = prints(*wanted, "--set", "fragmentation=0.1").splitlines()
    assert [line for line in free if line.startswith("iteration ")]
    assert not [line for line in free if line.startswith(("memory is tight: ", "leaving "))]


def test_a_module_has_samples_and_a_job_of_message_sizes_no_throughput(cluster):
    network = lab.load_topology("lecture-hall")
    sizes = lab.Job.from_bytes(2, 2, 1e8, 1e7)
    plan = lab.plan(network, sizes, steps=1)
    assert (plan.tokens_per_s, plan.tokens_per_s_per_gpu, plan.throughput_words) == (None, None, "")
    assert plan.summary()["sequences_per_iteration"] is None
    assert "batch" not in repr(plan)
    job = lab.load_job("tiny", n_stages=2, n_replicas=2)
    own = replace(job, model=replace(job.model, source="own.py:made"))
    assert own.batch_words == f"{own.global_batch} samples"
    made = lab.evaluate(network, own, stages=[[0, 1], [2, 3]])
    assert "samples/s (" in made.throughput_words


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
