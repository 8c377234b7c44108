"""Turns answers into data and back: numbers, texts, collections, plans and other objects of the lab, and functions.

Nothing is pickled. ``unpack`` parses JSON and files of the lab, and makes only values of the types listed here, so it
runs no code of the answer's author. A function stays in the process that made it. It is handed in as a number, and
``unpack`` returns a function that calls it in that process.
"""

from __future__ import annotations

import base64
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.extensions.elasticity.api import ReconfigurationCosts, TableFleet
from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.policy import PolicyEvent, Response, Situation, WorkKept
from dtfm_lab.extensions.systems.api import Budget, Outcome, Strategy, strategies
from dtfm_lab.files import (
    load_job,
    load_plan,
    load_schedule,
    load_topology,
    load_trace,
    save_job,
    save_plan,
    save_schedule,
    save_topology,
    save_trace,
)

Packed = dict[str, Any]
Ask = Callable[[int, tuple[Any, ...]], object]
"""Calls a function, identified by its number, with arguments, and returns its result."""

NOUNS: dict[type, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    Plan: ("plan.json", save_plan, load_plan),
    Trace: ("trace.json", save_trace, load_trace),
    Topology: ("topology.yaml", save_topology, load_topology),
    Schedule: ("schedule.csv", save_schedule, load_schedule),
    Job: ("job.yaml", save_job, load_job),
}
"""File name, writer and reader for each of the lab's types that are handed in as a file."""
COLLECTIONS: dict[str, type] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
HELD: dict[Any, str] = {deque: "list"} | {kind: name for name, kind in COLLECTIONS.items()}
"""Name under which each kind of collection is handed in."""
RECORDS: dict[str, type] = {
    each.__name__: each for each in (Situation, Response, Operation, ReconfigurationCosts, TableFleet, Outcome, Budget)
}
CHOICES: dict[str, type[Enum]] = {each.__name__: each for each in (WorkKept, PolicyEvent)}
STRATEGY = "strategy"
FUNCTION = "function"
MOST_BITS = 10_000
"""Maximum bits of a whole number. Python refuses to write integers of more than 4,300 digits, some 14,000 bits."""
MOST_ITEMS = 1_000_000
"""Maximum number of items in a collection other than an array. Each takes some 30 bytes as JSON."""
REAL = "biuf"
"""Kinds of numpy dtypes that an array may have: booleans, whole numbers and floats."""
WANTED = "wanted numbers, names, lists of them, a Plan, a Trace, a Topology, a Schedule, an Outcome or a function"


def pack(answer: Any, functions: list[FunctionType] | None = None) -> Packed:
    """Return the answer in a form that JSON can hold. Functions in it are appended to ``functions``.

    A number, text, collection or object of ``NOUNS`` may be of a subclass and is packed as one of its base class.
    Raises FileError for anything that is not data, and for a function if ``functions`` is omitted.
    """
    if (plain := _plain(answer)) is not None:
        return plain
    kind = type(answer)  # not what its __class__ says
    if issubclass(kind, dict):
        # The class's own methods, because a subclass may override them with anything.
        return {"is": "dict", "items": [[pack(key), pack(value, functions)] for key, value in dict.items(answer)]}
    for base, name in HELD.items():
        if issubclass(kind, base):  # its own way to iterate may have no end
            # A list that claims to be endless would fill the memory of the process that marks.
            if (length := base.__len__(answer)) > MOST_ITEMS:
                raise FileError(f"found a {name} of {length:,} things; wanted at most {MOST_ITEMS:,}")
            return {"is": name, "items": [pack(each, functions) for each in base.__iter__(answer)]}
    if issubclass(kind, np.ndarray) and answer.dtype.kind in REAL:
        return {
            "is": "array",
            "type": "b" if answer.dtype.kind == "b" else "",
            "shape": list(answer.shape),
            "items": answer.astype(float if answer.dtype.kind == "f" else answer.dtype).ravel().tolist(),
        }
    for noun, (name, save, _) in NOUNS.items():
        if issubclass(kind, noun):
            with tempfile.TemporaryDirectory() as folder:
                # Through the lab's own files, whose readers check everything.
                content = Path(save(answer, Path(folder) / name)).read_bytes()
                return {"is": name, "bytes": base64.b64encode(content).decode()}
    if kind is RECORDS.get(kind.__name__):
        return {"is": kind.__name__, "fields": _fields(answer)}
    if issubclass(kind, Strategy):
        return {"is": STRATEGY, "name": answer.name, "fields": _fields(answer)}
    if kind is CHOICES.get(kind.__name__):
        return {"is": kind.__name__, "name": answer.name}
    if kind is FunctionType and functions is not None:
        functions.append(answer)
        return {"is": FUNCTION, "number": len(functions) - 1}
    raise FileError(f"found {kind.__name__}; {WANTED}")


def _plain(answer: Any) -> Packed | None:
    """Return a number, a text, a boolean or None as packed data. It ignores methods that a subclass overrides. None for
    any other answer."""
    if issubclass(type(answer), np.generic):
        answer = np.generic.item(answer)
    kind = type(answer)
    if answer is None or kind is bool:
        return {"is": "value", "value": answer}
    for plain, reduced in ((int, int.__int__), (float, float.__float__), (str, str.__str__)):
        if issubclass(kind, plain):
            value: Any = reduced(answer)
            # Such numbers take minutes to write as text.
            if plain is int and value.bit_length() > MOST_BITS:
                raise FileError(f"found a whole number of {value.bit_length():,} bits; wanted at most {MOST_BITS:,}")
            return {"is": "value", "value": value}
    return None


def _fields(record: Any) -> dict[str, Packed]:
    return {each.name: pack(getattr(record, each.name)) for each in fields(record) if each.init}


def unpack(packed: object, ask: Ask | None = None) -> Any:
    """Return the answer that was packed. It is safe for data from anybody. Functions in it call ``ask``. Raises
    LabError for anything that is not an answer."""
    try:
        return _unpack(packed, ask)
    except LabError:
        raise
    except Exception as error:  # anything may stand where ``pack`` writes something else
        raise FileError(f"the answer is not as it is handed in ({type(error).__name__}); {WANTED}") from None


def _unpack(packed: Any, ask: Ask | None) -> Any:
    kind = packed["is"]
    if kind == "value":
        # Checked again: this came from a process in which a student's code has run.
        if type(value := packed["value"]) not in (type(None), bool, int, float, str):
            raise TypeError
        return value
    if kind in COLLECTIONS:
        return COLLECTIONS[kind](_unpack(each, ask) for each in packed["items"])
    if kind == "dict":
        return {_unpack(key, None): _unpack(value, ask) for key, value in packed["items"]}
    if kind == "array":
        array = np.array(packed["items"], dtype=bool if packed["type"] == "b" else None).reshape(packed["shape"])
        if array.dtype.kind not in REAL:
            raise TypeError
        return array
    if kind == FUNCTION:
        return _asking(packed["number"], ask)
    if kind in RECORDS:
        return RECORDS[kind](**{name: _unpack(value, None) for name, value in packed["fields"].items()})
    if kind == STRATEGY:
        made = {name: _unpack(value, None) for name, value in packed["fields"].items()}
        return strategies[packed["name"]](**made)
    if kind in CHOICES:
        return CHOICES[kind][packed["name"]]
    for name, _, load in NOUNS.values():
        if kind == name:
            with tempfile.TemporaryDirectory() as folder:
                (path := Path(folder) / name).write_bytes(base64.b64decode(packed["bytes"], validate=True))
                try:
                    return load(path)
                except LabError as error:
                    raise FileError(str(error).replace(f"{path}: ", "")) from None
    raise KeyError(kind)


def _asking(number: object, ask: Ask | None) -> FunctionType:
    if type(number) is not int or ask is None:
        raise FileError("the answer has a function, but no process to ask for it")

    def function(*arguments: Any) -> object:
        return ask(number, arguments)

    function.__qualname__ = "answer"  # how messages name it if another answer is wanted
    return function  # type: ignore[return-value]  # mypy calls a function's type Callable
