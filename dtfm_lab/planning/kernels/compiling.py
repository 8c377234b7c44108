"""One way to compile a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Machine code, kept on disk, run without the interpreter's lock; sums stay in the order written."""
    return cast(Function, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
