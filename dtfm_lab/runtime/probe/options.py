"""Checks of what a user gives to a probe."""

from __future__ import annotations

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened


def host_and_port(text: str, *, default_host: str | None = None) -> tuple[str, int]:
    """``10.0.0.1:4711`` or ``[::1]:4711``, or ``4711`` if there is a default host, as a pair. Raises LabError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or default_host or ""
    if not host or not port.isdecimal() or int(port) > 65535:
        wanted = "HOST:PORT" if default_host is None else "PORT or ADDRESS:PORT"
        raise LabError(f"{shortened(text)} is no address; wanted {wanted}, PORT up to 65535")
    return host, int(port)


def check_ranges(**ranges: tuple[float, float, float]) -> None:
    """Check values by name, each given with the least and the most that is allowed. Raises LabError."""
    for what, (value, least, most) in ranges.items():
        if not least <= value <= most:
            raise LabError(f"{what} of a probe is {shortened(value)}; wanted {least} to {most}")
