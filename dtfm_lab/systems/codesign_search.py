"""Finds what makes a network compute-bound: each knob alone, by doubling and bisection."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation.memory import memory
from dtfm_lab.systems.codesign import CoDesign, Design, Turned
from dtfm_lab.systems.compute_share import share_of
from dtfm_lab.systems.knobs import KNOBS
from dtfm_lab.systems.strategy import Budget
from dtfm_lab.systems.variations import Variation

BISECTIONS = 12
"""Most halvings between a value that does not suffice and one that does."""


def stream_codesign(plan: Plan, target: float, names: Sequence[str], budget: Budget) -> Iterator[CoDesign]:
    """The answer so far, after every design that was evaluated.

    Each knob is doubled until the target is reached, or up to its end; the least value that reaches it is then found by
    bisection, as if more of a knob never meant a smaller share. Where the plan suffices as it is, batch and bandwidth
    are halved until it does not. All keep the plan's devices, shape and schedule.
    """

    found = CoDesign(plan=plan, target=target, base=_design(plan, budget), latest="the job as it is")
    yield found
    for name in names:
        knob, others = KNOBS[name](plan), found.turned
        for turned, value in _turned(knob, found, budget):
            found = replace(found, turned=(*others, turned), latest="" if value is None else knob.text(value))
            if value is not None:
                yield found
    yield replace(found, latest="", finished=True)


def _design(plan: Plan, budget: Budget, turned_to: float | None = None) -> Design:
    share, report = share_of(plan, efficiency=budget.efficiency, queueing=budget.queueing), memory(plan)
    lacks = "" if report.fits else report.sentence
    return Design(turned_to=turned_to, plan=plan, share=share, fits=report.fits, memory=lacks)


def _turned(knob: Variation, found: CoDesign, budget: Budget) -> Iterator[tuple[Turned, float | None]]:
    """One knob alone, and the value just tried: by steps until the target lies between two values, then by halves of
    what is between them. At last, without a value, all designs and why there are no more."""
    designs, reason, steps = [found.base], "", list[float]()
    try:
        steps = knob.halved if found.bound else knob.doubled
    except LabError as error:
        reason = str(error)
    inside, outside = (knob.own, None) if found.bound else (None, knob.own)
    values, bisections = iter(steps), 0
    while bisections < BISECTIONS:
        if inside is None or outside is None:
            value = next(values, None)
        else:
            value, bisections = knob.middle(outside, inside), bisections + 1
        if value is None:
            break
        try:
            designs.append(_design(knob.on(found.plan, value), budget, value))
        except LabError as error:
            reason = reason if bisections else str(error)
            break
        yield Turned(knob=knob, designs=designs), value
        if designs[-1].computing >= found.target:
            inside = value
        else:
            outside = value
    yield Turned(knob=knob, designs=designs, reason=reason), None
