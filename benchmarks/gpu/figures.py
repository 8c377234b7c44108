"""What a step measures: figures with their goals, and what the step is told."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class NotRun(Exception):
    """A step, or what is left of it, cannot run on this machine; the message says why, in one line."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured number beside what was wanted of it."""

    name: str
    value: float | str
    unit: str = ""
    goal: str = ""
    """What was wanted, in words; empty where nothing was."""
    met: bool | None = None
    """Whether the goal was reached; None without one, or where it could not be judged."""
    note: str = ""

    def verdict(self, rehearsed: bool) -> str:
        """One of rehearsed, measured, met and missed."""
        if rehearsed:
            return "rehearsed"
        return "measured" if self.met is None else "met" if self.met else "missed"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What every step is told."""

    rehearses: bool
    """Whether the step runs on the CPU, in small sizes, to prove that the programme works."""
    folder: Path
    """Where the report is, and files that a step adds to it."""

    @property
    def runs_on(self) -> str:
        return "cpu" if self.rehearses else "cuda"


@dataclass(frozen=True)
class Step:
    """One measurement, a process of its own and a module of its name."""

    name: str
    title: str
    minutes: float
    """Most that it may take on a GPU."""

    def measure(self, setting: Setting) -> Iterator[Figure]:
        """Figures as they are found, so that a step that is stopped leaves those before. Raises NotRun.

        The module is loaded here, so that the process that only starts steps needs neither torch nor CUDA.
        """
        found: Iterator[Figure] = importlib.import_module(self.name).measure(setting)
        return found
