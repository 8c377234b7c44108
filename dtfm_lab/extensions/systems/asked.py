"""Implements ``lab.strategies``: what each training system would do with a network and a job, and which is fastest
where."""

from dataclasses import dataclass
from typing import Annotated, Any, Unpack, overload

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.options import Option, check_options, part_of, takes_options
from dtfm_lab.extensions.systems import api as models
from dtfm_lab.extensions.systems.api import Budget, Crossings, Outcomes, stream_crossings
from dtfm_lab.extensions.systems.choosing import Asked, chosen
from dtfm_lab.extensions.systems.crossings import compared_by_default
from dtfm_lab.extensions.systems.keywords import CrossingKeywords, StrategyKeywords
from dtfm_lab.extensions.systems.variations import AXES, BETWEEN, Axis, variation
from dtfm_lab.lab.arguments import Progress, newest_of
from dtfm_lab.lab.plans import nouns
from dtfm_lab.simulation.executors import AnyExecutor, opened


@dataclass(frozen=True, kw_only=True)
class StrategyOptions(Budget):
    """Keywords of ``strategies``."""

    systems: Annotated[Asked, Option(help="Systems by name, or with your own assumptions; all by default.")] = None
    flags: Annotated[
        str | None,
        Option(
            help="A launch as text, asked first: Megatron-LM's flags or script, DeepSpeed's JSON, torchtitan's TOML."
        ),
    ] = None
    progress: Annotated[Progress | None, Option(help="Called with the outcomes so far after every system.")] = None
    executor: Annotated[AnyExecutor | None, Option(help="Chooses plans on its workers, as in ``sweep``.")] = None


USUAL = 7
"""Default number of values along an axis."""
MOST_VALUES = 1000
"""Maximum number of values along an axis."""


@dataclass(frozen=True, kw_only=True)
class CrossingOptions(StrategyOptions):
    """Keywords of ``strategies`` with ``over``: comparing systems along one quantity."""

    over: Annotated[str, Option(help="What varies: bandwidth, latency, batch or compute.", choices=AXES)]
    values: Annotated[
        Any, Option(help="Values of what varies: a list, or a tuple of lowest, highest and how many.")
    ] = None
    between: Annotated[
        str, Option(help="Which links change their bandwidth or latency. The others stay as they are.", choices=BETWEEN)
    ] = "hosts"
    precision: Annotated[
        float, Option(help="Crossings are bracketed to within this share of their value.", above=0, most=1)
    ] = 0.05
    mathematics: Annotated[
        bool, Option(help="Let systems that change the training's mathematics count as the fastest, too.")
    ] = False

    def __post_init__(self) -> None:
        check_options(self, thing="crossings")


@overload
def strategies(
    topology: Topology | str, job: Job | str | None = None, **options: Unpack[StrategyKeywords]
) -> Outcomes: ...
@overload
def strategies(
    topology: Topology | str, job: Job | str | None = None, **options: Unpack[CrossingKeywords]
) -> Crossings: ...
@takes_options(CrossingOptions)
def strategies(
    topology: Topology | str,
    job: Job | str | None = None,
    *,
    over: str | None = None,
    flags: str | None = None,
    progress: Progress | None = None,
    executor: AnyExecutor | None = None,
    **options: Any,
) -> Outcomes | Crossings:
    """Return what each training system would do with these devices: its best plan by the link model, and what takes the
    time.

    Every system trains the job's model on the job's batch. It chooses its own cut, placement, schedule and messages, as
    modelled in ``lab.systems.strategies``. The result has ``.sentence``, ``.to_frame()`` and ``["megatron"].plan``. It
    displays itself in a notebook, and ``lab.figures.strategies`` draws it. To ask some systems, or one with another
    assumption: ``systems=["fsdp", lab.systems.variant("megatron", transport="overlapped")]``. Ctrl-C keeps the systems
    so far.

    ``flags`` is the text of a launch (``lab.systems.from_flags``). The system that it launches is asked first, with the
    model, batch and devices of the launch. The systems of ``systems``, by default none, are then asked about the same
    work.

    With ``over="bandwidth"``: which system wins at which bandwidth? The result has ``.sentence``, ``.crossings``,
    ``.to_frame()`` and ``.plan("fsdp", 1.0)``, and ``lab.figures.crossings`` draws it. ``over`` is one of:

    - ``bandwidth`` (Gbit/s) or ``latency`` (ms) of the median link between hosts. All links between hosts change by the
      same factor.
    - ``batch`` (sequences).
    - ``compute``, a multiple of the devices' speed.

    Every system chooses its best plan at each of 7 ``values``, and crossings between them are found by bisection. By
    default systems with a search are left out. Name them to include them: ``systems=["megatron", "dtfm-lab"]``. Systems
    that change the mathematics are computed, but count as the fastest only with ``mathematics=True``.
    """
    if over is None:
        systems = options.pop("systems", None)
        if flags is not None:
            launch, (network, wanted) = models.from_flags(flags), nouns(topology, job)
            topology, job = launch.on(network, wanted)
            systems = [launch.strategy, *([] if systems is None else chosen(systems))]
        for name in options.keys() - Budget.__dataclass_fields__.keys():
            raise LabError(f"{name} is given without over; wanted both, such as over='bandwidth'")
        with opened(executor) as pool:
            return newest_of(models.stream_outcomes(*nouns(topology, job), systems, Budget(**options), pool), progress)
    if flags is not None:
        raise LabError("flags and over are both given; wanted one of them")
    given = CrossingOptions(over=over, **options)
    network, wanted = nouns(topology, job)
    wanted.modelled()
    axis = variation(given.over, network, wanted, between=given.between)
    nothing = Crossings(
        topology=network,
        job=wanted,
        axis=axis,
        systems=compared_by_default(given.systems),
        mathematics=given.mathematics,
    )
    values, budget = _values(axis, given.values), part_of(Budget, given)
    with opened(executor) as pool:
        found = stream_crossings(nothing, values, budget, precision=given.precision, executor=pool)
        return newest_of(found, progress)


def _values(axis: Axis, given: Any) -> list[float]:
    if given is None:
        return axis.usual(USUAL)
    if isinstance(given, int | float | str) or not hasattr(given, "__iter__"):
        raise LabError(f"values of {axis.name} are {shortened(given)}; wanted several, or (lowest, highest, how many)")
    if isinstance(given, tuple) and len(given) == 3:
        low, high, n = axis.checked(given[0]), axis.checked(given[1]), given[2]
        if not (low < high and isinstance(n, int) and 2 <= n <= MOST_VALUES):
            wanted = f"(lowest, highest, how many), 2 to {MOST_VALUES} of them, or a list of values"
            raise LabError(f"values of {axis.name} are {shortened(given)}; wanted {wanted}")
        return axis.spread(low, high, n)
    values = sorted({axis.checked(one) for one in given})
    if not 1 <= len(values) <= MOST_VALUES:
        raise LabError(f"values of {axis.name} are {len(values)}; wanted 1 to {MOST_VALUES}")
    return values
