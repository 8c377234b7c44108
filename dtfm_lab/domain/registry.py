"""Named choices (planners, schedules, topologies) that explain themselves when a name is missing."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from dtfm_lab.domain.errors import UnknownName

T = TypeVar("T")
NAME_SHOWN = 80


def unknown(noun: str, name: object, known: Iterable[str]) -> UnknownName:
    """The error for a name that is not among the known ones; names the nearest."""
    names, name = sorted(known), str(name)
    near = difflib.get_close_matches(name[:NAME_SHOWN], names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:12])} and {len(names) - 12} more"
    shown = name if len(name) <= NAME_SHOWN else name[: NAME_SHOWN - 3] + "..."
    return UnknownName(f"no {noun} named {shown!r}; {hint}known: {listed or 'none'}")


class Registry(Generic[T]):
    """A dictionary of plug-ins; ``[name]`` raises UnknownName with the nearest known name."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: file the entry under ``name``."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self._noun} {name!r} is already registered")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise unknown(self._noun, name, self._entries) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __contains__(self, name: object) -> bool:
        return name in self._entries
