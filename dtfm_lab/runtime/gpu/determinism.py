"""Sums in a fixed order on a GPU: an iteration repeated after a loss must give the same bits.

Of scaled_dot_product_attention's backwards, flash attention's and memory-efficient attention's take their deterministic
form only where ``warn_only`` is False, and cuDNN's has none and is not chosen then (torch 2.13:
``aten/src/ATen/native/transformers/cuda/attention_backward.cu`` and ``sdp_utils.cpp``, ``check_cudnn_deterministic``).
cuBLAS reads its workspaces' sizes once, when CUDA starts (cuBLAS, "Results reproducibility").
"""

import contextlib
import os
import re
from collections.abc import Iterator

import torch

from dtfm_lab.domain.errors import RunError

VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""The settings with which cuBLAS always sums in the same order."""
NO_FORM = re.compile(r"(\S+) does not have a deterministic implementation")


def make_deterministic() -> None:
    """Let torch take deterministic operations only, in this process. Raises RunError where that comes too late.

    Must run before CUDA is initialised.
    """
    found = os.environ.get(VARIABLE)
    if found is not None and found not in WORKSPACES:
        raise RunError(f"{VARIABLE} is {found!r}; wanted it unset, or {' or '.join(WORKSPACES)}")
    if found is None and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        raise RunError(f"{VARIABLE} is not set, and CUDA has been initialised; wanted it set before that")
    os.environ[VARIABLE] = found or WORKSPACES[0]
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set through a property
    torch.backends.cudnn.benchmark = False  # or cuDNN may choose another kernel in each process
    torch.backends.cuda.enable_cudnn_sdp(False)


@contextlib.contextmanager
def deterministic_or_refused() -> Iterator[None]:
    """Raise RunError, in one line, in place of torch's error about an operation that has no deterministic form."""
    try:
        yield
    except RuntimeError as error:
        if (named := NO_FORM.search(str(error))) is None:
            raise
        raise RunError(
            f"{named[1]} has no deterministic form on this processor, so an iteration repeated after a loss could give "
            "other bits; wanted runs_on='cpu', or a model without it"
        ) from None
