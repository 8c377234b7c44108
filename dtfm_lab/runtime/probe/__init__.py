"""Latency and bandwidth between the user's own hosts, measured over plain TCP: a Topology with times by message size.

One process listens and every host joins it. The listener requests each host's hardware and orders the pairs of hosts,
one after the other, to time their messages. All connections are authenticated by the listener's token; none is
encrypted.

Or nothing listens beforehand: ``probe_over_ssh`` sends each host what it needs.
"""

from dtfm_lab.runtime.probe.listening import ProbeListener, host_and_port, join
from dtfm_lab.runtime.probe.over_ssh import probe_over_ssh
from dtfm_lab.runtime.protocol.connections import address_for_others

__all__ = ["ProbeListener", "address_for_others", "host_and_port", "join", "probe_over_ssh"]
