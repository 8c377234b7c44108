"""Published numbers beside our predictions, and an efficiency from one's own measured ones."""

import os
from collections.abc import Iterable

from dtfm_lab import published
from dtfm_lab.lab.arguments import Progress
from dtfm_lab.published import Calibration, Ledger, Source
from dtfm_lab.published.calibrated import Measured


def reproduce(
    *sources: str | Source, own: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> Ledger:
    """Predict what others measured: every published row beside our prediction, with its band, source and assumptions.

    All sources, or those named (``lab.published.sources`` lists them), or the rows of a CSV or JSON file of one's own,
    whose columns docs/published.md describes. ``.sentence``, ``.groups``, ``.misses``, ``.to_frame()``; in a notebook
    it shows itself, and ``lab.figures.ledger`` draws it. ``progress`` is called with every row; Ctrl-C keeps the rows
    so far.
    """
    return published.reproduce(sources, own=own, progress=progress)


def calibrate(measured: str | os.PathLike[str] | Iterable[Measured]) -> Calibration:
    """The efficiency at which measured rows are predicted best, its range, and its error on rows it never saw.

    ``measured`` are traces of ``lab.run``, pairs of a plan and the seconds of its measured iteration, or a file as
    ``reproduce`` takes it. ``lab.simulate(plan, efficiency=lab.calibrate(...))`` predicts with it;
    ``.by("gpu")``, ``.by("model")``, ``.by("size")`` and ``.by("group")`` have a calibration each.
    """
    return published.calibrate(measured)
