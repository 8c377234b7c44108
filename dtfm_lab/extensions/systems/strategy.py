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
from dtfm_lab.domain.job.options import WORK
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
"""Value of an assumption: the model tries every option that the system offers, and takes the fastest one that fits."""
ORDERS = ("dp-pp", "pp-dp")
"""Which devices have neighbouring ranks: the devices of a data-parallel group (``dp-pp``), or of a pipeline
(``pp-dp``)."""


@dataclass(frozen=True, kw_only=True)
class Assumption(Option):
    """Annotation of a strategy's field: a sentence that says what is assumed, and the source of the assumption.

    ``transport: Annotated[str, Assumption(help="A stage waits until what it sends has arrived.", source="...")]``
    """

    source: str
    """A section of a paper, a file of the system's repository, or a measurement. Never "so that it fits"."""


def checkpointings(job: Job, checkpointing: str, offered: tuple[str, ...] = ("none", "block")) -> list[str]:
    """Return the kinds of checkpointing that a user tries, the one that recomputes least first.

    ``selective`` is left out if the model's layers do not say what it keeps.
    """
    if checkpointing != TRIED:
        return [checkpointing]
    known = any(layer.selective_elements for layer in job.modelled().layers)
    return [one for one in offered if known or one != "selective"]


def shardings(job: Job, sharding: str) -> tuple[str, ...]:
    """Return the shardings that a user tries: none, and the optimizer's states (ZeRO-1). A single replica has nothing
    to shard, so only the first is tried."""
    tried = ("none", "zero-1") if sharding == TRIED else (sharding,)
    return tried[:1] if job.n_replicas == 1 else tried


@dataclass(frozen=True, eq=False)
class Branch:
    """A job in one shape on some devices, with each way to train it that is tried."""

    topology: Topology
    """The network. If the job has tensor parallelism, its devices are groups of GPUs."""
    job: Job
    grid: IntArray
    """(stages, replicas) device indices."""
    ways: Sequence[Mapping[str, Any]] = ({},)
    """For each way, the fields of the job that it changes. By default there is one way, which changes none."""
    least_s: float = 0.0
    """Lower bound in seconds of an iteration: no plan of this branch is faster."""
    refusals: list[str] = dataclasses.field(default_factory=list)
    """Why some ways make no plan. Filled by ``plans``."""

    def __len__(self) -> int:
        return len(self.ways)

    def plans(self) -> Iterator[Plan]:
        """Yield the plan of each way. Communication costs are not computed (see ``priced``)."""
        for fields in self.ways:
            try:
                job = self.job.with_fields(**fields)
                yield unpriced_plan(self.topology, job, self.grid)
            except LabError as error:  # the schedule, the sharding or the model does not allow it
                self.refusals.append(str(error))


def priced(plan: Plan) -> Plan:
    """Return the plan with its communication cost."""
    rank_map = plan.placement.rank_map(len(plan.topology))
    return evaluate(plan.topology, plan.job, rank_map=rank_map).changed(queueing=plan.queueing)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long a search may take and with which seed. Also what predictions use: ``efficiency`` and ``queueing``."""

    seconds: Annotated[float, Option(help="Search time of each system that searches.", unit="s", above=0)] = 2.0
    steps: Annotated[
        int | None,
        Option(
            help="Generations of each search, instead of seconds. Makes results reproducible.",
            unit="generations",
            least=1,
        ),
    ] = None
    seed: Annotated[int, Option(help="Seed of searches and of random choices.", least=0)] = 0
    efficiency: Annotated[
        float | None,
        Option(
            help="Share of its peak that a device reaches. By default it follows from the GPU and the matrix shapes.",
            above=0,
            most=1,
        ),
    ] = None
    queueing: Annotated[
        str,
        Option(
            help="Which messages wait for each other: those between the same two devices, or on the same NIC.",
            choices=QUEUEING,
        ),
    ] = "pairs"
    """The same default as ``lab.plan``, so that both predict the same seconds for a plan. Every pair of devices has its
    own link, unless the network says which NIC a device uses. A system that sends to many devices at once looks faster
    this way than on hosts with one NIC. ``Outcome.nics_s`` says by how much."""

    def __post_init__(self) -> None:
        check_options(self, thing="strategies")


@dataclass(frozen=True, kw_only=True)
class Strategy(ABC):
    """The model of one training system. Its fields are the assumptions of the model, each with a sentence and a source.

    A strategy yields the plans that the system lets its user choose from. The lab takes the fastest that fits the
    devices' memory, as a user who tries them all would. Every plan's job keeps the model, global batch, sequence length
    and precision of the requested job. Only how it is trained may differ.
    """

    name: ClassVar[str] = ""
    """The name under which it is registered."""
    title: ClassVar[str]
    """The system's name as its authors write it."""
    cite: ClassVar[str]
    """Authors, venue and year."""
    url: ClassVar[str] = ""
    mathematics: ClassVar[str] = ""
    """What the system changes about the training itself, such as when replicas average. Empty if its losses equal those
    of training in a single process. Otherwise its seconds alone do not compare with other systems': reaching a loss may
    need more iterations."""
    searches: ClassVar[bool] = False
    """True if a search finds its plans within the budget's seconds or steps."""

    def __post_init__(self) -> None:
        check_options(self, thing=f"system {self.name}", error=LabError)

    @abstractmethod
    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """Yield the plans that the system lets its user choose from, each once. The caller drops those that do not fit.

        ``job`` is only the work (``work_of``). Raises LabError, such as PlanError, if the system cannot train it here
        at all.
        """

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan | Branch]:
        """Yield the plans of ``plans``. Plans with the same shape and devices may come as one ``Branch``, so that only
        promising ones are built."""
        yield from self.plans(topology, job, budget)

    def trace(self, plan: Plan, budget: Budget) -> Trace:
        """Return the predicted trace of one iteration."""
        return simulate(plan, efficiency=budget.efficiency, queueing=budget.queueing)

    def seconds(self, plan: Plan, budget: Budget) -> float:
        """Return the seconds of an iteration. They come from ``trace``, unless the system has its own closed form."""
        # A system that traces in another way also has other seconds.
        if type(self).trace is not Strategy.trace:
            return self.trace(plan, budget).iteration_s
        # The same seconds, without building the trace.
        return iteration_seconds(plan, efficiency=budget.efficiency, queueing=budget.queueing)

    def averaging_s(self, plan: Plan, budget: Budget) -> float:
        """Return the part of ``seconds`` for averaging that is added by the system's own closed form. 0 if the schedule
        includes averaging."""
        return 0.0

    def least_s(self, plan: Plan, budget: Budget) -> float:
        """Return a lower bound of ``seconds`` that is cheap to compute; 0 if none is known.

        Plans are tried in the order of their lower bounds.
        """
        # A bound on the simulation says nothing about a closed form.
        if not self.simulated:
            return 0.0
        return least_iteration_s(plan, budget.efficiency, budget.queueing)

    @property
    def simulated(self) -> bool:
        """True if its seconds come from ``simulate``, not from its own closed form or simulator."""
        return type(self).trace is Strategy.trace and type(self).seconds is Strategy.seconds

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Assumptions of the model, in the order of its fields."""
        return tuple(cast(Assumption, one) for one in options_of(type(self)))

    @property
    def assumed(self) -> list[dict[str, Any]]:
        """Name, value, sentence and source of each assumption, as plain values. If an assumption was changed, its
        source also gives the default."""
        return [
            {"name": one.name, "value": (value := getattr(self, one.field)), "help": one.help}
            | {"source": one.source if value == one.default else f"changed from {one.default}: {one.source}"}
            for one in self.assumptions
        ]

    @property
    def changed(self) -> str:
        """The changed assumptions in words, such as ``transport overlapped``; empty if all have their defaults."""
        return ", ".join(
            _in_words(one.name, getattr(self, one.field))
            for one in self.assumptions
            if getattr(self, one.field) != one.default
        )

    @property
    def label(self) -> str:
        """The name with the changed assumptions: ``megatron (transport overlapped)``."""
        return self._with_changes(self.name or type(self).__name__)

    @property
    def heading(self) -> str:
        """The title with the changed assumptions: ``Megatron-LM (transport overlapped)``."""
        return self._with_changes(self.title)

    def _with_changes(self, name: str) -> str:
        return f"{name} ({self.changed})" if self.changed else name


@dataclass(frozen=True, kw_only=True)
class GridStrategy(Strategy):
    """A system whose plans are grids of devices, which its user sets with flags. It needs no search."""

    @abstractmethod
    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan | Branch]:
        """Yield every grid, with each way to train it that its flags allow."""

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """Yield every plan of every branch."""
        for one in self.branches(topology, job, budget):
            yield from [one] if isinstance(one, Plan) else map(priced, one.plans())


def _in_words(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"


FORMER: dict[str, dict[str, Any]] = read_mapping(Path(__file__).parent / "modelled" / "former.yaml")
"""Former names of systems, and for each its present name and assumptions, or what to ask for instead."""


class Systems(Registry[type[Strategy]]):
    """Systems by name. A former name raises UnknownName, which says what to ask for instead."""

    def __getitem__(self, name: str) -> type[Strategy]:
        # An extension may give a former name to its own system.
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
    """Return the system that a name means now, and the assumptions that a former name implies. A former name gives a
    warning.

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
"""Models of systems by name. Your package can add one through an entry point of the group ``dtfm_lab.strategies``."""


SAID = read_mapping(Path(__file__).parent / "modelled" / "assumptions.yaml")
"""Texts about this package's strategies, by class name. Texts about assumptions that several have are under
``shared``."""
CHOICES: dict[str, Collection[str]] = {"planners": planners, "synchronisations": synchronisations}
"""Registries whose names an assumption can choose from. Packages can add to them, so a file cannot list the names."""
S = TypeVar("S", bound=type[Strategy])


def described(kind: S) -> S:
    """Decorate a strategy: its title, citation and assumptions come from ``modelled/assumptions.yaml``."""
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
    """Return a system with some of its assumptions changed.

    ``variant("megatron", transport="overlapped")``. Raises UnknownName for an unknown system or assumption, and
    LabError for a value that is not allowed.
    """
    system, implied = current_system(system)
    kind, assumptions = strategies[system], implied | assumptions
    refuse_unknown(assumptions, [one.name for one in options_of(kind)], f"assumption of {system}")
    fields = {one.name: one.field for one in options_of(kind)}
    return kind(**{fields[name]: value for name, value in assumptions.items()})


def work_of(job: Job) -> Job:
    """Return only the work of a job: model, sequences, precision, optimizer, memory to leave free, given micro-batch.

    How the job is cut, averaged and sent is left out, because that is what systems choose.
    """
    job.modelled()
    return Job(name=job.name, **{field: getattr(job, field) for field in WORK})


NOT_MODELLED: dict[str, str] = read_mapping(Path(__file__).with_name("not_modelled.yaml"))
"""Systems of the field without a model here. Each has the reason, the nearest modelled system and a source."""
