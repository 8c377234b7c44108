"""Published measurements compared with our predictions, row by row: a ledger of where we agree and where we do not."""

from dtfm_lab.extensions.published import systems  # noqa: F401  its modules register the sources
from dtfm_lab.extensions.published.calibrated import Calibration, calibrate
from dtfm_lab.extensions.published.ledger import Ledger, reproduce
from dtfm_lab.extensions.published.paper import PapersTable, papers_table, papers_waterfall
from dtfm_lab.extensions.published.regret import Regret, regret
from dtfm_lab.extensions.published.row import QUANTITIES, Band, Evidence, KnownMiss, Row
from dtfm_lab.extensions.published.sources import Source, published, sources
from dtfm_lab.extensions.published.tally import Group

__all__ = [
    "QUANTITIES",
    "Band",
    "Calibration",
    "Evidence",
    "Group",
    "KnownMiss",
    "Ledger",
    "PapersTable",
    "Regret",
    "Row",
    "Source",
    "calibrate",
    "papers_table",
    "papers_waterfall",
    "published",
    "regret",
    "reproduce",
    "sources",
]
