"""Which system is fastest where: along bandwidth, latency, batch, the model's size or the devices' speed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job, ModelSpec
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.options import Option, check_options, part_of
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files.models import load_model
from dtfm_lab.lab.arguments import Progress, deprecated, newest_of, of_network
from dtfm_lab.lab.executors import AnyExecutor, closed, opened
from dtfm_lab.lab.plans import nouns
from dtfm_lab.lab.strategies import StrategyOptions
from dtfm_lab.simulation.executors import Executor
from dtfm_lab.systems import Budget, Crossings, stream_crossings
from dtfm_lab.systems.crossing_search import USUAL
from dtfm_lab.systems.variations import AXES, BETWEEN, Variation, variation

MOST_VALUES = 1000


@dataclass(frozen=True, kw_only=True)
class CrossingOptions(StrategyOptions):
    """What is compared along which values."""

    over: Annotated[str | Sequence[str], Option(help=f"One of {', '.join(AXES)}, or two of them.")] = "bandwidth"
    values: Annotated[
        Any,
        Option(help="A list of values, or a tuple of lowest, highest and how many; of two axes a dictionary of such."),
    ] = None
    between: Annotated[
        str, Option(help="Which links bandwidth and latency are of; the others stay as they are.", choices=BETWEEN)
    ] = "hosts"
    precision: Annotated[
        float, Option(help="Crossings are bracketed to this share of their value.", above=0, most=1)
    ] = 0.05
    mathematics: Annotated[
        bool, Option(help="Systems that change the training's mathematics may be the fastest, too.")
    ] = False

    def __post_init__(self) -> None:
        check_options(self, thing="crossings")


@dataclass(frozen=True, kw_only=True)
class ProgressOfCrossings(CrossingOptions):
    """Keywords of ``crossings``."""

    progress: Annotated[Progress | None, Option(help="Called with the comparison so far, again and again.")] = None
    executor: Annotated[AnyExecutor | None, Option(help="Chooses on its workers, as in ``sweep``.")] = None


@of_network(ProgressOfCrossings)
def crossings(
    topology: Topology | str,
    job: Job | str | None = None,
    *,
    progress: Progress | None = None,
    executor: AnyExecutor | None = None,
    **options: Any,
) -> Crossings:
    """At which bandwidth does which system win? ``.sentence``, ``.crossings``, ``.to_frame()``, ``.plan("fsdp", 1.0)``.

    ``over`` is bandwidth (Gbit/s) or latency (ms) of the median link between hosts, all others of them in proportion,
    batch, layers, model (``values=["gpt3-xl", "llama-2-7b"]``) or compute; or two of them, for a map of who wins. Every
    system chooses its best plan anew at each of 7 values (5 x 5 of two axes), and crossings are bisected between. By
    default systems that search are left out: name them, ``systems=["megatron", "dtfm-lab"]``. Those that change the
    mathematics are computed, and never called the fastest unless ``mathematics=True``. Ctrl-C keeps what is there.
    """
    with opened(executor) as pool:
        found = _stream(topology, job, pool, **options)
        with closed(found):
            return newest_of(found, progress, kept=lambda found: found.points)


@of_network(CrossingOptions)
def search_crossings(topology: Topology | str, job: Job | str | None = None, **options: Any) -> Iterator[Crossings]:
    """Deprecated: ``crossings`` calls its ``progress`` with the comparison as it comes."""
    deprecated("search_crossings", "lab.crossings(..., progress=...), which is called with the same")
    return _stream(topology, job, None, **options)


def _stream(
    topology: Topology | str, job: Job | str | None, executor: Executor | None, **options: Any
) -> Iterator[Crossings]:
    given = CrossingOptions(**options)
    budget = part_of(Budget, given)
    network, wanted = nouns(topology, job)
    wanted.modelled()
    names = _names(given.over)
    by_axis = _by_axis(given.values, names)
    axes = [_axis(name, network, wanted, given.between, by_axis.get(name)) for name in names]
    values = [_values(axis, None if axis.name == "model" else by_axis.get(axis.name), len(names)) for axis in axes]
    return stream_crossings(
        network,
        wanted,
        axes,
        values,
        given.systems,
        budget,
        precision=given.precision,
        mathematics=given.mathematics,
        executor=executor,
    )


def _names(over: object) -> list[str]:
    names = [over] if isinstance(over, str) else list(over) if isinstance(over, list | tuple) else []
    if len(names) not in (1, 2) or len(set(map(str, names))) != len(names):
        raise LabError(f"over is {shortened(over)}; wanted one or two of {', '.join(AXES)}")
    for name in names:
        if name not in AXES:
            raise unknown("axis of crossings", name, AXES)
    return [str(name) for name in names]


def _by_axis(values: object, names: Sequence[str]) -> dict[str, Any]:
    """The given values of each axis, as they were given."""
    if values is None:
        return {}
    if isinstance(values, Mapping):
        for name in values:
            if name not in names:
                raise unknown("axis of these crossings", name, names)
        return dict(values)
    if len(names) > 1:
        raise LabError(f"values are {shortened(values)} for two axes; wanted a dictionary of values by axis")
    return {names[0]: values}


def _axis(name: str, network: Topology, job: Job, between: str, given: Any) -> Variation:
    models: dict[float, ModelSpec] = {}
    if name == "model":
        listed = [] if given is None else [given] if isinstance(given, str | ModelSpec) else list(given)
        if not listed:
            raise LabError("crossings over models need some; wanted values such as ['gpt3-xl', 'llama-2-7b']")
        for one in listed:
            model = one if isinstance(one, ModelSpec) else load_model(one)
            models[float(model.parameters)] = model
    return variation(name, network, job, between=between, models=models)


def _values(axis: Variation, given: Any, n_axes: int) -> list[float]:
    if given is None:
        return axis.usual(USUAL[n_axes])
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
