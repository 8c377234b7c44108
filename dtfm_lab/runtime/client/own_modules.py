"""Your own torch module as a model. It is examined in a separate process, so that the kernel never loads torch."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from platformdirs import user_state_path
from pydantic import Field

from dtfm_lab.domain.errors import FileError, JobError
from dtfm_lab.domain.job import Layer, LayerKind, ModelSpec
from dtfm_lab.domain.network import shortened
from dtfm_lab.files.reading import Section, located, parse, read_mapping

SUFFIX = ".pickle"


def modules_folder() -> Path:
    """Return the folder for torch modules given as objects. Only its owner can read and write it."""
    return Path(user_state_path("dtfm_lab")) / "modules"


PATIENCE_S = 600.0
"""Maximum time to build, export and measure a module."""
MOST_SAID = 2**16
"""Number of bytes at the end of a process's standard error that are searched for its last line."""


class LayerFound(Section):
    """A block of a module, as reported by the process that examined it."""

    parameters: int
    forward_flop: float
    held_elements: int
    output_elements: int


class ModuleFound(Section):
    """A module, as reported by the process that examined it."""

    boundary: int = Field(ge=1)
    tied: int = Field(ge=0)
    layers: list[LayerFound] = Field(min_length=1)


def read_module(module: Any, example: Any = None, loss: Any = None, *, timed: bool = False) -> ModelSpec:
    """Return the model of your own module.

    ``module`` is ``file.py:function``, which returns (module, data) or (module, data, loss). Or it is a module itself
    with its data and its loss, which are pickled. With ``timed``, FLOP are divided among its blocks in proportion to
    their time on this machine.

    Raises JobError in one line if the module cannot be built, exported or cut, or if its code ends its process.
    """
    source = _source_of(module, example, loss)
    with located(f"module {source}"):
        try:
            answer = parse(ModuleFound, _described(source, timed=timed), "what its process says of it")
        except FileError as error:  # the module's code has written the answer
            raise JobError(str(error)) from None
        layers = tuple(Layer(kind=LayerKind.BLOCK, **layer.model_dump()) for layer in answer.layers)
    d_model = math.gcd(answer.boundary, answer.tied)
    name = source.rpartition(":")[2] if isinstance(module, str) else type(module).__name__
    return ModelSpec(
        name=name.lower(),
        layers=layers,
        d_model=d_model,
        n_heads=1,
        seq_len=answer.boundary // d_model,
        vocab_size=max(answer.tied // d_model, 1),
        tied=answer.tied > 0,
        family="module",
        source=source,
    )


def _described(source: str, *, timed: bool) -> Any:
    """Return what a separate process reports about a module.

    The process writes its answer to a file, because the module's code may print. That code may also leave processes
    behind, which would keep a pipe open. So only the process itself is waited for, and all that it started is ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer, said = Path(folder) / "answer", Path(folder) / "said"
        command = [sys.executable, "-m", "dtfm_lab.runtime.worker.module_layers", source, str(answer)]
        with said.open("wb") as errors:
            process = subprocess.Popen(
                [*command, *["timed"] * timed],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        try:
            status = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise JobError(f"it was not exported within {PATIENCE_S:.0f} s; wanted a smaller one") from None
        finally:
            # The module may have started processes.
            _end_group(process)
        if not answer.is_file():
            raise JobError(f"{_end_of(status, said)}; wanted code that returns (module, data) or (module, data, loss)")
        found = read_mapping(answer.rename(answer.with_suffix(".json")))
    if (refusal := found.get("refused")) is not None:
        raise JobError(str(refusal))
    return found


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and everything that it left running in its process group."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _end_of(status: int, said: Path) -> str:
    """Say how a process ended without an answer, and the last line of its standard error."""
    how = f"status {status}"
    if status < 0:
        how = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    with said.open("rb") as file:
        # Only the end: the code may have printed anything.
        file.seek(max(said.stat().st_size - MOST_SAID, 0))
        lines = file.read().decode(errors="replace").strip().splitlines()
    last = f": {shortened(lines[-1].strip())}" if lines else ""
    return f"its code ended the process in which it was looked at, with {how}{last}"


def _source_of(module: Any, example: Any, loss: Any) -> str:
    if isinstance(module, str):
        path, _, function = module.rpartition(":")
        if example is not None or loss is not None:
            raise JobError(f"module {module}: its data come from its function; wanted no example and no loss beside it")
        if not path or not function:
            raise JobError(f"module is {shortened(module)}; wanted file.py:function, or a torch module and an example")
        if not Path(path).is_file():
            raise JobError(f"module {module}: no file {path}; wanted file.py:function")
        return f"{Path(path).resolve()}:{function}"
    if example is None:
        raise JobError(f"module {type(module).__name__}: example is None; wanted a batch or a dataset")
    # Only for modules given as objects, so it is loaded here.
    import cloudpickle

    try:
        made = cloudpickle.dumps((module, example) if loss is None else (module, example, loss))
    except Exception as error:
        raise JobError(f"module {type(module).__name__}: it cannot be pickled: {error}") from None
    # With the import path, by which another process finds the module's own code.
    written = cloudpickle.dumps((sys.path, made))
    folder = modules_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # By its content, so that the same module has one file.
    path_of = folder / f"{type(module).__name__.lower()}-{hashlib.sha256(written).hexdigest()[:16]}{SUFFIX}"
    path_of.write_bytes(written)
    return str(path_of)
