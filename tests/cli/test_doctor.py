"""What doctor advises, on machines that were made up; and what it tells of this one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.cli import doctor
from dtfm_lab.cli.doctor import LAB, TORCH, advice, fitting_cuda

GPU = {
    "name": "NVIDIA H100",
    "uuid": "GPU-1",
    "memory_bytes": 80 * 2**30,
    "driver": "580.65.06",
    "compute_capability": "9.0",
    "free_bytes": 60 * 2**30,
}
NO_TORCH_CUDA = {"version": "2.13.0+cpu", "cuda": None, "gpus": 0, "nccl": None}
TORCH_13 = {"version": "2.13.0", "cuda": "13.0", "gpus": 1, "nccl": "2.28.9"}
TORCH_12 = {"version": "2.13.0+cu126", "cuda": "12.6", "gpus": 1, "nccl": "2.28.9"}
CUPY_13 = {"version": "14.2.0", "cuda": "13.2", "gpus": 1, "nccl": "2.28.9", "compiles": True}
CUPY_12 = CUPY_13 | {"cuda": "12.9"}


def machine(**changes: Any) -> dict[str, Any]:
    """A GPU, and everything for it; changed as told."""
    facts: dict[str, Any] = {
        "dtfm_lab": "0.1.0",
        "python": "3.12.1",
        "system": "Linux",
        "architecture": "x86_64",
        "cores": 16,
        "memory_bytes": 64 * 2**30,
        "free_memory_bytes": 60 * 2**30,
        "packages": dict.fromkeys(LAB, "1.0"),
        "cupy_distributions": ["cupy-cuda13x"],
        "cuda_visible_devices": None,
        "gpus": [GPU],
        "no_gpu": None,
        "driver_cuda": "13.0",
        "torch": TORCH_13,
        "cupy": CUPY_13,
    }
    assert not changes.keys() - facts.keys()
    return facts | changes


def without_gpu(**changes: Any) -> dict[str, Any]:
    away = {"gpus": [], "no_gpu": "none", "driver_cuda": None, "cupy": None, "cupy_distributions": []}
    return machine(**(away | {"torch": NO_TORCH_CUDA} | changes))


def test_a_machine_where_all_fits_is_told_what_its_gpus_are_good_for():
    assert len(advice(machine())) == 1
    assert advice(machine())[0].startswith("runs_on='cuda' puts workers on the GPU.")
    two = machine(gpus=[GPU, GPU], torch=TORCH_13 | {"gpus": 2})
    assert "on 2 GPUs." in advice(two)[0]
    assert advice(without_gpu()) == []


CU126 = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126"
CU130 = CU126.replace("cu126", "cu130")
OLD_DRIVER = {"gpus": [GPU | {"driver": "550.54.15"}], "driver_cuda": "12.4"}
VOLTA = {"gpus": [GPU | {"name": "Tesla V100", "compute_capability": "7.0"}]}
CASES = {
    "no torch": (without_gpu(torch=None), "torch is not installed", "pip install 'dtfm_lab[train]'"),
    "no torch, a GPU": (machine(torch=None), "not installed", CU130.replace(" --force-reinstall", "")),
    "torch does not load": (
        without_gpu(torch={"error": "no libc"}),
        "(no libc)",
        "pip install --force-reinstall torch",
    ),
    "torch for the CPU, a GPU": (machine(torch=NO_TORCH_CUDA), "2.13.0+cpu is built without CUDA", CU130),
    "torch for the CPU, an older driver": (machine(torch=NO_TORCH_CUDA, **OLD_DRIVER), "without CUDA", CU126),
    "torch too new for the driver": (machine(**OLD_DRIVER), "driver 550.54.15 is too old (580 or newer", CU126),
    "a GPU that CUDA 13 left behind": (machine(**VOLTA), "which no longer supports Tesla V100", CU126),
    "a driver too old for all": (
        machine(gpus=[GPU | {"driver": "470.1"}], driver_cuda="11.4"),
        "driver 470.1 is too old for CUDA 12",
        "until then runs are on the CPU",
    ),
    "hidden GPUs": (
        machine(torch=TORCH_13 | {"gpus": 0}, cuda_visible_devices=""),
        "CUDA_VISIBLE_DEVICES is ''",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    "GPUs kept out of a container": (machine(torch=TORCH_13 | {"gpus": 0}), "--gpus all", "restart the machine"),
    "no CuPy": (machine(cupy=None, cupy_distributions=[]), "CuPy is not installed", "pip install 'dtfm_lab[cuda13]'"),
    "no CuPy, CUDA 12": (machine(cupy=None, torch=TORCH_12), "CuPy is not", "pip install 'dtfm_lab[cuda12]'"),
    "CuPy for another CUDA": (
        machine(cupy=CUPY_12, cupy_distributions=["cupy-cuda12x"]),
        "CuPy is built for CUDA 12.9, but it shares memory with torch for CUDA 13",
        "pip uninstall -y cupy-cuda12x && pip install 'dtfm_lab[cuda13]'",
    ),
    "CuPy twice": (
        machine(cupy_distributions=["cupy-cuda12x", "cupy-cuda13x"]),
        "installed 2 times",
        "pip uninstall -y cupy-cuda12x cupy-cuda13x && pip install 'dtfm_lab[cuda13]'",
    ),
    "CuPy does not load": (machine(cupy={"error": "no numpy"}), "does not load (no numpy)", "'dtfm_lab[cuda13]'"),
    "no NVRTC": (machine(cupy=CUPY_13 | {"compiles": False}), "NVRTC", "pip install 'cupy-cuda13x[ctk]'"),
    "parts of the lab": (
        machine(packages={**dict.fromkeys(LAB, "1.0"), "plotly": None}),
        "lacks plotly",
        "pip install 'dtfm_lab[lab]'",
    ),
    "few cores": (without_gpu(cores=2), "2 cores", "clock='real' also counts waiting"),
    "little memory": (without_gpu(free_memory_bytes=2**29), "0.5 GiB of memory are free", "fewer stages or replicas"),
    "Windows": (without_gpu(system="Windows"), "Windows", "use WSL"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said_first_with_the_command_that_mends_it(case):
    facts, why, command = CASES[case]
    line = advice(facts)[0]
    assert why in line
    assert line.endswith(command)


def test_a_torch_to_be_changed_takes_cupy_along():
    first, second, *_ = advice(machine(**OLD_DRIVER))
    assert first.endswith(CU126)
    assert second.endswith("pip uninstall -y cupy-cuda13x && pip install 'dtfm_lab[cuda12]'")
    assert len(advice(machine(torch=TORCH_12, cupy=CUPY_12, cupy_distributions=["cupy-cuda12x"], **OLD_DRIVER))) == 1


def test_cupy_needs_no_nccl_and_no_gpu_needs_no_cupy():
    assert advice(machine(gpus=[GPU, GPU], cupy=CUPY_13 | {"nccl": None})) == advice(machine(gpus=[GPU, GPU]))
    assert advice(without_gpu(cupy=CUPY_12, cupy_distributions=["cupy-cuda12x"])) == []


@given(
    driver=st.integers(300, 700),
    capability=st.sampled_from(["6.1", "7.0", "7.5", "9.0", "12.0", "[N/A]"]),
    torch=st.sampled_from([None, {"error": "x"}, NO_TORCH_CUDA, TORCH_12, TORCH_13, TORCH_13 | {"gpus": 0}]),
    cupy=st.sampled_from([None, {"error": "x"}, CUPY_12, CUPY_13, CUPY_13 | {"nccl": None, "compiles": False}]),
    told=st.booleans(),
)
@settings(max_examples=25)
def test_any_machine_gets_lines_and_no_cuda_that_it_cannot_run(driver, capability, torch, cupy, told):
    newest = "13.0" if driver >= 580 else "12.4" if driver >= 525 else "11.4"
    gpu = GPU | {"driver": f"{driver}.10", "compute_capability": capability}
    facts = machine(gpus=[gpu], driver_cuda=newest if told else None, torch=torch, cupy=cupy)
    fits = fitting_cuda(facts)
    assert fits in (None, *TORCH)
    lines = advice(facts)
    assert all("\n" not in line and line for line in lines)
    for cuda, build in TORCH.items():
        if fits is None or cuda > fits:
            assert not any(build in line or f"cuda{cuda}]" in line for line in lines)


def test_lines_for_people_name_what_is_there():
    lines = doctor.described(machine(gpus=[GPU, GPU]) | {"advice": ["do this", "do that"]})
    assert lines["gpus"] == "2 x NVIDIA H100 80 GiB; driver 580.65.06, CUDA 13.0"
    assert lines["torch"] == "2.13.0, CUDA 13.0, sees 1 GPU, NCCL 2.28.9"
    assert lines["advice 2"] == "do that"
    lines = doctor.described(without_gpu(torch={"error": "no libc"}) | {"advice": []})
    assert (lines["gpus"], lines["torch"], lines["cupy"]) == ("none: none", "does not load: no libc", "not installed")


def test_this_machine_has_the_facts_that_advice_needs(tells):
    facts = tells("doctor")
    assert facts.keys() == machine().keys() | {"advice"}
    assert facts["torch"].keys() == TORCH_13.keys()


def fake_smi(folder: Path, script: str) -> None:
    """An nvidia-smi of our own."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_driver_is_asked_for_gpus_and_its_cuda(tmp_path, monkeypatch):
    row = "NVIDIA H100, GPU-1, 81920, 580.65.06, 61440, 9.0"
    fake_smi(tmp_path, f"case $# in 0) echo '| CUDA Version: 13.0 |';; *) echo '{row}';; esac")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert doctor.driver_facts() == {"gpus": [GPU], "no_gpu": None, "driver_cuda": "13.0"}


def test_a_probe_that_dies_or_hangs_is_told(tmp_path, monkeypatch):
    fake_smi(tmp_path, "echo 'undefined symbol' >&2; kill -SEGV $$")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nvidia-smi"))
    monkeypatch.setattr(doctor, "CUPY", ["cupy-of-nobody"])
    assert doctor.probed_libraries() == {"torch": {"error": "undefined symbol"}, "cupy": None}
    fake_smi(tmp_path, "exec sleep 30")
    monkeypatch.setattr(doctor, "PROBE_S", 0.2)
    assert doctor.probed_libraries()["torch"] == {"error": "no answer within 0 s"}
