"""A network from what other tools say of one's machines: recorded outputs, by hand; damaged ones end in one line."""

import re
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import LINK_SPREAD, find_place, link_between
from dtfm_lab.domain.units import GB, TERA, GiB, from_gbps
from dtfm_lab.files import load_topology, save_topology

RECORDED = Path(__file__).with_name("recorded")


def network(*names, **told):
    return load_topology([RECORDED / name for name in names], **told)


def refused(sources, **told):
    """The one line with which these sources are refused."""
    with pytest.raises(LabError) as error:
        load_topology(sources, **told)
    return str(error.value)


def gpus(topology):
    return [device.gpu for device in topology.devices]


def test_gpus_memory_and_pcie_of_a_host_by_nvidias_driver():
    found = network("gpubox.smi.xml")
    assert found.names == ("gpubox-0", "gpubox-1")
    assert {device.host for device in found.devices} == {"gpubox"}
    assert [device.memory_bytes for device in found.devices] == [24564 * 2**20] * 2
    assert gpus(found) == ["RTX A5000"] * 2
    assert found.bandwidth_bytes_per_s[0, 1] == pytest.approx(16 * 1.969 * GB)  # fourth generation, 16 lanes
    assert found.link_spread == LINK_SPREAD, "nothing between hosts was estimated"


def test_a_gpu_that_the_table_does_not_have_comes_with_its_peak(tmp_path):
    text = (RECORDED / "gpubox.smi.xml").read_text().replace("NVIDIA RTX A5000", "NVIDIA RTX A5050")
    (tmp_path / "gpubox.xml").write_text(text)
    source = [tmp_path / "gpubox.xml"]
    with pytest.raises(
        LabError, match="gpubox: 'NVIDIA RTX A5050' is not in the table of GPUs; wanted its peak_tflops"
    ):
        load_topology(source)
    with pytest.raises(LabError, match="is -1; wanted TFLOP/s in half precision"):
        load_topology(source, peak_tflops={"NVIDIA RTX A5050": -1})
    found = load_topology(source, peak_tflops={"nvidia rtx a5050": 111.1})
    assert [device.peak_flop_per_s for device in found.devices] == [111.1 * TERA] * 2


def test_nodes_of_slurm_and_how_their_gpus_are_connected():
    found = network("scontrol.txt", "gpu01.topo.txt", "gpu03.topo.txt")
    assert gpus(found) == ["A100"] * 16 + ["T4"] * 4
    inside = found.bandwidth_bytes_per_s
    assert inside[0, 7] == pytest.approx(12 * 25 * GB), "twelve NVLinks of an A100"
    assert inside[8, 15] == pytest.approx(12 * 25 * GB), "nothing tells of gpu02, but eight are sold with NVLink"
    assert inside[16, 17] == inside[16, 19] == pytest.approx(16 * 1.969 * GB), "no NVLink"
    assert inside[0, 8] == from_gbps(10)
    assert all(said in found.description for said in ("cpu01", "gpu04 (gpu:2 names no type)", "estimated 10 Gbit/s"))
    assert gpus(network("sinfo.txt")) == gpus(found)


def test_nodes_of_slurm_that_take_no_job_are_left_out():
    found = network("scontrol-states.txt")
    assert [device.host for device in found.devices] == ["gpu01"] * 4 + ["gpu03"] * 4
    assert gpus(found) == ["A100"] * 4 + ["H100"] * 4
    assert "cpu01, gpu02 (idle+drain), gpu04 (down)" in found.description
    assert "'gpu03 gpu:nvidia_h100_80gb' is cut off" in refused([RECORDED / "sinfo-cut.txt"])


@pytest.mark.parametrize("name", ["ray_list.json", "ray_nodes.json"])
def test_nodes_of_ray(name):
    assert gpus(network(name)) == ["A100"] * 4


def test_nodes_of_kubernetes():
    found = network("nodes.json")
    (device,) = found.devices
    assert (device.name, device.gpu, device.region, device.memory_bytes) == ("mig-0", "A100", "westeurope", 80 * GiB)
    assert "system-0" in found.description


def test_a_test_of_nccl_over_two_hosts_tells_what_is_between_them():
    found = network("all_reduce.txt")
    assert gpus(found) == ["A100 40GB"] * 16
    assert found.bandwidth_bytes_per_s[0, 8] == pytest.approx(222.88 * GB)
    assert found.bandwidth_bytes_per_s[0, 1] == pytest.approx(12 * 25 * GB), "the test says nothing of the inside"


def test_what_iperf_measured_from_its_sender_to_its_receiver(tmp_path):
    shutil.copy(RECORDED / "gpubox.smi.xml", tmp_path / "ada.xml")
    shutil.copy(RECORDED / "gpubox.smi.xml", tmp_path / "alan.xml")
    sources = [tmp_path / "ada.xml", tmp_path / "alan.xml", RECORDED / "ssh_config"]
    up, down = (RECORDED / f"{way}.iperf.json" for way in ("ada-to-alan", "alan-to-ada"))
    both = load_topology([*sources, up, down])
    there, back = both.index("ada-0"), both.index("alan-1")
    assert both.bandwidth_bytes_per_s[there, back] == pytest.approx(7223198324.612977 / 8)
    assert both.bandwidth_bytes_per_s[back, there] == pytest.approx(6541605636.429498 / 8)
    assert both.latency_s[there, back] == both.latency_s[back, there] == pytest.approx(630e-6 / 2)
    at_once = load_topology([*sources, RECORDED / "ada-and-alan.iperf.json"])
    assert at_once.bandwidth_bytes_per_s[there, back] == pytest.approx(4368002060.291254 / 8)
    assert at_once.bandwidth_bytes_per_s[back, there] == pytest.approx(3376619830.6995282 / 8)
    one = load_topology([*sources, up])
    assert one.bandwidth_bytes_per_s[back, there] == both.bandwidth_bytes_per_s[there, back]
    assert "measured by iperf3 the other way" in one.description
    lost = load_topology([*sources[:2], up], at={"ada": "Zurich", "alan": "Oslo"})
    assert "no host has this address: measurements of 10.9.0.1, 10.9.0.2" in lost.description


def test_rented_machines_at_their_catalogues_price_far_from_home():
    found = network("gpubox.smi.xml", "task.yaml", "vms.csv", at={"gpubox": "Zurich"})
    assert found.names[2] == "rented-0-0"
    assert [device.price_per_hour for device in found.devices] == [0, 0] + [6.32 / 8] * 16
    far = link_between(find_place("Zurich"), find_place("us-east-1"))
    home, rented = found.index("gpubox-0"), found.index("rented-1-7")
    assert found.latency_s[home, rented] == found.latency_s[rented, home] == pytest.approx(far.latency_s)
    assert found.bandwidth_bytes_per_s[home, rented] == pytest.approx(far.bandwidth_bytes_per_s)
    assert found.link_spread == 0.5, "nobody measured that"


@pytest.mark.parametrize("cluster", ["nodes.json", "sinfo.txt", "ray_nodes.json"])
def test_a_box_at_home_and_a_cluster_are_joined_by_the_places_that_the_refusal_asks_for(cluster):
    files = [RECORDED / "gpubox.smi.xml", RECORDED / cluster]
    asked = re.findall(r"--at (\S+)=CITY", refused(files))
    assert asked[0] == "gpubox"
    assert asked == re.findall(r"--at (\S+)=CITY", refused(files, at={"gpubox": "Muenchn"}))
    assert "gpubox (Muenchn is not a known place)" in refused(files, at={"gpubox": "Muenchn"})
    found = load_topology(files, at=dict(zip(asked, ("Zurich", "Oslo"), strict=True)))
    assert found.regions == ("Zurich", "Oslo")  # one node of the cluster has told where all are
    near, far = (found.latency_s[-1, at] for at in (2, 0))
    assert near < far == pytest.approx(link_between(find_place("Zurich"), find_place("Oslo")).latency_s)


def test_it_is_saved_and_read_as_any_network(tmp_path):
    found = network("scontrol.txt", "gpu01.topo.txt")
    again = load_topology(save_topology(found, tmp_path / "mine.yaml"))
    assert (again.devices, again.fingerprint) == (found.devices, found.fingerprint)
    assert again.description == found.description


@pytest.mark.parametrize(
    ("names", "told", "says"),
    [
        ([], {}, "no file is given"),
        (["gpubox.smi.xml", "task.yaml"], {}, "wanted iperf3 --json between them, or where gpubox is: --at"),
        (["sinfo.txt"], {"at": {"gpu09": "Oslo"}}, "no host named 'gpu09'"),
        (["vms.csv"], {}, "wanted a SkyPilot task beside it"),
        (["ssh_config"], {}, "no source reports a GPU"),
        (["SOURCES.md"], {}, "is the output of no tool that is read"),
        (["sinfo.txt", "gpu01.topo.txt", "gpu03.topo.txt", "gpubox.smi.xml"], {}, "or where gpu01 and gpubox are:"),
    ],
)
def test_what_nothing_tells_is_refused_in_one_line(names, told, says):
    assert says in refused([RECORDED / name for name in names], **told)


@pytest.mark.parametrize(
    ("name", "before", "after", "says"),
    [
        ("gpubox.smi.xml", "?>", '?><!DOCTYPE a [<!ENTITY b "c">]>', "declares entities"),
        ("gpubox.smi.xml", "NVIDIA RTX A5000", " ", "GPU 0 has no product_name"),
        ("gpu01.topo.txt", "GPU1\tNV12", "GPU9\tNV12", "rows of GPUs [0, 2, 3, 4, 5, 6, 7, 9]"),
        ("gpu01.topo.txt", "GPU1\tNV12", "GPU1\tNVX", "GPU1 and GPU0 are connected by 'NVX'"),
        ("all_reduce.txt", "device  1", "device  0", "two ranks use device 0"),
        (
            "ada-to-alan.iperf.json",
            '"start":\t{',
            '"error": "unable to connect", "start":\t{',
            "iperf3 failed: 'unable",
        ),
        (
            "ada-to-alan.iperf.json",
            '"target_bitrate":\t0\n',
            '"target_bitrate": 7.3e9\n',
            "iperf3 was limited to 7.3 Gbit/s, and reached it; wanted a test without -u or -b",
        ),
        ("nodes.json", '"nvidia.com/gpu": "1"', '"nvidia.com/gpu": "many"', "says 'many' of its GPUs"),
        ("nodes.json", '"NVIDIA-A100-80GB-PCIe"', '""', "no label nvidia.com/gpu.product"),
        ("ray_list.json", '"GPU": 4.0', '"GPU": 1e9', "has 1000000000.0 GPUs"),
        ("sinfo.txt", "gpu01", "gpu[01-02]", "is several nodes in one line"),
        ("task.yaml", "V100:8", "V100:many", "wanted a whole number of GPUs"),
        ("task.yaml", "accelerators: V100:8", "accelerators: {V100: 8, A100: 8}", "leave a choice"),
        ("vms.csv", "6.32,us-east-1", "free,us-east-1", "wanted numbers"),
    ],
)
def test_a_mistake_in_a_source_is_told_with_its_file(tmp_path, name, before, after, says):
    text = (RECORDED / name).read_text()
    assert before in text
    (tmp_path / name).write_text(text.replace(before, after, 1))
    sources = [tmp_path / name] + ([RECORDED / "task.yaml"] if name == "vms.csv" else [])
    said = refused(sources)
    assert name in said
    assert says in said


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.iterdir()))
def test_a_source_that_is_cut_off_or_garbled_never_ends_in_a_traceback(tmp_path, name):
    text, rng = (RECORDED / name).read_text(), np.random.default_rng(0)
    for trial in range(60):
        at = int(rng.integers(len(text)))
        damaged = text[:at] if trial % 2 else text[:at] + rng.choice([*'{}[]<>:,"x9\n', "\t"]) + text[at + 1 :]
        (tmp_path / name).write_text(damaged)
        with suppress(LabError):
            load_topology([tmp_path / name])
