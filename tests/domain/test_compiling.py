"""Compiled kernels follow the source of what they call, wherever that is."""

import importlib
import sys
from pathlib import Path

import pytest

KERNEL = """
from dtfm_lab.domain.compiling import compiled
from formulas import part

part = compiled(part)


@compiled
def taken(whole):
    return part(whole)


@compiled
def kernel(whole):
    return taken(whole)
"""


def found(whole: float) -> float:
    """What the kernel returns in a process that has not loaded it yet."""
    for name in ("kernels", "formulas"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module("kernels").kernel(whole)


def test_a_kernel_is_compiled_again_when_a_formula_of_another_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for folder in ("kernels", "formulas"):
        (tmp_path / folder).mkdir()
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    (tmp_path / "kernels" / "kernels.py").write_text(KERNEL)
    formulas = tmp_path / "formulas" / "formulas.py"
    formulas.write_text("PARTS = 2\n\n\ndef part(whole):\n    return whole / PARTS\n")
    assert found(12.0) == 6.0
    formulas.write_text("PARTS = 4\n\n\ndef part(whole):\n    return whole / PARTS  # a quarter\n")
    assert found(12.0) == 3.0
