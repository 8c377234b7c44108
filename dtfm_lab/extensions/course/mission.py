"""The lessons and their missions. A mission is a task with a function that decides whether an answer wins."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeGuard

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
    """One notebook of the course. The first list in it says what a reader can do afterwards."""

    name: str
    """Name of its file in ``notebooks/``, without the suffix."""
    title: str
    question: str
    """The question that the lesson answers."""
    minutes: int
    """Minutes to read it, run it and do its first missions."""
    needs: Sequence[str] = ()
    """Names of the lessons that it builds on."""
    elective: bool = False
    """True if the course can do without it."""


TEXTS = Path(__file__).parent / "texts"
"""Folder of the texts of the lessons, their missions and the exam."""
LESSONS: dict[str, Lesson] = {
    name: Lesson(name, **about) for name, about in read_mapping(TEXTS / "lessons.yaml").items()
}


NOUNS = (Plan, Topology, Job, Trace, Schedule)
"""An answer of one of these types must not be of a subclass, whose methods could return anything."""


class NotYet(Exception):
    """The answer does not win the mission. The message says why, but never what the answer is."""


class Given(SimpleNamespace):
    """What a mission gives a reader: numbers, a network, a job. The values differ between readers."""


Check = Callable[[Any, Given], str]
Give = Callable[[np.random.Generator], Mapping[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """The verdict on an answer, with the reason in a sentence. It is true if the answer wins."""

    mission: str
    passed: bool
    reason: str
    tries: int = 0
    """Number of this reader's tries, including this one; 0 if they are not counted."""

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
    """A task, with a function that checks the answer, a list of hints and a worked answer."""

    name: str
    lesson: str
    """Name of the lesson that it belongs to."""
    title: str
    task: str
    """What to do, in Markdown. ``{words}`` in braces are replaced by what this reader is given."""
    takes: type | tuple[type, ...]
    """Type of the answer. ``float`` accepts any real number, ``types.FunctionType`` a function that the reader
    wrote."""
    wanted: str
    """What to hand in, as a noun: "a Plan of spot"."""
    check: Check
    """Returns the sentence for an answer that wins. Raises NotYet with the sentence for any other."""
    hints: tuple[str, ...]
    """Hints, from a nudge to nearly the answer."""
    answer: str
    """Code that ends with ``answer = ...``. It works for every reader, because it can use ``given`` and ``lab``."""
    reason: Callable[[Given, Any], Any] | None = None
    """Computes the Number that the answer's list must end with. Only a reader who understands the rest of the answer
    can compute it. None if no such number is wanted."""
    begins_with: type | tuple[type, ...] = ()
    """Type of what comes before the final number in the answer's list, if a ``reason`` is wanted."""
    give: Give | None = None
    """Samples what the reader is given. None if all readers have the same task."""
    network: str = ""
    """Name of the bundled network that the answer is about, if the reader is given none."""
    job: Callable[[Given], Job] | None = None
    """Returns the job that the answer is about, if the reader is given none."""
    minutes: int = 5

    def starts_from(self, reader: str) -> tuple[Topology, Job | None] | None:
        """Return the network that the answer is about, and its job. None if the answer is about no network."""
        given = self.given(reader)
        nouns = list(vars(given).values())
        for plan in [each for each in nouns if isinstance(each, Plan)]:
            nouns += [plan.topology, plan.job]
        network = next((each for each in nouns if isinstance(each, Topology)), None)
        job = next((each for each in nouns if isinstance(each, Job)), None)
        if network is None and self.network:
            network = load_topology(self.network)
        if job is None and self.job is not None:
            job = self.job(given)
        return None if network is None else (network, job)

    def given(self, reader: str) -> Given:
        """Return what this reader is given. It is the same at every call, and other readers get other values. Empty if
        the mission has no ``give``.

        Here and below, ``reader`` is the text that seeds the numbers: a name, or a variant that a teacher's key made
        from it.
        """
        seed = hashlib.sha256(f"{self.name}: {reader}".encode()).digest()[:8]
        return Given(**(self.give(np.random.default_rng(int.from_bytes(seed))) if self.give else {}))

    def task_of(self, reader: str) -> str:
        """Return the task with this reader's numbers in it."""
        return self.task.format(**vars(_sampled_once(self, reader))) if self.give else self.task

    def verdict(self, answer: object, reader: str) -> Verdict:
        """Return the verdict on an answer. It raises no error, whatever the answer is."""
        try:
            return Verdict(self.name, True, self.check(self._accepted(answer), _sampled_once(self, reader)))
        except (NotYet, LabError) as error:
            return Verdict(self.name, False, str(error))
        except Exception as error:  # an answer may hold anything, such as a number that no float can hold
            said = f"{type(error).__name__}: {error}"
            return Verdict(self.name, False, f"it cannot be evaluated ({said:.120}); wanted {self.wanted}")

    def _accepted(self, answer: object) -> Any:
        """Return the answer as the type that the mission takes. Raises NotYet if it has another type, or if there is
        none."""
        found = "nothing" if answer is None else f"{type(answer).__name__} {answer!r:.60}"
        if self.takes is float:
            if not is_number(answer) or not math.isfinite(answer):
                raise NotYet(f"found {found}; wanted {self.wanted}")
            return float(answer)
        if not isinstance(answer, self.takes):
            raise NotYet(f"found {found}; wanted {self.wanted}")
        return as_given(answer)


@lru_cache(maxsize=16)
def _sampled_once(mission: Mission, reader: str) -> Given:
    """Return what a reader is given. It is cached, because some of it takes seconds to sample. Callers must not change
    it."""
    return mission.given(reader)


def is_number(value: object) -> TypeGuard[float]:
    """Return True for a number of Python or numpy, except True and False: they do not answer "how many"."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def as_given(answer: Any) -> Any:
    """Return the answer with each Plan, Topology and Job rebuilt from its fields, without values cached on it. A tuple
    becomes a list. Raises NotYet for an object of a subclass of ``NOUNS``."""
    if isinstance(answer, (list, tuple)):
        return [as_given(each) for each in answer]
    noun = next((each for each in NOUNS if isinstance(answer, each)), None)
    if noun is not None and type(answer) is not noun:
        # A subclass could answer anything when the check asks it.
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
    """Return all missions, or one lesson's missions. They are in order of lessons. Within a lesson, the quickest comes
    first.

    Raises UnknownName for an unknown lesson.
    """
    if lesson is not None and lesson not in LESSONS:
        raise unknown("lesson", lesson, LESSONS)
    place = {name: number for number, name in enumerate(LESSONS)}
    chosen = [each for each in missions.values() if lesson in (None, each.lesson)]
    return sorted(chosen, key=lambda each: (place.get(each.lesson, len(place)), each.minutes))
