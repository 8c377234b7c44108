"""Why a system is slower on a network: one cause removed at a time, what limits it, what remains, and the steps to a
faster system."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from dtfm_lab.costs.efficiency import speeds_of
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted, format_s, plain_rows
from dtfm_lab.extensions.systems.ablations import Ablation, placements, stream_ablations
from dtfm_lab.extensions.systems.outcome import Outcome, predicted
from dtfm_lab.extensions.systems.outcomes import Outcomes
from dtfm_lab.extensions.systems.strategy import strategies
from dtfm_lab.extensions.systems.waterfall import Switch, Waterfall, WaterfallStep
from dtfm_lab.simulation.task_runner import received

MOST_CAUSES = 6
"""Maximum number of causes that get a sentence in the text. The table has all."""
REMAINING = "messages"
"""Name of the ablation that gives the time without messages. It is not listed as a cause: latency and bandwidth already
are."""
ASSUMED = {"placement": "order", "inner": "tensor_parallel"}
"""Ablation -> the assumption of a strategy that it removes, if the two have different names."""
COLUMNS = ["name", "kind", "noun", "gain_s", "share", "iteration_s", "fits", "sentence"]


TRANSPORT = ("transport",)
MEMORY = ("sharding", "checkpointing", "recompute", "attention")
SCHEDULE = ("schedule", "flush_every", "stages_per_device")
"""Fields of a job that determine the order of passes. ``warmups`` is not among them, because its values suit only one
schedule and shape."""
AVERAGING = (
    "synchronisation",
    "synchronise_every",
    "fragments",
    "fragment_delay",
    "overlap",
    "bucket_bytes",
    "compression",
    "gradient_compression",
    "gradient_dtype",
)
IN_WORDS = {
    "overlapped": "do not block a stage",
    "batched": "block a stage, both directions at once",
    "blocking": "block a stage",
}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Why:
    """The explanation of a system's iteration time. ``text`` and ``to_frame()`` present it. ``causes`` are the things
    that save time when removed. ``towards`` leads to a faster system."""

    outcome: Outcome
    against: Outcome | None = None
    """The outcome to compare with, usually a faster one; None without one, or if it is ``outcome`` itself."""
    ablations: tuple[Ablation, ...] = ()
    """The ablations computed so far, the greatest gain first."""
    towards: Waterfall | None = None
    """The steps from the outcome to the compared one, one choice at a time; None if they were not computed."""

    def __post_init__(self) -> None:
        by_gain = sorted(self.ablations, key=lambda one: one.iteration_s)
        object.__setattr__(self, "ablations", tuple(by_gain))

    @property
    def causes(self) -> tuple[Ablation, ...]:
        """Things that save time when removed, if the plan then fits the devices' memory. The greatest gain first."""
        return tuple(one for one in self.ablations if one.matters and one.fits and one.name != REMAINING)

    @property
    def limits(self) -> tuple[Ablation, ...]:
        """Things that would save time when removed, but the plan would not fit the devices' memory."""
        return tuple(one for one in self.ablations if one.matters and not one.fits)

    @property
    def remains_s(self) -> float | None:
        """Seconds of an iteration if messages take no time; None until that was simulated."""
        return next((one.iteration_s for one in self.ablations if one.name == REMAINING), None)

    @cached_property
    def computing_s(self) -> float:
        """Seconds of an iteration if all devices of the network shared the passes in proportion to their speed, and did
        nothing else. Recomputation does not count."""
        plan = self.outcome.plan
        return plan.job.flop / sum(speeds_of(plan.job, plan.topology.devices, self.outcome.budget.efficiency))

    @property
    def times(self) -> float | None:
        """This system's seconds divided by the compared system's; None without a system to compare with."""
        if self.against is None or not self.against.iteration_s or self.outcome.iteration_s is None:
            return None
        return self.outcome.iteration_s / self.against.iteration_s

    @property
    def text(self) -> str:
        """The seconds, one sentence per cause, the limits, what remains, and the way to the faster system."""
        if self.outcome.iteration_s is None:
            return f"{self.outcome.title} has no plan here: {self.outcome.reason.rstrip('.')}."
        limits = [*(one.sentence for one in self.limits), f"Its memory: {self.outcome.memory.sentence}."]
        return "\n".join([self._headline(), *self._causes(), *limits, *self._rest(), *self._towards()])

    def to_frame(self) -> pd.DataFrame:
        """Return one row per ablation, the greatest gain first, with the source of the assumption that it removes.

        Times are in seconds. Empty without a plan.
        """
        rows = [[*(getattr(one, column) for column in COLUMNS), self._source(one)] for one in self.ablations]
        return pd.DataFrame(rows, columns=[*COLUMNS, "source"])

    def summary(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "system": self.outcome.name,
            "text": self.text,
            "iteration_s": self.outcome.iteration_s,
            "against": None if self.against is None else self.against.name,
            "times": self.times,
            "remains_s": self.remains_s,
            "causes": plain_rows(self.to_frame()),
            "towards": None if self.towards is None else self.towards.to_dict(),
        }

    def __repr__(self) -> str:
        return f"<Why: {self.text.splitlines()[0]}>"

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(line)}</p>" for line in self.text.splitlines())

    def _headline(self) -> str:
        outcome, idle = self.outcome, len(self.outcome.plan.idle_devices)
        assert outcome.iteration_s is not None
        text = f"{outcome.title} takes {format_s(outcome.iteration_s)} an iteration here by the link model"
        if self.times is not None and self.against is not None and self.against.iteration_s is not None:
            text += f", {self.times:.3g} times the {format_s(self.against.iteration_s)} of {self.against.title}"
        text += f", with {outcome.shape}"
        if idle:
            text += f" and {idle} of {counted(len(outcome.plan.topology), 'device')} idle"
        for one in (outcome, self.against):
            if one is not None and one.strategy.mathematics:
                changed = one.strategy.mathematics.rstrip(".")
                text += f". {one.title} changes the training ({changed}), so the same seconds do not give the same loss"
        return f"{text}."

    def _causes(self) -> list[str]:
        if not self.causes:
            return ["Removing any single cause saves less than a hundredth of it."] if self.ablations else []
        shown = [one.sentence for one in self.causes[:MOST_CAUSES]]
        if more := [one.noun for one in self.causes[MOST_CAUSES:]]:
            shown.append(f"Less each: {', '.join(more)}.")
        without = [one.noun for one in self.ablations if not one.matters and one.name != REMAINING]
        if without:
            shown.append(f"Less than a hundredth each, or nothing: {', '.join(without)}.")
        if len(self.causes) > 1:
            shown.append("Each is simulated alone. Causes can hide each other, so their seconds do not add up.")
        return shown

    def _rest(self) -> list[str]:
        if self.remains_s is None:
            return []
        text = f"If messages took no time, {format_s(self.remains_s)} would remain"
        # Sums in another order differ by rounding.
        if self.remains_s <= self.computing_s * (1 + 1e-9):
            return [f"{text}, all of it computing."]
        n = len(self.outcome.plan.topology)
        return [
            f"{text}: {format_s(self.computing_s)} of computing if all {counted(n, 'device')} shared it in proportion "
            "to their speed; the rest is recomputation, stages that wait for each other, or devices that are idle or "
            "uneven."
        ]

    def _towards(self) -> list[str]:
        if self.towards is None or self.against is None or len(self.towards) < 2:
            return []
        steps = [
            f"{step.sentence.rstrip('.')}: {format_s(step.iteration_s)}"
            + (f" ({format_s(abs(step.change))} {'more' if step.change > 0 else 'less'})" if step.change else "")
            + ("" if step.fits else ", more than the devices' memory")
            for step in self.towards
            if step.iteration_s is not None
        ]
        return [f"To {self.against.title}, one choice at a time: {'; '.join(steps)}."]

    def _source(self, one: Ablation) -> str:
        """Return the source of the assumption that an ablation removes; empty if it removes something else."""
        wanted = ASSUMED.get(one.name, one.name)
        return next((each.source for each in self.outcome.strategy.assumptions if each.name == wanted), "")


def why_of(
    outcome: Outcome, against: Outcome | Outcomes | Plan | None, progress: Callable[[Why], object] | None
) -> Why:
    """Return the whole explanation, or as much as was computed before it was stopped."""
    return received(stream_why(outcome, against), progress, newest=1)[-1]


def stream_why(outcome: Outcome, against: Outcome | Outcomes | Plan | None = None) -> Iterator[Why]:
    """Yield the explanation so far, after each ablation and then after each step to the faster system.

    Parameters
    ----------
    against
        What to compare with: an outcome, your own plan with simulated seconds, or several outcomes. Of several, the
        fastest one counts that keeps the mathematics, or changes them in the same way as ``outcome``. If that one is
        not faster than ``outcome``, the fastest of all counts.

    Raises
    ------
    LabError
        ``against`` has another type, has no plan, or is on other devices.
    """
    best = _best_of(outcome, against)
    # Not a generator itself, so that wrong arguments are refused at once.
    return _stream(outcome, best)


def _stream(outcome: Outcome, best: Outcome | None) -> Iterator[Why]:
    found = Why(outcome=outcome, against=best)
    yield found
    for one in stream_ablations(outcome):
        found = replace(found, ablations=(*found.ablations, one))
        yield found
    if best is not None and outcome.found is not None:
        for steps in stream_towards(outcome, best):
            found = replace(found, towards=steps)
            yield found


def _fastest(outcome: Outcome, outcomes: Outcomes) -> Outcome:
    """Return the outcome to compare with: the fastest one that keeps the mathematics, or changes them in the same way
    as ``outcome``. If that one is not faster than ``outcome``, return the fastest of all."""
    alike = [
        one
        for one in outcomes
        if one.iteration_s is not None and one.strategy.mathematics in ("", outcome.strategy.mathematics)
    ]
    best, own_s = outcomes.best, outcome.iteration_s
    # Outcomes come in the order of their seconds.
    return next((one for one in alike if own_s is None or (one.iteration_s or 0.0) < own_s), best)


def _best_of(outcome: Outcome, against: object) -> Outcome | None:
    if isinstance(against, Outcomes):
        against = _fastest(outcome, against)
    if isinstance(against, Plan):
        if against.iteration_s is None:
            raise LabError("against is a plan without simulated seconds; wanted one with iteration_s")
        against = Outcome(strategy=strategies["dtfm-lab"](), budget=outcome.budget, found=against)
    if against is None or against is outcome:
        return None
    if not isinstance(against, Outcome):
        raise LabError(f"against is {shortened(against)}; wanted an Outcome, Outcomes or a Plan")
    if outcome.found is not None and against.plan.topology.name != outcome.plan.topology.name:
        ours, theirs = outcome.plan.topology.name, against.plan.topology.name
        raise LabError(f"against is on {theirs}, and the outcome on {ours}; wanted the same network")
    return against


def stream_towards(outcome: Outcome, best: Outcome) -> Iterator[Waterfall]:
    """Explain step by step why ``best`` is faster than ``outcome``. Yield the waterfall so far after each step. Both
    have plans.

    First the plan adopts the choices of the better plan one by one. Then the lab's planner looks for a faster
    placement. The last step is the better plan itself, with its shape and cut, unless the choices alone explain all of
    its seconds. A step that changes nothing is left out. A step that the job does not allow is merged into the next.
    """
    steps = [WaterfallStep(switch=Switch(sentence=f"{outcome.title}, as it is."), outcome=outcome)]
    yield Waterfall(steps=tuple(steps))
    for sentence, found in _outcomes(outcome, best):
        steps.append(WaterfallStep(switch=Switch(sentence=sentence), outcome=found, before=steps[-1]))
        yield Waterfall(steps=tuple(steps))


def _outcomes(outcome: Outcome, best: Outcome) -> Iterator[tuple[str, Outcome]]:
    strategy, budget = outcome.strategy, outcome.budget
    other, title = best.job, best.title
    before, fields, waiting = outcome, dict[str, Any](), list[str]()
    for names, words in (
        (TRANSPORT, f"messages that {IN_WORDS[other.transport]}"),
        (MEMORY, _memory(other)),
        (AVERAGING, _averaging(other)),
        (SCHEDULE, f"the schedule {other.schedule_name}"),
    ):
        differs = {name: getattr(other, name) for name in names if getattr(other, name) != getattr(outcome.job, name)}
        if not differs or (names is SCHEDULE and outcome.job.n_stages == 1):
            continue
        fields |= differs
        waiting.append(words)
        try:
            changed = predicted(strategy, budget, outcome.plan.changed(job=outcome.job.with_fields(**fields)))
        except LabError:  # impossible without the next choice: the next step combines both
            continue
        yield f"As {title}: {'; '.join(waiting)}.", changed
        before, waiting = changed, []
    if before is not outcome and before.iteration_s == best.iteration_s:  # nothing is left to explain
        return
    if (placed := _placed(outcome, before.plan)) is not None:
        yield "Devices placed by this lab, in its shape.", placed
    waiting.append(f"its shape and cut, {best.shape}, micro-batches of {other.microbatch}")
    yield f"As {title}: {'; '.join(waiting)}.", best


def _placed(outcome: Outcome, plan: Plan) -> Outcome | None:
    """Return the outcome with the fastest placement that short searches find for the plan's shape; None if the plan's
    own is the fastest."""
    strategy, budget = outcome.strategy, outcome.budget
    found = [predicted(strategy, budget, plan)]
    with suppress(LabError):  # the search does not support this job
        found += [predicted(strategy, budget, one) for one in placements(plan, budget)]
    least = min(found, key=lambda one: one.iteration_s or 0.0)
    return None if least.iteration_s == found[0].iteration_s else least


def _memory(job: Job) -> str:
    kept = "no recomputation" if job.checkpoints == "none" else f"checkpointing by {job.checkpoints}"
    return f"sharding {job.sharding}, {kept}"


def _averaging(job: Job) -> str:
    every = f" every {job.synchronise_every} iterations" if job.synchronise_every > 1 else ""
    late = " in fragments" if job.fragments > 1 else " during the last backward" if job.overlap else ""
    coded = "" if job.gradients_as == "none" else f" in {job.gradients_as}"
    precision = "" if job.gradient_dtype is None else f", gradients in {job.gradient_dtype}"
    return f"synchronisation {job.synchronisation}{every}{late}{coded}{precision}"
