"""The lessons, and their missions: tasks whose winning condition is a function of the reader's own answer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.registry import Registry, unknown
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files import load_topology
from dtfm_lab.files.reading import read_mapping


class Lesson(NamedTuple):
    """One notebook of the course. What a reader can do afterwards is the first list in it."""

    name: str
    """Name of its file in ``notebooks/``, without the ending."""
    title: str
    question: str
    """What the lesson answers."""
    minutes: int
    """To read it, run it and do its first missions."""
    needs: Sequence[str] = ()
    """Names of the lessons that it builds on."""
    elective: bool = False
    """Whether the course can do without it."""


TEXTS = Path(__file__).parent / "texts"
"""What readers see of the lessons, the missions of each and the exam."""
LESSONS: dict[str, Lesson] = {
    name: Lesson(name, **about) for name, about in read_mapping(TEXTS / "lessons.yaml").items()
}


NOUNS = (Plan, Topology, Job, Trace, Schedule)
"""Answers of these types are what they say; a subclass could say something else at each call."""


class NotYet(Exception):
    """The answer does not win the mission; the message says why, and never what the answer is."""


class Given(SimpleNamespace):
    """What a mission gives a reader: numbers, a network, a job. The values differ from reader to reader."""


Check = Callable[[Any, Given], str]
Give = Callable[[np.random.Generator], Mapping[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """Whether an answer wins the mission, and the reason in a sentence. True where it does."""

    mission: str
    passed: bool
    reason: str
    tries: int = 0
    """Number of this reader's tries, this one among them; 0 where they are not counted."""

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        counted = f", try {self.tries}" if self.tries else ""
        return f"{self.mission}: {'passed' if self.passed else 'not yet'}{counted}. {self.reason}"

    def _repr_markdown_(self) -> str:
        counted = f", try {self.tries}" if self.tries else ""
        return f"**{'✓ Passed' if self.passed else '✗ Not yet'}** `{self.mission}`{counted}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class Mission:
    """A task, what wins it, hints in steps and a worked answer."""

    name: str
    lesson: str
    """Name of the lesson that it ends."""
    title: str
    task: str
    """What to do, in Markdown. ``{words}`` in braces are replaced by what this reader is given."""
    takes: type | tuple[type, ...]
    """Type of the answer. ``float`` takes any real number, ``types.FunctionType`` a function of the reader's own."""
    wanted: str
    """What to hand in, as a noun: "a Plan of spot"."""
    check: Check
    """Returns the sentence to say to an answer that wins, raises NotYet with the sentence for one that does not."""
    hints: tuple[str, ...]
    """From a nudge to nearly the answer."""
    answer: str
    """Code that ends with ``answer = ...``. It works for every reader: ``given`` and ``lab`` are there."""
    reason: Callable[[Given, Any], Any] | None = None
    """Returns the Number that ends the answer's list: what only somebody who understands the rest of it can compute."""
    begins_with: type | tuple[type, ...] = ()
    """Type of what comes before that number in the list."""
    give: Give | None = None
    """Draws what the reader is given. None where all readers have the same task."""
    network: str = ""
    """Name of the bundled network that the answer is about, if the reader is given none."""
    job: Callable[[Given], Job] | None = None
    """Returns the job that the answer is about, if the reader is given none."""
    minutes: int = 5

    def starts_from(self, reader: str) -> tuple[Topology, Job | None] | None:
        """Return the network that the answer is about, and its job. None if the answer is about no network."""
        given = self.given(reader)
        nouns = list(vars(given).values())
        plan = next((each for each in nouns if isinstance(each, Plan)), None)
        network = next((each for each in nouns if isinstance(each, Topology)), plan and plan.topology)
        job = next((each for each in nouns if isinstance(each, Job)), plan and plan.job)
        if network is None and self.network:
            network = load_topology(self.network)
        if job is None and self.job is not None:
            job = self.job(given)
        return None if network is None else (network, job)

    def given(self, reader: str) -> Given:
        """What this reader is given: the same at every call, other than what others are given.

        Here and below ``reader`` is a name, or the variant that a teacher's key made of one.
        """
        seed = hashlib.sha256(f"{self.name}: {reader}".encode()).digest()[:8]
        return Given(**(self.give(np.random.default_rng(int.from_bytes(seed))) if self.give else {}))

    def task_of(self, reader: str) -> str:
        """The task with this reader's numbers in it."""
        return self.task.format(**vars(_sampled_once(self, reader))) if self.give else self.task

    def verdict(self, answer: object, reader: str) -> Verdict:
        """Evaluate an answer. Whatever the answer is, this raises nothing."""
        try:
            return Verdict(self.name, True, self.check(self._accepted(answer), _sampled_once(self, reader)))
        except (NotYet, LabError) as error:
            return Verdict(self.name, False, str(error))
        except Exception as error:  # an answer may hold anything, such as a number that no float can hold
            said = f"{type(error).__name__}: {error}"
            return Verdict(self.name, False, f"it cannot be evaluated ({said:.120}); wanted {self.wanted}")

    def _accepted(self, answer: object) -> Any:
        """The answer as its type. Raises NotYet where it is no such thing, or nothing at all."""
        found = "nothing" if answer is None else f"{type(answer).__name__} {answer!r:.60}"
        if self.takes is float:
            is_number = isinstance(answer, (int, float, np.integer, np.floating)) and not isinstance(answer, bool)
            if not is_number or not math.isfinite(cast(float, answer)):
                raise NotYet(f"found {found}; wanted {self.wanted}")
            return float(cast(float, answer))
        if not isinstance(answer, self.takes):
            raise NotYet(f"found {found}; wanted {self.wanted}")
        return as_given(answer)


@lru_cache(maxsize=16)
def _sampled_once(mission: Mission, reader: str) -> Given:
    """What a reader is given, for checks and texts, which change nothing in it: some takes seconds to draw."""
    return mission.given(reader)


def as_given(answer: Any) -> Any:
    """The answer built again from its fields, also where it is a list of such: what was cached on it is forgotten."""
    if isinstance(answer, (list, tuple)):
        return [as_given(each) for each in answer]
    noun = next((each for each in NOUNS if isinstance(answer, each)), None)
    if noun is not None and type(answer) is not noun:
        raise NotYet(f"found {type(answer).__name__}, a class of your own; wanted {noun.__name__} itself")
    if isinstance(answer, Plan):
        return answer.changed(
            topology=as_given(answer.topology),
            job=as_given(answer.job),
            placement=Placement(answer.placement.devices),
        )
    if isinstance(answer, str):
        return str.__str__(answer)
    return replace(answer) if isinstance(answer, (Topology, Job)) else answer


missions: Registry[Mission] = Registry(
    "mission", group="dtfm_lab.missions", fits=lambda entry: isinstance(entry, Mission)
)


def in_order(lesson: str | None = None) -> list[Mission]:
    """All missions, or those of one lesson, in the order of the lessons, the quickest of a lesson first.

    Raises UnknownName for a lesson that there is not.
    """
    if lesson is not None and lesson not in LESSONS:
        raise unknown("lesson", lesson, LESSONS)
    place = {name: number for number, name in enumerate(LESSONS)}
    chosen = [each for each in missions.values() if lesson in (None, each.lesson)]
    return sorted(chosen, key=lambda each: (place.get(each.lesson, len(place)), each.minutes))
