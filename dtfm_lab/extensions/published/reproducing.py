"""``lab.reproduce``: the ledger of sources that are named, or of all."""

import os
from collections.abc import Callable

from dtfm_lab.extensions.published import ledger
from dtfm_lab.extensions.published.ledger import Ledger
from dtfm_lab.extensions.published.row import Row
from dtfm_lab.extensions.published.sources import Source


def reproduce(
    *sources: str | Source, own: str | os.PathLike[str] | None = None, progress: Callable[[Row], None] | None = None
) -> Ledger:
    """Predict what others measured: every published row beside our prediction, with its band, source and assumptions.

    All sources, or those named (``lab.published.sources`` lists them), or the rows of a CSV or JSON file of one's own,
    whose columns docs/published.md describes. ``.sentence``, ``.groups``, ``.misses``, ``.to_frame()``; in a notebook
    it shows itself, and ``lab.figures.ledger`` draws it. ``progress`` is called with every row; Ctrl-C keeps the rows
    so far.
    """
    return ledger.reproduce(sources, own=own, progress=progress)
