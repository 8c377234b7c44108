"""What other versions, clouds and launchers print: columns by their header, labels as sold, machines that are there."""

import json
import time

import pytest

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import HARDWARE, at_their_ends, estimated, known_gpu
from dtfm_lab.domain.units import GB, GiB, from_gbps
from dtfm_lab.extensions.machines.cloud_names import INSTANCES, LABELS
from dtfm_lab.extensions.machines.links import NVLINKS, bridge_bytes_per_s
from dtfm_lab.extensions.machines.seen import ReportedGpu
from dtfm_lab.files import load_topology, save_topology

OLD, NEW = "type   redop     time   algbw   busbw  error", "type   redop    root     time   algbw   busbw #wrong"


@pytest.fixture
def read(tmp_path):
    """The network of files with these texts."""

    def made(texts, **told):
        for name, text in texts.items():
            (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text))
        return load_topology([tmp_path / name for name in texts], **told)

    return made


@pytest.fixture
def refused(read):
    def made(texts, **told):
        with pytest.raises(LabError) as error:
            read(texts, **told)
        assert "\n" not in str(error.value)
        return str(error.value)

    return made


def gpus(network):
    return [device.gpu for device in network.devices]


def rate(network, a=0, b=1):
    return network.bandwidth_bytes_per_s[a, b]


def nccl(rows, header=NEW, hosts=("fir",), n=8, gpu="NVIDIA H100 80GB HBM3", prefix="", ranks=None):
    """The output of a test: ``rows`` of bytes, and what stands behind the type."""
    lines = ["# nThread 1 nGpus 1", "# Using devices"]
    for rank in range(n * len(hosts)):
        host, own = hosts[rank // n], rank if ranks is None else ranks
        lines.append(f"#  Rank {own:2} Group  0 Pid {100 + rank} on {host} device {rank % n:2} [0x0f] {gpu}")
    half = header.partition("time")[2]
    lines += [f"#  size  count  {header}  time {half}", "#  (B)  (elements)  (us)  (GB/s)  (GB/s)"]
    lines += [f"  {n_bytes}  {n_bytes // 4}   float  {rest}" for n_bytes, rest in rows]
    return "\n".join(prefix.format(i % 3) + line for i, line in enumerate([*lines, "# Avg bus bandwidth : 20.1"]))


@pytest.mark.parametrize("time_us", ["8012.5", "12325", "1.2e+04"])
def test_the_old_format_of_nccls_tests(read, time_us):
    """It has no root; from 10 ms on, times have no decimals."""
    half = f"{time_us}   87.12  130.68  5e-07"
    network = read({"a.txt": nccl([(2**30, f"sum  {half}  {half}")], OLD, n=4, gpu="Tesla V100-SXM2-32GB")})
    assert gpus(network) == ["V100 32GB"] * 4
    assert rate(network) == pytest.approx(130.68 * GB)


def test_a_test_without_reduction_has_no_such_column(read):
    half = "7859.4  136.62  119.54  0e+00"
    header = "type  time   algbw   busbw  error"
    network = read({"a.txt": nccl([(2**30, f"{half}  {half}")], header, gpu="Tesla V100-SXM2-16GB")})
    assert rate(network) == pytest.approx(119.54 * GB)


HALF = "89908    1.49    2.80      0"
SLOW = [(2**27, f"sum  -1  {HALF}  {HALF}")]


@pytest.mark.parametrize(
    "prefix",
    ["", "[1,{}]<stdout>:", "[prterun-fir-7@1,{}]<stdout>: ", "{}: ", " {}: ", "[pod/nccl-{}/main] ", "fir-{}  | "],
)
def test_prefixes_of_launchers_and_hosts_of_a_test(read, prefix):
    network = read({"a.txt": nccl(SLOW, hosts=("fir", "oak"), prefix=prefix)})
    assert len(network) == 16
    assert rate(network, 0, 8) == pytest.approx(2.80 * GB)
    assert rate(network) == pytest.approx(18 * 25 * GB), "over hosts it says nothing of the inside"


def test_inside_a_host_a_test_over_several_is_a_lower_bound(read):
    half = "1000    21.3   40.00      0"
    network = read({"a.txt": nccl([(2**27, f"sum -1 {half} {half}")], hosts=("fir", "oak"), gpu="NVIDIA L40S")})
    assert rate(network) == rate(network, 0, 8) == pytest.approx(40 * GB)


def test_what_a_switch_adds_is_no_links_rate(read):
    half = "1000    274.3   480.00      0"
    network = read({"a.txt": nccl([(2**30, f"sum -1 {half} {half}")])})
    assert rate(network) == pytest.approx(18 * 25 * GB)
    assert "3,600 Gbit/s counts" in network.description


def test_all_to_all_sends_to_other_hosts_what_is_theirs(read):
    half = "1000    10.00   9.38"
    row = (2**30, f"none -1 {half} 0 {half} N/A")
    network = read({"a.txt": nccl([row], hosts=("fir", "oak"))})
    assert rate(network, 0, 8) == pytest.approx(10 * GB * 8 * 8 / 16)


def test_tests_of_nccl_that_tell_nothing(refused):
    half = "1675.1  782.50    0.00      0"
    text = nccl([(2**30, f"sum -1 {half} {half}")], hosts=("fir", "oak"), n=1, ranks=0)
    assert "all 2 processes are rank 0, so the test was built without MPI" in refused({"a.txt": text})
    assert "is a test of hypercube" in refused({"a.txt": "# hypercube_perf\n" + nccl(SLOW)})
    assert "has no row of a message" in refused({"a.txt": nccl([])})
    assert "bus bandwidth" in refused({"a.txt": nccl([(2**20, f"sum -1 {half} {half}")], n=1)})


def smi(*given, width="16x", generation="4", mib="24564 MiB", mig="N/A"):
    """What the driver says of GPUs by name, or by name and lanes."""
    parts = [
        f"<gpu><product_name>{name}</product_name><mig_mode><current_mig>{mig}</current_mig></mig_mode><pci>"
        f"<pci_gpu_link_info><pcie_gen><max_link_gen>{generation}</max_link_gen></pcie_gen><link_widths>"
        f"<max_link_width>16x</max_link_width><current_link_width>{lanes}</current_link_width></link_widths>"
        f"</pci_gpu_link_info></pci><fb_memory_usage><total>{mib}</total></fb_memory_usage></gpu>"
        for name, lanes in (each if isinstance(each, tuple) else (each, width) for each in given)
    ]
    return f"<nvidia_smi_log>{''.join(parts)}</nvidia_smi_log>"


def topo(code, n=2):
    rows = [[f"GPU{i}", *("X" if i == j else code for j in range(n))] for i in range(n)]
    return "\n".join("\t".join(row) for row in [["", *(f"GPU{i}" for i in range(n))], *rows])


@pytest.mark.parametrize(
    ("name", "code", "gbps"),
    [
        ("NVIDIA GB200", "NV18", 7200),
        ("NVIDIA GB300", "NV18", 7200),
        ("NVIDIA B300 SXM6 AC", "NV18", 7200),
        ("NVIDIA RTX A5000", "NV4", 450),
        ("NVIDIA RTX A4500", "NV4", 450),
        ("NVIDIA GeForce RTX 3090 Ti", "NV4", 450),
        ("NVIDIA TITAN RTX", "NV2", 400),
        ("Quadro RTX 8000", "NV2", 400),
        ("Tesla P100-SXM2-16GB", "NV4", 640),
        ("Tesla V100-SXM2-32GB", "NV6", 1200),
        ("NVIDIA A800-SXM4-80GB", "NV8", 1600),
        ("NVIDIA H800", "NV8", 1600),
        ("NVIDIA H20", "NV18", 3600),
        ("NVIDIA GH200 480GB", "NV6", 1200),
        ("NVIDIA H100 NVL", "NV12", 2400),
    ],
)
def test_nvlink_has_the_speed_of_its_kind(read, name, code, gbps):
    network = read({"elm.xml": smi(name, name), "elm.topo.txt": topo(code)})
    assert rate(network) == pytest.approx(from_gbps(gbps))


def test_nvlinks_are_of_gpus_in_the_table():
    assert {*NVLINKS} - {*HARDWARE} == {"A800", "H800"}
    assert bridge_bytes_per_s(ReportedGpu("NVIDIA B200"), 1) == 50 * GB


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA A800-SXM4-80GB", "A100"),
        ("NVIDIA A800 40GB Active", "A100 40GB"),
        ("NVIDIA H800 PCIe", "H100 PCIe"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Max-Q"),
        ("NVIDIA GH200 144G HBM3e", "GH200"),
        ("A100_NVLINK_80GB", "A100"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("Tesla V100S-PCIE-32GB", "V100S"),
        ("a100_3g.20gb", None),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", None),
        ("NVIDIA A100-40C vGPU", None),
    ],
)
def test_names_of_drivers(name, known):
    assert known_gpu(name) == known


def test_every_cloud_name_is_a_gpu_of_the_table():
    assert all(known_gpu(gpu) for gpu in LABELS.values())
    assert all(known_gpu(gpu) for gpu in INSTANCES.values())


def test_the_narrowest_slot_decides(read):
    card = "NVIDIA GeForce RTX 3090"
    network = read({"rig.xml": smi((card, "16x"), (card, "8x"), (card, "1x"))})
    assert rate(network) == pytest.approx(1.969 * GB)


@pytest.mark.parametrize("name", ["RTX 2080 Ti", "RTX 3090", "RTX 4090", "RTX 5080"])
def test_geforce_gpus_reach_each_other_through_the_hosts_memory(read, name):
    """Two RTX 3090s without a bridge copy 3.06 GB/s each way (NVIDIA/nccl, issue 1127), not the 31.5 of their slots."""
    cards = smi(*[f"NVIDIA GeForce {name}"] * 2)
    for network in (read({"rig.xml": cards}), read({"rig.xml": cards, "rig.topo.txt": topo("PHB")})):
        assert rate(network) == pytest.approx(3.06 * GB)
        assert "GeForce" in network.description
        assert network.estimates
    unlike = read({"rig.xml": smi(f"NVIDIA GeForce {name}", "NVIDIA RTX A5000")})
    assert rate(unlike) == pytest.approx(3.06 * GB)
    assert rate(read({"rig.xml": smi("NVIDIA RTX 5000 Ada Generation", "NVIDIA RTX 5000 Ada Generation")})) > 31 * GB


def test_slices_of_mig_are_no_gpus(read, refused):
    name = "NVIDIA A100-SXM4-80GB"
    assert "MIG cuts all 2 GPUs into slices" in refused({"elm.xml": smi(name, name, mig="Enabled")})
    whole, cut = smi(name, name), smi(name, mig="Enabled")
    mixed = cut.replace("</nvidia_smi_log>", "") + whole.replace("<nvidia_smi_log>", "")
    network = read({"elm.xml": mixed, "elm.topo.txt": topo("NV12", 3)})
    assert len(network) == 2
    assert rate(network) == pytest.approx(12 * 25 * GB)
    assert "left out of elm, as MIG cuts them into slices: GPU 0" in network.description


def test_a_user_tells_peak_and_memory(read, refused):
    text = {"spark.xml": smi("NVIDIA GB11", mib="Not Supported")}
    assert 'wanted its peak_tflops and memory_gib (--gpu "NVIDIA GB11=TFLOPS,GIB")' in refused(text)
    assert "wanted its memory_gib" in refused(text, peak_tflops={"NVIDIA GB11": 125})
    (device,) = read(text, peak_tflops={"NVIDIA GB11": 125}, memory_gib={"nvidia gb11": 119}).devices
    assert (device.peak_flop_per_s, device.memory_bytes) == (125e12, 119 * GiB)
    assert gpus(read({"spark.xml": smi("NVIDIA GB10", mib="Not Supported")})) == ["GB10"]


def test_rocm_is_not_read(refused):
    text = "== ROCm System Management Interface ==\n       GPU0  GPU1\nGPU0   0     XGMI\nGPU1   XGMI  0\n"
    assert "is printed by rocm-smi or amd-smi, which are not read" in refused({"elm.txt": text})


def node(name, labels=(), what="nvidia.com/gpu", count=8, ready="True", left=None, **spec):
    status = {"capacity": {what: str(count)}, "conditions": [{"type": "Ready", "status": ready}]}
    status |= {} if left is None else {"allocatable": {what: str(left)}}
    return {"kind": "Node", "metadata": {"name": name, "labels": dict(labels)}, "spec": spec, "status": status}


H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def test_nodes_that_are_not_there_do_not_count(read, refused):
    tainted = {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]}
    nodes = [
        node("a", H100),
        node("b", H100, left=5),
        node("c", H100, ready="Unknown"),
        node("d", H100, unschedulable=True),
        node("e", H100, **tainted),
        node("f", H100, left=0),
    ]
    network = read({"nodes.json": {"kind": "List", "items": nodes}})
    assert [device.host for device in network.devices] == ["a"] * 8 + ["b"] * 5
    for said in ("c (not ready)", "d (cordoned)", "e (unreachable)", "f (its device plugin", "b (5 of 8)"):
        assert said in network.description
    assert "c (not ready)" in refused({"nodes.json": {"kind": "List", "items": nodes[2:3]}})


@pytest.mark.parametrize(
    ("labels", "gpu", "gib"),
    [
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, "A100 40GB", 40),
        ({"cloud.google.com/gke-accelerator": "nvidia-a100-80gb"}, "A100", 80),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}, "H100", 80),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4-vws"}, "L4", 24),
        ({"karpenter.k8s.aws/instance-gpu-name": "a100", "karpenter.k8s.aws/instance-gpu-memory": "81920"}, "A100", 80),
        ({"node.kubernetes.io/instance-type": "p4de.24xlarge"}, "A100", 80),
        ({"node.kubernetes.io/instance-type": "Standard_ND96asr_v4"}, "A100 40GB", 40),
        ({"node.kubernetes.io/instance-type": "Standard_NC40ads_H100_v5"}, "H100 NVL", 94),
        ({"gpu.nvidia.com/class": "A100_NVLINK_80GB", "gpu.nvidia.com/vram": "80"}, "A100", 80),
        ({"node.kubernetes.io/instance-type": "BM.GPU4.8"}, "A100 40GB", 40),
    ],
)
def test_labels_mean_what_the_cloud_sells(read, labels, gpu, gib):
    (device, *_) = read({"node.json": node("a", labels)}).devices
    assert (device.gpu, device.memory_bytes) == (gpu, gib * GiB)


def test_amds_nodes_and_one_node_alone(read):
    labels = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "191G"}
    assert gpus(read({"node.json": node("a", labels, "amd.com/gpu")})) == ["MI300X"] * 8


def test_gpus_that_pods_share_in_turns_count_once(read):
    labels = {"cloud.google.com/gke-accelerator": "nvidia-l4", "cloud.google.com/gke-max-shared-clients-per-gpu": "4"}
    assert gpus(read({"node.json": node("a", labels, count=8)})) == ["L4"] * 2


def test_an_unknown_gpu_leaves_its_node_out(read, refused):
    text = "NODELIST GRES\na gpu:h100:8\nb gpu:gtx_1080_ti:4\nc gpu:k80:2\nd gpu:a100_3g.20gb:2\n"
    network = read({"sinfo.txt": text})
    assert gpus(network) == ["H100"] * 8
    assert all(said in network.description for said in ("'gtx 1080 ti' (b)", "'k80' (c)", "d (a100_3g.20gb is a slice"))
    none = text.replace("a gpu:h100:8\n", "")
    assert "'gtx 1080 ti' and 'k80' are not in the table of GPUs" in refused({"sinfo.txt": none})


def test_states_of_slurm(read):
    states = [
        "idle",
        "drained",
        "down*",
        "idle*",
        "mix~",
        "alloc#",
        "maint$",
        "draining",
        "fail",
        "idle@",
        "drng*",
        "idle$",
    ]
    lines = [f"n{i:02} gpu:t4:1 {state}" for i, state in enumerate(states)]
    network = read({"sinfo.txt": "\n".join(["NODELIST GRES STATE", *lines])})
    assert network.names == ("n00", "n04", "n05", "n09")
    assert "powered down, and started by Slurm for a job: n04" in network.description


def test_a_bare_a100_is_noted(read):
    assert (
        "A100 with 80 GiB is assumed, it may be A100 40GB" in read({"s.txt": "NODELIST GRES\na gpu:a100:8"}).description
    )
    told = read({"s.txt": "NODELIST|GRES|ACTIVE_FEATURES\na|gpu:a100:8|ib,a100-40gb"})
    assert gpus(told) == ["A100 40GB"] * 8
    assert "is assumed" not in told.description


def task(accelerators, more=""):
    return f"num_nodes: 2\nresources:\n  accelerators: {accelerators}\n{more}"


@pytest.mark.parametrize("accelerators", ["H200:8", "{H200:8}", "{H200: 8}", "[H200:8, A100:8]"])
def test_tasks_of_skypilot(read, accelerators):
    network = read({"task.yaml": task(accelerators, "  network_tier: best\n")})
    assert gpus(network) == ["H200"] * 16
    assert rate(network) == pytest.approx(from_gbps(3600))
    assert rate(network, 0, 8) == pytest.approx(from_gbps(3200))


def test_more_tasks_of_skypilot(read, refused):
    assert gpus(read({"task.yaml": "name: all\n---\n" + task("A100:8")})) == ["A100 40GB"] * 16
    assert gpus(read({"task.yaml": "resources:\n  ordered:\n  - accelerators: L4\n  - accelerators: T4"})) == ["L4"]
    assert "leave a choice" in refused({"task.yaml": task("{H100:8, A100:8}")})
    assert "run one after the other" in refused({"task.yaml": task("H100:8") + "---\n" + task("H100:8")})


RAY = [{"node_ip": f"10.0.0.{i}", "resources_total": {"GPU": 1, "accelerator_type:T4": 1}} for i in (1, 2)]


def iperf(gbps=9.4, version="iperf 3.12", server=False, back=0.0, **test):
    here, there = ("10.0.0.2", "10.0.0.1") if server else ("10.0.0.1", "10.0.0.2")
    who = {"accepted_connection" if server else "connecting_to": {"host": there, "port": 1}}
    known = {"protocol": "TCP", "reverse": 0} | ({} if version.endswith(" 3.9") else {"target_bitrate": 0}) | test
    start = {"connected": [{"local_host": here, "remote_host": there}], "version": version, "test_start": known} | who
    end = {"sum_received": {"bits_per_second": gbps * 1e9}, "streams": []}
    end |= {"sum_received_bidir_reverse": {"bits_per_second": back * 1e9}} if back else {}
    return {"start": start, "intervals": [], "end": end}


@pytest.mark.parametrize(("server", "reverse"), [(False, 0), (True, 0), (False, 1), (True, 1)])
def test_iperf_measures_from_its_sender_to_its_receiver(read, server, reverse):
    network = read({"ray.json": RAY, "iperf.json": iperf(server=server, reverse=reverse)})
    way = "10.0.0.2 -> 10.0.0.1" if reverse else "10.0.0.1 -> 10.0.0.2"
    assert f"{way}: measured by iperf3, latency" in network.description


def test_iperf_both_ways_of_a_server_and_two_tests_in_a_file(read):
    network = read({"ray.json": RAY, "iperf.json": iperf(9.4, server=True, back=4.7)})
    assert (rate(network, 0, 1), rate(network, 1, 0)) == (pytest.approx(9.4e9 / 8), pytest.approx(4.7e9 / 8))
    two = json.dumps(iperf(9.4)) + "\n" + json.dumps(iperf(4.7, reverse=1))
    network = read({"ray.json": RAY, "iperf.json": two})
    assert (rate(network, 0, 1), rate(network, 1, 0)) == (pytest.approx(9.4e9 / 8), pytest.approx(4.7e9 / 8))


def test_a_stream_of_iperfs_events(read, refused):
    test = iperf()
    lines = [json.dumps({"event": each, "data": test[each]}) for each in ("start", "end")]
    interval = json.dumps({"event": "interval", "data": {}})
    network = read({"ray.json": RAY, "iperf.json": "\n".join([lines[0], interval, lines[1]])})
    assert rate(network) == pytest.approx(9.4e9 / 8)
    assert "has no end" in refused({"ray.json": RAY, "iperf.json": "\n".join([lines[0], interval])})


def test_rates_that_an_old_iperf_may_have_been_told(read, refused):
    limited = iperf(0.01, "iperf 3.9")
    assert "as if -b had limited it, and iperf3 3.9 does not say" in refused({"ray.json": RAY, "i.json": limited})
    udp = iperf(0.1, "iperf 3.9", protocol="UDP")
    assert "iperf3 3.9 does not record the limit" in refused({"ray.json": RAY, "i.json": udp})
    network = read({"ray.json": RAY, "i.json": iperf(9.41, "iperf 3.9")})
    assert "does not say whether -b limited the rate" in network.description


def test_estimates_say_how_far_they_may_be_off(read, tmp_path):
    network = read({"sinfo.txt": "NODELIST GRES\na gpu:h100:8\nb gpu:h100:8\n"})
    assert [str(one) for one in estimated(network)] == [
        "inside hosts 3,600 Gbit/s (252 to 3,600)",
        "between hosts 10 Gbit/s (1 to 3,200)",
    ]
    fast = at_their_ends(network, most=True)
    assert (rate(fast), rate(fast, 0, 8)) == (pytest.approx(from_gbps(3600)), pytest.approx(from_gbps(3200)))
    for name in ("x.yaml", "x.npz", "x.json"):
        again = load_topology(save_topology(network, tmp_path / name))
        assert [str(one) for one in estimated(again)] == [str(one) for one in estimated(network)]
    measured = network.with_link("a-0", "a-1", bandwidth_bytes_per_s=1e9)
    assert rate(at_their_ends(measured, most=False)) == 1e9, "no estimate any more"


LONG = 400_000


@pytest.mark.parametrize(
    "text",
    [
        "busbw\n# Rank 0" + "0 " * LONG,
        "busbw\n#  Rank  0 Pid" + " " * LONG + "on",
        "\n" * LONG,
        "GPU0" + " " * LONG,
        "a" * LONG,
        "NodeName=" + "a" * LONG,
        "NodeName=a " + "a" * LONG,
        "NodeName=a Gres=" + "gpu:" * (LONG // 4),
        "NODELIST GRES\n" + "gpu:1 " * (LONG // 6),
        "Host a\nx" + " " * LONG,
        "Host" + " " * LONG,
        "[" * LONG,
        "[1,0]" * (LONG // 5),
        '{"a":' * (LONG // 5),
        "=" * LONG,
        "----" * (LONG // 4),
    ],
    ids=lambda text: ascii(text[:18]),
)
def test_no_text_is_read_in_more_than_a_moment(refused, text):
    """Seconds of this thread, a hundred times as many as it takes: reading twice as long a text takes twice as long."""
    began_s = time.thread_time()
    refused({"a.txt": text})
    assert time.thread_time() - began_s < 30
