"""DT-FM's evaluation laid out: its settings, the systems as its authors ran them, their measured seconds and ours."""

from dtfm_lab.extensions.published.paper.systems import papers_waterfall
from dtfm_lab.extensions.published.paper.table import PapersTable, Ratio, papers_table

__all__ = ["PapersTable", "Ratio", "papers_table", "papers_waterfall"]
