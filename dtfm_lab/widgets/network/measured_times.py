"""Times by message size of a network that was measured: kept through edits, on the links that stay what they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.widgets.network.drawing import Document

ALIKE = 1e-9
"""share by which a latency or a bandwidth may differ after a walk through ms and Gbit/s"""


def with_times(topology: Topology, known: Topology, document: Document) -> Topology:
    """The topology of a document, with ``known``'s times where neither device nor link is another."""
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
    """How many directed links between devices that are still drawn were timed in ``known`` and are no more."""
    if known is None or known.message_s is None:
        return 0
    there = [origin for origin in _origins(document, known) if origin is not None]
    before = np.count_nonzero(~np.isnan(known.message_s[np.ix_(there, there)][:, :, 0]))
    after = 0 if topology.message_s is None else np.count_nonzero(~np.isnan(topology.message_s[:, :, 0]))
    return int(before - after)


def _origins(document: Document, known: Topology) -> list[int | None]:
    """Which of ``known``'s devices each drawn one is; None for a new one, and for all but the first of copies."""
    at = {name: i for i, name in enumerate(known.names)}
    return [at.pop(device.get("measured_as", ""), None) for device in document["devices"]]
