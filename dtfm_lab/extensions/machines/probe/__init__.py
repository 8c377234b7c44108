"""Latency and bandwidth between your own hosts, measured over plain TCP between every two of them.

``probe_over_ssh`` sends each host the program it needs, so nothing is installed there. All connections are
authenticated by a token that ssh carries. None is encrypted.
"""

from dtfm_lab.extensions.machines.probe.over_ssh import probe_over_ssh

__all__ = ["probe_over_ssh"]
