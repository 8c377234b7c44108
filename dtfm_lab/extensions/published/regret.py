"""How good a choice by prediction is, compared with the best measured configuration.

Predictions choose among configurations that someone measured, without seeing the measurements. The score is the
measured speed of the choice, divided by the best measured speed. Two rules of thumb choose as well, for comparison.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.report import Part, Table, as_html
from dtfm_lab.domain.units import format_share
from dtfm_lab.extensions.published.nanotron import (
    PER_HOST,
    SWEEP,
    Configuration,
    Predicted,
    SweepRow,
    predict,
    read_sweep,
    slow_mode,
)

if TYPE_CHECKING:
    import pandas as pd

FEW_HOSTS = 8
"""``Regret.sentence`` also gives the mean over cells with up to this number of hosts, on which the sweep's network was
steady."""
Order = Callable[[Predicted], tuple[float, ...]]


def _fewest_cuts(found: Predicted) -> tuple[float, ...]:
    """Sort key: the smallest product of tensor and pipeline parallelism first, then the least tensor parallelism, the
    largest micro-batch, and sharded optimizer states."""
    one = found.one
    return one.tp * one.pp, one.tp, -one.mbs, -one.zero


def _by_the_guide(found: Predicted) -> tuple[float, ...]:
    """Sort key: a whole host per layer, then as few stages as possible, the largest micro-batch, and sharded optimizer
    states.

    Megatron-LM's guide and nanotron's playbook advise this for many GPUs: tensor parallelism inside a host first, then
    pipelines, then data parallelism.
    """
    one = found.one
    return abs(one.tp - PER_HOST), one.pp, -one.mbs, -one.zero


CHOOSERS: dict[str, Order] = {
    "prediction": lambda found: (found.expected_s / found.one.batch,),
    "least TP x PP": _fewest_cuts,
    "guides": _by_the_guide,
}
"""Ways to choose a configuration, by name. Each is a sort key, lowest first. Configurations predicted not to fit
come last. The choice is the first configuration whose run did not fail."""


@dataclass(frozen=True)
class Choice:
    """The configuration that one way of choosing picked, and how fast it was."""

    by: str
    one: Configuration
    share: float
    """Measured speed divided by the best measured speed."""
    failed: int
    """Number of configurations that come before the choice and whose runs failed."""


@dataclass(frozen=True)
class ClusterChoices:
    """A cell of the sweep: one model on one number of hosts, its configurations, and what each way of choosing
    picked."""

    model: str
    nodes: int
    n_measured: int
    n_failed: int
    best: Configuration
    choices: tuple[Choice, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Regret:
    """Predictions and measurements of a sweep, and how good the choices by prediction are."""

    cells: tuple[ClusterChoices, ...]
    predicted: tuple[Predicted, ...]
    """Predictions of the rows that ran."""
    measured: tuple[SweepRow, ...]
    """The rows that ran, with their measurements. Same order as ``predicted``."""
    slow: tuple[bool, ...]
    """For each row in ``measured``, True if it was in the cluster's slow mode (``nanotron.slow_mode``)."""

    def __repr__(self) -> str:
        return f"<Regret: {self.sentence}>"

    def mean(self, by: str = "prediction", most_hosts: int = 10**9) -> float:
        """Return the measured speed of the choices, as a share of the best: the mean over cells with up to
        ``most_hosts`` hosts. NaN without such cells."""
        shares = [
            choice.share
            for cell in self.cells
            if cell.nodes <= most_hosts
            for choice in cell.choices
            if choice.by == by
        ]
        return float(np.mean(shares)) if shares else float("nan")

    @property
    def sentence(self) -> str:
        """How the choices did, on average over the cells."""
        rules = ", ".join(f"{format_share(self.mean(by), 0)} by {by}" for by in CHOOSERS if by != "prediction")
        return (
            f"the choice by prediction reaches {format_share(self.mean(), 0)} of the best measured speed, a mean of "
            f"{len(self.cells)} cells ({format_share(self.mean(most_hosts=FEW_HOSTS), 0)} on up to {FEW_HOSTS} hosts); "
            f"{rules}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per configuration that ran. Columns: its fields, predicted and measured seconds, the ends of
        the 90 % interval, predicted and measured memory in bytes, and whether it was in slow mode."""
        import pandas as pd  # takes a while to load

        rows = []
        for found, row, slow in zip(self.predicted, self.measured, self.slow, strict=True):
            low_s, high_s = found.interval_s
            rows.append(
                vars(row.one)
                | {"predicted_s": found.iteration_s, "measured_s": row.iteration_s, "low_s": low_s, "high_s": high_s}
                | {"predicted_bytes": found.memory_bytes, "measured_bytes": row.peak_memory_bytes, "slow": slow}
            )
        return pd.DataFrame(rows)

    @property
    def errors(self) -> dict[str, float]:
        """Numbers of all rows and of slow rows, median absolute relative errors of seconds and memory, the share of
        rows within 20 %, and the share of rows whose interval holds the measurement. ``median_error`` and
        ``within_20_percent`` leave out slow rows."""
        table = self.to_frame()
        off = (table.predicted_s / table.measured_s - 1).abs()
        # The slow mode is the cluster's, which no prediction knows.
        usual = off[~table.slow]
        held = (table.low_s <= table.measured_s) & (table.measured_s <= table.high_s)
        memory = (table.predicted_bytes / table.measured_bytes - 1).abs()
        return {
            "rows": len(table),
            "slow": int(table.slow.sum()),
            "median_error": float(usual.median()),
            "within_20_percent": float((usual < 0.2).mean()),
            "median_error_of_all": float(off.median()),
            "interval_holds": float(held.mean()),
            "memory_median_error": float(memory.median()),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: sentence, errors and cells."""
        cells = [
            {
                "model": cell.model,
                "nodes": cell.nodes,
                "measured": cell.n_measured,
                "failed": cell.n_failed,
                "best": vars(cell.best),
                "choices": [vars(choice) | {"one": vars(choice.one)} for choice in cell.choices],
            }
            for cell in self.cells
        ]
        return {"sentence": self.sentence, "errors": self.errors, "cells": cells}

    def _repr_html_(self) -> str:
        return as_html(report_of(self))


def regret(path: str | os.PathLike[str] | None = None, *, progress: Callable[[SweepRow], None] | None = None) -> Regret:
    """Choose among the configurations of a measured sweep by prediction, and say how good the choices are.

    ``path`` is a CSV file in the format of ``nanotron.SWEEP``, which is the default. If the micro-batches of a row do
    not add up to the batch in the file, the row is predicted, but it cannot be chosen. ``progress`` is called with
    every row. Raises FileError for another file, or if no row was measured.
    """
    rows = read_sweep(SWEEP if path is None else path)
    predicted: dict[Configuration, Predicted] = {}
    for row in rows:
        predicted[row.one] = predict(row.one)
        if progress is not None:
            progress(row)
    ran = [row for row in rows if row.iteration_s is not None]
    if not ran:
        raise FileError("no row of the sweep was measured; wanted tokens_per_s_per_gpu in one or more")
    # You cannot choose among rows of other batch sizes.
    same = [row for row in rows if row.is_comparable]
    kinds = sorted({(row.one.model, row.one.nodes) for row in ran if row.is_comparable})
    cells = [_cell(kind, [row for row in same if (row.one.model, row.one.nodes) == kind], predicted) for kind in kinds]
    return Regret(tuple(cells), tuple(predicted[row.one] for row in ran), tuple(ran), tuple(slow_mode(ran)))


def _cell(kind: tuple[str, int], rows: Sequence[SweepRow], predicted: dict[Configuration, Predicted]) -> ClusterChoices:
    ran = {row.one: row.tokens_per_s_per_gpu for row in rows if row.tokens_per_s_per_gpu is not None}
    best = max(ran, key=lambda one: ran[one])
    found = [predicted[row.one] for row in rows if row.failed or row.one in ran]
    choices = []
    for by, order in CHOOSERS.items():
        # configurations that are predicted not to fit come last; those that failed count as tries before the choice
        ranked = sorted(found, key=lambda each: (not each.fits, order(each)))
        at = next(i for i, each in enumerate(ranked) if each.one in ran)
        choices.append(Choice(by, ranked[at].one, ran[ranked[at].one] / ran[best], at))
    return ClusterChoices(*kind, len(ran), len(rows) - len(ran), best, tuple(choices))


HEAD = ("model", "hosts", "measured", "best measured", *CHOOSERS, "chosen by prediction")


def report_of(found: Regret) -> Iterator[Part]:
    """Yield the sentence, the errors, and a table with one line per cell."""
    errors = found.errors
    yield f"**{found.sentence[:1].upper()}{found.sentence[1:]}.**"
    yield (
        f"Predicted seconds of {errors['rows'] - errors['slow']} rows outside of the cluster's slow mode: median error "
        f"{format_share(errors['median_error'])}, {format_share(errors['within_20_percent'], 0)} within 20 %. Over all "
        f"{errors['rows']} that ran, median error {format_share(errors['median_error_of_all'])}; 90 % intervals hold "
        f"{format_share(errors['interval_holds'], 0)}; memory {format_share(errors['memory_median_error'])}."
    )
    lines = []
    for cell in found.cells:
        shares = [_share(choice) for choice in cell.choices]
        lines.append(
            (cell.model, str(cell.nodes), str(cell.n_measured), _brief(cell.best), *shares, _brief(cell.choices[0].one))
        )
    yield Table(HEAD, lines)


def _share(choice: Choice) -> str:
    failed = f", after {choice.failed} that failed" if choice.failed else ""
    return f"{format_share(choice.share, 0)}{failed}"


def _brief(one: Configuration) -> str:
    return f"DP {one.dp} TP {one.tp} PP {one.pp} x {one.mbs} ZeRO-{one.zero}"
