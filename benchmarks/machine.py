"""What a benchmark of real runs says first: on what it ran, and how busy that was."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import psutil


def described() -> str:
    """One line. A load above the cores means that others computed, too."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    cores = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else os.cpu_count()
    return f"{cores} cores, load {load}; torch {version('torch')}, Python {platform.python_version()}"
