"""DT-FM's evaluation: its settings, the systems as its authors ran them, their measured seconds and our predictions."""

from dtfm_lab.extensions.published.paper.systems import papers_waterfall
from dtfm_lab.extensions.published.paper.table import PapersTable, Ratio, papers_table

__all__ = ["PapersTable", "Ratio", "papers_table", "papers_waterfall"]
