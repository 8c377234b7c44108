"""Arguments that functions of the lab share: plans and schedules by name or file, and keywords, each defined once.

Each dataclass here decorates the function that takes its fields as keywords. A misspelt keyword is then refused, and
``help`` and Tab list all keywords. Editors and type checkers read the same keywords in ``keywords.py``.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from dtfm_lab import files
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import QUEUEING, Topology, shortened
from dtfm_lab.domain.options import Option
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files.schedules import ENDINGS, load_schedule
from dtfm_lab.planning import objectives, planners
from dtfm_lab.planning.draws import GivenSpread
from dtfm_lab.planning.iteration.frontier_search import DEFAULT_SECONDS as FRONTIER_SECONDS
from dtfm_lab.planning.iteration.frontier_search import SEARCHES as FRONTIER_SEARCHES
from dtfm_lab.planning.search import DEFAULT_SECONDS
from dtfm_lab.simulation.simulate import Profile
from dtfm_lab.simulation.task_runner import received

T = TypeVar("T")

AnySchedule = str | os.PathLike[str] | Schedule
"""A schedule: a name, the path of a file (.txt, or torch's .csv), or a Schedule."""
Progress = Callable[[Any], None]
QUEUEING_OPTION = Option(
    help="Which messages wait for each other: those in one direction between two devices "
    "(pairs), or all at one NIC (nics).",
    choices=QUEUEING,
)
EFFICIENCY_OPTION = Option(
    help="Share of its peak FLOP/s that a device reaches. By default it follows from the GPU and the shapes of "
    "matrix products.",
    above=0,
    most=1,
)


@dataclass(frozen=True, kw_only=True)
class SearchBudget:
    """How a planner searches, and for how long."""

    planner: Annotated[str, Option(choices=planners)] = "evolutionary"
    """Planner that searches. All except evolutionary place devices by communication cost alone."""
    seed: Annotated[int, Option()] = 0
    """Seed of the search. With a number of steps, the same seed gives the same plan."""
    steps: Annotated[int | None, Option(unit="generations")] = None
    """Stop after this many generations. Unlike a time limit, this is reproducible."""
    seconds: Annotated[
        float | None,
        Option(
            help=f"Stop after this many seconds; by default {DEFAULT_SECONDS:g} s, or no limit if steps are given.",
            unit="s",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PlanOptions(SearchBudget):
    """What a planner minimises, within which limits, and how it searches."""

    objective: Annotated[str | None, Option(choices=objectives)] = None
    """What to minimise: iteration time, communication cost or price. By default iteration, or communication if the job
    gives its message sizes."""
    max_price_per_hour: Annotated[float | None, Option(unit="$/h", above=0)] = None
    """Consider only plans whose devices cost at most this much per hour."""
    max_iteration_s: Annotated[float | None, Option(unit="s", above=0)] = None
    """Consider only plans whose iteration takes at most this long."""
    queueing: Annotated[str, QUEUEING_OPTION] = "pairs"
    efficiency: Annotated[float | None, EFFICIENCY_OPTION] = None


@dataclass(frozen=True, kw_only=True)
class SearchOptions(PlanOptions):
    """Keywords of ``search``. ``plan`` takes them too."""

    start: Annotated[Plan | None, Option()] = None
    """A plan to improve on. Its devices are matched with the network's by name."""


@dataclass(frozen=True, kw_only=True)
class SpreadOptions(SearchOptions):
    """Keywords of ``plan``: the keywords of ``search``, and ``spread``."""

    spread: Annotated[GivenSpread | None, Option()] = None
    """Minimise the expected iteration time over random variations of links and device speeds. The spread says how much
    they vary, as in lab.compare."""


@dataclass(frozen=True, kw_only=True)
class FrontierBudget(SearchBudget):
    """How to search for a frontier of time and price, and for how long."""

    steps: Annotated[int | None, Option(unit="steps")] = None
    """Stop every search after this many generations. Unlike a time limit, this is reproducible."""
    seconds: Annotated[
        float | None,
        Option(
            help=f"Time limit of all searches together; by default {FRONTIER_SECONDS:g} s per batch, or none if steps "
            "are given.",
            unit="s",
        ),
    ] = None
    # The fastest and the cheapest plan each need a search.
    searches: Annotated[int, Option(least=2)] = FRONTIER_SEARCHES
    """Searches per batch: one for the fastest plan, one for the cheapest, the others under price limits."""
    queueing: Annotated[str, QUEUEING_OPTION] = "pairs"


@dataclass(frozen=True, kw_only=True)
class FrontierOptions(FrontierBudget):
    """Keywords of ``frontier``."""

    batches: Annotated[Sequence[int] | None, Option()] = None
    """Global batches, each with its own frontier; the job's batch by default."""


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """Keywords of ``simulate``."""

    like: Annotated[Trace | None, Option()] = None
    """Predict the run of this measured trace, from the durations that were profiled before it."""
    queueing: Annotated[str | None, QUEUEING_OPTION] = None
    profile: Annotated[Profile | None, Option()] = None
    """Seconds of each computation, instead of FLOP / (peak x efficiency)."""
    efficiency: Annotated[float | None, Option(above=0, most=1)] = None
    """Share of its peak FLOP/s that a device reaches. By default the share that the plan was made with. Without one, it
    follows from the GPU and the shapes of matrix products."""


def as_plan(plan: Plan | str | os.PathLike[str]) -> Plan:
    """Return the plan itself, or the plan in a file. Raises PlanError if it is neither a Plan nor a path, or if it
    names a network, and FileError for a file that holds no plan."""
    if isinstance(plan, Plan):
        return plan
    if not isinstance(plan, str | os.PathLike):
        raise PlanError(f"plan is {shortened(plan)}; wanted a Plan, or the path of a plan file")
    # A common slip is a network's name where a plan is due, and "no such file" would not help.
    if not os.path.exists(plan) and os.fspath(plan) in files.topology_names():
        raise PlanError(f"plan is {shortened(plan)}, a network; wanted a Plan (lab.plan makes one), or a plan file")
    return files.load_plan(plan)


def as_plan_or_network(given: Plan | Topology | str | os.PathLike[str]) -> Plan | Topology:
    """Return a plan or network itself, the plan in a file, or a network by name or file.

    Raises PlanError for anything else.
    """
    if isinstance(given, Plan | Topology):
        return given
    if not isinstance(given, str | os.PathLike):
        raise PlanError(f"network or plan is {shortened(given)}; wanted a Topology, a Plan, or the name or path of one")
    path = Path(given)
    # A .json file may hold either, so its content decides; all other endings are networks'.
    if os.fspath(given) in files.topology_names() or path.suffix.lower() != ".json":
        return files.load_topology(given)
    is_network = os.path.isfile(path) and "dtfm_plan" not in files.read_mapping(path)
    return files.load_topology(given) if is_network else as_plan(given)


def as_schedule(schedule: AnySchedule | None) -> str | Schedule | None:
    """Return the schedule in a file. Any other value is returned unchanged."""
    # No schedule's name ends like a file.
    if isinstance(schedule, os.PathLike) or (isinstance(schedule, str) and schedule.lower().endswith(ENDINGS)):
        return load_schedule(schedule)
    return schedule


def newest_of(results: Iterator[T], progress: Progress | None) -> T:
    """Return the last of a stream of growing results, and call ``progress`` with each.

    The stream must have at least one result. Ctrl-C returns the newest so far.
    """
    return received(results, progress, newest=1)[-1]
