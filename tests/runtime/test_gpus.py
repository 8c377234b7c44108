"""Whether a run can be on GPUs, asked of drivers that were made up; and what torch is built for, without torch."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from run_helpers import even_plan, spec_of

from dtfm_lab.domain.errors import JobError, LabError
from dtfm_lab.domain.units import GiB
from dtfm_lab.runtime.client import gpu_inventory
from dtfm_lab.runtime.client.gpu_inventory import (
    CONTEXT_BYTES,
    AttachedGpu,
    NoGpu,
    check_runs_on,
    driver_gpus,
    parse_query,
    visible,
    why_too_large_for_gpus,
)
from dtfm_lab.runtime.client.launch import prepare
from dtfm_lab.runtime.gpu import gpu_probe
from dtfm_lab.runtime.protocol.run_options import RunOptions, RunSpec
from dtfm_lab.simulation.memory import least_peak_bytes

THREE = [AttachedGpu(f"H{i}", f"GPU-{i}abc", 80 * 2**30, "580.1", "9.0", 60 * 2**30) for i in range(3)]
ROWS = "\n".join(f"H{i}, GPU-{i}abc, 81920, 580.1, 61440, 9.0" for i in range(3))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put an nvidia-smi of our own, that runs this shell script, where the driver's would be."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu_inventory, "cuda_of_torch", lambda: ("2.13.0", "13.0"))

    def put(script: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return put


def test_a_driver_lists_its_gpus(driver):
    driver(f"echo '{ROWS}'")
    assert driver_gpus() == THREE
    assert parse_query("GB10, GPU-9, [N/A], 580.1, [N/A], 12.1\n") == [
        AttachedGpu("GB10", "GPU-9", None, "580.1", "12.1")
    ]


def test_an_old_driver_that_refuses_the_capability_is_asked_without(driver):
    refusal = 'Field "compute_cap" is not a valid field to query.'
    driver(f"case $* in *compute_cap*) echo '{refusal}'; exit 2;; esac; echo 'K80, GPU-1, 11441, 440.3, 11000'")
    assert driver_gpus() == [AttachedGpu("K80", "GPU-1", 11441 * 2**20, "440.3", "", 11000 * 2**20)]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'NVIDIA-SMI has failed'; exit 9", "nvidia-smi found none and said: NVIDIA-SMI has failed"),
        ("echo 'No devices were found'", "nvidia-smi found none and said: No devices were found"),
        ("exit 3", "nvidia-smi found none and said: nothing"),
        ("exec sleep 30", "nvidia-smi did not answer within 0 s"),
    ],
)
def test_a_driver_without_gpus_says_why(driver, monkeypatch, script, why):
    monkeypatch.setattr(gpu_inventory, "PATIENCE_S", 0.3 if "sleep" in script else 20.0)
    driver(script)
    with pytest.raises(NoGpu, match=why):
        driver_gpus()


@pytest.mark.parametrize(
    ("variable", "left"),
    [(None, [0, 1, 2]), ("", []), ("-1", []), ("2,0", [2, 0]), ("1, 7, 0", [1]), ("GPU-2ab", [2]), ("GPU-9,0", [])],
)
def test_hidden_gpus_do_not_count(variable, left):
    assert visible(THREE, variable) == [THREE[i] for i in left]


def test_a_cpu_is_always_there_and_a_gpu_where_the_driver_shows_one(driver):
    check_runs_on("cpu", 64, "real")
    driver(f"echo '{ROWS}'")
    for n_workers, clock in ((1, "real"), (3, "real"), (32, "virtual"), (32, "paced")):
        check_runs_on("cuda", n_workers, clock)


def test_what_cannot_be_on_a_gpu_is_refused_in_one_line(driver, monkeypatch):
    def refused(n_workers: int = 4, clock: str = "virtual") -> str:
        with pytest.raises(LabError) as error:
            check_runs_on("cuda", n_workers, clock)
        return str(error.value)

    assert "nvidia-smi, which comes with NVIDIA's driver, is not there" in refused()
    driver(f"echo '{ROWS}'")
    assert "needs a GPU for each of 4 workers, 3 are here; wanted clock='virtual' or 'paced'" in refused(4, "real")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert "each of 2 workers, 1 is here" in refused(2, "real")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert "CUDA_VISIBLE_DEVICES='-1' hides every GPU" in refused()
    monkeypatch.setattr(gpu_inventory, "cuda_of_torch", lambda: ("2.13.0+cpu", None))
    assert "torch 2.13.0+cpu is built without CUDA" in refused()


def test_what_torch_is_built_for_is_read_without_it():
    import torch

    assert gpu_inventory.cuda_of_torch() == (torch.__version__, torch.version.cuda)


def test_a_probe_tells_this_machines_torch(capsys):
    gpu_probe.main()
    assert f'"version": "{sys.modules["torch"].__version__}"' in capsys.readouterr().out


def test_versions_are_read_from_their_codes():
    assert [gpu_probe.from_code(code) for code in (12090, 13020)] == ["12.9", "13.2"]
    assert [gpu_probe.nccl_from_code(code) for code in (22707, 23203)] == ["2.27.7", "2.32.3"]


def on_gpus(n_workers: int, clock: str = "virtual", model: object = "gpt2-small") -> RunSpec:
    plan = even_plan(n_workers, 1, dtype="fp32", model=model, global_batch=8, microbatch=1)
    return spec_of(plan, "gpipe", clock=clock, runs_on="cuda")


def with_free(*gibibytes: float | None, total: float | None = 80) -> list[AttachedGpu]:
    """GPUs of which so much is free."""
    size = None if total is None else int(total * GiB)
    each = [None if free is None else int(free * GiB) for free in gibibytes]
    return [AttachedGpu(f"H{i}", f"GPU-{i}", size, "580.1", "9.0", free) for i, free in enumerate(each)]


def test_workers_have_to_fit_in_the_gpus_that_they_share():
    spec = on_gpus(4)
    peaks = least_peak_bytes(spec.trained, spec.programs(synchronise=True))[:, 0]
    needed = [sum(int(peaks[i]) + CONTEXT_BYTES for i in of) / GiB for of in ((0, 1, 2, 3), (0, 2), (1, 3))]
    assert why_too_large_for_gpus(spec, with_free(needed[0] * 1.1)) == ""
    assert why_too_large_for_gpus(spec, with_free(*(n * 1.1 for n in needed[1:]))) == ""
    found = why_too_large_for_gpus(spec, with_free(needed[0] / 2))
    assert re.fullmatch(
        rf"4 workers need some {needed[0]:.1f} GiB on GPU 0, H0, where {needed[0] / 2:.1f} are free; "
        "wanted a smaller model, stand_in='stand-in', fewer workers, or runs_on='cpu'",
        found,
    )
    assert "2 workers need" in (found := why_too_large_for_gpus(spec, with_free(80, 0.9)))
    assert "on GPU 1, H1, where 0.9 are free" in found
    assert why_too_large_for_gpus(on_gpus(2, "real"), with_free(80, 0.3)).startswith("a worker needs some")


def test_memory_that_a_driver_does_not_tell_is_the_whole_gpus_or_not_checked():
    assert "where 0.5 are free" in why_too_large_for_gpus(on_gpus(4), with_free(None, total=0.5))
    assert why_too_large_for_gpus(on_gpus(4), with_free(None, total=None)) == ""


def test_a_run_that_does_not_fit_on_its_gpu_is_refused_in_one_line(driver):
    driver("echo 'H0, GPU-0, 81920, 580.1, 700, 9.0'")
    with pytest.raises(JobError, match=r"4 workers need some .* GiB on GPU 0, H0, where 0\.7 are free"):
        prepare(even_plan(), None, RunOptions(runs_on="cuda"))
    driver("echo 'H0, GPU-0, 81920, 580.1, 70000, 9.0'")
    assert prepare(even_plan(), None, RunOptions(runs_on="cuda")).runs_on == "cuda"
