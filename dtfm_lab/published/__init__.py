"""Published measurements laid beside our predictions of them, row by row: a ledger of where we agree and where not."""

from dtfm_lab.published import systems  # noqa: F401  its modules register the sources
from dtfm_lab.published.calibrated import Calibration, calibrate
from dtfm_lab.published.ledger import Ledger, reproduce
from dtfm_lab.published.paper import PapersTable, papers_table, papers_waterfall
from dtfm_lab.published.row import QUANTITIES, Band, Evidence, KnownMiss, Row
from dtfm_lab.published.sources import Source, published, sources
from dtfm_lab.published.tally import Group

__all__ = [
    "QUANTITIES",
    "Band",
    "Calibration",
    "Evidence",
    "Group",
    "KnownMiss",
    "Ledger",
    "PapersTable",
    "Row",
    "Source",
    "calibrate",
    "papers_table",
    "papers_waterfall",
    "published",
    "reproduce",
    "sources",
]
