"""A run folder holds all that hosts need: every worker once, its own line, links as specified, and no other files."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.hosts.export import export, host_command, spec_for
from dtfm_lab.extensions.hosts.hosts import hosts_file, hosts_of, load_hosts, load_run_folder, workers_by_device
from dtfm_lab.files import save_plan
from dtfm_lab.runtime.protocol.run_options import RunSpec

STAGES = [["ada", "alan"], ["barbara", "claude"], ["edsger", "grace"], ["john", "katherine"]]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Four stages, two replicas, on a network where no direction is like another."""
    network = lab.load_topology("lecture-hall")
    rng = np.random.default_rng(0)
    latency_ms, gbps = rng.uniform(0, 40, (8, 8)), rng.uniform(0.001, 2, (8, 8))
    network = lab.Topology.from_matrices(latency_ms, gbps, names=network.names, gpu="laptop", name="uneven")
    return lab.evaluate(network, lab.load_job("tiny"), stages=STAGES)


@pytest.fixture(scope="module")
def spec(plan: Plan) -> RunSpec:
    return spec_for(plan, "1f1b", iterations=3)


def test_the_folder_gives_the_run_back_and_every_process_a_worker_of_its_own(tmp_path, spec):
    folder = load_run_folder(export(spec, tmp_path / "run", hosts_of(spec, 3)))
    assert folder.spec.to_line() == spec.to_line()
    assert sorted(rank for workers in folder.hosts.values() for rank in workers) == list(range(8))
    assert (folder.address, folder.port, folder.await_s, folder.silent_s) == ("ada", 29400, 300, 30)
    assert (folder.path / "plan.json").read_text() == save_plan(spec.plan, tmp_path / "plan.json").read_text()
    assert (tmp_path / "run" / "spec.json").stat().st_mode & 0o077 == 0


def test_each_host_has_a_line_of_its_own(tmp_path, spec):
    hosts = hosts_of(spec, 3)
    folder = export(spec, tmp_path / "run", hosts, port=5000)
    assert [len(host.workers) for host in hosts] == [3, 3, 2]
    for host in hosts:
        words = shlex.split((folder / "hosts" / host.name / "run.sh").read_text().splitlines()[-1])
        assert words == ["exec", "python3", "-m", "dtfm_lab.extensions.hosts.hosted", ".", "--host", host.name]
        assert host_command(host) in (folder / "README.md").read_text()
    assert load_run_folder(folder).port == 5000


def test_a_model_that_no_worker_trains_is_stood_in_for_and_the_folder_says_so(tmp_path, plan):
    spec = spec_for(lab.with_job(plan, dtype="bf16"))
    assert spec.trained.dtype == "fp32"
    folder = export(spec, tmp_path / "run", hosts_of(spec))
    assert "stand-in is trained instead of" in (folder / "README.md").read_text()
    assert load_run_folder(folder).spec.to_line() == spec.to_line()


def test_a_text_of_ones_own_travels_along(tmp_path, plan):
    (tmp_path / "mine.txt").write_text("to be learned " * 50)
    spec = spec_for(plan, text=tmp_path / "mine.txt")
    moved = shutil.move(export(spec, tmp_path / "run", hosts_of(spec)), tmp_path / "elsewhere")
    found = load_run_folder(moved).spec.text
    assert Path(found).read_text() == (tmp_path / "mine.txt").read_text()
    assert Path(found).parent == tmp_path / "elsewhere"


def test_exporting_again_replaces_a_run_folder_and_nothing_else(tmp_path, spec):
    folder = export(spec, tmp_path / "run", hosts_of(spec))
    with pytest.raises(LabError, match=r"earlier run folder is there, with .*plan\.json"):
        export(spec, folder, hosts_of(spec, 8))
    export(spec, folder, hosts_of(spec, 8), overwrite=True)
    assert [path.name for path in (folder / "hosts").iterdir()] == ["ada"]
    assert [len(workers) for workers in load_run_folder(folder).hosts.values()] == [8]
    (mine := tmp_path / "mine").mkdir()
    (mine / "thesis.txt").write_text("mine")
    with pytest.raises(LabError, match="holds other files; wanted a new folder, or an earlier run folder"):
        export(spec, mine, hosts_of(spec))
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]


def test_a_hosts_file_says_who_runs_what_and_can_be_written_and_read_again(tmp_path, spec):
    rows = [
        {"name": "idle", "address": "10.0.0.9", "devices": []},
        {"name": "attic", "address": "10.0.0.2", "devices": [n for group in STAGES[2:] for n in group]},
        {"name": "desk", "address": "10.0.0.1", "devices": [n for g in STAGES[:2] for n in g]},
    ]
    (path := tmp_path / "hosts.yaml").write_text(yaml.safe_dump({"dtfm_hosts": 1, "hosts": rows}))
    desk, attic = load_hosts(path, spec)
    assert (desk.name, attic.address) == ("desk", "10.0.0.2")
    by_device = workers_by_device(spec)
    assert desk.workers == tuple(sorted(by_device[name] for group in STAGES[:2] for name in group))
    path.write_text(hosts_file((desk, attic), workers_by_device(spec)))
    assert load_hosts(path, spec) == (desk, attic)


def test_awkward_device_names_make_plain_hosts(spec, plan):
    names = ["a/b c", "ä", "..", *plan.topology.names[3:]]
    matrices = plan.topology.to_matrices()
    network = lab.Topology.from_matrices(*(m.to_numpy() for m in matrices), names=names, gpu="laptop")
    rank_map = plan.rank_map
    awkward = spec_for(lab.evaluate(network, plan.job, rank_map=rank_map))
    names = {host.name for host in hosts_of(awkward)}
    assert len(names) == 8
    assert {"a-b-c", "host-1", "host-2"} <= names


HOST = {"name": "desk", "address": "10.0.0.1", "devices": [n for group in STAGES for n in group]}
MISTAKES = {
    "a stranger": ([HOST | {"devices": ["zoe"]}], "no device named 'zoe'"),
    "nowhere": ([HOST | {"devices": ["ada"]}], "device .* is on no host; wanted all 8 that the plan uses"),
    "twice": ([HOST, HOST | {"name": "attic", "devices": ["ada"]}], "device 'ada' is there 2 times; wanted it once"),
    "one name": ([HOST, HOST | {"devices": []}], "host 'desk' is there 2 times; wanted it once"),
    "a bad name": ([HOST | {"name": "../etc"}], "host '../etc': name is '../etc'; wanted letters, digits"),
    "a bad address": ([HOST | {"address": "$(rm x)"}], r"address is '\$\(rm x\)'; wanted a host name or an IP"),
    "no hosts": ([], "hosts: list should have at least 1 item"),
    "a stray key": ([HOST | {"adress": "x"}], "unknown key 'adress'; did you mean 'address'"),
}


@pytest.mark.parametrize(("hosts", "complaint"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_hosts_file_is_refused_in_one_line_that_names_it(tmp_path, spec, hosts, complaint):
    (path := tmp_path / "hosts.yaml").write_text(yaml.safe_dump({"dtfm_hosts": 1, "hosts": hosts}))
    with pytest.raises(LabError, match=rf"^hosts\.yaml: .*{complaint}"):
        load_hosts(path, spec)


def test_numbers_out_of_range_and_texts_that_are_not_there_are_refused(tmp_path, spec, plan):
    with pytest.raises(LabError, match="workers per host is 0; wanted 1 or more"):
        hosts_of(spec, 0)
    with pytest.raises(LabError, match="port is 65536; wanted 1 to 65535"):
        export(spec, tmp_path / "run", hosts_of(spec), port=65536)
    with pytest.raises(LabError, match=r"await_s is 0\.1; wanted 1 to 86400 seconds"):
        export(spec, tmp_path / "run", hosts_of(spec), await_s=0.1)
    with pytest.raises(LabError, match="checkpoint_every is 2 without a checkpoint_folder that all hosts share"):
        spec_for(plan, checkpoint_every=2)
    with pytest.raises(LabError, match="no option of an export named 'workers'"):
        spec_for(plan, workers=2)
    with pytest.raises(LabError, match=r"text .*nowhere\.txt: no such file"):
        spec_for(plan, text="nowhere.txt")


def test_every_script_is_shell_that_a_linter_has_nothing_to_say_about(tmp_path, spec):
    folder = export(spec, tmp_path / "run", hosts_of(spec, 3))
    scripts = [str(path) for path in folder.rglob("*.sh")]
    assert len(scripts) == 3
    for script in scripts:
        subprocess.run(["sh", "-n", script], check=True, timeout=120)
        assert os.access(script, os.X_OK)
    if linter := shutil.which("shellcheck"):
        subprocess.run([linter, *scripts], check=True, timeout=60)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("run.json", '{"dtfm_run": 2}', "dtfm_run is version 2"),
        ("run.json", None, "no such file"),
        ("spec.json", None, "no such file"),
        ("run.json", '{"dtfm_run": 1, "workers": [0], "crew_address": "a", "crew_port": 1, "hosts": []}', "each of 0"),
    ],
)
def test_a_folder_that_is_no_run_is_refused(tmp_path, spec, name, content, complaint):
    folder = export(spec, tmp_path / "run", hosts_of(spec))
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(LabError, match=complaint):
        load_run_folder(folder)
