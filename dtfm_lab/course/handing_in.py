"""Answers as data that another process can read: numbers, lists, and the nouns in the formats of their files.

What has no such format, as a function of the reader's own, is pickled with its code. To unpack that is to run it.
"""

from __future__ import annotations

import base64
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files import (
    load_plan,
    load_topology,
    load_trace,
    save_plan,
    save_topology,
    save_trace,
)
from dtfm_lab.files.schedules import load_schedule, save_schedule

Packed = dict[str, Any]
CODE = "code"

NOUNS: dict[type, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    Plan: ("plan.json", save_plan, load_plan),
    Trace: ("trace.json", save_trace, load_trace),
    Topology: ("topology.yaml", save_topology, load_topology),
    Schedule: ("schedule.csv", save_schedule, load_schedule),
}
"""File, writer and reader of each noun."""


def pack(answer: object) -> Packed:
    """The answer as JSON would hold it. Raises FileError where it can be neither written nor pickled."""
    if isinstance(answer, np.generic):
        answer = answer.item()
    if answer is None or isinstance(answer, bool | int | float | str):
        return {"is": "value", "value": answer}
    if isinstance(answer, list | tuple):
        return {"is": type(answer).__name__, "items": [pack(each) for each in answer]}
    for noun, (name, save, _) in NOUNS.items():
        if isinstance(answer, noun):
            with tempfile.TemporaryDirectory() as folder:
                return {"is": name, "bytes": _text(Path(save(answer, Path(folder) / name)).read_bytes())}
    try:
        return {"is": CODE, "bytes": _text(cloudpickle.dumps(answer))}
    except (TypeError, pickle.PicklingError, RecursionError) as error:
        raise FileError(f"the answer, {type(answer).__name__}, cannot be handed in: {error}") from None


def unpack(packed: Packed) -> object:
    """The answer again. Runs the reader's code where ``has_code`` says so; raises FileError."""
    kind = packed["is"]
    if kind == "value":
        return packed["value"]
    if kind in ("list", "tuple"):
        items = [unpack(each) for each in packed["items"]]
        return items if kind == "list" else tuple(items)
    content = base64.b64decode(packed["bytes"])
    if kind == CODE:
        return pickle.loads(content)
    for name, _, load in NOUNS.values():
        if kind == name:
            with tempfile.TemporaryDirectory() as folder:
                (path := Path(folder) / name).write_bytes(content)
                return load(path)
    raise FileError(f"an answer is of kind {kind!r}; wanted one of {[name for name, *_ in NOUNS.values()]}")


def has_code(packed: Packed) -> bool:
    """Whether to unpack the answer is to run code of the reader's."""
    return packed["is"] == CODE or any(has_code(each) for each in packed.get("items", ()))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
