"""The one sentence above the panes: what has just changed, from what to what, and why.

An edit of the network or the job takes a few words: ``Tokyo – Oregon 0.52 → 0.10 Gbit/s``.
"""

from typing import Any, NamedTuple

import numpy as np

from dtfm_lab import planning
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, counted, in_figures, to_gbps, to_ms
from dtfm_lab.lab.plans import PAPERS, default_job
from dtfm_lab.planning.explain import iteration_sentences
from dtfm_lab.widgets.lab_state import LabState, modelled_s, run_staleness, shown_prediction
from dtfm_lab.widgets.planner.edits import BeforeEdit, PlanChange, effect, is_same
from dtfm_lab.widgets.planner.job_controls import COMMUNICATION, job_words
from dtfm_lab.widgets.planner.plan_words import PLANNING
from dtfm_lab.widgets.planner.short_searches import Replanned

EMPTY = ("No network yet.", "Double-click the canvas to add a device, or open a network.")
OF_A_RUN = ("run", "compare")
"""Panes whose notes are about a run. The notes are not shown once the plan or the choices have changed since."""
ALIKE = 1e-9
"""Relative difference up to which two numbers count as the same apart from rounding."""
MOST_NAMED = 2
"""Maximum number of devices that a sentence names. If there are more, it gives their number."""


class Headline(NamedTuple):
    """A sentence: its first part in bold, the rest, and its kind: empty, ``busy`` or ``error``."""

    lead: str
    rest: str = ""
    kind: str = ""


def headline(state: LabState, before: BeforeEdit | None, found: Replanned | None, reason: str) -> Headline:
    """Return what is most worth saying now.

    An error comes first. Then come a run's progress, why nothing could be planned or what does not fit, the shown
    pane's note, how a plan was made by hand, the last run, the last edit with its effect, and ``reason``: what limits
    the plan, see ``reason_of``.
    """
    # The order is by urgency: errors, what runs now, what does not fit, and only then what changed.
    if state.message:
        return Headline(f"{state.step.capitalize().replace('-', ' ')}:", state.message, "error")
    if state.topology is None:
        return Headline(*EMPTY)
    if "run" in state.busy and state.run_progress:
        clauses = "; ".join(filter(None, [state.run_progress, state.note_of("run")]))
        if state.run_story:
            return _split(f"{state.run_story}. The run: {clauses}.")._replace(kind="busy")
        return Headline("The run:", clauses, "busy")
    if state.not_planned:
        return _split(state.not_planned[0].upper() + state.not_planned[1:])._replace(kind="error")
    if state.lacking and shown_prediction(state) is not None:
        return Headline("The plan does not fit:", f"{state.lacking}.".replace("..", "."), "error")
    note = state.note_of(state.pane)
    if state.pane in OF_A_RUN:
        note = "" if run_staleness(state) else note or state.note_of("compare") or _measured(state)
    if note:
        return _split(note)
    if state.hand_note:
        return _split(state.hand_note)
    plan = state.plan
    if plan is None:
        if state.is_planning:
            return Headline(PLANNING, "", "busy")
        return Headline("No job fits this network.") if state.job is None else Headline("No plan yet.", "Press Plan.")
    if state.plan_is_stale:
        return Headline("The plan is out of date: the network has changed.", "Press Plan again, or turn Live on.")
    if clauses := "" if run_staleness(state) else _measured(state):
        return _split(clauses)  # the run came after the edit
    # Only if the shown plan is the one that the longer search found.
    longer = found.gain if found is not None and found.plan is plan else ""
    edit = "" if before is None else describe_edit(before.topology, plan.topology, before.job, state.job)
    if before is not None and edit:
        lead, rest = _of_edit(state, plan, before, edit, found)
        return Headline(lead, " ".join(filter(None, [longer and f"{longer}.", rest])))
    if before is not None and (choice := describe_choice(before, state)):
        return Headline(f"{choice}: {effect(before.iteration_s, modelled_s(state), 'iteration')}.")
    if state.history.said and before is None:
        return Headline(*state.history.said.split(" ", 1))
    if longer:
        return Headline(f"{longer}.", reason)
    reason = reason or f"Planned. {plan.job.name} on {plan.topology.name}."
    return _split(reason if before is not None else f"{reason}{opening_words(state)}{_basis_words(state)}")


def _basis_words(state: LabState) -> str:
    """Return why the shown iteration is a guess, or how it was calibrated. Empty if it is modelled."""
    shown = shown_prediction(state)
    if shown is None or not (basis := shown.context.basis).because:
        return ""
    return f" {basis.sentence[:1].upper()}{basis.sentence[1:]}."


def _measured(state: LabState) -> str:
    """Return the last run's seconds per iteration and its difference from the prediction. Empty for a mystery run."""
    found = state.comparison
    return "" if found is None or state.is_mystery or found.measured is not state.measured else found.error_sentence


def _split(note: str) -> Headline:
    """Split off the first part for bold type, up to a colon or the end of a sentence. A dot inside a number does not
    count."""
    ends = [at for mark in (": ", ". ") if (at := note.find(mark)) >= 0]
    return Headline(note[: min(ends) + 1], note[min(ends) + 2 :]) if ends else Headline(note)


def _of_edit(state: LabState, plan: Plan, before: BeforeEdit, edit: str, found: Replanned | None) -> tuple[str, str]:
    """Return the edit's effect, in the numbers that the bar shows, and what happened to the plan.

    If the user has chosen another schedule, or other choices, than the plan's, the bar shows the seconds with them.
    What the old plan would take is known only as planned, so it is left out.
    """
    change = _change_since(before, plan, found)
    if plan.objective == COMMUNICATION or plan.iteration_s is None:
        cost = effect(before.plan.cost.total_s, plan.cost.total_s, COMMUNICATION)
        seconds = cost if plan.job.model is None else f"communication cost {cost}{_iteration_too(state, before)}"
    elif plan.objective == "iteration":
        seconds = effect(before.iteration_s, modelled_s(state), plan.objective)
    else:
        seconds = "" if change is None else change.effect
    lead = f"{edit}: {seconds}." if seconds else f"{edit}."
    if change is None:
        return lead, ""
    as_chosen = all(getattr(plan.job, name) == value for name, value in state.choices.items())
    as_planned = plan.job.model is None or (as_chosen and state.schedule == plan.job.schedule_name)
    # The sentence compares plans as planned; with other choices, only what moved is certain.
    return lead, change.sentence if as_planned else change.moved


def _iteration_too(state: LabState, before: BeforeEdit) -> str:
    """Return what happened to the iteration if the search minimises the communication cost, because the bar shows the
    iteration first. Empty if its time is the same or unknown."""
    was, now = before.iteration_s, modelled_s(state)
    if was is None or now is None or is_same(was, now):
        return ""
    return f"; the iteration, which is not the objective, {effect(was, now, 'iteration')}"


def _change_since(before: BeforeEdit, plan: Plan, found: Replanned | None) -> PlanChange | None:
    """Return the change from before this edit to this plan. None if the plan is not the answer to the edit."""
    if found is None or found.plan is not plan or found.change is None or found.change.before is not before:
        return None
    return found.change


def opening_words(state: LabState) -> str:
    """Return that a network was opened with a smaller batch than its job's default. Empty if it was not."""
    topology, job = state.topology, state.job
    if topology is None or job is None or (job.name, job.global_batch) != (PAPERS, len(topology)):
        return ""
    own = default_job(topology).global_batch
    return "" if own == job.global_batch else f" Batch {job.global_batch}; the public code's default is {own}."


def reason_of(plan: Plan) -> str:
    """Return what limits a plan, in a sentence or two. Empty if it cannot be explained. Call it on a thread."""
    try:
        explained = planning.explain(plan)
        if plan.job.model is None:
            return explained.text.splitlines()[0]
        return iteration_sentences.binding(explained.iteration)
    except LabError:
        return ""


def describe_edit(before: Topology, after: Topology, job_before: Job | None, job: Job | None) -> str:
    """Return the difference between two networks, or else between two jobs. Empty if nothing relevant differs."""
    if before.fingerprint != after.fingerprint:
        return _of_devices(before, after) or _of_links(before, after) or "The network changed"
    return job_words(job_before, job)


def describe_choice(before: BeforeEdit, state: LabState) -> str:
    """Return which choices of the same plan's prediction changed. Empty if none did."""
    if before.shown is None or before.plan is not state.plan:
        return ""
    was, now = before.shown, state.shown_plan
    if now is None or was is now:
        return ""
    return job_words(was.job, now.job) or f"Queueing {was.queueing} → {now.queueing}"


def _of_devices(before: Topology, after: Topology) -> str:
    was, now = set(before.names), set(after.names)
    for names, verb in ((now - was, "joined"), (was - now, "left")):
        if names:
            return f"{_counted(sorted(names))} {verb}"
    old = {device.name: device for device in before.devices}
    changed = [d.name for d in after.devices if _what_it_is(old[d.name]) != _what_it_is(d)]
    return f"{_counted(changed)} changed" if changed else ""


def _what_it_is(device: Any) -> tuple[Any, ...]:
    return device.gpu, device.peak_flop_per_s, device.memory_bytes, device.price_per_hour, device.region, device.host


def _counted(names: list[str]) -> str:
    return " and ".join(names) if len(names) <= MOST_NAMED else counted(len(names), "device")


def _of_links(before: Topology, after: Topology) -> str:
    """Return which links changed, such as ``Tokyo – Oregon 0.52 → 0.10 Gbit/s``. Empty if none changed.

    The numbers are left out if the changed links do not all have the same numbers now.
    """
    # Undoing may change the order of devices, so links are compared by name.
    order = [before.names.index(name) for name in after.names]
    pairs = np.ix_(order, order)
    gbps = to_gbps(before.bandwidth_bytes_per_s[pairs]), to_gbps(after.bandwidth_bytes_per_s)
    ms = to_ms(before.latency_s[pairs]), to_ms(after.latency_s)
    changed = _differ(*gbps) | _differ(*ms)
    # A device has no link to itself.
    np.fill_diagonal(changed, False)
    if not changed.any():
        return ""
    ends = np.argwhere(changed)
    parts = [
        _from_to(float(np.median(was[changed])), float(np.median(now[changed])), unit)
        for (was, now), unit in ((gbps, "Gbit/s"), (ms, "ms"))
        if _differ(was[changed], now[changed]).any()
    ]
    where = _where(after, ends)
    same = all(_differ(now[changed], np.median(now[changed])).sum() == 0 for _, now in (gbps, ms))
    return f"{where} {', '.join(parts)}" if same else f"{where} changed"


def _where(topology: Topology, ends: np.ndarray) -> str:
    if len({frozenset(pair) for pair in ends.tolist()}) == 1:
        arrow = "→" if len(ends) == 1 else "–"
        return f" {arrow} ".join(topology.names[i] for i in ends[0])
    regions = {frozenset(topology.devices[i].region for i in pair) for pair in ends.tolist()}
    if len(regions) == 1 and "" not in (names := sorted(next(iter(regions)))):
        return " – ".join(names) if len(names) > 1 else f"Links within {names[0]}"
    return "Every link" if len(ends) == len(topology) * (len(topology) - 1) else f"{len(ends):,} links"


def _differ(was: FloatArray, now: Any) -> np.ndarray:
    return np.asarray(~np.isclose(was, now, rtol=ALIKE, atol=0, equal_nan=True))


def _from_to(was: float, now: float, unit: str) -> str:
    return f"{in_figures(was)} → {in_figures(now)} {unit}"
