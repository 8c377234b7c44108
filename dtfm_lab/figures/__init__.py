"""Nouns as plotly figures: pure functions, nothing fetched from any network."""

from dtfm_lab.figures.gantt import gantt
from dtfm_lab.figures.theme import theme

__all__ = ["gantt", "theme"]
