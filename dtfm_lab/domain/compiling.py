"""Compile kernels with numba, and cache the machine code on disk."""

import hashlib
import inspect
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

_config_lock = threading.Lock()
"""Guards numba's global configuration while several threads import kernels."""


def compiled(function: Function) -> Function:
    """Compile a function to machine code, cached on disk.

    The code runs without the GIL. Floating-point sums keep their order.
    """
    return _compiled(function, inline="never")


def inlined(function: Function) -> Function:
    """Compile a function that is inlined into each kernel that calls it.

    Use it for short functions. A normal call updates the reference count of every array argument, which can take longer
    than the function itself. In return, the function is compiled again with each of its callers.
    """
    return _compiled(function, inline="always")


def _compiled(function: Function, inline: Literal["never", "always"]) -> Function:
    config: Any = numba.config
    with _config_lock:
        previous, config.CACHE_DIR = config.CACHE_DIR, _cache(_folder(function), _from_elsewhere(function))
        try:
            return cast(Function, numba.njit(cache=True, nogil=True, error_model="numpy", inline=inline)(function))
        finally:
            config.CACHE_DIR = previous


def _folder(function: Callable[..., Any]) -> Path:
    return Path(function.__code__.co_filename).parent


@lru_cache(maxsize=1024)
def _from_elsewhere(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the source of each compiled function in another folder that this function calls, with the constants that
    it uses.

    This includes indirect calls, through other compiled functions.
    """
    found: set[str] = set()
    for name in function.__code__.co_names:
        called = getattr(function.__globals__.get(name), "py_func", None)
        if called is None:
            continue
        found.update(_from_elsewhere(called))
        # Numba's cache only watches the function's own file, so functions from elsewhere go into the folder's name.
        if _folder(called) != _folder(function):
            named = {one: called.__globals__.get(one) for one in called.__code__.co_names}
            # Constants are compiled in, so a new value needs a new kernel.
            constants = {one: value for one, value in named.items() if isinstance(value, int | float | str)}
            found.add(f"{inspect.getsource(called)}{constants}")
    return tuple(sorted(found))


@lru_cache(maxsize=64)
def _cache(folder: Path, from_elsewhere: tuple[str, ...]) -> str:
    """Return the cache folder for the current sources of the kernels in ``folder`` and of what they call elsewhere.

    numba's own cache watches only the file of a kernel. A kernel would keep the old code of a function that it calls
    from another file.
    """
    digest = hashlib.sha256("".join(from_elsewhere).encode())
    for source in sorted(folder.glob("*.py")):
        digest.update(source.read_bytes())
    name = digest.hexdigest()[:12]
    # An installed package may lie in a folder that its user cannot write.
    if os.access(folder, os.W_OK):
        return str(folder / "__pycache__" / f"kernels-{name}")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return str(home / "dtfm_lab" / f"kernels-{name}")
