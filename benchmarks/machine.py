"""The machine that a benchmark of real runs ran on, and how busy it was."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import psutil


def machine_line() -> str:
    """One line about the machine. A load above its cores means that other programs were computing, too."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    cores = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else os.cpu_count()
    return f"{cores} cores, load {load}; torch {version('torch')}, Python {platform.python_version()}"
