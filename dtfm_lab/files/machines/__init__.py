"""A network from what one's own tools say of one's machines: each source is read by itself, then all are merged.

What nobody measured is estimated where there is a rule for it, and the network's description says so; where there is
none, it is refused.
"""

from dtfm_lab.files.machines.driver import read_smi, read_topo
from dtfm_lab.files.machines.network import network_from
from dtfm_lab.files.machines.seen import Gpu, Host, Measurement, Seen
from dtfm_lab.files.machines.sources import ssh_config_among

__all__ = ["Gpu", "Host", "Measurement", "Seen", "network_from", "read_smi", "read_topo", "ssh_config_among"]
