"""Every format gives back what it holds; what it cannot hold, and what is broken, is refused in one line."""

import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import FileError, LabError, UnknownName
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.files import load_topology, save_topology, topology_suffixes, topology_to_mapping
from dtfm_lab.files.topology_npz import LARGEST_BYTES

WHOLE = ["yaml", "yml", "json", "npz"]

ONES = np.ones((2, 2))
GROUP = {"gpus": 4, "inner_latency_s": 1e-5, "inner_bandwidth_bytes_per_s": 300e9}
milliseconds = st.integers(0, 300_000).map(lambda x: x / 1000)
gigabits = st.integers(1, 100_000).map(lambda x: x / 1000)
names = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=8)
plain_names = names.filter(lambda name: name == name.strip())


@st.composite
def topologies(draw):
    """As a person draws or measures them, symmetric or not, with all that a device may have."""
    n = draw(st.integers(2, 5))
    speeds = draw(st.lists(st.tuples(milliseconds, gigabits), min_size=1, max_size=4))
    speed = np.array([[draw(st.sampled_from(speeds)) for _ in range(n)] for _ in range(n)])
    if draw(st.booleans()):
        speed = np.where(np.tri(n, dtype=bool)[:, :, None], speed, speed.transpose(1, 0, 2))
    regions, hosts = st.sampled_from(["", "x", "y", "no", "1"]) | plain_names, st.sampled_from(["", "h", "null"])
    devices = tuple(
        Device(
            name=device_name,
            region=draw(regions),
            host=draw(hosts),
            gpu=draw(st.sampled_from(["A100", "~", "true", "1", "é <&>"])),
            peak_flop_per_s=draw(st.integers(1, 10**6)) / 1000 * 1e12,
            memory_bytes=draw(st.integers(1, 10**3)) * 2**30,
            price_per_hour=draw(st.sampled_from([0.0, 1.25])),
            position=draw(st.none() | st.tuples(st.floats(-9, 9), st.floats(-9, 9))),
            **draw(st.sampled_from([{}, GROUP])),
        )
        for device_name in draw(st.lists(plain_names, min_size=n, max_size=n, unique=True))
    )
    drawn = Topology.from_matrices(speed[:, :, 0], speed[:, :, 1])
    measured = {}
    if draw(st.booleans()):
        times = np.array(draw(st.lists(milliseconds, min_size=2 * n * n, max_size=2 * n * n))).reshape(n, n, 2) / 1e3
        times[np.tri(n, k=draw(st.integers(-n, 0)), dtype=bool)] = np.nan
        measured = {"message_bytes": [1024, 65536], "message_s": np.sort(times, axis=2)}
    description = draw(st.sampled_from(["", "two\nlines, a tab\tand <&>\"'"]))
    return Topology(
        devices,
        drawn.latency_s,
        drawn.bandwidth_bytes_per_s,
        name=draw(plain_names),
        description=description,
        link_spread=draw(st.sampled_from([drawn.link_spread, 0.0, 0.25])),
        **measured,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("formats")


@pytest.mark.parametrize("ending", WHOLE)
@given(topology=topologies())
@settings(max_examples=40)
def test_a_whole_format_gives_everything_back(folder, ending, topology):
    back = load_topology(save_topology(topology, folder / f"saved.{ending}"))
    assert back.devices == topology.devices
    assert back.fingerprint == topology.fingerprint
    assert (back.name, back.description) == (topology.name, topology.description)
    assert back.link_spread == topology.link_spread


@given(topology=topologies())
@settings(max_examples=25)
def test_csv_gives_names_and_links_back(folder, topology):
    back = load_topology(save_topology(topology, folder / "saved.csv"))
    assert back.names == topology.names
    assert back.name == "saved"
    assert np.array_equal(back.latency_s, topology.latency_s)
    assert np.array_equal(back.bandwidth_bytes_per_s, topology.bandwidth_bytes_per_s)


def test_a_list_of_links_cannot_hold_a_single_device_or_names_with_blanks_around_them(tmp_path):
    alone = Topology.from_matrices([[0]], [[1]])
    with pytest.raises(FileError, match="cannot hold a single device"):
        save_topology(alone, tmp_path / "alone.csv")
    with pytest.raises(FileError, match="wanted no blanks around it"):
        save_topology(Topology.from_matrices(ONES, ONES, names=["a", " b"]), tmp_path / "blanks.csv")


def test_nics_and_one_way_regions_save_lines_where_they_can():
    """Links of their own line remain only where no NIC and no region pair explains them."""
    assert topology_to_mapping(load_topology("volunteers"))["links"] == []
    assert topology_to_mapping(load_topology("thin-link"))["links"] == []
    assert "uplink_gbps" not in topology_to_mapping(load_topology("thin-link"))["devices"][0]


@pytest.mark.parametrize("path", ["mine.txt", "mine", "mine.npy", "mine.gml"])
def test_an_unknown_ending_is_refused_with_the_known_ones(tmp_path, path):
    (tmp_path / path).write_text("x")
    for act in (load_topology, lambda p: save_topology(load_topology("spot"), p)):
        with pytest.raises(FileError, match=r"wanted a topology file that ends in \.csv, \.json"):
            act(tmp_path / path)
    with pytest.raises(UnknownName, match="no topology named"):
        load_topology(tmp_path / f"no-{path}")


@pytest.mark.parametrize("path", ["", "a\0b", "a\0b.yaml", "x" * 5000, "x" * 5000 + ".npz", ".", "no/such.csv"])
def test_a_path_that_is_none_is_refused(path):
    with pytest.raises(LabError):
        load_topology(path)


@pytest.mark.parametrize("ending", topology_suffixes())
def test_a_folder_and_nothing_are_refused_whatever_they_are_called(tmp_path, ending):
    (tmp_path / f"folder{ending}").mkdir()
    (tmp_path / f"empty{ending}").write_bytes(b"")
    for name in ("folder", "empty"):
        with pytest.raises(FileError, match=f"{name}{ending}: "):
            load_topology(tmp_path / f"{name}{ending}")


# CSV

GOOD = "source,target,latency_ms,bandwidth_gbps\na,b,1,2\nb,a,3,4\n"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace(",", " , "),
        "\n" + GOOD + "\n\n",
        "Bandwidth_Gbps,note,target,latency_ms,source\n2,x,b,1,a\n4,,a,3,b\n4,a diagonal,a,9,a\n",
    ],
    ids=["plain", "byte order mark", "carriage returns", "blanks", "empty lines", "other columns in another order"],
)
def test_a_list_of_links_may_look_as_spreadsheets_write_it(tmp_path, text):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8", newline="")
    topology = load_topology(tmp_path / "a.csv")
    ab, ba = topology.at("a"), topology.at("b")
    assert 1e3 * topology.latency_s[[ab, ba], [ba, ab]] == pytest.approx([1, 3])
    assert 8e-9 * topology.bandwidth_bytes_per_s[[ab, ba], [ba, ab]] == pytest.approx([2, 4])


BROKEN_CSV = {
    "semicolons": (GOOD.replace(",", ";"), "cells stand apart by ';'; wanted commas"),
    "a ragged row": (GOOD + "a,b,1\n", "line 4 has 3 cells; wanted 4"),
    "a text cell": (GOOD.replace("3,4", "slow,4"), "link b -> a: latency_ms is 'slow'; wanted a number"),
    "a link missing": (GOOD[: GOOD.index("b,a")], r"no row b -> a \(1 such links\); every pair of"),
    "a nameless device": (GOOD.replace("a", ""), "no column 'target'"),
    "a matrix": ("0,1\n1,0\n", "no column 'source' among '0, 1'; wanted one row per link"),
    "an open quote": (GOOD + '"a', "line 4: broken CSV: unexpected end of data"),
    "a name of two lines": (GOOD.replace("a,", '"a\nb",'), r"device 'a\\nb' holds a character that cannot be printed"),
    "no text": (b"\xff\xfe\x00", "cannot be read as UTF-8 text: byte 0 is 0xff"),
}


@pytest.mark.parametrize("name", BROKEN_CSV)
def test_a_broken_list_of_links_says_where(tmp_path, name):
    text, says = BROKEN_CSV[name]
    (tmp_path / "mine.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(LabError, match=says) as refused:
        load_topology(tmp_path / "mine.csv")
    assert "mine.csv: " in str(refused.value)


def matrices(folder, latency: str, bandwidth: str):
    (folder / "m.latency_ms.csv").write_text(latency)
    (folder / "m.bandwidth_gbps.csv").write_text(bandwidth)
    return folder / "m.latency_ms.csv"


def test_matrices_in_csv_are_rows_sending_to_columns_and_may_leave_the_diagonal_empty(tmp_path):
    topology = load_topology(matrices(tmp_path, "0,1\n2,0\n", "inf,3\n4,inf\n"))
    assert topology.latency_s.tolist() == [[0, 0.001], [0.002, 0]]
    assert topology.name == "m"
    assert load_topology(tmp_path / "m.bandwidth_gbps.csv").fingerprint == topology.fingerprint
    labelled = load_topology(matrices(tmp_path, ",x,y\nx,,1\ny,2,\n", "source,x,y\nx,-,3\ny,4,-\n"))
    assert labelled.names == ("x", "y")
    back = load_topology(save_topology(labelled, tmp_path / "back.latency_ms.csv"))
    assert back.latency_s == pytest.approx(labelled.latency_s)


@pytest.mark.parametrize(
    ("latency", "bandwidth", "says"),
    [
        ("0,1\n2,0\n", "1,1,1\n1,1,1\n1,1,1\n", r"bandwidth_bytes_per_s has shape \(3, 3\), but there are 2 devices"),
        ("0,1\n2\n", "1,1\n1,1\n", "line 2 has 1 cells; wanted 2"),
        ("0,fast\n2,0\n", "1,1\n1,1\n", "m.latency_ms.csv: row 1 has 'fast'; wanted a number"),
        (",x,y\nx,0,1\nz,1,0\n", "1,1\n1,1\n", "rows and columns are labelled otherwise"),
        (",x,y\nx,0,1\ny,1,0\n", ",y,x\ny,0,1\nx,1,0\n", "bandwidth_gbps is labelled otherwise"),
        ("0,1\n1,0\n", "", "m.bandwidth_gbps.csv: holds nothing"),
        ("0;1\n1;0\n", "1,1\n1,1\n", "m.latency_ms.csv: cells stand apart by ';'; wanted commas"),
    ],
)
def test_matrices_in_csv_that_do_not_fit_are_refused(tmp_path, latency, bandwidth, says):
    with pytest.raises(LabError, match=says) as refused:
        load_topology(matrices(tmp_path, latency, bandwidth))
    assert str(refused.value).count(".csv") == 1


def test_a_matrix_without_its_companion_is_refused(tmp_path):
    matrices(tmp_path, "0,1\n1,0\n", "1,1\n1,1\n").unlink()
    with pytest.raises(LabError, match=r"m\.bandwidth_gbps\.csv: no latency_s and no latency_ms"):
        load_topology(tmp_path / "m.bandwidth_gbps.csv")


# npz


def archive(path, **arrays):
    good = {"latency_ms": np.ones((2, 2)), "bandwidth_gbps": np.ones((2, 2))}
    np.savez(path, **{what: array for what, array in (good | arrays).items() if array is not None})
    return path


def test_arrays_need_no_more_than_the_two_matrices_and_a_gpu_brings_its_numbers(tmp_path):
    topology = load_topology(archive(tmp_path / "a.npz"))
    assert (topology.names, topology.name) == (("device-0", "device-1"), "a")
    fast = load_topology(archive(tmp_path / "b.npz", gpu=np.array(["H200", "T4"]), names=np.array(["h", "t"])))
    assert [(d.name, d.peak_flop_per_s) for d in fast.devices] == [("h", 989e12), ("t", 65e12)]


BROKEN_ARRAYS = {
    "no matrix": ({"latency_ms": None}, "no latency_s and no latency_ms among 'bandwidth_gbps'; wanted an"),
    "not square": ({"latency_ms": np.ones((2, 3))}, r"latency_s has shape \(2, 3\), but there are 2 devices"),
    "not as large": ({"bandwidth_gbps": np.ones((3, 3))}, r"bandwidth_bytes_per_s has shape \(3, 3\), but there are 2"),
    "text": ({"latency_ms": np.full((2, 2), "1")}, "latency_ms holds <U1; wanted numbers"),
    "pickled": ({"names": np.array(["a", None])}, "broken archive: Object arrays cannot be loaded"),
    "names as numbers": ({"names": np.arange(2)}, "names holds int64; wanted text"),
    "too few names": ({"names": np.array(["a"])}, "names: 1 for 2 devices; wanted one each"),
    "names in a square": ({"names": np.full((2, 2), "a")}, r"names has shape \(2, 2\); wanted \(N,\)"),
    "two names": ({"name": np.array(["a", "b"])}, r"name has shape \(2,\); wanted \(\)"),
    "a stray array": ({"latencies": np.ones(2)}, "no array named 'latencies'; did you mean 'latency_s'"),
    "beyond floats": ({"bandwidth_gbps": np.full((2, 2), 1e308)}, "bandwidth is inf"),
    "half a position": ({"position": np.array([[1, np.nan], [0, 0]])}, "position is .*nan.*; wanted two numbers"),
    "not an array": ({"latency_ms": b""}, "broken archive|latency_ms holds"),
    "a row of positions": ({"position": np.ones(2)}, r"position has shape \(2,\); wanted \(2, 2\)"),
}


@pytest.mark.parametrize("name", BROKEN_ARRAYS)
def test_arrays_that_make_no_network_are_refused(tmp_path, name):
    arrays, says = BROKEN_ARRAYS[name]
    with pytest.raises(LabError, match=rf"^mine\.npz: .*(?:{says})"):
        load_topology(archive(tmp_path / "mine.npz", **arrays))


def test_a_bomb_is_refused_by_the_size_in_the_archive_s_directory(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("names.npy", bytes(LARGEST_BYTES["names"] + 1))
    assert path.stat().st_size < LARGEST_BYTES["names"] / 500
    with pytest.raises(FileError, match=r"array names unpacks to 33554433 bytes; wanted at most 33554432"):
        load_topology(path)


def test_a_format_of_other_graph_tools_says_how_to_read_and_write_it(tmp_path):
    (tmp_path / "a.graphml").write_text("<graphml/>")
    with pytest.raises(FileError, match=r"wanted Topology\.from_networkx\(networkx\.read_graphml\(path\)\)"):
        load_topology(tmp_path / "a.graphml")
    with pytest.raises(FileError, match=r"wanted networkx\.write_graphml\(topology\.to_networkx\(\), path\)"):
        save_topology(load_topology("lecture-hall"), tmp_path / "b.graphml")
