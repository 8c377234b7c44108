"""How much slower collectives are when more hosts take part, as a property of a network.

Measured all-reduces get slower with size. On one public cluster of 64 hosts with eight H100s each, the bandwidth of an
all-reduce fell from 436 GB/s in one host to 33 GB/s in all. From 16 hosts on, the 5th and the 95th percentile differed
by a factor of six (Hugging Face, "Ultra-Scale Playbook", 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.device import as_number, shortened
from dtfm_lab.domain.units import FloatArray

MOST_ROWS = 100
"""Maximum number of rows of ``Topology.collectives``."""
LEAST_FRACTION = 1e-6
"""Minimum fraction of a bandwidth. Below it a link counts as broken, not as slow."""


@dataclass(frozen=True)
class CollectiveSpeed:
    """How fast collectives are if a certain number of hosts take part."""

    hosts: int
    """Number of hosts that take part."""
    fraction: float
    """Share of its link's bandwidth that each message of the collective gets."""
    spread: float | None = None
    """Standard deviation of the logarithm of a collective's seconds; None for the network's ``link_spread``."""


def checked_collectives(given: Any, most_spread: float) -> tuple[CollectiveSpeed, ...]:
    """Return the checked rows of ``Topology.collectives``. A row may be given as a sequence of its numbers.

    The number of hosts must rise from row to row, and fractions must not. Fractions are ``LEAST_FRACTION`` to 1, and
    spreads 0 to ``most_spread``. Raises TopologyError otherwise, or for more than ``MOST_ROWS`` rows.
    """
    try:
        rows = tuple(one if isinstance(one, CollectiveSpeed) else CollectiveSpeed(*one) for one in given)
    except TypeError:
        raise TopologyError(f"collectives is {shortened(given)}; wanted rows of hosts, fraction and spread") from None
    if len(rows) > MOST_ROWS:
        raise TopologyError(f"collectives has {len(rows)} rows; wanted at most {MOST_ROWS}")
    found: list[CollectiveSpeed] = []
    for number, row in enumerate(rows, 1):
        hosts, fraction = as_number(row.hosts), as_number(row.fraction)
        spread = None if row.spread is None else as_number(row.spread)
        where = f"collectives, row {number}"
        before = found[-1] if found else None
        least = 1 if before is None else before.hosts + 1
        if hosts is None or not least <= hosts <= 1e9 or hosts != int(hosts):
            raise TopologyError(f"{where}: hosts is {shortened(row.hosts)}; wanted a whole number from {least} on")
        most = 1.0 if before is None else before.fraction
        if fraction is None or not LEAST_FRACTION <= fraction <= most:
            raise TopologyError(
                f"{where}: fraction is {shortened(row.fraction)}; wanted {LEAST_FRACTION:g} to {most:g}, because more "
                "hosts are never faster"
            )
        if row.spread is not None and (spread is None or not 0 <= spread <= most_spread):
            raise TopologyError(f"{where}: spread is {shortened(row.spread)}; wanted 0 to {most_spread:g}")
        found.append(CollectiveSpeed(int(hosts), fraction, spread))
    return tuple(found)


def slowdowns(rows: Sequence[CollectiveSpeed], n_hosts: int) -> FloatArray:
    """Return (n_hosts + 1,) factors. Entry h multiplies the seconds of a collective over h hosts; entry 0 is 1.

    Between two rows, the logarithm of the fraction is linear in the logarithm of the number of hosts. If the table has
    no row for one host, one host has the whole bandwidth. More hosts than in the last row are as fast as the last row.
    """
    at = np.log(np.arange(1, n_hosts + 1))
    fraction = np.interp(at, *_columns([(row.hosts, np.log(row.fraction)) for row in rows], 0.0))
    return np.concatenate([[1.0], np.exp(-fraction)])


def spread_over(rows: Sequence[CollectiveSpeed], n_hosts: int, link_spread: float) -> float:
    """Return the spread of a collective over ``n_hosts`` hosts. Between two rows, it is linear in the logarithm of
    their number."""
    spreads = [(row.hosts, link_spread if row.spread is None else row.spread) for row in rows]
    return float(np.interp(np.log(n_hosts), *_columns(spreads, link_spread)))


def _columns(rows: Sequence[tuple[int, float]], alone: float) -> tuple[FloatArray, FloatArray]:
    """Return the logarithm of each row's number of hosts, and the row's value.

    If the table begins above one host, a row for one host with the value ``alone`` comes first.
    """
    whole = [*rows] if rows[0][0] == 1 else [(1, alone), *rows]
    hosts, values = zip(*whole, strict=True)
    return np.log(np.array(hosts)), np.array(values, dtype=float)
