"""DT-FM's evaluation laid out: its settings, the systems as its authors ran them, their measured seconds and ours."""

from dtfm_lab.published.paper.ratios import Ratio
from dtfm_lab.published.paper.table import PapersTable, papers_table
from dtfm_lab.published.paper.waterfall import papers_waterfall

__all__ = ["PapersTable", "Ratio", "papers_table", "papers_waterfall"]
