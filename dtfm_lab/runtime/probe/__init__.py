"""Latency and bandwidth between one's own hosts, measured over plain TCP: a Topology with times by message size.

One process listens, every host joins it; the listener lets one pair after the other be timed and asks each host
what it is. Whoever does not know the listener's token is turned away; what goes over the wire is not encrypted.
"""

from dtfm_lab.runtime.probe.joining import join
from dtfm_lab.runtime.probe.listening import Listener, probe_locally

__all__ = ["Listener", "join", "probe_locally"]
