"""``lab.reproduce``: the ledger of the named sources, or of all."""

import os
from collections.abc import Callable

from dtfm_lab.extensions.published import ledger
from dtfm_lab.extensions.published.ledger import Ledger
from dtfm_lab.extensions.published.row import Row
from dtfm_lab.extensions.published.sources import Source


def reproduce(
    *sources: str | Source, own: str | os.PathLike[str] | None = None, progress: Callable[[Row], None] | None = None
) -> Ledger:
    """Predict what others measured: every published row and our prediction, with its band, source and assumptions.

    ``sources`` names some of ``lab.published.sources``; by default all are predicted. ``own`` is a CSV or JSON file of
    your rows; docs/how-far-to-trust-it.md describes its columns. The result has ``.sentence``, ``.groups``, ``.misses``
    and ``.to_frame()``. A notebook shows it, and ``lab.figures.ledger`` draws it. ``progress`` is called with every
    row. Ctrl-C keeps the rows so far.
    """
    return ledger.reproduce(sources, own=own, progress=progress)
