"""The kernels of the page's visitors: forked from one process that has loaded the lab, and ended when the page is gone.

The visitors share the memory of all that is loaded before the fork, and none waits until Python has imported it.
"""

from dtfm_lab.cli.visitors.away import LOOKS, VisitorKernels, away_s
from dtfm_lab.cli.visitors.kernel_forks import fork_kernels

__all__ = ["LOOKS", "VisitorKernels", "away_s", "fork_kernels"]
