"""What mypy says of a few lines that a user might write."""

import subprocess
import sys
from pathlib import Path

import pytest

import dtfm_lab


def refused_lines(code: str, folder: Path) -> list[int]:
    """Return the numbers of the lines in which mypy finds a mistake."""
    pytest.importorskip("mypy")
    path = folder / "typed.py"
    path.write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)]
    root = Path(dtfm_lab.__file__).parents[1]
    found = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False).stdout
    return sorted({int(line.split(":")[1]) for line in found.splitlines() if ": error:" in line and path.name in line})
