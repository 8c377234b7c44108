"""Times by message size of a measured network, kept on the links that edits do not change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.widgets.network.drawing import Document

ALIKE = 1e-9
"""Share by which a latency or a bandwidth may differ after conversion to ms and Gbit/s and back."""


def with_times(topology: Topology, known: Topology, document: Document) -> Topology:
    """Return the topology with ``known``'s message times on every link that has not changed."""
    if known.message_s is None:
        return topology
    origins = _origins(document, known)
    here = [i for i, origin in enumerate(origins) if origin is not None]
    there = [origin for origin in origins if origin is not None]
    grid, old = np.ix_(here, here), np.ix_(there, there)
    same = np.isclose(topology.latency_s[grid], known.latency_s[old], rtol=ALIKE, atol=0.0)
    same &= np.isclose(topology.bandwidth_bytes_per_s[grid], known.bandwidth_bytes_per_s[old], rtol=ALIKE, atol=0.0)
    n = len(topology)
    message_s = np.full((n, n, known.message_s.shape[2]), np.nan)
    message_s[grid] = np.where(same[:, :, None], known.message_s[old], np.nan)
    return replace(topology, message_bytes=known.message_bytes, message_s=message_s)


def times_lost(topology: Topology, known: Topology | None, document: Document) -> int:
    """Return how many directed links between devices that are still drawn have lost their times in ``known``."""
    if known is None or known.message_s is None:
        return 0
    there = [origin for origin in _origins(document, known) if origin is not None]
    before = np.count_nonzero(~np.isnan(known.message_s[np.ix_(there, there)][:, :, 0]))
    after = 0 if topology.message_s is None else np.count_nonzero(~np.isnan(topology.message_s[:, :, 0]))
    return int(before - after)


def _origins(document: Document, known: Topology) -> list[int | None]:
    """Return the index in ``known`` of each drawn device; None for a new one, and for all copies but the first."""
    at = {name: i for i, name in enumerate(known.names)}
    return [at.pop(device.get("measured_as", ""), None) for device in document["devices"]]
