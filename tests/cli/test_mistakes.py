"""What files and arrays may hold by mistake, found by trying: each is refused in one line, nothing is lost."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab.compare import compare
from dtfm_lab.domain.errors import FileError, JobError, LabError, PlanError, TraceError
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement
from dtfm_lab.files import (
    load_job,
    load_topology,
    load_trace,
    save_job,
    save_topology,
    save_trace,
    topology_from_mapping,
)
from dtfm_lab.files.jobs import job_from_mapping
from dtfm_lab.files.reading import write_text
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.simulate import simulate

LONG = "x" * 400


def pair(**o):
    return Topology.from_matrices(np.full((2, 2), 1.0), np.full((2, 2), 1.0), **o)


def small_plan():
    return evaluate(load_topology("lecture-hall"), load_job("tiny"), stages=[[0, 1], [3, 2], [4, 7], [6, 5]])


def test_traces_of_different_schedules_are_refused():
    with pytest.raises(TraceError, match=r"gpipe.*1f1b"):
        compare(simulate(small_plan(), "gpipe"), simulate(small_plan(), "1f1b"))


def test_a_negative_device_is_refused():
    with pytest.raises(PlanError, match="device -1"):
        Placement(np.array([[-1, 0]]))


@pytest.mark.parametrize("column", ["action", "replica"])
@pytest.mark.parametrize("value", [99, -1])
def test_a_trace_row_of_nobody_is_refused(tmp_path, column, value):
    path = save_trace(simulate(small_plan()), tmp_path / "t.json")
    data = json.loads(path.read_text())
    data[column][0] = value
    path.write_text(json.dumps(data))
    with pytest.raises(FileError):
        load_trace(path)


def test_a_trace_of_no_numbers_is_refused(tmp_path):
    path = save_trace(simulate(small_plan()), tmp_path / "t.json")
    data = json.loads(path.read_text())
    data["end_s"][0] = float("nan")
    path.write_text(json.dumps(data))
    with pytest.raises(FileError):
        load_trace(path)


def test_a_job_of_message_sizes_keeps_every_field_of_its_file():
    job = job_from_mapping(
        {"dtfm_job": 1, "n_stages": 2, "n_replicas": 2, "gradient_bytes": 1, "activation_bytes": 1, "schedule": "1f1b"}
    )
    assert job.schedule == "1f1b"


def test_a_reshaped_job_of_message_sizes_survives_saving(tmp_path):
    job = replace(Job.from_bytes(2, 2, 1, 1), n_stages=1, n_replicas=4)
    assert load_job(save_job(job, tmp_path / "j.yaml")) == job


def test_regions_of_an_array_make_the_same_network(tmp_path):
    a, b = pair(regions=np.array(["x", "y"])), pair(regions=["x", "y"])
    assert a.fingerprint == b.fingerprint
    save_topology(a, tmp_path / "t.yaml")


@pytest.mark.parametrize(
    "make",
    [
        lambda: pair().subset([9]),
        lambda: pair().subset([-1]),
        lambda: pair().with_link(0, 9, latency_s=1.0),
        lambda: pair().with_link(0, -1, latency_s=1.0),
        lambda: Topology.from_matrices([[0, 1], [1]], np.ones((2, 2))),
    ],
)
def test_a_device_out_of_range_is_refused(make):
    with pytest.raises(LabError):
        make()


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    (tmp_path / "a.json").mkdir()
    with pytest.raises(FileError):
        write_text(tmp_path / "a.json", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_no_heads_are_refused():
    with pytest.raises(JobError):
        gpt(n_layers=1, d_model=8, n_heads=0, seq_len=1, vocab_size=1)


def test_a_count_from_numpy_is_a_whole_number():
    assert Job.from_bytes(np.int64(2), 2, 1, 1).n_stages == 2


def test_a_jobs_name_is_not_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "spot").mkdir()
    load_job("tiny")


def test_a_networks_name_is_not_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "spot").mkdir()
    load_topology("spot")


def test_a_version_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(FileError):
        topology_from_mapping({"dtfm_topology": True, "devices": [{"name": "a"}]})


def test_typical_prices_are_an_option_of_a_plan(shell: Callable[..., tuple[int, str, str]]) -> None:
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
