"""Pipeline schedules by name, ``build``, which makes one for a plan, and the schedules that come with the lab."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, count, pairwise
from numbers import Integral

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency
from dtfm_lab.costs.memory import activation_budget
from dtfm_lab.costs.seconds import analytic
from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Links, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.schedule import Action, Kind, Program, Schedule, check_passes, passes, taking_turns, with_warmups
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.units import counted
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.schedules.adaptive import choose_warmups

Builder = Callable[..., Schedule]
"""Orders the passes of one pipeline. It is called with the number of devices and the number of micro-batches.

A builder may have more keywords. ``build`` passes each of the following that its signature names:

``stages_per_device``
    Number of stages per device, if the schedule interleaves.
``flush_every``
    Number of micro-batches after which the pipeline empties. If a job sets it, a schedule that does not name it is
    refused.
``plan``
    The Plan that is simulated or run, including its network and job.
``profile``
    Seconds of every computation of the plan, as ComputeTimes, one stage per device.
``links``
    Links between the devices of the plan's network, by device index.
``most_activations``
    Per device, the number of micro-batches whose activations it can hold at once.

A builder raises ScheduleError if it cannot handle the counts or its choices.
"""

schedules: Registry[Builder] = Registry("pipeline schedule", group="dtfm_lab.schedules")

FLUSHES = "flush_every"
"""The one keyword that is an error if a schedule's builder does not name it. All others are then left out."""
MOST_PASSES = 2 * 10**6
"""Maximum number of passes of a pipeline, where a forward and its backward count as one. Ordering this many takes some
ten seconds and half a gigabyte."""


def choices_of(name: str) -> dict[str, bool]:
    """Return the keywords that a schedule's signature names. A value is True if the keyword is required. Raises
    UnknownName."""
    return _choices(schedules[name])


@lru_cache
def _choices(builder: Builder) -> dict[str, bool]:
    parameters = list(inspect.signature(builder).parameters.values())[2:]
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {p.name: p.default is inspect.Parameter.empty for p in parameters if p.kind not in variadic}


def build_named(name: str, n_stages: int, n_microbatches: int, choices: Mapping[str, Callable[[], object]]) -> Schedule:
    """Return a schedule by name. ``choices`` maps keywords to functions that return their values. Only the functions of
    keywords that the schedule's signature names are called.

    Raises UnknownName, or ScheduleError if it needs a keyword that is missing, such as the plan, or does not take a
    given ``flush_every``.
    """
    taken = choices_of(name)
    if missing := [choice for choice, needed in taken.items() if needed and choice not in choices]:
        raise ScheduleError(f"schedule {name} needs {missing[0]}; wanted it for a plan that is simulated or run")
    if FLUSHES in choices and FLUSHES not in taken:
        raise ScheduleError(
            f"schedule {name} takes no flush_every, which is {choices[FLUSHES]()}; wanted gpipe, or none"
        )
    given = {choice: choices[choice]() for choice in taken if choice in choices}
    return schedules[name](n_stages, n_microbatches, **given)


def counts(name: str, n_stages: int, n_microbatches: int, stages_per_device: int = 1) -> tuple[int, int]:
    """Return ``n_stages`` and ``n_microbatches`` as ints. Raises ScheduleError if they are not whole numbers from 1 or
    give more than ``MOST_PASSES`` passes."""
    named = {"n_stages": n_stages, "n_microbatches": n_microbatches, "stages_per_device": stages_per_device}
    for what, value in named.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ScheduleError(f"schedule {name}: {what} is {shortened(value)}; wanted a whole number from 1")
    n_passes = int(n_stages) * int(stages_per_device) * int(n_microbatches)
    if n_passes > MOST_PASSES:
        raise ScheduleError(
            f"schedule {name}: {counted(n_microbatches, 'micro-batch')} through "
            f"{counted(n_stages * stages_per_device, 'stage')}; wanted at most {MOST_PASSES:,} passes, such as fewer "
            "micro-batches of more sequences"
        )
    return int(n_stages), int(n_microbatches)


def build(
    plan: Plan,
    schedule: str | Schedule,
    profile: Iterable[ComputeTime] | None = None,
    links: Links | None = None,
    *,
    efficiency: GivenEfficiency = None,
) -> Schedule:
    """Return the schedule of this name for a plan, or the given schedule itself if it has the plan's sizes.

    A builder gets the keywords that its signature names, see ``Builder``. Some are choices of the job, such as stages
    per device and warm-ups. The others are the plan, the seconds of passes, the links, and the maximum number of
    activations that each device may hold. The maximum is the number that fits into the memory of the smallest device at
    its position in the pipeline. If a builder takes warm-ups and the job has chosen them, it gets only the choices of
    the job, unless it requires a plan.

    Without a profile, passes take FLOP divided by peak x ``efficiency``. Without links, the plan's network is used.

    Raises
    ------
    UnknownName
        There is no schedule of that name.
    ScheduleError
        It does not support the job's counts or its flushes, or was made for others.
    JobError
        The job has no model, or its model has too few blocks for several stages per device.
    """
    job = plan.job
    job.modelled()
    if isinstance(schedule, str):
        choices, wanted = choices_in(job), choices_of(schedule)
        _check_passes(job, schedule)
        if wanted.get("plan") or not ("warmups" in wanted and "warmups" in choices):  # else nothing is left to choose
            choices |= {
                "plan": lambda: plan,
                "profile": lambda: _analytic(plan, efficiency, links) if profile is None else profile,
                "links": lambda: links or Links.of(plan.topology),
                "most_activations": lambda: _most_held(plan),
            }
        built = build_named(schedule, job.n_stages, job.n_microbatches, choices)
    else:
        built = made_for(job, schedule)
    job.cut(built.n_stages)
    return built


def built_for(job: Job, name: str) -> Schedule:
    """Return the schedule of this name with only those choices that the job states.

    Raises UnknownName, or ScheduleError if it needs a choice that is missing, or does not support the job's counts.
    """
    _check_passes(job, name)
    return build_named(name, job.n_stages, job.n_microbatches, choices_in(job))


def _check_passes(job: Job, name: str) -> None:
    """Raise ScheduleError for a schedule with too many passes to simulate, before it is built."""
    interleaves = "stages_per_device" in choices_of(name)
    check_passes(name, job.n_stages, job.microbatch_counts, job.stages_per_device if interleaves else 1)


def _analytic(plan: Plan, efficiency: GivenEfficiency, links: Links | None) -> Iterable[ComputeTime]:
    plain = schedules["1f1b"](plan.job.n_stages, plan.job.n_microbatches)
    return analytic(plan, programs_of(plan, plain, whole_rings=True), efficiency, links)


def choices_in(job: Job) -> dict[str, Callable[[], object]]:
    """Return the keywords of builders whose values a job states, each with a function that returns the value."""
    choices: dict[str, Callable[[], object]] = {"stages_per_device": lambda: job.stages_per_device}
    if job.flush_every is not None:
        choices["flush_every"] = lambda: job.flush_every
    return choices if job.warmups is None else choices | {"warmups": lambda: job.warmups}


def _most_held(plan: Plan) -> list[int]:
    """Return, per device of a pipeline, the number of micro-batches whose activations fit into memory in every replica.

    A device that can hold all micro-batches of its pipeline does not limit the other replicas.
    """
    budget = activation_budget(plan)
    at_all = np.where(budget >= plan.job.microbatch_counts, np.maximum(budget, plan.job.n_microbatches), budget)
    held: list[int] = np.maximum(at_all.min(axis=1), 1).tolist()
    return held


def made_for(job: Job, schedule: object) -> Schedule:
    """Return ``schedule``. Raises ScheduleError if it is not a schedule or has other sizes than the job."""
    if not isinstance(schedule, Schedule):
        raise ScheduleError(f"schedule is {shortened(schedule)}; wanted a name or a Schedule")
    found, wanted = (schedule.n_devices, schedule.n_microbatches), (job.n_stages, job.n_microbatches)
    if found != wanted:
        raise ScheduleError(
            f"schedule {schedule.name} is of {counted(found[0], 'device')} and {counted(found[1], 'micro-batch')}; "
            f"job {job.name} wants {wanted[0]} and {wanted[1]}"
        )
    return schedule


# ---------------------------------------------------------------------------------------------------------------------
# The built-in schedules, and the activations that devices hold under any.
#
# gpipe, 1f1b and adaptive-1f1b differ in one number per device, its warm-up. This is the number of forwards that it
# runs before it alternates a forward and a backward. adaptive-1f1b lies between the other two. With a warm-up of w it
# holds min(w + 1, M) activations. GPipe's w is M everywhere. 1F1B's is S - 1 - s, just enough to keep all devices busy
# if messages take no time. If they take long, the gradient of a micro-batch comes back later, and the device waits once
# it has no forward left to run. More warm-up forwards hide the round trip.


@schedules.register("gpipe")
def gpipe(n_stages: int, n_microbatches: int, *, flush_every: int | None = None, **_: object) -> Schedule:
    """All forwards, then all backwards (Huang et al. 2019). This is what DT-FM runs.

    With ``flush_every``, this repeats for every group of that many micro-batches; the last group may be smaller. The
    pipeline empties before the next group, so a device holds at most ``flush_every`` activations.
    """
    n_stages, n_microbatches = counts("gpipe", n_stages, n_microbatches)
    if flush_every is None:
        return _flushed("gpipe", n_microbatches, [n_microbatches] * n_stages)
    if not isinstance(flush_every, Integral) or isinstance(flush_every, bool) or flush_every < 1:
        raise ScheduleError(f"schedule gpipe: flush_every is {shortened(flush_every)}; wanted a whole number from 1")
    groups = [range(first, n_microbatches)[:flush_every] for first in range(0, n_microbatches, int(flush_every))]
    return Schedule(
        "gpipe",
        n_microbatches,
        tuple(
            tuple(Action(s, kind, m) for group in groups for kind in (Kind.FORWARD, Kind.BACKWARD) for m in group)
            for s in range(n_stages)
        ),
    )


@schedules.register("1f1b")
def one_forward_one_backward(n_stages: int, n_microbatches: int, **_: object) -> Schedule:
    """Warm up, alternate one forward and one backward, cool down (PipeDream-Flush, Narayanan et al. 2021).

    Device s holds at most min(S - s, M) activations.
    """
    n_stages, n_microbatches = counts("1f1b", n_stages, n_microbatches)
    return _flushed("1f1b", n_microbatches, range(n_stages - 1, -1, -1))


@schedules.register("adaptive-1f1b")
def adaptive_1f1b(
    n_stages: int,
    n_microbatches: int,
    *,
    warmups: Sequence[int] | None = None,
    plan: Plan | None = None,
    profile: Iterable[ComputeTime] = (),
    links: Links | None = None,
    most_activations: int | Sequence[int] | None = None,
    **_: object,
) -> Schedule:
    """1F1B with a separate warm-up for every device, for slow links. ``choose_warmups`` finds them for a plan.

    Without ``warmups`` and without a plan, 1F1B's warm-ups are used. Device s holds at most min(warmups[s] + 1, M)
    activations.
    """
    n_stages, n_microbatches = counts("adaptive-1f1b", n_stages, n_microbatches)
    if warmups is None and plan is not None:
        warmups = choose_warmups(plan, profile, links or Links.of(plan.topology), most_activations)
    if warmups is None:
        warmups = range(n_stages - 1, -1, -1)
    if not isinstance(warmups, Iterable):
        raise ScheduleError(f"schedule adaptive-1f1b: warm-ups are {shortened(warmups)}; wanted one per device")
    if len(warmups := tuple(warmups)) != n_stages:
        raise ScheduleError(f"schedule adaptive-1f1b: {len(warmups)} warm-ups; wanted one per device, {n_stages}")
    return _flushed("adaptive-1f1b", n_microbatches, warmups)


def _flushed(name: str, n_microbatches: int, warmups: Sequence[int]) -> Schedule:
    for stage, warmup in enumerate(warmups):
        if not isinstance(warmup, Integral) or isinstance(warmup, bool) or warmup < 0:
            raise ScheduleError(
                f"schedule {name}: warm-up of device {stage} is {shortened(warmup)}; wanted a whole number from 0"
            )
    # the last forward alternates with the first backward in any case
    depths = tuple(min(int(warmup), n_microbatches - 1) for warmup in warmups)
    for stage, (before, depth) in enumerate(pairwise(depths), start=1):
        if depth > before:
            raise ScheduleError(
                f"schedule {name}: device {stage} warms up with {depth} forwards, device {stage - 1} with {before}; "
                f"wanted at most as many as the device before, which sends them all before it gets a gradient"
            )
    return with_warmups(name, n_microbatches, depths)


@schedules.register("interleaved-1f1b")
def interleaved(n_stages: int, n_microbatches: int, *, stages_per_device: int = 2, **_: object) -> Schedule:
    """1F1B over several stages per device: a smaller bubble and more messages (Narayanan et al. 2021).

    Micro-batches are processed in rounds. A round has as many micro-batches as there are devices, or a few more if that
    leaves no remainder. Fewer micro-batches than devices are one round. A device passes a round through its first
    stage, then through its second. Raises ScheduleError if rounds would differ in size. The orders equal the orders of
    torch's ScheduleInterleaved1F1B.
    """
    name = "interleaved-1f1b"
    n_devices, n_microbatches = counts(name, n_stages, n_microbatches, stages_per_device)
    if n_microbatches % _n_rounds(n_devices, n_microbatches):
        below = next(n for n in count(n_microbatches - 1, -1) if not n % _n_rounds(n_devices, n))
        above = next(n for n in count(n_microbatches + 1) if not n % _n_rounds(n_devices, n))
        raise ScheduleError(
            f"schedule {name}: {counted(n_microbatches, 'micro-batch')} on {counted(n_devices, 'device')} do not "
            f"divide into {_n_rounds(n_devices, n_microbatches)} rounds; wanted such as {below} or {above}"
        )
    in_round = n_microbatches // _n_rounds(n_devices, n_microbatches)
    programs = []
    for position in range(n_devices):
        stages = range(position, n_devices * stages_per_device, n_devices)
        # a whole round through every stage but the last, and twice the way to the last device
        warmup = (stages_per_device - 1) * in_round + 2 * (n_devices - 1 - position)
        forwards = _in_rounds(Kind.FORWARD, stages, n_microbatches, in_round)
        backwards = _in_rounds(Kind.BACKWARD, stages[::-1], n_microbatches, in_round)
        programs.append(taking_turns(forwards, backwards, min(warmup, len(forwards))))
    return Schedule(name, n_microbatches, tuple(programs))


def _n_rounds(n_devices: int, n_microbatches: int) -> int:
    return max(n_microbatches // n_devices, 1)


def _in_rounds(kind: Kind, stages: range, n_microbatches: int, in_round: int) -> Program:
    return tuple(
        Action(stage, kind, m)
        for first in range(0, n_microbatches, in_round)
        for stage in stages
        for m in range(first, first + in_round)
    )


@schedules.register("zb-h1")
def zero_bubble(n_stages: int, n_microbatches: int, **_: object) -> Schedule:
    """1F1B with split backwards: the weights' gradients, W, fill what would be bubble (ZB-H1, Qi et al. 2024).

    A split backward has two halves: I computes the gradients of the inputs, W the gradients of the weights. Device s
    alternates forwards and I, as in 1F1B. Its W come s micro-batches after its I. A device late in the pipeline
    therefore has more W left for the end, where it would otherwise wait. Every device therefore holds min(S, M)
    activations, as many as the first device of 1F1B. The orders equal the orders of torch's
    ScheduleInterleavedZeroBubble with one stage per rank.
    """
    n_stages, n_microbatches = counts("zb-h1", n_stages, n_microbatches)
    programs = []
    for stage in range(n_stages):
        forwards, inputs, weights = (
            passes(stage, kind, n_microbatches) for kind in (Kind.FORWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)
        )
        program: list[Action] = []
        for action in taking_turns(forwards, inputs, min(n_stages - 1 - stage, n_microbatches)):
            program.append(action)
            if action.kind is Kind.BACKWARD_INPUT and action.microbatch is not None and action.microbatch >= stage:
                program.append(weights[action.microbatch - stage])
        programs.append((*program, *weights[max(n_microbatches - stage, 0) :]))
    return Schedule("zb-h1", n_microbatches, tuple(programs))


HELD = {Kind.FORWARD: 1, Kind.BACKWARD: -1, Kind.BACKWARD_WEIGHT: -1}
"""Change in the number of held activations, by the kind of pass that ran."""


def peak_activations(schedule: Schedule) -> tuple[int, ...]:
    """Return, per device, the maximum number of activations that it holds at once.

    Each stage and micro-batch counts as one from its forward to its backward. If the backward is split, it counts to
    the second half, W, which needs the stage's input as the first half does.
    """
    return tuple(max(accumulate(HELD.get(a.kind, 0) for a in program), default=0) for program in schedule.programs)
