"""A network from what one's own tools say of one's machines: each source is read by itself, then all are merged.

What nobody measured is estimated where there is a rule for it, and the network's description says so; where there is
none, it is refused.
"""

from dtfm_lab.files.machines.network import network_from

__all__ = ["network_from"]
