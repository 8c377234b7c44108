"""The table of devices: consistent with itself, and the same half-precision peaks as before it had rows by dtype."""

import numpy as np
import pytest

from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.network import HARDWARE, Device, Topology, hardware_fields, known_gpu
from dtfm_lab.domain.network.device import typical_price

GPUS = sorted(gpu for gpu in HARDWARE if not gpu.startswith(("laptop", "Raspberry", "Apple")))


def test_the_peaks_and_memories_that_plans_rest_on_stay():
    stay = {"V100": (125, 16), "A100": (312, 80), "H100": (989, 80), "T4": (65, 16), "RTX 4090": (165, 24)}
    for gpu, (tflops, gib) in (stay | {"laptop": (0.05, 16), "Raspberry Pi": (0.012, 8)}).items():
        assert (HARDWARE[gpu].peak_flop_per_s, HARDWARE[gpu].memory_bytes) == (tflops * 10**12, gib * 2**30)
    assert Device(name="a").peak_flop_per_s == 125e12


@pytest.mark.parametrize("gpu", GPUS)
def test_a_gpu_is_no_slower_in_a_shorter_dtype(gpu):
    peak = HARDWARE[gpu].peak
    ordered = [peak[dtype] for dtype in ("fp32", "tf32", "fp16", "int8") if dtype in peak]
    assert ordered == sorted(ordered)
    assert peak.get("bf16", peak["fp16"]) == peak["fp16"]
    assert HARDWARE[gpu].peak_flop_per_s == peak["fp16"]


@pytest.mark.parametrize("gpu", GPUS)
def test_tensor_cores_double_with_each_halving_of_the_dtype(gpu):
    """Dense figures do; a figure with sparsity among them would be twice too large."""
    peak = HARDWARE[gpu].peak
    if "tf32" in peak:
        assert peak["fp16"] == pytest.approx(2 * peak["tf32"], rel=0.02)
    if "int8" in peak:
        assert peak["int8"] / peak["fp16"] == pytest.approx(2, rel=0.03) or gpu.startswith("RTX")


def test_every_row_says_where_it_comes_from_and_every_price_too():
    for gpu, hardware in HARDWARE.items():
        assert hardware.source, gpu
        assert bool(hardware.price_per_hour) == bool(hardware.price_source), gpu


def test_a_dtype_that_a_gpu_has_no_units_for_is_refused():
    assert HARDWARE["H200"].peak_of("bf16") == 989e12
    with pytest.raises(UnknownName, match="no dtype of this device named 'bf16'; did you mean 'fp16'"):
        HARDWARE["V100"].peak_of("bf16")


@pytest.mark.parametrize("gpu", sorted(HARDWARE))
def test_a_device_has_the_numbers_of_the_gpu_it_names(gpu):
    device = Device(name="a", gpu=gpu)
    assert (device.peak_flop_per_s, device.memory_bytes) == (HARDWARE[gpu].peak_flop_per_s, HARDWARE[gpu].memory_bytes)
    own = Device(name="a", gpu=gpu, memory_bytes=7.0)
    assert (own.peak_flop_per_s, own.memory_bytes) == (HARDWARE[gpu].peak_flop_per_s, 7.0)


@pytest.mark.parametrize(
    ("typed", "gpu"),
    [
        *(
            ("a100", "A100"),
            ("RTX4090", "RTX 4090"),
            ("rtx-4090", "RTX 4090"),
            ("NVIDIA T4", "T4"),
            ("LAPTOP", "laptop"),
        ),
        *(("M4 Max", "Apple M4 Max"), ("AMD Instinct MI300X", "MI300X"), ("geforce rtx 2060 super", "RTX 2060 Super")),
    ],
)
def test_a_gpu_in_another_spelling_is_the_one_of_the_table(typed, gpu):
    assert Device(name="a", gpu=typed) == Device(name="a", gpu=gpu)


def test_a_gpu_with_its_own_memory_in_its_name_is_the_plain_one_and_keeps_its_name():
    device = Device(name="a", gpu="v100-16gb")
    assert device == Device(name="a", gpu="V100 16GB")
    assert hardware_fields(device.gpu) == hardware_fields("V100")
    assert Device(name="a", gpu="V100 32GB").memory_bytes == 2 * device.memory_bytes


def test_another_gpu_brings_its_own_numbers_and_leaves_the_rest():
    device = Device(name="a", region="x", price_per_hour=2.0).with_gpu("h100")
    assert device == Device(name="a", region="x", gpu="H100", price_per_hour=2.0)
    assert device.with_gpu("mine", peak_flop_per_s=1.0, memory_bytes=2.0).memory_bytes == 2
    with pytest.raises(UnknownName, match="no GPU named 'mine'"):
        device.with_gpu("mine")


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        ("A1000", "device a: no GPU named 'A1000'; did you mean 'A100' or 'A10'"),
        ("rtx 1080", "no GPU named 'rtx 1080'; did you mean 'RTX 5080'"),
        ("4090", "did you mean 'RTX 4090'"),
        ("abacus", "known: A10, A100, .*; a GPU that is not in the table needs peak_flop_per_s and memory_bytes"),
        ("", "no GPU named ''"),
    ],
)
def test_an_unknown_gpu_is_refused_with_the_nearest_known_ones(gpu, says):
    with pytest.raises(UnknownName, match=says) as refused:
        Device(name="a", gpu=gpu)
    assert len(str(refused.value)) < 300
    with pytest.raises(UnknownName, match="no GPU named"):
        Device(name="a", gpu=gpu, peak_flop_per_s=1e12)


def test_typical_prices_are_those_of_the_table_where_a_device_has_none():
    network = Topology.from_matrices(
        np.ones((3, 3)), np.ones((3, 3)), gpu=["A100", "T4", "laptop"], price_per_hour=[5.0, 0.0, 0.0]
    )
    priced = network.with_typical_prices()
    assert [device.price_per_hour for device in priced.devices] == [5.0, HARDWARE["T4"].price_per_hour, 0.0]
    assert [device.price_per_hour for device in network.devices] == [5.0, 0.0, 0.0]
    # Other names of a GPU have its price.
    assert typical_price("H100 SXM") == typical_price("nvidia h100 80gb") == HARDWARE["H100"].price_per_hour > 0


DRIVER_NAMES = {
    "NVIDIA A100-SXM4-40GB": "A100 40GB",
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA A100 80GB PCIe": "A100",
    "Tesla P100-PCIE-16GB": "P100 PCIe",
    "Tesla V100-SXM2-32GB": "V100 32GB",
    "Tesla T4": "T4",
    "NVIDIA A10G": "A10G",
    "NVIDIA L40S": "L40S",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H200": "H200",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA RTX A6000": "RTX A6000",
    "Quadro RTX 6000": "Quadro RTX 6000",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA GeForce RTX 3060": "RTX 3060",
    "NVIDIA GeForce RTX 3060 Ti": "RTX 3060 Ti",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "RTX 4090 Laptop",
    "AMD Instinct MI300X OAM": "MI300X",
    "NVIDIA GeForce RTX 4090 D": None,
    "NVIDIA GeForce RTX 3060 Laptop GPU": None,
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": None,
}


@pytest.mark.parametrize("name", DRIVER_NAMES)
def test_gpus_are_known_by_what_their_driver_calls_them(name):
    assert known_gpu(name) == DRIVER_NAMES[name]
