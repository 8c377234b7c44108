"""Nothing that crosses a wire is a pickle: whoever unpickles a message runs what its sender wrote."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dtfm_lab.runtime

ROOT = Path(dtfm_lab.runtime.__file__).parent
PICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
A_USERS_OWN = {"client/own_modules.py", "worker/own_module.py"}
"""A module that a notebook hands over lies in a folder of its user's alone, and is read from nowhere else."""
OBJECTS = {"send", "recv"}
"""Methods by which ``multiprocessing.connection.Connection`` pickles and unpickles; its ``send_bytes`` does not."""
PROCESSES_OF_ONE_MACHINE = {
    "worker/local_run.py": "workers are forked, or spawned over pipes that multiprocessing makes for its own children"
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_of_the_runtime_imports_what_pickles():
    found = {where for where, tree in modules() if {name.split(".")[0] for name in imported(tree)} & PICKLERS}
    assert found == A_USERS_OWN


def test_no_listener_or_client_of_multiprocessing_and_its_processes_are_named():
    for where, tree in modules():
        names = set(imported(tree))
        assert not names & {"multiprocessing.connection.Listener", "multiprocessing.connection.Client"}, where
        assert not any(name.startswith("multiprocessing.managers") for name in names), where
        if "multiprocessing" in names:
            assert where in PROCESSES_OF_ONE_MACHINE


def test_connections_carry_bytes_never_objects():
    for where, tree in modules():
        if not any(name == "multiprocessing.connection.Connection" for name in imported(tree)):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OBJECTS:
                of = ast.unparse(node.func.value)
                assert "connection" not in of.lower(), f"{where}:{node.lineno}: {of}.{node.func.attr} pickles"


def test_no_loader_that_unpickles():
    for where, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called != "torch.load", f"{where}:{node.lineno}: checkpoints are read by safetensors"
                allowed = {ast.unparse(key.value) for key in node.keywords if key.arg == "allow_pickle"}
                assert allowed <= {"False"}, f"{where}:{node.lineno}"


@pytest.mark.parametrize("where", PROCESSES_OF_ONE_MACHINE)
def test_exceptions_are_still_there(where):
    assert "multiprocessing" in (ROOT / where).read_text()
