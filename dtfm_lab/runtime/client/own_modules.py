"""A torch module of one's own as a model: looked at in a process of its own, so that the kernel loads no torch."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import Layer, LayerKind, ModelSpec
from dtfm_lab.domain.network import shortened

SUFFIX = ".pickle"


def modules_folder() -> Path:
    """Readable and writable by its owner alone."""
    return Path(user_state_path("dtfm_lab")) / "modules"


PATIENCE_S = 600.0
"""Longest time to build, export and measure a module."""


def read_module(module: Any, example: Any = None, loss: Any = None, *, timed: bool = False) -> ModelSpec:
    """The model of what ``file.py:function`` makes, (module, data) or (module, data, loss); or of a module itself with
    its data and its loss, which are pickled. ``timed``: its FLOP are shared by the seconds that its blocks take here.

    Raises JobError in one line for a module that cannot be built, exported or cut.
    """
    source = _source_of(module, example, loss)
    command = [sys.executable, "-m", "dtfm_lab.runtime.worker.module_layers", source, *["timed"] * timed]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise JobError(
            f"module {source}: it was not exported within {PATIENCE_S:.0f} s; wanted a smaller one"
        ) from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"its process ended with {done.returncode}"]
        raise JobError(said[-1] if said[-1].startswith("module ") else f"module {source}: {said[-1]}")
    found = json.loads(done.stdout.splitlines()[-1])
    boundary, tied = found["boundary"], found["tied"]
    d_model = math.gcd(boundary, tied)
    layers = tuple(Layer(kind=LayerKind.BLOCK, **layer) for layer in found["layers"])
    name = source.rpartition(":")[2] if isinstance(module, str) else type(module).__name__
    return ModelSpec(
        name=name.lower(),
        layers=layers,
        d_model=d_model,
        n_heads=1,
        seq_len=boundary // d_model,
        vocab_size=max(tied // d_model, 1),
        tied=tied > 0,
        family="module",
        source=source,
    )


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
    import cloudpickle

    try:
        made = cloudpickle.dumps((module, example) if loss is None else (module, example, loss))
    except Exception as error:
        raise JobError(f"module {type(module).__name__}: it cannot be pickled: {error}") from None
    written = cloudpickle.dumps((sys.path, made))
    folder = modules_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path_of = folder / f"{type(module).__name__.lower()}-{hashlib.sha256(written).hexdigest()[:16]}{SUFFIX}"
    path_of.write_bytes(written)
    return str(path_of)
