"""A run folder holds all that hosts need: every worker once, its own line, links as drawn, and no stranger's files."""

from __future__ import annotations

import csv
import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import save_plan
from dtfm_lab.runtime.multihost.export import export, load_run_folder, spec_for
from dtfm_lab.runtime.multihost.hosts import Host, hosts_file, hosts_of, load_hosts, workers_by_device
from dtfm_lab.runtime.multihost.instructions import torchrun_line
from dtfm_lab.runtime.multihost.traffic_shaping import card_bytes_per_s, shape_script, shaped_directions
from dtfm_lab.runtime.protocol.run_spec import RunSpec

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
    assert (tmp_path / "run" / "spec.json").stat().st_mode & 0o077 == 0


def test_the_table_of_ranks_names_host_device_stage_and_replica(tmp_path, spec):
    hosts = hosts_of(spec, 3)
    folder = export(spec, tmp_path / "run", hosts)
    rows = list(csv.DictReader((folder / "ranks.csv").open()))
    by_name = load_run_folder(folder).hosts
    assert [int(row["worker"]) for row in rows] == [rank for workers in by_name.values() for rank in workers]
    for row in rows:
        stage, replica = int(row["stages"]), int(row["replica"])
        assert spec.device_name(stage, replica) == row["device"]
        assert spec.workers[int(row["worker"])] == (stage, replica)
        assert by_name[row["host"]][int(row["local_rank"])] == int(row["worker"])
    assert rows[0]["worker"] == "0"


def test_each_host_has_torchruns_line_with_as_many_processes_as_it_has_workers(tmp_path, spec):
    hosts = hosts_of(spec, 3)
    folder = export(spec, tmp_path / "run", hosts, port=5000)
    assert [len(host.workers) for host in hosts] == [3, 3, 2]
    for host in hosts:
        words = shlex.split((folder / "hosts" / host.name / "run.sh").read_text().splitlines()[-1])
        assert words[:2] == ["exec", "torchrun"]
        assert words[-4:] == ["dtfm_lab.runtime.hosted", ".", "--host", host.name]
        options = dict(zip(words[2:-4:2], words[3:-4:2], strict=False))
        assert options["--nnodes"] == "1"
        assert options["--nproc-per-node"] == str(len(host.workers))
        assert (options["--rdzv-backend"], options["--rdzv-id"]) == ("dtfm", host.name)
        assert ("--rdzv-conf" in options) == (host == hosts[0])
        assert torchrun_line(hosts, host) in (folder / "README.md").read_text()
    assert load_run_folder(folder).port == 5000


def test_a_model_that_no_worker_trains_is_stood_in_for_and_the_folder_says_so(tmp_path, plan):
    spec = spec_for(lab.with_job(plan, dtype="bf16"))
    assert spec.trained.dtype == "fp32"
    folder = export(spec, tmp_path / "run", hosts_of(spec))
    assert "stand-in is trained in place of" in (folder / "README.md").read_text()
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
    with pytest.raises(LabError, match="is a folder of something else; wanted a new one, or an earlier run folder"):
        export(spec, mine, hosts_of(spec))
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]


def test_a_hosts_file_says_who_runs_what_and_can_be_written_and_read_again(tmp_path, spec):
    rows = [
        {"name": "idle", "address": "10.0.0.9", "devices": []},
        {"name": "attic", "address": "10.0.0.2", "devices": [n for group in STAGES[2:] for n in group]},
        {"name": "desk", "address": "10.0.0.1", "interface": "eth0", "devices": [n for g in STAGES[:2] for n in g]},
    ]
    (path := tmp_path / "hosts.yaml").write_text(yaml.safe_dump({"dtfm_hosts": 1, "hosts": rows}))
    desk, attic = load_hosts(path, spec)
    assert (desk.name, desk.interface, attic.address) == ("desk", "eth0", "10.0.0.2")
    by_device = workers_by_device(spec)
    assert desk.workers == tuple(sorted(by_device[name] for group in STAGES[:2] for name in group))
    path.write_text(hosts_file((desk, attic), spec))
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
    "a bad interface": ([HOST | {"interface": "eth0; ls"}], "interface is 'eth0; ls'; wanted the name of"),
    "no hosts": ([], "hosts: list should have at least 1 item"),
    "a stray key": ([HOST | {"adress": "x"}], "unknown key 'adress'; did you mean 'address'"),
}


@pytest.mark.parametrize(("hosts", "complaint"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_hosts_file_is_refused_in_one_line_that_names_it(tmp_path, spec, hosts, complaint):
    (path := tmp_path / "hosts.yaml").write_text(yaml.safe_dump({"dtfm_hosts": 1, "hosts": hosts}))
    with pytest.raises(LabError, match=rf"^hosts\.yaml: .*{complaint}") as refused:
        load_hosts(path, spec)
    assert "\n" not in str(refused.value)


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
    with pytest.raises(LabError, match=r"text nowhere\.txt: no such file"):
        spec_for(plan, text="nowhere.txt")


def run_with_recorded_tc(folder: Path, script: Path, *arguments: str) -> list[list[str]]:
    """The tc commands of a script, run where tc, ip and getent only say what they were asked."""
    (programs := folder / "programs").mkdir(exist_ok=True)
    (log := folder / "tc.log").write_text("")
    fakes = {
        "tc": f'printf "%s\\n" "$*" >> {shlex.quote(str(log))}',
        "ip": 'echo "10.0.0.7 dev wlan0 src 10.0.0.1 uid 0"',
        "getent": 'case $2 in nobody) exit 2;; *[a-z]*) echo "10.0.0.7 STREAM $2";; *) echo "$2 STREAM";; esac',
    }
    for name, body in fakes.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["sh", str(script), *arguments], env=environment, check=True, timeout=120, capture_output=True)
    return [line.split() for line in log.read_text().splitlines()]


def test_scripts_give_every_other_host_its_rate_delay_and_address_in_that_direction(tmp_path, spec):
    hosts = hosts_of(spec)
    network = spec.plan.topology
    folder = export(spec, tmp_path / "run", hosts)
    for host in hosts:
        commands = run_with_recorded_tc(tmp_path, folder / "hosts" / host.name / "shape.sh", "eth7")
        assert commands[:2] == [f"qdisc {w} dev eth7 root".split() + r for w, r in (("del", []), ("add", RATES))]
        classes = {c[c.index("classid") + 1]: c[c.index("rate") + 1] for c in commands if c[0] == "class"}
        delays = {c[c.index("parent") + 1]: c[c.index("delay") + 1] for c in commands if "netem" in c}
        assert len(classes) == len(delays) == sum(c[0] == "filter" for c in commands) == 7
        others = [other for other in hosts if other is not host]
        for class_id, other in zip(classes, others, strict=True):
            (i,), (j,) = ([spec.device(*spec.workers[w]) for w in h.workers] for h in (host, other))
            assert int(classes[class_id].removesuffix("bit")) == pytest.approx(8 * network.bandwidth_bytes_per_s[i, j])
            assert int(delays[class_id].removesuffix("us")) == pytest.approx(1e6 * network.latency_s[i, j], abs=1)


RATES = ["handle", "1:", "htb"]


def test_hosts_of_several_devices_take_the_slowest_of_their_links_and_say_so(spec):
    hosts = hosts_of(spec, 4)
    (way,) = shaped_directions(spec, hosts, hosts[0])
    ours, theirs = ([spec.device(*spec.workers[w]) for w in host.workers] for host in hosts)
    assert way.latency_s == spec.plan.topology.latency_s[np.ix_(ours, theirs)].max()
    assert way.bandwidth_bytes_per_s == spec.plan.topology.bandwidth_bytes_per_s[np.ix_(ours, theirs)].min()
    assert "the slowest of 16 drawn links" in shape_script(hosts[0], [way])


def test_processes_of_one_machine_are_not_shaped(spec):
    hosts = [Host(name=h.name, address="127.0.0.1", workers=h.workers) for h in hosts_of(spec, 4)]
    assert shaped_directions(spec, hosts, hosts[0]) == []
    assert "nobody to send to" in shape_script(hosts[0], [])


def test_addresses_are_looked_up_and_the_interface_is_found_by_the_route(tmp_path, spec):
    rooms = [("left", "left.example"), ("right", "fe80::2"), ("far", "10.0.0.9")]
    workers = (tuple(range(3)), tuple(range(3, 6)), (6, 7))
    hosts = [Host(name=n, address=a, workers=w) for (n, a), w in zip(rooms, workers, strict=True)]
    folder = export(spec, tmp_path / "run", hosts)
    commands = run_with_recorded_tc(tmp_path, folder / "hosts" / "far" / "shape.sh")
    assert all(command[3] == "wlan0" for command in commands)
    filters = [" ".join(command[6:-2]) for command in commands if command[0] == "filter"]
    assert filters == [
        "protocol ip prio 1 u32 match ip dst 10.0.0.7/32",
        "protocol ipv6 prio 2 u32 match ip6 dst fe80::2/128",
    ]
    undone = run_with_recorded_tc(tmp_path, folder / "hosts" / "far" / "unshape.sh")
    assert undone == [["qdisc", "del", "dev", "wlan0", "root"]]


def test_a_host_that_is_not_known_stops_the_script(tmp_path, spec):
    hosts = [Host(name=n, address=n, workers=w) for n, w in (("a", (0, 1, 2, 3)), ("nobody", (4, 5, 6, 7)))]
    folder = export(spec, tmp_path / "run", hosts)
    with pytest.raises(subprocess.CalledProcessError) as stopped:
        run_with_recorded_tc(tmp_path, folder / "hosts" / "a" / "shape.sh", "eth0")
    assert b"no address of nobody is known" in stopped.value.stderr


@pytest.mark.parametrize("per_host", [1, 4, 8])
def test_every_script_is_shell_that_a_linter_has_nothing_to_say_about(tmp_path, spec, per_host):
    folder = export(spec, tmp_path / "run", hosts_of(spec, per_host))
    scripts = [str(path) for path in folder.rglob("*.sh")]
    assert len(scripts) == 3 * (8 // per_host)
    for script in scripts:
        subprocess.run(["sh", "-n", script], check=True, timeout=120)
        assert os.access(script, os.X_OK)
    if linter := shutil.which("shellcheck"):
        subprocess.run([linter, *scripts], check=True, timeout=60)


def test_the_plan_in_the_folder_is_the_plan(tmp_path, spec, plan):
    folder = export(spec, tmp_path / "run", hosts_of(spec))
    assert (folder / "plan.json").read_text() == save_plan(plan, tmp_path / "plan.json").read_text()


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


def test_devices_of_one_host_share_one_class_of_which_all_directions_borrow(tmp_path, spec, plan):
    network = plan.topology
    drawn = {host.name: [spec.device(*spec.workers[rank]) for rank in host.workers] for host in hosts_of(spec, 4)}
    host_of = {device: name for name, devices in drawn.items() for device in devices}
    devices = tuple(replace(d, host=host_of[i]) for i, d in enumerate(network.devices))
    sharing = spec_for(plan.changed(topology=replace(network, devices=devices)), "1f1b", iterations=3)
    hosts = hosts_of(sharing, 4)
    others = [i for i in range(8) if i not in drawn[hosts[0].name]]
    card = network.bandwidth_bytes_per_s[np.ix_(drawn[hosts[0].name], others)].max()
    assert card_bytes_per_s(sharing, hosts[0]) == card
    assert card_bytes_per_s(spec, hosts[0]) is None
    folder = export(sharing, tmp_path / "run", hosts)
    script = (folder / "hosts" / hosts[0].name / "shape.sh").read_text()
    assert f"classid 1:1 htb rate {round(8 * card)}bit" in script
    assert script.count("parent 1:1 classid") == script.count(" ceil ") == len(hosts) - 1
    mixed = Host(name="both", address="both", workers=(*hosts[0].workers, *hosts[1].workers))
    with pytest.raises(LabError, match="host both: its devices are drawn on several hosts"):
        card_bytes_per_s(sharing, mixed)
