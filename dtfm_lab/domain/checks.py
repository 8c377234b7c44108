"""Checks that jobs and models share."""

from __future__ import annotations

from numbers import Integral

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.network import is_plain, shortened

MOST = 10**9


def whole(thing: str, what: str, value: object, *, least: int = 1, most: int = MOST) -> int:
    """``value`` as an int; raises a JobError that names ``thing`` and ``what`` where it is no count or out of range."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        raise JobError(f"{thing}: {what} is {shortened(value)}; wanted a whole number from {least} to {most}")
    return int(value)


def plain(noun: str, name: object) -> str:
    """``name``; raises JobError where it does not fit into the one line of an error."""
    if not isinstance(name, str) or not is_plain(name):
        raise JobError(f"{noun} is named {shortened(name)}; wanted text without control characters")
    return name
