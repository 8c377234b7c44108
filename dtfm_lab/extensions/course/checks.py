"""Building blocks of missions: three ways to register a mission, and functions that check an answer.

Numbers are always computed again and never taken from fields of the answer. For a real run, checks require that it ran
the plan, and that its prediction was made before the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from dtfm_lab.domain.job import Job, ModelSpec
from dtfm_lab.domain.network import Topology, as_number
from dtfm_lab.domain.plan import Plan, check_same_plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.extensions.course.mission import LESSONS, TEXTS, Check, Give, Given, Mission, NotYet, is_number, missions
from dtfm_lab.files import load_topology
from dtfm_lab.files.reading import read_mapping
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory

TRAINED = (
    *("model", "dtype", "compression", "gradient_compression", "gradient_dtype"),
    *("synchronise_every", "fragments", "fragment_delay", "memory_traffic", "flush_every"),
)
"""Fields of a job that say what is trained, and in which precision. The answer may choose the batch and how the work is
divided."""

cases_seed: int | None = None
"""Seed of the cases on which readers' functions are tried. None samples new cases at every check, so no reader knows
them beforehand."""


@dataclass(frozen=True)
class Number:
    """A number that a reader has to find, and the numbers that common mistakes lead to."""

    wanted: float
    slips: Mapping[str, float]
    """Wrong numbers that common mistakes lead to, by the name of the sentence that explains the mistake. Never contains
    the answer itself."""
    text_values: Mapping[str, Any] = field(default_factory=dict)
    """Values for names in braces in the texts, in addition to ``wanted`` and what the reader is given."""
    within: float = 0.01
    """Maximum relative difference between an answer and the wanted number."""
    said: str = ""
    """The sentence for a right answer. Like ``sentences``, it is filled in from the texts."""
    sentences: Mapping[float, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """One case on which a reader's function is tried."""

    arguments: Sequence[Any]
    wanted: float
    slips: Mapping[str, float] = field(default_factory=dict)
    """As in ``Number``."""
    within: float = 1e-6
    about: str = "on a fresh case"
    """How the sentence about a wrong function begins. It says which case failed."""


TextValues = Mapping[str, Any]
"""Values for names in braces in a mission's text, in addition to what the reader is given."""
Checked = Callable[[Any, Given], TextValues]
Reason = Callable[[Given, Any], Number]
"""Computes the number that the answer's list must end with, from what the reader is given and the rest of the
answer."""
Cases = Callable[[np.random.Generator], Iterable[Trial]]
Value = TypeVar("Value")
MOST_READERS = 16
"""Readers whose values ``once_per_reader`` keeps."""


def once_per_reader(compute: Callable[[Given], Value]) -> Callable[[Given], Value]:
    """Decorate a function of what a reader is given: its value is kept, so that only the reader's first try waits."""
    kept: list[tuple[Given, Value]] = []

    @wraps(compute)
    def kept_or_computed(given: Given) -> Value:
        for other, value in kept:
            if other is given:
                return value
        value = compute(given)
        kept.append((given, value))
        del kept[:-MOST_READERS]
        return value

    return kept_or_computed


class MissionsOf:
    """Registers the missions of one lesson. The texts that a reader sees are in ``texts/LESSON.yaml``, by mission
    name."""

    def __init__(self, lesson: str) -> None:
        if lesson not in LESSONS:
            raise ValueError(f"there is no lesson {lesson!r}; wanted one of {', '.join(LESSONS)}")
        self._lesson = lesson
        self._texts = read_mapping(TEXTS / f"{lesson}.yaml")

    def mission(
        self, name: str, *, takes: type | tuple[type, ...], reason: Reason | None = None, **about: Any
    ) -> Callable[[Checked], Checked]:
        """Register a mission whose check is the decorated function. ``about`` has the fields of a Mission that are not
        texts.

        The texts have ``said``, the sentence for an answer that wins. The check returns values for the names in braces
        in ``said``. With a ``reason``, the answer is a list that ends in a number, and the texts have its ``slips``.
        """
        said, slips = self._texts[name].pop("said"), self._texts[name].pop("slips", {})
        wanted = self._texts[name]["wanted"]

        def register(check: Checked) -> Checked:
            def both(answer: Any, given: Given) -> str:
                rest = answer if reason is None else _rest_of(answer, takes, wanted)
                text_values = check(rest, given)
                if reason is not None:
                    number = reason(given, rest)
                    sentences = {slip: slips[which] for which, slip in number.slips.items()}
                    found = number_from(lambda: answer[-1])
                    try:
                        near(found, number.wanted, number.within, sentences)
                    except NotYet as error:
                        raise NotYet(f"the first part is right. The number {found:.6g} is not: {error}") from None
                return str(said.format(**{**vars(given), **text_values}))

            if reason is not None:
                about.update(reason=reason, begins_with=takes)
            self._register(name, both, takes=takes if reason is None else (list, tuple), **about)
            return check

        return register

    def number(self, name: str, give: Give) -> Callable[[Callable[[Given], Number]], Callable[[Given], Number]]:
        """Register a mission whose answer is a number. The decorated function computes it from what the reader is
        given.

        The mission's texts need two keys: ``said``, the sentence for a right answer, and ``slips``, a sentence for each
        common mistake, by its name.
        """
        said, slips = (self._texts[name].pop(key) for key in ("said", "slips"))

        def register(wanted_of: Callable[[Given], Number]) -> Callable[[Given], Number]:
            def worded(given: Given) -> Number:
                number = wanted_of(given)
                text_values = {**vars(given), "wanted": number.wanted, **number.text_values}
                sentences = {slip: slips[which].format(**text_values) for which, slip in number.slips.items()}
                return replace(number, said=said.format(**text_values), sentences=sentences)

            def check(found: float, given: Given) -> str:
                number = worded(given)
                near(found, number.wanted, number.within, number.sentences)
                return number.said

            self._register(name, check, takes=float, give=give)
            return worded

        return register

    def function(self, name: str) -> Callable[[Cases], Cases]:
        """Register a mission whose answer is a function. The decorated function samples the cases on which the reader's
        function is tried.

        The mission's texts need the key ``said``, the sentence for a right function. ``slips`` may hold a sentence for
        each common mistake, by its name.
        """
        said, slips = self._texts[name].pop("said"), self._texts[name].pop("slips", {})

        def register(cases: Cases) -> Cases:
            def check(function: Callable[..., Any], given: Given) -> str:
                for case in cases(fresh_cases()):
                    found = number_from(function, *case.arguments)
                    sentences = {slip: slips[which] for which, slip in case.slips.items()}
                    try:
                        near(found, case.wanted, case.within, sentences, side=True)
                    except NotYet as error:
                        raise NotYet(f"{case.about} it returned {found:.6g}: {error}") from None
                return str(said)

            self._register(name, check, takes=FunctionType)
            return cases

        return register

    def _register(self, name: str, check: Check, **about: Any) -> None:
        texts = self._texts[name]
        hints = tuple(texts.pop("hints"))
        missions.register(name)(Mission(name=name, lesson=self._lesson, check=check, hints=hints, **texts, **about))


def _rest_of(answer: Sequence[object], takes: type | tuple[type, ...], wanted: str) -> Any:
    """Return an answer without the number at its end: a list if the mission takes one, otherwise a single object.
    Raises NotYet if the answer has another form."""
    is_list = isinstance(takes, tuple) and list in takes
    require(len(answer) >= 2, f"the list has {len(answer)} things; wanted {wanted}")
    last = answer[-1]
    require(is_number(last), f"it ends in {type(last).__name__} {last!r:.40}; wanted {wanted}")
    if is_list:
        return list(answer[:-1])
    require(len(answer) == 2, f"the list has {len(answer)} things; wanted {wanted}")
    first = answer[0]
    require(isinstance(first, takes) and not isinstance(first, bool), f"found {type(first).__name__}; wanted {wanted}")
    return first


def fresh_cases() -> np.random.Generator:
    """Return the random generator of the cases for a reader's function, seeded with ``cases_seed``."""
    return np.random.default_rng(cases_seed)


def require(holds: bool, otherwise: str) -> None:
    """Raise NotYet with the sentence ``otherwise`` unless ``holds`` is true."""
    if not holds:
        raise NotYet(otherwise)


def near(
    found: float, wanted: float, within: float = 0.01, slips: Mapping[float, str] | None = None, *, side: bool = False
) -> None:
    """Raise NotYet unless a number differs from the wanted one by at most the share ``within``. A number that close to
    one in ``slips`` gets the sentence of that one.

    ``side`` tells the reader whether the number is too high or too low. Use it only if the next check wants another
    number, as random cases do. Otherwise a loop could find the number by bisection.
    """
    if abs(found - wanted) <= within * abs(wanted):
        return
    for slip, sentence in (slips or {}).items():
        if abs(found - slip) <= within * abs(slip):
            raise NotYet(sentence)
    raise NotYet(f"{found:.6g} is {('above' if found > wanted else 'below') if side else 'not'} it")


def same_network(found: Topology, wanted: Topology | str) -> None:
    """Raise NotYet unless the network has the same devices and links as ``wanted``, a network or the name of a bundled
    one."""
    network = load_topology(wanted) if isinstance(wanted, str) else wanted
    require(
        found.fingerprint == network.fingerprint,
        f"this is about another network than {network.name}, or one whose links or devices were changed",
    )


def same_job(found: Job, wanted: Job, *fields: str) -> None:
    """Raise NotYet unless the job has the wanted values in these fields, or in all fields if none is named."""
    for name in fields or Job.__dataclass_fields__:
        have, want = getattr(found, name), getattr(wanted, name)
        said = (have.name, want.name) if isinstance(have, ModelSpec) and isinstance(want, ModelSpec) else (have, want)
        require(have == want, "the job has {} {!r:.60}; wanted {!r:.60}".format(name, *said))


def plan_of(plan: Plan, network: Topology | str, job: Job, *fields: str) -> None:
    """Raise NotYet unless a plan is for this network and for a job that is the same in these fields, or in all fields
    if none is named."""
    same_network(plan.topology, network)
    same_job(plan.job, job, *fields)


def fits(plan: Plan, trace: Trace | None = None) -> None:
    """Raise NotYet unless the plan fits every device's memory. With a trace, it must fit at every moment of the
    trace."""
    report = memory(plan, trace=trace)
    require(report.fits, f"it does not fit its devices: {report.sentence}")


def priced_again(plan: Plan) -> Plan:
    """Return the plan with its communication cost computed from its placement alone."""
    return evaluate(plan.topology, plan.job, stages=plan.placement.devices.tolist())


class Raised(Exception):
    """A reader's function raised an error in its separate process. The message has the error's type and text."""


def value_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the reader's function returns for copies of the arguments, which it may change. Raises NotYet if it
    raises."""
    try:
        return function(*deepcopy(arguments))
    except Raised as error:
        raise NotYet(f"your function raised {error}") from None
    except Exception as error:  # the reader's code may raise anything
        raise NotYet(f"your function raised {type(error).__name__}: {error}") from None


def number_from(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the real number that the reader's function returns. Raises NotYet for anything else."""
    found = value_of(function, *arguments)
    wrong = f"your function returned {type(found).__name__} {found!r:.60}; wanted a number"
    value = None if isinstance(found, complex) else as_number(found)
    if value is None:
        raise NotYet(wrong)
    require(math.isfinite(value), f"your function returned {value}; wanted a number")
    return value


def parts_of(answer: Sequence[object], wanted: str, *types: type) -> Any:
    """Return ``answer``, a list that must hold one object of each of these types in this order. Raises NotYet
    otherwise."""
    require(len(answer) == len(types), f"the list has {len(answer)} things; wanted {wanted}")
    for one, kind in zip(answer, types, strict=True):
        require(isinstance(one, kind), f"found {type(one).__name__} {one!r:.40} in it; wanted {wanted}")
    return answer


def really_measured(trace: Trace) -> None:
    """Raise NotYet unless a trace was measured in a run and has losses."""
    require(trace.context.source == "measured", "this trace was simulated; wanted one that lab.run measured")
    require(bool(trace.context.losses), "this trace has no losses; wanted one that lab.run measured")


def ran_plan(trace: Trace, plan: Plan, *, iterations: int) -> None:
    """Raise NotYet unless the trace was measured in a real run of this plan, over at least ``iterations`` iterations.

    Raises TraceError, with a sentence that says so, if it ran on other devices, another network, or other numbers of
    micro-batches.
    """
    really_measured(trace)
    check_same_plan(plan, trace.context.plan, "n_microbatches", "microbatch_counts")
    found = trace.n_iterations
    require(found >= iterations, f"it ran for {found} iterations; wanted at least {iterations}")


def predicted_before(predicted: Trace, measured: Trace, plan: Plan) -> None:
    """Raise NotYet unless a prediction follows from the plan and a profile that was measured before the run.

    The prediction is computed again. If it comes from peak speeds, or from the run's own spans, the error says so.
    """
    require(
        predicted.context.source == "simulated",
        "the prediction was measured, too; wanted [predicted, measured], the first from lab.simulate",
    )
    require(
        predicted.context.clock == measured.context.clock,
        f"it counts seconds by the {predicted.context.clock} clock, the run by the {measured.context.clock} clock: its "
        "computations come from drawn peaks or from a fit, not from the profile that workers took before the run",
    )
    again_s = simulate(plan, like=measured).iteration_s
    require(
        abs(predicted.iteration_s - again_s) <= 1e-6 * again_s,
        f"it predicts {predicted.iteration_s:.4g} s; the plan, with the profile from before this run, leads to "
        f"{again_s:.4g} s. What was fitted to this run, or comes from another one, does not predict it",
    )
