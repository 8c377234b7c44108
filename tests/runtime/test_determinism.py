"""Only deterministic operations, strictly, and a refusal in one line; the settings are torch's, so a CPU shows them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dtfm_lab.domain.errors import RunError
from dtfm_lab.runtime.gpu.cuda_processor import VARIABLE, CudaProcessor, deterministic_or_refused, make_deterministic

STRICT = [":4096:8", True, False, False, False, False, True, True, True]


def of_a_worker(work: Callable[[], object], **environment: str) -> list[Any]:
    """What a process that has no GPU for its streams has set when CUDA would start, and how its work ended."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:  # the settings are those of a process
        try:
            os.environ.pop(VARIABLE, None)
            os.environ.update(environment)
            os.write(writing, json.dumps(_settings_of_a_worker(work)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as said:
        found: list[Any] = json.loads(said.read())
    os.waitpid(pid, 0)
    return found


def _settings_of_a_worker(work: Callable[[], object]) -> list[Any]:
    begun: list[str | None] = []
    torch.cuda.set_device = lambda device: begun.append(os.environ.get(VARIABLE))  # the first call of CUDA
    with contextlib.suppress(Exception):
        CudaProcessor(0, shares=False)
    said = ""
    try:
        with deterministic_or_refused():
            work()
    except RunError as refusal:
        said = str(refusal)
    backends = torch.backends.cuda
    return [
        *begun,
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.cudnn.benchmark,
        backends.cudnn_sdp_enabled(),
        backends.flash_sdp_enabled(),
        backends.mem_efficient_sdp_enabled(),
        backends.math_sdp_enabled(),
        said,
    ]


def test_a_gpus_worker_is_strict_before_cuda_starts_and_refuses_in_one_line_what_has_no_deterministic_form():
    x = torch.zeros(4)
    assert of_a_worker(lambda: x.add_(1)) == [*STRICT, ""]
    *set_to, said = of_a_worker(lambda: x.put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0])), **{VARIABLE: ":16:8"})
    assert set_to == [":16:8", *STRICT[1:]]
    assert said.startswith("put_ has no deterministic form on this processor")  # strict on a CPU, too
    assert said.endswith("wanted runs_on='cpu', or a model without it")


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
