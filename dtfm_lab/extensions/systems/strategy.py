"""A strategy: what one training system would do with a network and a job, and what its model assumes."""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, cast, get_type_hints

from dtfm_lab.domain.errors import LabError, UnknownName
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import QUEUEING, Topology
from dtfm_lab.domain.options import Option, check_options, options_of, refuse_unknown
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.schedule import synchronisations
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import IntArray
from dtfm_lab.extensions.systems.bound import least_iteration_s
from dtfm_lab.files.reading import read_mapping
from dtfm_lab.planning import evaluate, planners
from dtfm_lab.planning.iteration.structured.candidates import unpriced_plan
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.simulate import iteration_seconds

TRIED = "tried"
"""All that the system offers, the fastest that fits being taken."""
ORDERS = ("dp-pp", "pp-dp")
"""Which ranks are neighbours: those of a data-parallel group, or those of a pipeline."""


@dataclass(frozen=True, kw_only=True)
class Assumption(Option):
    """The annotation of a strategy's field: what is assumed, in a sentence, and where that is from.

    ``transport: Annotated[str, Assumption(help="A stage waits until what it sends has arrived.", source="...")]``
    """

    source: str
    """A paper's section, a file of the system's repository, or what was measured. Never "so that it fits"."""


def checkpointings(job: Job, checkpointing: str, offered: tuple[str, ...] = ("none", "block")) -> list[str]:
    """Each checkpointing that a user tries, the least first.

    ``selective`` is left out where the model's layers do not say what it keeps.
    """
    if checkpointing != TRIED:
        return [checkpointing]
    known = any(layer.selective_elements for layer in job.modelled().layers)
    return [one for one in offered if known or one != "selective"]


def shardings(job: Job, sharding: str) -> tuple[str, ...]:
    """What replicas split that a user tries: nothing, or the optimiser's states; the first for a single replica."""
    tried = ("none", "zero-1") if sharding == TRIED else (sharding,)
    return tried[:1] if job.n_replicas == 1 else tried


@dataclass(frozen=True, eq=False)
class Branch:
    """A shaped job on some devices, in each of several ways to train it."""

    topology: Topology
    """Grouped where the job has tensor parallelism."""
    job: Job
    grid: IntArray
    """(stages, replicas) devices."""
    ways: Sequence[Mapping[str, Any]] = ({},)
    """Fields of the job, changed; none, once, where it is trained as it is."""
    least_s: float = 0.0
    """Seconds that no plan of it goes below."""
    refusals: list[str] = dataclasses.field(default_factory=list)
    """Why ways that were tried make no plan."""

    def __len__(self) -> int:
        return len(self.ways)

    def plans(self) -> Iterator[Plan]:
        """Its plans, not priced: their communication cost is not counted (``priced``)."""
        for fields in self.ways:
            try:
                job = self.job.with_fields(**fields)
                yield unpriced_plan(self.topology, job, self.grid)
            except LabError as error:  # what the schedule, the sharding or the model does not allow
                self.refusals.append(str(error))


def priced(plan: Plan) -> Plan:
    """The plan with its communication cost."""
    rank_map = plan.placement.rank_map(len(plan.topology))
    return evaluate(plan.topology, plan.job, rank_map=rank_map).changed(queueing=plan.queueing)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long a strategy that searches may search, and from which seed."""

    seconds: Annotated[float, Option(help="Of each system's search, where it has one.", unit="s", above=0)] = 2.0
    steps: Annotated[
        int | None, Option(help="Generations instead of seconds: reproducible.", unit="generations", least=1)
    ] = None
    seed: Annotated[int, Option(help="Seed of the searches, and of what is drawn.", least=0)] = 0
    efficiency: Annotated[
        float | None,
        Option(help="Share of its peak that a device reaches; by GPU and shapes of products if none.", above=0, most=1),
    ] = None
    queueing: Annotated[
        str, Option(help="Which messages wait for each other, those of a pair or of a NIC.", choices=QUEUEING)
    ] = "pairs"
    """As in ``lab.plan``, so that both give one plan the same seconds. Every pair of devices has its own link, except
    where the network says which NIC a device uses. A system that sends to many devices at once looks faster this way
    than on hosts with one NIC: ``Outcome.nics_s`` says by how much."""

    def __post_init__(self) -> None:
        check_options(self, thing="strategies")


@dataclass(frozen=True, kw_only=True)
class Strategy(ABC):
    """What one system would do: its fields are what its model assumes, each with a sentence and a source.

    A strategy yields the plans that the system lets its user choose from; the fastest that fits the devices' memory is
    taken, as a user who tries them all would take it. Every plan's job has the model, the global batch, the sequence
    and the precision of the job that was asked for: only how it is trained may differ.
    """

    name: ClassVar[str] = ""
    """As it is registered."""
    title: ClassVar[str]
    """The system's name as its authors write it."""
    cite: ClassVar[str]
    """Authors, venue and year."""
    url: ClassVar[str] = ""
    mathematics: ClassVar[str] = ""
    """What it changes of the training itself, such as when replicas average; empty where losses stay those of one
    process. Seconds of systems that differ in it do not compare: a loss may need more iterations."""
    searches: ClassVar[bool] = False
    """Whether its plans are found by a search that takes the budget's seconds or steps."""

    def __post_init__(self) -> None:
        check_options(self, thing=f"system {self.name}", error=LabError)

    @abstractmethod
    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """The plans that it lets its user choose from, none twice; those that do not fit are left out by the caller.

        ``job`` is the work alone (``work_of``). Raises LabError, such as PlanError, where the system cannot train it
        here at all.
        """

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan | Branch]:
        """The same plans; those that differ in flags alone may be one branch, made into plans where one may be best."""
        yield from self.plans(topology, job, budget)

    def trace(self, plan: Plan, budget: Budget) -> Trace:
        """One iteration of a plan, predicted."""
        return simulate(plan, efficiency=budget.efficiency, queueing=budget.queueing)

    def seconds(self, plan: Plan, budget: Budget) -> float:
        """Seconds of an iteration. They are those of ``trace`` where a system has no closed form of its own."""
        if type(self).trace is not Strategy.trace:
            return self.trace(plan, budget).iteration_s
        return iteration_seconds(plan, efficiency=budget.efficiency, queueing=budget.queueing)

    def averaging_s(self, plan: Plan, budget: Budget) -> float:
        """The part of ``seconds`` that a closed form of its own adds for averaging; 0 where the schedule has it."""
        return 0.0

    def least_s(self, plan: Plan, budget: Budget) -> float:
        """Seconds that ``seconds`` does not go below, found without it; 0 where nothing is known.

        The plans of a system are tried from the least of these on.
        """
        if not self.simulated:
            return 0.0
        return least_iteration_s(plan, budget.efficiency, budget.queueing)

    @property
    def simulated(self) -> bool:
        """Whether its seconds are those of ``simulate``, and no closed form or simulator of its own."""
        return type(self).trace is Strategy.trace and type(self).seconds is Strategy.seconds

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What is assumed, in the order of the fields."""
        return tuple(cast(Assumption, one) for one in options_of(type(self)))

    @property
    def assumed(self) -> list[dict[str, Any]]:
        """Each assumption's name, value, sentence and source as plain values; of one that was changed, the source says
        what the model itself assumes."""
        return [
            {"name": one.name, "value": (value := getattr(self, one.field)), "help": one.help}
            | {"source": one.source if value == one.default else f"changed from {one.default}: {one.source}"}
            for one in self.assumptions
        ]

    @property
    def changed(self) -> str:
        """The assumptions that are not the model's own, such as ``transport overlapped``; empty where all are."""
        return ", ".join(
            _in_words(one.name, getattr(self, one.field))
            for one in self.assumptions
            if getattr(self, one.field) != one.default
        )

    @property
    def label(self) -> str:
        """The name, with the assumptions that were changed: ``megatron (transport overlapped)``."""
        return self._with_changes(self.name or type(self).__name__)

    @property
    def heading(self) -> str:
        """The title, with the assumptions that were changed: ``Megatron-LM (transport overlapped)``."""
        return self._with_changes(self.title)

    def _with_changes(self, name: str) -> str:
        return f"{name} ({self.changed})" if self.changed else name


@dataclass(frozen=True, kw_only=True)
class GridStrategy(Strategy):
    """A system whose plans are grids of devices, without a search, as its user's flags say."""

    @abstractmethod
    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan | Branch]:
        """Every grid, in the ways that its flags allow."""

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """All of them."""
        for one in self.branches(topology, job, budget):
            yield from [one] if isinstance(one, Plan) else map(priced, one.plans())


def _in_words(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"


FORMER: dict[str, dict[str, Any]] = read_mapping(Path(__file__).parent / "modelled" / "former.yaml")
"""Former names of systems: what each is now, or what to ask for in its place."""


class Systems(Registry[type[Strategy]]):
    """Systems by name; a former name raises UnknownName with what to ask for in its place."""

    def __getitem__(self, name: str) -> type[Strategy]:
        if name in FORMER and name not in self:
            raise UnknownName(_replaced(name))
        return super().__getitem__(name)


def _replaced(name: str) -> str:
    now = FORMER[name]
    if "because" in now:
        return f"no system named {name!r} any more; ask for {now['system']}: {now['because']}"
    given = ", ".join(f"{field}={value!r}" for field, value in now["assumptions"].items())
    typed = " ".join(f"--assume {now['system']}.{field}={value}" for field, value in now["assumptions"].items())
    return f'system {name!r} is lab.systems.variant("{now["system"]}", {given}) now, or {typed}'


def current_system(name: str) -> tuple[str, dict[str, Any]]:
    """The system that a name stands for, and assumptions that a former name implies, of which a warning is given.

    Raises UnknownName for a former name that no system has taken over.
    """
    if name not in FORMER or name in strategies:
        return name, {}
    now = FORMER[name]
    if "assumptions" not in now:
        raise UnknownName(_replaced(name))
    warnings.warn(f"{_replaced(name)}; the old name leaves with the next release", FutureWarning, stacklevel=3)
    return now["system"], dict(now["assumptions"])


strategies = Systems(
    "system", group="dtfm_lab.strategies", fits=lambda entry: isinstance(entry, type) and issubclass(entry, Strategy)
)
"""Models of systems by name; a package of one's own adds one through an entry point of the group."""


SAID = read_mapping(Path(__file__).parent / "modelled" / "assumptions.yaml")
"""What is said of the strategies of this package, by the names of their classes, and of assumptions that they share."""
CHOICES: dict[str, Collection[str]] = {"planners": planners, "synchronisations": synchronisations}
"""Names that packages of one's own may add to, and a file can therefore not list."""
S = TypeVar("S", bound=type[Strategy])


def described(kind: S) -> S:
    """Decorator of a strategy whose words are in ``modelled/assumptions.yaml``: its title and citation, and of its
    fields the assumptions."""
    about, types = dict(SAID[kind.__name__]), get_type_hints(kind)
    for field, own in about.pop("assumptions", {}).items():
        said = SAID["shared"].get(field, {}) | own
        if (choices := said.get("choices")) is not None:
            said["choices"] = CHOICES[choices] if isinstance(choices, str) else tuple(choices)
        kind.__annotations__[field] = Annotated[types[field], Assumption(**said)]
    for what, text in about.items():
        setattr(kind, what, text)
    return kind


def variant(system: str, **assumptions: Any) -> Strategy:
    """A system with some of its assumptions changed, the others as its model has them.

    ``variant("megatron", transport="overlapped")``. Raises UnknownName for a system or an assumption that is none, and
    LabError for a value that is not allowed.
    """
    system, implied = current_system(system)
    kind, assumptions = strategies[system], implied | assumptions
    refuse_unknown(assumptions, [one.name for one in options_of(kind)], f"assumption of {system}")
    fields = {one.name: one.field for one in options_of(kind)}
    return kind(**{fields[name]: value for name, value in assumptions.items()})


def work_of(job: Job) -> Job:
    """The work of a job: model, sequences, precision, and the micro-batch where it is given; how it is cut, averaged
    and sent is what systems differ in."""
    return Job(
        name=job.name, model=job.modelled(), global_batch=job.global_batch, microbatch=job.microbatch, dtype=job.dtype
    )


NOT_MODELLED: dict[str, str] = read_mapping(Path(__file__).with_name("not_modelled.yaml"))
"""Systems of the field that have no model here, each with the reason, the nearest that has one, and its source."""
