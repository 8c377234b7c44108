"""Times by message size in files: what was measured comes back, what is wrong is one line."""

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology, save_topology
from dtfm_lab.files.plans import plan_from_mapping, plan_to_mapping
from dtfm_lab.planning.evaluate import evaluate


def measured(seed: int, known: float = 0.6, n: int = 3) -> Topology:
    """In whole microseconds, some pairs not measured."""
    rng = np.random.default_rng(seed)
    network = Topology.from_matrices(rng.integers(1, 9, (n, n)), rng.integers(1, 9, (n, n)), names=list("abcdefgh"[:n]))
    times = np.cumsum(rng.integers(0, 10**6, (n, n, 3)), axis=2) / 1e6
    times[rng.random((n, n)) > known] = np.nan
    return replace(network, message_bytes=[1024, 65536, 2**24], message_s=times)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.6, 1.0]))
def test_a_plan_file_holds_the_times_to_the_bit(seed, known):
    topology = measured(seed, known)
    topology = topology if topology.message_s is None else replace(topology, message_s=topology.message_s / 3)
    plan = evaluate(topology, Job.from_bytes(3, 1, 1e9, 1e6), stages=[["a"], ["b"], ["c"]])
    back = plan_from_mapping(json.loads(json.dumps(plan_to_mapping(plan), allow_nan=False)))
    assert back.topology.fingerprint == topology.fingerprint


def test_files_of_networks_that_were_not_measured_are_as_ever(tmp_path):
    plain = measured(0, known=0.0)
    assert "measured" not in save_topology(plain, tmp_path / "plain.yaml").read_text()
    job = Job.from_bytes(3, 1, 1e9, 1e6)
    assert set(plan_to_mapping(evaluate(plain, job, stages=[["a"], ["b"], ["c"]]))["topology"]) == {
        *("name", "description", "devices", "latency_s", "bandwidth_bytes_per_s")
    }


LINK = {"from": "a", "to": "b", "message_ms": [1, 2]}
BROKEN = {
    "a stranger": ({"links": [LINK | {"to": "z"}]}, "no device named 'z'"),
    "itself": ({"links": [LINK | {"to": "a"}]}, "measured link a -> a: a device has no link to itself"),
    "twice": ({"links": [LINK, LINK]}, "measured link a -> b stands twice; wanted one line a direction"),
    "too few": ({"links": [LINK | {"message_ms": [1]}]}, "a -> b has 1 message_ms; wanted 2, one for each size"),
    "less for more": ({"links": [LINK | {"message_ms": [2, 1]}]}, "link a -> b: message_s is"),
    "not a number": ({"links": [LINK | {"message_ms": [1, float("nan")]}]}, "link a -> b: message_s is"),
    "one size": ({"message_bytes": [1], "links": []}, "message_bytes has 1 sizes; wanted from 2 to 64"),
    "sizes that fall": ({"message_bytes": [2, 1], "links": [LINK]}, "wanted sizes from 0 on, each larger"),
    "no sizes": ({"message_bytes": None}, "measured.message_bytes: input should be a valid list"),
    "a stray key": ({"sizes": [1, 2]}, "unknown key 'sizes'"),
}


@pytest.mark.parametrize(("changed", "complaint"), BROKEN.values(), ids=BROKEN)
def test_broken_times_are_refused_in_one_line_that_names_the_file(tmp_path, changed, complaint):
    data = {
        "dtfm_topology": 1,
        "default": {"latency_ms": 1, "bandwidth_gbps": 1},
        "devices": [{"name": "a"}, {"name": "b"}],
        "measured": {"message_bytes": [1, 2], "links": [LINK]} | changed,
    }
    (path := tmp_path / "net.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(LabError, match=rf"^net\.yaml: .*{complaint}"):
        load_topology(path)


def test_times_of_thousands_of_devices_are_refused_before_anything_of_their_size_is_made(tmp_path):
    data = {
        "dtfm_topology": 1,
        "default": {"latency_ms": 1, "bandwidth_gbps": 1},
        "regions": [{"name": "r", "count": 2000}],
        "measured": {"message_bytes": list(range(1, 65)), "links": []},
    }
    (path := tmp_path / "large.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(LabError, match="64 message_bytes between 2,000 devices are 256,000,000 times; wanted at most"):
        load_topology(path)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"message_ms": None}, "no message_s and no message_ms among 'message_bytes'; wanted one of them"),
        ({"message_bytes": None}, "message_s comes without message_bytes; wanted both, or neither"),
        ({"message_ms": np.ones((3, 3, 2))}, r"message_s has shape \(3, 3, 2\); wanted \(3, 3, 3\)"),
        ({"message_bytes": np.array(["x", "y", "z"])}, "message_bytes holds <U1; wanted numbers"),
    ],
)
def test_archives_with_half_of_the_times_are_refused(tmp_path, changed, complaint):
    path = save_topology(measured(2), tmp_path / "net.npz")
    arrays = {**np.load(path), **changed}
    np.savez(path, **{what: array for what, array in arrays.items() if array is not None})
    with pytest.raises(LabError, match=complaint):
        load_topology(path)
