"""The options of a run, each defined once, and the specification that every process of a run receives.

A field added to ``RunSettings`` becomes an option of ``lab.start`` and ``lab.run``, of the command line and of the Lab.
It is also part of ``RunSpec``: a plan, its schedule and the options as one line of JSON.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, Strict

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.job import Job, ModelSpec
from dtfm_lab.domain.network import QUEUEING, Links, Topology
from dtfm_lab.domain.options import Option, check_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import RECEIVES, SENDS, Kind, Programs, Schedule
from dtfm_lab.domain.trace import Clock, Subplan
from dtfm_lab.files import override, plan_from_mapping, plan_to_mapping
from dtfm_lab.files.plans import network_from_mapping, network_to_mapping
from dtfm_lab.files.reading import dump, parse, reason_of
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.simulation.engine import programs_of

RUN_CLOCKS = tuple(name for name in get_args(Clock) if name != "model")
RUNS_ON = ("cpu", "cuda")
CARRIERS = ("sockets", "groups")
RUN_DTYPES = ("fp32", "fp64")
"""Precisions in which workers can compute."""
LARGEST_SEED = 2**40
"""Largest seed. A generator's 64-bit seed combines it with a layer's or iteration's number and large factors."""

AnyPath = str | os.PathLike[str]
ITERATIONS = Option(help="Iterations to train: 20 by default, 5 on the paced clock, which runs in real time.", least=1)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The options that all processes of a run receive.

    Raises UnknownName or LabError if one is out of range.
    """

    iterations: Annotated[int | None, ITERATIONS] = None
    clock: Annotated[str, Option(choices=RUN_CLOCKS)] = "virtual"
    """How seconds are counted: virtual (each worker adds its own CPU time to a logical clock and never sleeps), paced
    (real time, in which each computation is padded to its device's duration) or real (wall time over real links)."""
    seed: Annotated[int, Option(least=0, most=LARGEST_SEED)] = 0
    """Seed of parameters and batches."""
    learning_rate: Annotated[float, Option(above=0)] = 2e-3
    """Learning rate of AdamW."""
    text: Annotated[AnyPath | None, Option()] = None
    """Text file to train on, without its last tenth, which is held out. By default a text that comes with the lab."""
    time_scale: Annotated[float | None, Option(unit="wall seconds a second", above=0)] = None
    """Paced clock: wall seconds per second of the run; chosen from the profile if omitted."""
    queueing: Annotated[str, Option(choices=QUEUEING)] = "pairs"
    """Which messages wait for each other: pairs (each directed pair of devices has its own link) or, on the virtual
    clock only, nics (each device has one NIC)."""
    emulated: Annotated[AnyPath | Topology | None, Option()] = None
    """Emulate the links of another network instead of the plan's: a name, file or Topology with the same number of
    devices. Predictions still use the plan's network."""
    stand_in: Annotated[AnyPath | ModelSpec | None, Option()] = None
    """Train this model in fp32 instead of the job's: a name, config.json or ModelSpec. Messages keep the job's sizes,
    and so do computations on the paced clock. By default a small model, if the job's own cannot be trained here."""
    runs_on: Annotated[str, Option(choices=RUNS_ON)] = "cpu"
    """Where workers compute: cpu or cuda."""
    carrier: Annotated[str | None, Option(choices=CARRIERS)] = None
    """How the contents of messages travel: sockets, or groups (torch.distributed process groups of two workers: gloo,
    or NCCL for GPUs on the real clock). By default groups for GPUs on the real clock, otherwise sockets."""
    checkpoint_folder: Annotated[AnyPath | None, Option(flag="checkpoint")] = None
    """Folder to write checkpoints to."""
    checkpoint_every: Annotated[int, Option(unit="iterations")] = 0
    """Iterations between checkpoints; 0 writes one only after the last iteration."""
    resume_from: Annotated[AnyPath | None, Option(flag="resume")] = None
    """Continue from this checkpoint folder, or from the newest checkpoint in it. The model must match; the cut and the
    placement may differ. A different text, seed, batch or learning rate gives a warning."""
    evaluate_every: Annotated[int, Option(unit="iterations")] = 0
    """Iterations between evaluations on held-out text; 0 evaluates only after the last iteration."""
    sample_bytes: Annotated[int, Option(unit="bytes", flag="sample")] = 0
    """Bytes of text that the trained model writes at the end."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, kw_only=True)
class RunOptions(RunSettings):
    """All options of a run: what its processes receive, and how much of the plan runs."""

    workers: Annotated[int | Sequence[int] | None, Option()] = None
    """Run only part of the plan: at most N workers, or (stages, pipelines). By default, a plan of up to 32 workers runs
    whole, and a larger one with 8 workers. As many whole pipelines run as fit. If none fits, the first stages of two
    pipelines run. Nothing else about the plan changes."""


class _SpecLine(BaseModel):
    """Fields of a spec's line whose types must be checked. ``RunSettings`` checks the other options itself."""

    model_config = ConfigDict(strict=True, defer_build=True)

    plan: dict[str, Any]
    schedule: str
    orders: Annotated[tuple[str, ...], Strict(False)]
    iterations: Annotated[int, Field(le=LARGEST_SEED)]
    text: str | None = None
    emulated: dict[str, Any] | None = None
    stand_in: dict[str, Any] | None = None
    checkpoint_folder: str | None = None
    resume_from: str | None = None
    rehearsed: dict[str, Any] | None = None
    first_iteration: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    notes: Annotated[tuple[str, ...], Strict(False)] = ()
    slow_worker: Annotated[tuple[int, float], Strict(False)] | None = None  # a tuple, because caches hash specs
    secret: Annotated[str, Field(pattern="^[0-9a-f]+$")]


@dataclass(frozen=True, kw_only=True)
class RunSpec(RunSettings):
    """A plan, its schedule and the options, with names and paths resolved."""

    plan: Plan
    schedule: str
    orders: tuple[str, ...]
    """The schedule, as written by ``Schedule.orders``."""
    iterations: Annotated[int, ITERATIONS] = field()
    text: str | None = None
    emulated: Topology | None = None
    stand_in: ModelSpec | None = None
    checkpoint_folder: str | None = None
    resume_from: str | None = None
    """Folder of the checkpoint that the run resumes from; None if it starts from the beginning."""
    subplan: Subplan | None = None
    """Which part of a larger plan this is; None if all of it runs."""
    first_iteration: int = 0
    """Number of iterations done in the resumed checkpoint; 0 without one."""
    notes: tuple[str, ...] = ()
    """Warnings that the run gives when it starts, one sentence each, such as damaged checkpoints."""
    slow_worker: tuple[int, float] | None = None
    """Rank of a worker that is slow after calibration, and the factor: see ``launch.start_mystery``."""
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    """Key with which the processes of the run authenticate each other, in hexadecimal."""

    def to_line(self) -> str:
        """Return the spec as one line of JSON."""
        # vars also has the cached properties
        values = {k: v for k, v in vars(self).items() if k in self.__dataclass_fields__}
        subplan = values.pop("subplan")
        values["rehearsed"] = None if subplan is None else subplan._asdict()
        values["plan"] = plan_to_mapping(self.plan)
        values["emulated"] = None if self.emulated is None else network_to_mapping(self.emulated)
        values["stand_in"] = None if self.stand_in is None else dump(self.stand_in)
        return json.dumps(values) + "\n"

    @classmethod
    def from_line(cls, line: str) -> RunSpec:
        """Return the spec that ``to_line`` wrote. Raises LabError, in one line, for any other text."""
        try:
            values: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else reason_of(error)
            raise FileError(f"the run's specification is broken JSON: {why}") from None
        where = "the run's specification"
        held = parse(_SpecLine, values, where)
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        known |= {name: getattr(held, name) for name in _SpecLine.model_fields if name in cls.__dataclass_fields__}
        known["plan"] = plan_from_mapping(held.plan, where=where)
        if held.emulated is not None:
            known["emulated"] = network_from_mapping(held.emulated)
        if held.stand_in is not None:
            known["stand_in"] = parse(ModelSpec, held.stand_in, "stand_in")
        subplan = None if held.rehearsed is None else parse(Subplan, held.rehearsed, "rehearsed")
        return cls(**known, subplan=subplan)  # specs of earlier versions have options that are gone

    @cached_property
    def trained(self) -> Job:
        """The job that workers compute: the plan's, or the same with the substitute model (``stand_in``) in fp32.

        Workers execute the plan's programs. Messages that the plan's job sends uncompressed, because its numbers are
        short already, are not compressed here either.
        """
        job = self.plan.job
        if self.stand_in is None:
            return job
        return override(
            job,
            name=job.name,
            model=self.stand_in,
            dtype="fp32",
            compression=job.compression if job.codes_activations else "none",
            gradient_compression=job.gradients_as if job.codes_gradients else "none",
        )

    @cached_property
    def corpus(self) -> Corpus:
        """The training text. Raises FileError if it cannot be read or is too short."""
        return Corpus.of(self.text, self.trained.modelled().seq_len)

    @cached_property
    def links(self) -> Links:
        """The links that are emulated: the plan's, or the ``emulated`` network's. On the real clock none is emulated:
        these links take no time."""
        network = self.plan.topology if self.emulated is None else self.emulated
        return Links.free(len(network)) if self.clock == "real" else Links.of(network, self.queueing)

    @property
    def uses_nccl(self) -> bool:
        """True if NCCL sends the contents of messages from GPU to GPU. This needs the real clock, because on other
        clocks workers may share a GPU, which NCCL refuses."""
        return self.runs_on == "cuda" and self.clock == "real" and self.carrier != "sockets"

    @property
    def uses_groups(self) -> bool:
        """True if the contents of messages go through process groups of torch.distributed."""
        return self.carrier == "groups" or self.uses_nccl

    @property
    def replays(self) -> bool:
        """True if the coordinator replays the spans, because workers cannot determine the order of messages. That is so
        with NICs, and if averaging is delayed on the virtual clock."""
        return self.links.has_nics or (self.plan.job.fragment_delay > 0 and self.clock == "virtual")

    @cached_property
    def built(self) -> Schedule:
        return Schedule.from_orders(self.schedule, self.orders)

    def programs(self, *, synchronise: bool) -> Programs:
        """Return the workers' programs for an iteration in which replicas average, or for one in which they do not."""
        return self._programs[synchronise]

    def synchronises(self, iteration: int) -> bool:
        """Return True if replicas average in this iteration. Every ``averages_every``-th one does.

        Of the calibration iterations, whose numbers are negative, at least every second one does.
        """
        every = self.plan.job.averages_every
        return (iteration + 1) % (every if iteration >= 0 else min(every, 2)) == 0

    @cached_property
    def _programs(self) -> tuple[Programs, Programs]:
        alone, together = (programs_of(self.plan, self.built, synchronise=which) for which in (False, True))
        return alone, together

    @cached_property
    def workers(self) -> list[tuple[int, int]]:
        """(position in the pipeline, replica) by rank, pipeline after pipeline. Absent devices have no worker."""
        job, gone = self.plan.job, set(self.plan.absent_at)
        return [(s, r) for r in range(job.n_replicas) for s in range(job.n_stages) if (s, r) not in gone]

    def rank(self, stage: int, replica: int) -> int:
        """Return the rank of the worker that holds this stage."""
        # with several stages per device, stage s is on device s modulo S
        return self._ranks[stage % self.plan.job.n_stages, replica]

    @cached_property
    def _ranks(self) -> dict[tuple[int, int], int]:
        return {worker: rank for rank, worker in enumerate(self.workers)}

    def members(self, position: int) -> list[int]:
        """Return the replicas that have a worker at this position of the pipeline."""
        return [r for s, r in self.workers if s == position]

    def device(self, stage: int, replica: int) -> int:
        """Return the topology index of the device that holds this stage."""
        return int(self.plan.placement.devices[stage % self.plan.job.n_stages, replica])

    def device_name(self, stage: int, replica: int) -> str:
        return self.plan.topology.names[self.device(stage, replica)]

    def sources(self, position: int, replica: int) -> list[int]:
        """Return the ranks that send messages to this worker."""
        return self._peers(position, replica, RECEIVES)

    def targets(self, position: int, replica: int) -> list[int]:
        """Return the ranks to which this worker sends messages."""
        return self._peers(position, replica, SENDS)

    def _peers(self, position: int, replica: int, kinds: Collection[Kind]) -> list[int]:
        ends = {
            self.rank(*step.action.other_end(replica, self.plan.job.n_replicas))
            for synchronise in (False, True)
            for step in self.programs(synchronise=synchronise).of(position, replica)
            if step.action.kind in kinds
        }
        return sorted(ends)
