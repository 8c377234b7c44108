"""What makes a network compute-bound for a job: batch, width, sequence, compression, rarer averages or bandwidth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from dtfm_lab import planning
from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.options import Option, check_options, part_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.lab.arguments import Progress, deprecated, newest_of, of_network
from dtfm_lab.lab.plans import nouns
from dtfm_lab.systems import Budget, CoDesign, stream_codesign
from dtfm_lab.systems.knobs import KNOBS


@dataclass(frozen=True, kw_only=True)
class CoDesignSettings(Budget):
    """What counts as compute-bound, and how plans are found."""

    target: Annotated[
        float,
        Option(
            help="Compute-bound from this share on of an iteration that would remain were every message free.",
            above=0,
            most=1,
        ),
    ] = 0.5

    def __post_init__(self) -> None:
        check_options(self, thing="codesign")


@dataclass(frozen=True, kw_only=True)
class CoDesignOptions(CoDesignSettings):
    """Which plan's knobs are turned, and until when."""

    knobs: Annotated[str | Sequence[str] | None, Option(help=f"Any of {', '.join(KNOBS)}; all by default.")] = None
    plan: Annotated[Plan | None, Option(help="A plan of this network to turn the knobs of; the lab's by default.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class ProgressOfCoDesign(CoDesignOptions):
    """Keywords of ``codesign``."""

    progress: Annotated[Progress | None, Option(help="Called with the answer so far after every design.")] = None


@of_network(ProgressOfCoDesign)
def codesign(
    topology: Topology | str, job: Job | str | None = None, *, progress: Progress | None = None, **options: Any
) -> CoDesign:
    """Which batch, width, sequence, compression or rarer averaging makes these devices compute-bound?

    Compute-bound is an iteration of which at least half (``target``) would remain were every message free. The lab
    plans the job (2 s, or ``steps``, or a ``plan`` of yours); then one knob at a time is turned until that holds, on
    the same devices, shape and schedule. ``.sentence``, ``.to_frame()``, ``.reaching``, ``["batch"]``;
    ``lab.figures.codesign`` draws it. Most knobs change the training's mathematics: ``.mathematics`` says how. Two
    knobs at once are a sweep: ``lab.sweep(found.plan, global_batch=[64, 128], synchronise_every=[1, 4])``. Ctrl-C keeps
    what is there.
    """
    return newest_of(_stream(topology, job, **options), progress)


@of_network(CoDesignOptions)
def search_codesign(topology: Topology | str, job: Job | str | None = None, **options: Any) -> Iterator[CoDesign]:
    """Deprecated: ``codesign`` calls its ``progress`` with the answer as it comes."""
    deprecated("search_codesign", "lab.codesign(..., progress=...), which is called with the same")
    return _stream(topology, job, **options)


def _stream(topology: Topology | str, job: Job | str | None, **options: Any) -> Iterator[CoDesign]:
    given = CoDesignOptions(**options)
    budget = part_of(Budget, given)
    network, wanted = nouns(topology, job)
    wanted.modelled()
    names = _names(given.knobs)
    if given.plan is not None:
        _check_plan(given.plan, network)
    plan = given.plan or planning.simulated(
        planning.plan(
            network,
            wanted,
            objective="iteration",
            seed=budget.seed,
            queueing=budget.queueing,
            steps=budget.steps,
            seconds=budget.seconds if budget.steps is None else None,
        )
    )
    return stream_codesign(plan, given.target, names, budget)


def _check_plan(plan: Plan, network: Topology) -> None:
    gpus = plan.job.tensor_parallel or 1
    grouped = network if gpus == 1 else network.grouped(gpus)
    if plan.topology.fingerprint not in (network.fingerprint, grouped.fingerprint):
        raise PlanError(f"plan is of {plan.topology.name}, with other devices or links; wanted one of {network.name}")


def _names(knobs: object) -> list[str]:
    names = list(KNOBS) if knobs is None else [knobs] if isinstance(knobs, str) else knobs
    if not isinstance(names, list | tuple) or not names:
        raise LabError(f"knobs are {shortened(knobs)}; wanted some of {', '.join(KNOBS)}")
    for name in names:
        if name not in KNOBS:
            raise unknown("knob", name, KNOBS)
    return [name for name in KNOBS if name in names]
