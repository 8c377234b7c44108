"""Runs of systems as rows of text, for a terminal, and as HTML, for a notebook."""

from collections.abc import Sequence
from html import escape

from dtfm_lab.domain.units import format_s
from dtfm_lab.systems.bars import CHANGES
from dtfm_lab.systems.outcomes_html import NUMBER, STYLE
from dtfm_lab.systems.strategy_run import StrategyRun


def headings(common_loss: float | None) -> tuple[str, ...]:
    """Headings of the columns of ``cells``."""
    to_loss = "to a loss" if common_loss is None else f"to loss {common_loss:.3g}"
    return ("system", "predicted", "measured", "error", "last loss", to_loss, "iterations")


def cells(one: StrategyRun, time_to_loss_s: float | None) -> tuple[str, ...]:
    """What a row says of a run that was measured; a dagger marks a system that changes the training itself."""
    seconds = ["-" if s is None else format_s(s) for s in (one.predicted_s, one.measured_s, time_to_loss_s)]
    error = "-" if one.error is None else f"{one.error:+.2%}"
    loss = f"{one.losses[-1]:.4f}" if len(one.losses) else "-"
    name = f"{one.outcome.title} {CHANGES}" if one.outcome.strategy.mathematics else one.outcome.title
    return (name, seconds[0], seconds[1], error, loss, seconds[2], str(len(one.losses)))


def fragment(sentence: str, head: Sequence[str], rows: Sequence[Sequence[str]], idle: Sequence[StrategyRun]) -> str:
    """The runs as a notebook shows them: a row for each that ran, then the reasons of the others."""
    kinds = ["", *[NUMBER] * (len(head) - 1)]
    lines = ["".join(f"<th{kind}>{escape(cell)}</th>" for kind, cell in zip(kinds, head, strict=True))]
    lines += ["".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) for row in rows]
    table = f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>" if rows else ""
    reasons = "".join(f"<p><b>{escape(one.outcome.title)}</b>: {escape(one.reason)}</p>" for one in idle if one.reason)
    mark = f"<p><small>{CHANGES} changes the training itself: compare the time to a loss.</small></p>"
    marked = mark if any(CHANGES in row[0] for row in rows) else ""
    told = f"<p><b>{escape(sentence)}</b></p>{table}{marked}{reasons}"
    return f'<style>{STYLE}</style><div class="dtfm-systems">{told}</div>'
