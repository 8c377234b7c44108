"""The table of devices: consistent with itself, and the same half-precision peaks as before it had rows by dtype."""

import pytest

from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.network import HARDWARE, Device, hardware_fields

GPUS = sorted(set(HARDWARE) - {"laptop", "Raspberry Pi"})


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


def test_a_gpu_that_the_table_does_not_know_brings_no_numbers():
    assert hardware_fields("abacus") == hardware_fields(None) == hardware_fields(["T4"]) == {}
