"""A race of policies through the same hours: each history is replayed once, on a thread, and told in words and rows."""

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
"""Histories that are kept; the one that was used longest ago is dropped first."""


class _Stop(Exception):
    """Ends a replay from within."""


@dataclass(frozen=True)
class RaceQuestion:
    """What policies are asked: whose hours, with which devices and which job."""

    topology: Topology
    job: Job
    here: Availability
    """Of the network's devices."""

    def covers(self, topology: Topology | None, job: Job | None) -> bool:
        """Whether a network and a job are what is asked about."""
        return topology is not None and topology.fingerprint == self.topology.fingerprint and job == self.job

    def is_edit_of(self, before: RaceQuestion | None) -> bool:
        """Whether it is of the same network, job and length of time."""
        return before is not None and before.covers(self.topology, self.job) and before.here.end_s == self.here.end_s

    @cached_property
    def key(self) -> tuple[object, ...]:
        here = self.here
        events = here.time_s.tobytes(), here.device.tobytes(), here.comes.tobytes(), here.end_s
        return self.topology.fingerprint, repr(self.job), *events


class Replays:
    """Histories by question and policy. Those that are wanted are made by ``each``, on a thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], History] = OrderedDict()
        self.doing, self.at_s = "", 0.0
        """The policy that is replayed, and how far it is."""
        self._stopped = threading.Event()

    def of(self, question: RaceQuestion | None, policies: Sequence[str]) -> list[History]:
        """The known histories of these policies, the one with most samples first, as ``lab.figures.race`` has them."""
        keys = [] if question is None else [(*question.key, policy) for policy in policies]
        return sorted((self._known[key] for key in keys if key in self._known), key=lambda one: -one.samples)

    def each(self, question: RaceQuestion, policies: Sequence[str]) -> Iterator[History]:
        """Replay those that are not known, in order, until ``stop``. Raises what ``lab.replay`` raises."""
        self._stopped = stopped = threading.Event()

        def progress(at_s: float) -> None:
            self.at_s = at_s
            if stopped.is_set():
                raise _Stop

        for policy in policies:
            key = (*question.key, policy)
            if key not in self._known:
                self.doing, self.at_s = policy, 0.0
                try:
                    self._known[key] = replay(question.topology, question.job, question.here, policy, progress=progress)
                except _Stop:
                    return
                if len(self._known) > MOST_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            yield self._known[key]

    def stop(self) -> None:
        """End the replay at hand at its next change; a plan that is being searched is finished first."""
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
"""What the policies are called on the screen; one of a plug-in is called by its name."""
PARTLY = "a weaker bound: after a loss it trains on a part of the batch or of the model"
ISLANDS = "other training, and a weaker bound: its islands average every so many steps"
CAUSES = [{"name": name, "color": color, "word": ""} for name, color in PARTS.items()]
BY = "by the lab's own replay"


def title_of(policy: str) -> str:
    return TITLES.get(policy, policy)


def ranked_by(one: History) -> tuple[bool, float]:
    """Most samples first; those of islands come last, as their training is another."""
    return one.local_steps > 1, -one.samples


def rows_of(ranked: Sequence[History], waiting: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of ``SystemsView``: of each history what its time went to; then who is not replayed yet, by name."""
    rows = [_row(one) for one in ranked]
    return rows + [{"name": name, "title": title_of(name)} for name in waiting]


def _row(one: History) -> dict[str, Any]:
    share = one.share_of_bound
    steps = f"{int(one.steps.sum()):,} steps count, {counted(len(one.losses), 'loss')}"
    dollars = f", {format_dollars(one.dollars)}" if one.dollars else ""
    bar = {"seconds": one.availability.end_s, "times": 1.0, "length": 1.0, "parts": [*map(list, parts(one).items())]}
    words = {"shape": f"{one.samples:,.0f} samples, {steps}{dollars}", "mathematics": _mathematics(one)}
    words |= {"told": f"{one.goodput:.4g}/s", "beside": "" if share is None else f"{share:.2f}"}
    return {"name": one.policy, "title": title_of(one.policy), **bar, **words}


def _mathematics(one: History) -> str:
    """How its samples are others than those of whole batches by the whole model; empty where they are not."""
    if one.local_steps > 1:
        return f"other training: averages every {counted(one.local_steps, 'step')}, and a weaker bound"
    return "" if policy_of(one.policy).full_batch else PARTLY


def marks_of(found: Sequence[History]) -> list[str]:
    """What the mark at some of these histories means, each meaning once."""
    marked = [one for one in found if _mathematics(one)]
    return list(dict.fromkeys(ISLANDS if one.local_steps > 1 else PARTLY for one in marked))


def moment_of(one: History, at_s: float) -> tuple[dict[str, Any], str]:
    """Who does what at a second of a history, as ``LabState.moment`` has it, and that in words."""
    unit, in_s = time_axis(one.availability.end_s)
    segment = min(int(np.searchsorted(one.start_s, at_s, side="right")) - 1, len(one.state) - 1)
    index = int(one.operation[segment])
    plan = one.operations[index].plan if index >= 0 else None
    there = set(one.availability.present_at(at_s))
    absent = [name for name in one.availability.devices if name not in there]
    tasks = {} if plan is None else roles_of(plan)
    serving = f"{len(one.operations[index].devices)} serve" if index >= 0 else "none serves"
    sizes = [] if plan is None else [counted(len(plan.stages), "stage"), counted(len(plan.stages[0]), "replica")]
    shape = f" as {' x '.join(sizes)}" if sizes else ""
    moment = f"{at_s / in_s:.2f} {unit}, {title_of(one.policy)}: {WORDS[TimeUse(one.state[segment])]}"
    return {"tasks": tasks, "absent": absent}, f"{moment}; {len(there)} there, {serving}{shape}"


def sentence(ranked: Sequence[History]) -> str:
    """Who trains most, by how much, and how far that is from what foresight would; empty for none."""
    if not ranked:
        return ""
    alike_trained = [one for one in ranked if one.local_steps == 1] or list(ranked)  # samples of islands are others
    best, others = alike_trained[0], alike_trained[1:]
    if not best.samples:
        return f"Nothing is trained in these hours, {BY}."
    share = "" if best.share_of_bound is None else f"{best.share_of_bound:.2f} of what knowing the future allows"
    partly = ", some of it by a part of the model" if best.skipping_samples else ""
    if not others:
        return f"{title_of(best.policy)} trains {share}{partly}, {BY}."
    second = next((one for one in others if one.samples == best.samples), others[0])
    if second.samples == best.samples:
        return f"{title_of(best.policy)} and {title_of(second.policy)} train the same: {share}{partly}, {BY}."
    more = best.samples / second.samples - 1 if second.samples else 0.0
    by = f"{format_share(more)} more than {title_of(second.policy)}" if more else "and no other does"
    theirs = "" if second.share_of_bound is None else f"; {title_of(second.policy)} {second.share_of_bound:.2f}"
    return f"{title_of(best.policy)} trains most, {by}: {share}{partly}{theirs}, {BY}."
