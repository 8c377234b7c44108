"""Empty environments to install into, each in a folder of its own, with nothing of the caller's on its path."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

QUIET = ["--quiet", "--disable-pip-version-check", "--no-input"]


class Environment:
    """A virtual environment of the calling Python, made empty."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True, clear=True)
        self.folder, self.binaries = folder, folder / ("Scripts" if os.name == "nt" else "bin")

    def run(self, command: Sequence[str | Path], cwd: Path, timeout_s: float = 1800) -> str:
        """Run a command of the environment; returns what it printed. Raises SystemExit where it fails."""
        own = {"PATH": f"{self.binaries}{os.pathsep}/usr/bin{os.pathsep}/bin", "HOME": str(self.folder)}
        kept = {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "NO_PROXY"))
        }
        words = [str(word) for word in command]
        ended = subprocess.run(words, cwd=cwd, env=kept | own, capture_output=True, text=True, timeout=timeout_s)
        if ended.returncode != 0:
            sys.exit(f"{' '.join(words)[:200]} failed:\n{(ended.stdout + ended.stderr)[-3000:]}")
        return ended.stdout

    def pip(self, *arguments: str | Path, cwd: Path) -> str:
        """Run this environment's pip."""
        return self.run([self.binaries / "python", "-m", "pip", *arguments[:1], *QUIET, *arguments[1:]], cwd)

    def python(self, code: str, cwd: Path) -> str:
        """Run Python code in this environment."""
        return self.run([self.binaries / "python", "-c", code], cwd)
