"""Trace x Trace -> Comparison: how far off, who is to blame, since when, and what would have been right."""

from dtfm_lab.compare.comparison import Comparison, compare
from dtfm_lab.compare.drift import Drift
from dtfm_lab.compare.refit import Refit

__all__ = ["Comparison", "Drift", "Refit", "compare"]
