"""Published numbers beside our predictions, and an efficiency from one's own measured ones."""

import os
from collections.abc import Iterable

from dtfm_lab import published
from dtfm_lab.lab.arguments import Progress
from dtfm_lab.published import Calibration, Ledger, Source
from dtfm_lab.published.calibrated import Measured
from dtfm_lab.published.paper import PapersTable
from dtfm_lab.published.paper.settings import BATCHES, CASES, LAYERS
from dtfm_lab.published.paper.systems import SYSTEMS
from dtfm_lab.systems import Budget
from dtfm_lab.systems.waterfall import Waterfall


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


def papers_table(
    *,
    cases: tuple[str, ...] = CASES,
    layers: tuple[int, ...] = LAYERS,
    batches: tuple[int, ...] = BATCHES,
    systems: tuple[str, ...] = tuple(SYSTEMS),
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> PapersTable:
    """DT-FM's table: seconds and PFLOPS of each system on its five networks, with three sizes of model and of batch.

    Beside them the seconds that its authors measured, and ``.ratios``, the four of the paper's text. ``.sentence``,
    ``.to_frame()`` (a row a system and setting), ``.ratios_frame()``; in a notebook it shows itself. All of it takes
    some minutes: name fewer of ``cases``, ``layers``, ``batches`` or ``systems`` for less. ``progress`` is called with
    the table so far after every entry; Ctrl-C keeps it.
    """
    return published.papers_table(
        cases=cases, layers=layers, batches=batches, systems=systems, budget=budget, progress=progress
    )


def papers_waterfall(layers: int = LAYERS[0], batch: int = BATCHES[0]) -> Waterfall:
    """How much each assumption explains of the paper's Megatron-LM over DT-FM, world-wide: a step a switch.

    ``lab.figures.waterfall`` draws it. Raises LabError for a size or a batch that the paper does not have.
    """
    return published.papers_waterfall(layers, batch)


def calibrate(measured: str | os.PathLike[str] | Iterable[Measured]) -> Calibration:
    """The efficiency at which measured rows are predicted best, its range, and its error on rows it never saw.

    ``measured`` are traces of ``lab.run``, pairs of a plan and the seconds of its measured iteration, or a file as
    ``reproduce`` takes it. ``lab.simulate(plan, efficiency=lab.calibrate(...))`` predicts with it;
    ``.by("gpu")``, ``.by("model")``, ``.by("size")`` and ``.by("layer")`` have a calibration each.
    """
    return published.calibrate(measured)
