"""Compare two traces: errors, the links and devices that cause them, drift, and a refit of the network."""

from dtfm_lab.compare.comparison import Comparison, compare
from dtfm_lab.compare.drift import Drift
from dtfm_lab.compare.refit import Refit
