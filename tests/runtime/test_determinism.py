"""Only deterministic operations, strictly, and a refusal in one line; the settings are torch's, so a CPU shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from dtfm_lab.domain.errors import RunError
from dtfm_lab.runtime.gpu.cuda_processor import VARIABLE, CudaProcessor, deterministic_or_refused, make_deterministic

PROGRAM = """
import json, os, torch
from dtfm_lab.runtime.gpu import cuda_processor
begun = []
torch.cuda.set_device = lambda device: begun.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG"))  # the first call of CUDA
try:
    cuda_processor.CudaProcessor(0, shares=False)
except Exception:
    pass  # there is no GPU for its streams
x = torch.zeros(4)
with cuda_processor.deterministic_or_refused() as _:
    {do}
print(json.dumps([
    begun, torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
    torch.utils.deterministic.fill_uninitialized_memory, torch.backends.cudnn.benchmark,
    torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled(),
    torch.backends.cuda.mem_efficient_sdp_enabled(), torch.backends.cuda.math_sdp_enabled(),
]))
"""


def run(do: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-c", PROGRAM.replace("{do}", do)]
    return subprocess.run(command, capture_output=True, text=True, env=inherited | environment)


def test_a_gpus_worker_is_strict_before_cuda_starts():
    done = run("x.add_(1)")
    assert json.loads(done.stdout) == [[":4096:8"], True, False, False, False, False, True, True, True], done.stderr
    assert json.loads(run("x.add_(1)", **{VARIABLE: ":16:8"}).stdout)[0] == [":16:8"]


def test_an_operation_without_a_deterministic_form_is_refused_in_one_line():
    done = run("x.put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))")  # strict on a CPU, too
    last = done.stderr.strip().splitlines()[-1]
    assert "RunError: put_ has no deterministic form on this processor" in last
    assert "wanted runs_on='cpu', or a model without it" in last


def test_other_errors_are_left_alone():
    with pytest.raises(RuntimeError, match="invalid for input of size"), deterministic_or_refused():
        torch.zeros(3).view(2)


def test_a_setting_under_which_cublas_may_sum_in_another_order_is_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, ":0:0")
    with pytest.raises(RunError, match=r"CUBLAS_WORKSPACE_CONFIG is ':0:0'; wanted it unset, or :4096:8 or :16:8"):
        CudaProcessor(0, shares=False)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(RunError, match="is not set, and CUDA has been initialised; wanted it set before that"):
        make_deterministic()
    assert not torch.are_deterministic_algorithms_enabled()
