"""Compare policies over the same hours: each history is replayed once, on a thread, and described in rows and
sentences."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import counted, format_share
from dtfm_lab.extensions.elasticity.api import policy_of
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.figures.history import PARTS, WORDS, parts
from dtfm_lab.extensions.elasticity.history import History, TimeUse
from dtfm_lab.extensions.elasticity.replaying import replay
from dtfm_lab.figures.measures import format_dollars
from dtfm_lab.figures.theme import time_axis
from dtfm_lab.widgets.lab_state import roles_of

MOST_KEPT = 200
"""Maximum number of cached histories. The least recently used one is dropped first."""


class _Stop(Exception):
    """Raised by a replay's ``progress`` to end the replay."""


@dataclass(frozen=True)
class RaceQuestion:
    """What is replayed: a network, a job, and when its devices are online."""

    topology: Topology
    job: Job
    here: Availability
    """When the network's devices are online."""

    def covers(self, topology: Topology | None, job: Job | None) -> bool:
        """Return True if the question is about this network and job."""
        return topology is not None and topology.fingerprint == self.topology.fingerprint and job == self.job

    def is_edit_of(self, before: RaceQuestion | None) -> bool:
        """Return True if both questions are about the same network, job and length of time."""
        return before is not None and before.covers(self.topology, self.job) and before.here.end_s == self.here.end_s

    @cached_property
    def key(self) -> tuple[object, ...]:
        here = self.here
        events = here.time_s.tobytes(), here.device.tobytes(), here.comes.tobytes(), here.end_s
        return self.topology.fingerprint, repr(self.job), *events


class Replays:
    """A cache of histories by question and policy. ``each``, which runs on a thread, replays the missing ones."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], History] = OrderedDict()
        self.doing, self.at_s = "", 0.0
        """The policy being replayed, and the seconds played so far."""
        self._stopped = threading.Event()

    def of(self, question: RaceQuestion | None, policies: Sequence[str]) -> list[History]:
        """Return the known histories of these policies, the one with most samples first."""
        keys = [] if question is None else [(*question.key, policy) for policy in policies]
        return sorted((self._known[key] for key in keys if key in self._known), key=lambda one: -one.samples)

    def each(self, question: RaceQuestion, policies: Sequence[str]) -> Iterator[History]:
        """Yield the history of each policy, after a replay if it is not known yet. ``stop`` ends the iteration. Errors
        of ``lab.replay`` pass through."""
        self._stopped = stopped = threading.Event()

        # The only way out of a replay: its loop calls this often.
        def progress(at_s: float) -> None:
            self.at_s = at_s
            if stopped.is_set():
                raise _Stop

        for policy in policies:
            key = (*question.key, policy)
            # Going back to earlier hours shows them at once.
            if key not in self._known:
                self.doing, self.at_s = policy, 0.0
                try:
                    self._known[key] = replay(question.topology, question.job, question.here, policy, progress=progress)
                except _Stop:
                    return
                # The least recently used goes first.
                if len(self._known) > MOST_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            yield self._known[key]

    def stop(self) -> None:
        """End the current replay at its next change. A running search for a plan finishes first."""
        self._stopped.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()


OURS = "goodput"
TITLES = {
    OURS: "Ours",
    "restart": "Restart",
    "varuna": "Varuna",
    "bamboo": "Bamboo",
    "oobleck": "Oobleck",
    "recycle": "ReCycle",
    "swarm": "SWARM",
    "torchft": "torchft",
    "skippipe": "SkipPipe",
    "diloco": "DiLoCo",
    "parcae": "Parcae",
}
"""Name on the screen of each policy. A policy of a plug-in is shown by the name under which it is registered."""
PARTLY = "after a loss, it trains on part of the batch or model, and how much better it could be is known less well"
ISLANDS = (
    "averages only every few steps, so a sample may teach less, and how much better it could be is known less well"
)
CAUSES = [{"name": name, "color": color, "word": ""} for name, color in PARTS.items()]
BY = "in the lab's replay"


def title_of(policy: str) -> str:
    return TITLES.get(policy, policy)


def ranked_by(one: History) -> tuple[bool, float]:
    """Return a key for sorting by samples, most first. Policies with local steps come last, because they train
    differently."""
    return one.local_steps > 1, -one.samples


def rows_of(ranked: Sequence[History], waiting: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows for ``SystemsView``: one per history, with the parts of its time, then one per policy that is not
    replayed yet."""
    rows = [_row(one) for one in ranked]
    return rows + [{"name": name, "title": title_of(name)} for name in waiting]


def _row(one: History) -> dict[str, Any]:
    share = one.share_of_bound
    steps = f"{int(one.steps.sum()):,} useful steps, {counted(len(one.losses), 'loss')}"
    dollars = f", {format_dollars(one.dollars)}" if one.dollars else ""
    bar = {"seconds": one.availability.end_s, "times": 1.0, "length": 1.0, "parts": [*map(list, parts(one).items())]}
    words = {"shape": f"{one.samples:,.0f} samples, {steps}{dollars}", "mathematics": _mathematics(one)}
    words |= {"told": f"{one.goodput:.4g}/s", "beside": "" if share is None else f"{share:.2f}"}
    return {"name": one.policy, "title": title_of(one.policy), **bar, **words}


def _mathematics(one: History) -> str:
    """Return how the policy's training differs from training the whole model on whole batches. "" if it does not."""
    if one.local_steps > 1:
        return f"averages only every {counted(one.local_steps, 'step')}, so a sample may teach less"
    return "" if policy_of(one.policy).full_batch else PARTLY


def marks_of(found: Sequence[History]) -> list[str]:
    """Return the explanations of the marks on these histories, each once. A history is marked if its training differs
    from whole batches on the whole model."""
    marked = [one for one in found if _mathematics(one)]
    return list(dict.fromkeys(ISLANDS if one.local_steps > 1 else PARTLY for one in marked))


def moment_of(one: History, at_s: float) -> tuple[dict[str, Any], str]:
    """Return what each device does at second ``at_s`` of a history, as ``LabState.moment`` holds it, and a sentence
    that says so."""
    unit, in_s = time_axis(one.availability.end_s)
    segment = min(int(np.searchsorted(one.start_s, at_s, side="right")) - 1, len(one.state) - 1)
    index = int(one.operation[segment])
    plan = one.operations[index].plan if index >= 0 else None
    there = set(one.availability.present_at(at_s))
    absent = [name for name in one.availability.devices if name not in there]
    tasks = {} if plan is None else roles_of(plan)
    serving = f"{len(one.operations[index].devices)} in use" if index >= 0 else "none in use"
    sizes = [] if plan is None else [counted(len(plan.stages), "stage"), counted(len(plan.stages[0]), "replica")]
    shape = f" as {' x '.join(sizes)}" if sizes else ""
    moment = f"{at_s / in_s:.2f} {unit}, {title_of(one.policy)}: {WORDS[TimeUse(one.state[segment])]}"
    return {"tasks": tasks, "absent": absent}, f"{moment}; {len(there)} online, {serving}{shape}"


def sentence(ranked: Sequence[History]) -> str:
    """Return which policy trains most, by how much, and how close that is to perfect foresight. "" without a history.

    Policies with local steps are compared only if there are no others.
    """
    if not ranked:
        return ""
    # samples of local steps train differently, so they are not compared with the others
    alike_trained = [one for one in ranked if one.local_steps == 1] or list(ranked)
    best, others = alike_trained[0], alike_trained[1:]
    if not best.samples:
        return f"Nothing is trained in these hours, {BY}."
    share = "" if best.share_of_bound is None else f"{best.share_of_bound:.2f} of what perfect foresight allows"
    partly = ", some of it with part of the model" if best.skipping_samples else ""
    if not others:
        return f"{title_of(best.policy)} reaches {share}{partly}, {BY}."
    second = next((one for one in others if one.samples == best.samples), others[0])
    if second.samples == best.samples:
        return f"{title_of(best.policy)} and {title_of(second.policy)} train the same: {share}{partly}, {BY}."
    more = best.samples / second.samples - 1 if second.samples else 0.0
    by = f"{format_share(more)} more than {title_of(second.policy)}" if more else "and no other does"
    theirs = "" if second.share_of_bound is None else f"; {title_of(second.policy)} {second.share_of_bound:.2f}"
    return f"{title_of(best.policy)} trains most, {by}: {share}{partly}{theirs}, {BY}."
