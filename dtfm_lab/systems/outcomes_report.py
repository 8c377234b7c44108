"""The systems' outcomes as a report: a line for each, what it chose and assumes, and what has no model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dtfm_lab.domain.report import Part, Section, Table
from dtfm_lab.domain.units import format_s
from dtfm_lab.systems.bars import CHANGES, marked_title
from dtfm_lab.systems.outcome import Outcome

if TYPE_CHECKING:
    from dtfm_lab.systems.outcomes import Outcomes

HEAD = ("system", "an iteration", "times", "with a link a pair", "plan", "most of it")


def report_of(found: Outcomes, *, assumptions: bool) -> Iterator[Part]:
    """A table of the outcomes, and what each chose or why it has no plan.

    With ``assumptions`` these, too, with their sources, and the reasons of what is not modelled.
    """
    least_s = min((one.iteration_s for one in found if one.iteration_s is not None), default=1.0)
    yield f"**{found.sentence}.**"
    yield Table(HEAD, [_line(one, least_s) for one in found])
    said = [(one, one.reason or "; ".join(filter(None, (one.choices, one.strategy.mathematics)))) for one in found]
    yield Section("Chosen", [f"{marked_title(one)}: {words}" for one, words in said if words], opened=True)
    if any(one.strategy.mathematics for one in found):
        yield f"{CHANGES} changes the training itself: seconds alone do not compare it."
    if not assumptions:
        return
    assumed = [
        f"{one.title}, {each['name'].replace('_', ' ')} {each['value']}: {each['help']} ({each['source']})"
        for one in found
        for each in one.strategy.assumed
    ]
    if assumed:
        yield Section("Assumed", assumed)
    if found.not_modelled:
        yield Section("Not modelled", [f"{name}: {reason}" for name, reason in found.not_modelled.items()])


def _line(one: Outcome, least_s: float) -> tuple[str, ...]:
    name = marked_title(one)
    if one.iteration_s is None:
        return name, "no plan", "", "", "", ""
    cause, part_s = next(iter(one.causes.items()), ("", 0.0))
    pairs = "" if one.pairs_s is None else format_s(one.pairs_s)
    most = f"{cause} {part_s / one.iteration_s:.0%}" if one.iteration_s else cause
    return name, format_s(one.iteration_s), _times(one.iteration_s / least_s), pairs, one.shape, most


def _times(ratio: float) -> str:
    """With three figures at least."""
    return f"{ratio:,.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}"
