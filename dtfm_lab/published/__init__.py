"""Published measurements laid beside our predictions of them, row by row: a ledger of where we agree and where not."""

from dtfm_lab.published import systems  # noqa: F401  its modules register the sources
from dtfm_lab.published.ledger import Group, Ledger
from dtfm_lab.published.row import QUANTITIES, Band, KnownMiss, Row
from dtfm_lab.published.sources import Source, published, sources

__all__ = ["QUANTITIES", "Band", "Group", "KnownMiss", "Ledger", "Row", "Source", "published", "sources"]
