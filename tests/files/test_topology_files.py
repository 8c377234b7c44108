"""Topologies as YAML: DT-FM's five cases are its own, saving loses nothing, mistakes say where."""

import numpy as np
import pytest
import yaml

from dtfm_lab.domain.errors import LabError, UnknownName
from dtfm_lab.domain.network import HARDWARE, Topology
from dtfm_lab.domain.registry import Registry
from dtfm_lab.files import load_topology, save_topology, topology_from_mapping, topology_names, topology_to_mapping

FIVE = {
    "datacenter": ([f"instance_{i}" for i in range(8)], [8] * 8),
    "spot": ([*(f"spot_instance_{i}" for i in range(8)), "standalone"], [4] * 8 + [32]),
    "universities": (["Ohio", "Virginia"], [32, 32]),
    "regional": (["Virginia", "Oregon", "California", "Ohio"], [16] * 4),
    "worldwide": (["Oregon", "Virginia", "Ohio", "Tokyo", "Seoul", "London", "Frankfurt", "Ireland"], [8] * 8),
}
"""Regions in the order of the public code, with the number of devices of each; its partitions are lists of indices."""

SPEEDS = [
    ("datacenter", 0, 1, 0, 100),
    ("spot", 0, 3, 0, 100),
    ("spot", 3, 4, 0, 1.25),
    ("universities", 0, 31, 1, 5),
    ("universities", 31, 32, 11, 1.12),
    ("regional", 0, 15, 5, 2),
    ("regional", 0, 16, 67, 1.15),
    ("regional", 16, 32, 12, 1.25),
    ("worldwide", 0, 7, 5, 2),
    ("worldwide", 0, 8, 67, 0.79),
    ("worldwide", 16, 24, 130, 0.694),
    ("worldwide", 32, 40, 238, 0.342),
    ("worldwide", 24, 48, 223, 0.36),
    ("worldwide", 48, 56, 24, 1.08),
]


def same(a: Topology, b: Topology) -> bool:
    return a.devices == b.devices and a.fingerprint == b.fingerprint


def two_regions(**changed):
    """A minimal good file: a-0, a-1 and b-0, with a default."""
    data = {
        "dtfm_topology": 1,
        "default": {"latency_ms": 10, "bandwidth_gbps": 1},
        "regions": [{"name": "a", "count": 2}, {"name": "b", "count": 1}],
    }
    return {k: v for k, v in (data | changed).items() if v is not None}


@pytest.mark.parametrize("name", FIVE)
def test_the_published_cases_have_the_devices_of_the_public_code_in_its_order(name):
    topology = load_topology(name)
    regions, sizes = FIVE[name]
    assert len(topology) == 64
    assert topology.name == name
    assert list(topology.regions) == regions
    assert [d.region for d in topology.devices] == [r for r, n in zip(regions, sizes, strict=True) for _ in range(n)]


@pytest.mark.parametrize(("name", "i", "j", "latency_ms", "gbps"), SPEEDS)
def test_the_published_cases_have_the_links_of_the_public_code(name, i, j, latency_ms, gbps):
    topology = load_topology(name)
    for a, b in ((i, j), (j, i)):
        assert topology.latency_s[a, b] == pytest.approx(latency_ms / 1e3)
        assert topology.bandwidth_bytes_per_s[a, b] == pytest.approx(gbps * 1e9 / 8)


@pytest.mark.parametrize("name", FIVE)
def test_the_published_cases_are_symmetric_and_alike_between_two_regions(name):
    topology = load_topology(name)
    region = np.array([topology.regions.index(d.region) for d in topology.devices])
    off = ~np.eye(64, dtype=bool)
    for matrix in (topology.latency_s, topology.bandwidth_bytes_per_s):
        assert np.array_equal(matrix, matrix.T)
        for a in range(len(topology.regions)):
            for b in range(len(topology.regions)):
                assert len(set(matrix[(region[:, None] == a) & (region[None, :] == b) & off])) == 1


@pytest.mark.parametrize("name", topology_names())
def test_a_shipped_topology_survives_saving_exactly(tmp_path, name):
    topology = load_topology(name)
    back = load_topology(save_topology(topology, tmp_path / "saved.yaml"))
    assert same(back, topology)
    assert (back.name, back.description) == (topology.name, topology.description)
    assert topology_to_mapping(back) == topology_to_mapping(topology)


def test_what_is_saved_is_short():
    """A line a region pair and none a link, where a region's devices are alike."""
    data = topology_to_mapping(load_topology("worldwide"))
    assert len(data["between"]) == 28 - 1  # the commonest pair is the default
    assert data["links"] == []
    assert len(data["regions"]) == 8


@pytest.mark.parametrize("name", topology_names())
def test_a_shipped_network_says_where_its_numbers_come_from(name):
    topology = load_topology(name)
    assert topology.name == name
    assert any(word in topology.description for word in ("DT-FM", "Invented for teaching"))
    assert 4 <= len(topology) <= 64


def test_ten_cities_extend_the_eight_of_the_paper_without_changing_them():
    ten, eight = load_topology("ten-cities"), load_topology("worldwide")
    assert set(ten.regions) == {*eight.regions, "Singapore", "Sydney"}
    shared = [f"{region}-{i}" for region in eight.regions for i in range(6)]
    assert np.array_equal(ten.subset(shared).latency_s, eight.subset(shared).latency_s)
    assert np.array_equal(ten.subset(shared).bandwidth_bytes_per_s, eight.subset(shared).bandwidth_bytes_per_s)


def test_volunteers_send_more_slowly_than_they_receive():
    topology = load_topology("volunteers")
    off = ~np.eye(len(topology), dtype=bool)
    sends = np.where(off, topology.bandwidth_bytes_per_s, 0).max(axis=1)
    receives = np.where(off, topology.bandwidth_bytes_per_s, 0).max(axis=0)
    assert np.median(receives / sends) > 2
    assert all(device.price_per_hour > 0 for device in topology.devices)


def test_the_most_particular_line_wins():
    topology = topology_from_mapping(
        {
            "dtfm_topology": 1,
            "default": {"latency_ms": 1, "bandwidth_gbps": 1},
            "regions": [{"name": "a", "count": 2, "latency_ms": 2}, {"name": "b", "count": 2}],
            "devices": [{"name": "c"}],
            "between": [{"regions": ["a", "b"], "latency_ms": 3, "bandwidth_gbps": 1}],
            "links": [
                {"from": "a-0", "to": "b-0", "latency_ms": 5, "bandwidth_gbps": 1},
                {"between": ["a-0", "b-0"], "latency_ms": 4, "bandwidth_gbps": 1},
            ],
        }
    )
    assert topology.names == ("a-0", "a-1", "b-0", "b-1", "c")
    assert np.rint(1e3 * topology.latency_s).tolist() == [
        [0, 2, 5, 3, 1],
        [2, 0, 3, 3, 1],
        [4, 3, 0, 1, 1],
        [3, 3, 1, 0, 1],
        [1, 1, 1, 1, 0],
    ]


def test_a_gpu_of_a_known_name_needs_no_numbers_and_its_price_comes_only_where_the_file_asks():
    devices = [
        {"name": "x", "gpu": "A100"},
        {"name": "y", "gpu": "A100", "peak_tflops": 1, "price_per_hour": 5},
        {"name": "z", "gpu": "?", "peak_tflops": 1, "memory_gib": 80},
    ]
    for asks, prices in ((True, [HARDWARE["A100"].price_per_hour, 5, 0]), (False, [0, 5, 0])):
        found = topology_from_mapping(two_regions(devices=devices, typical_prices=asks)).devices[-3:]
        assert [d.price_per_hour for d in found] == prices
        assert [(d.peak_flop_per_s, d.memory_bytes) for d in found] == [
            (peak, 80 * 2**30) for peak in (312e12, 1e12, 1e12)
        ]


def test_nics_cap_a_line_by_the_sender_s_uplink_and_the_receiver_s_downlink():
    topology = topology_from_mapping(
        two_regions(
            regions=[{"name": "a", "count": 2, "uplink_gbps": 0.2, "downlink_gbps": 0.5}],
            devices=[{"name": "fast"}, {"name": "x", "region": "a", "uplink_gbps": 0.7}],
            links=[{"from": "a-0", "to": "a-1", "latency_ms": 1, "bandwidth_gbps": 9}],
        )
    )
    names, gbps = topology.names, topology.bandwidth_bytes_per_s * 8e-9
    assert names == ("a-0", "a-1", "fast", "x")
    expected = [[np.inf, 9, 0.2, 0.2], [0.2, np.inf, 0.2, 0.2], [0.5, 0.5, np.inf, 0.5], [0.5, 0.5, 0.7, np.inf]]
    assert gbps == pytest.approx(np.array(expected))


def test_the_line_between_two_regions_may_differ_by_direction():
    pairs = [{"from": "a", "to": "b", "latency_ms": 3, "bandwidth_gbps": 2}, LINE]
    topology = topology_from_mapping(two_regions(between=pairs))
    assert 1e3 * topology.latency_s[0, 2] == pytest.approx(3)
    assert 1e3 * topology.latency_s[2, 0] == pytest.approx(4)


LINE = {"regions": ["a", "b"], "latency_ms": 4, "bandwidth_gbps": 1}


def test_hardware_is_the_device_s_own_or_its_region_s():
    topology = topology_from_mapping(
        two_regions(
            regions=[
                {"name": "a", "gpu": "T4", "peak_tflops": 65, "devices": [{"name": "x"}, {"name": "y", "gpu": "A10"}]}
            ]
        )
    )
    assert [(d.name, d.gpu, d.peak_flop_per_s) for d in topology.devices] == [("x", "T4", 65e12), ("y", "A10", 65e12)]


LINK = "links: [{latency_ms: 1, bandwidth_gbps: 1, "
WRONG = [
    ("regoins: []", "unknown key 'regoins'; did you mean 'regions'"),
    ("regions: [{name: a, bandwith_gbps: 1}]", r"regions\[0\]: unknown key 'bandwith_gbps'; did you mean 'bandwidth"),
    ("between: [{regions: [a, b], latency_ms: 1}]", r"between\[0\].bandwidth_gbps: field required"),
    ("default: {latency_ms: slow, bandwidth_gbps: 1}", "default.latency_ms: .*number.*; found 'slow'"),
    ("default: {latency_ms: 1, bandwidth_gbps: 0}", "default.bandwidth_gbps: input should be greater than 0; found 0"),
    ("default: {latency_ms: true, bandwidth_gbps: 1}", "default: latency_ms is True; wanted no truth value"),
    ("regions: [{name: r, count: yes}]", r"regions\[0\]: count is True; wanted no truth value"),
    ("devices: [{name: no}]", r"devices\[0\]: name is False; .*text needs quotes"),
    ("devices: [a]", r"devices\[0\]: input should be a mapping; found 'a'"),
    ("devices: [{name: x, uplink_gbps: 0}]", r"uplink_gbps: .* greater than 0; found 0"),
    ("devices: [{name: x, region: z}]", "no region named 'z'; known: a, b"),
    (f"devices: [{{name: {'x' * 300}}}]", "at most 200 characters; found 'xxx"),
    ("default: null", r"no latency and bandwidth for a-0 -> a-1 \(6 such links\); wanted a 'default'"),
    ("links: [{between: [a-0, b-0], latency_ms: -1, bandwidth_gbps: 1}]", "greater than or equal to 0; found -1"),
    (LINK + "from: a-0}]", r"either 'between: \[a, b\]' or both 'from: a' and 'to: b'"),
    (LINK + "from: a-0, between: [a-0, b-0]}]", "either 'between"),
    (LINK + "between: [a-0, a-0]}]", "a-0 -> a-0: a device has no link to itself; wanted two"),
    (LINK + "between: [a-0, b-00]}]", "no device named 'b-00'; did you mean 'b-0'"),
    ("between: [{regions: [a, c], latency_ms: 1, bandwidth_gbps: 1}]", "no region named 'c'; known: a, b"),
    (
        "between: [{from: a, latency_ms: 1, bandwidth_gbps: 1}]",
        r"a region pair needs either 'regions: \[a, b\]' or both 'from: a' and 'to: b'",
    ),
    (
        "between: [{regions: [a, a], latency_ms: 1, bandwidth_gbps: 1}]",
        "between a and itself: wanted latency_ms and bandwidth_gbps of the region",
    ),
    ("regions: [{name: a}, {name: a}]", "region 'a' is given twice"),
    ("regions: [{name: a, devices: [{name: x, region: b}]}]", "device x stands under region a but says b"),
]
"""A line in the place of one of a good file, and what is said of it."""


@pytest.mark.parametrize(("line", "says"), WRONG)
def test_a_mistake_is_refused_in_one_line_that_names_the_file(tmp_path, line, says):
    path, key = tmp_path / "mine.yaml", line.partition(":")[0]
    path.write_text(yaml.safe_dump(two_regions(**{key: None})) + line + "\n")
    with pytest.raises(LabError, match=rf"^mine\.yaml: .*{says}"):
        load_topology(path)


def test_an_unknown_name_is_refused_with_the_nearest_one():
    says = r"no topology named 'world-wide'; did you mean 'worldwide'\? known: at-home, campus, datacenter"
    with pytest.raises(UnknownName, match=says):
        load_topology("world-wide")


@pytest.mark.parametrize("files", [["ada.xml"], ["task.yaml", "ada.xml"], []])
def test_a_list_of_files_without_a_reader_of_machines_is_no_name_and_no_path(monkeypatch, files):
    monkeypatch.setattr("dtfm_lab.files.topologies.MACHINE_READERS", Registry("reader of machines"))
    with pytest.raises(LabError) as refused:
        load_topology(files)
    assert str(refused.value) == f"topology is {files}; wanted a name or a path"
