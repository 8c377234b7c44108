"""What a run needs to know, as one line of JSON from the kernel to the crew."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dtfm_lab.domain.job import Job, ModelSpec
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Programs, Schedule
from dtfm_lab.domain.trace import Subplan
from dtfm_lab.files import override, plan_from_mapping, plan_to_mapping
from dtfm_lab.files.plans import network_from_mapping, network_to_mapping
from dtfm_lab.files.reading import dump, parse
from dtfm_lab.simulation.engine import programs_of


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A plan, the schedule that it runs under, and how."""

    plan: Plan
    schedule: str
    orders: tuple[str, ...]
    """the schedule itself, as ``Schedule.orders`` writes it"""
    iterations: int
    clock: str
    seed: int = 0
    learning_rate: float = 2e-3
    text: str | None = None
    """path of the text to train on; None: the text that comes with the lab"""
    parameters_folder: str | None = None
    """where replica 0 leaves each stage's trained parameters as stage-S.npz, S counting over all stages"""
    time_scale: float | None = None
    """paced clock: wall seconds per second; None: chosen from the profile"""
    queueing: str = "pairs"
    emulated: Topology | None = None
    """the network whose links are emulated; None: the plan's"""
    stand_in: ModelSpec | None = None
    """what is trained instead of the job's model, in fp32; messages keep the job's sizes"""
    rehearsed: Subplan | None = None
    """of which larger plan this one is which part"""
    runs_on: str = "cpu"
    first_iteration: int = 0
    """iterations that the resumed checkpoint holds"""
    checkpoint_folder: str | None = None
    checkpoint_every: int = 0
    """iterations; 0: only after the last"""
    resume_from: str | None = None
    """a checkpoint's folder"""
    evaluate_every: int = 0
    """iterations between looks at the held-out text; 0: only after the last"""
    sample_bytes: int = 0
    """how much text the trained model writes at the end"""
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    """what they know each other by"""

    def to_line(self) -> str:
        values = {k: v for k, v in vars(self).items() if k in self.__dataclass_fields__}
        nouns = {"plan": plan_to_mapping(self.plan)}
        nouns["emulated"] = None if self.emulated is None else network_to_mapping(self.emulated)
        nouns["stand_in"] = None if self.stand_in is None else dump(self.stand_in)
        return json.dumps(values | nouns) + "\n"

    @classmethod
    def from_line(cls, line: str) -> RunSpec:
        values: dict[str, Any] = json.loads(line)
        nouns = {"plan": plan_from_mapping(values["plan"]), "orders": tuple(values["orders"])}
        if values["emulated"] is not None:
            nouns["emulated"] = network_from_mapping(values["emulated"])
        if values["stand_in"] is not None:
            nouns["stand_in"] = parse(ModelSpec, values["stand_in"], "stand_in")
        if values["rehearsed"] is not None:
            nouns["rehearsed"] = parse(Subplan, values["rehearsed"], "rehearsed")
        return cls(**values | nouns)

    @cached_property
    def trained(self) -> Job:
        """What workers compute: the plan's job, or the same around a smaller model, in numbers that they know.

        The programs are the plan's. So what its job does not code, because its numbers are short already, is not
        coded here, either.
        """
        job = self.plan.job
        if self.stand_in is None:
            return job
        return override(
            job,
            model=self.stand_in,
            dtype="fp32",
            compression=job.compression if job.codes_activations else "none",
            gradient_compression=job.gradients_as if job.codes_gradients else "none",
        )

    @cached_property
    def links(self) -> Links:
        """Those that are emulated."""
        network = self.plan.topology if self.emulated is None else self.emulated
        return Links.free(len(network)) if self.clock == "real" else Links.of(network, self.queueing)

    @property
    def replays(self) -> bool:
        """Whether the order on the links is not for workers to know, and their spans are played again: ``replay``."""
        return self.queueing != "pairs"

    @cached_property
    def built(self) -> Schedule:
        return Schedule.from_orders(self.schedule, self.orders)

    def programs(self, *, synchronise: bool) -> Programs:
        """All that each worker does in an iteration that synchronises, or in one that does not."""
        return self._programs[synchronise]

    def synchronises(self, iteration: int) -> bool:
        """Every ``synchronise_every``-th does; of rehearsals, whose numbers are negative, at least every second."""
        every = self.plan.job.synchronise_every
        return (iteration + 1) % (every if iteration >= 0 else min(every, 2)) == 0

    @cached_property
    def _programs(self) -> tuple[Programs, Programs]:
        alone, together = (programs_of(self.plan, self.built, synchronise=which) for which in (False, True))
        return alone, together

    @property
    def workers(self) -> list[tuple[int, int]]:
        """(position in the pipeline, replica) by rank: rank = replica x n_stages + position."""
        job = self.plan.job
        return [(s, r) for r in range(job.n_replicas) for s in range(job.n_stages)]

    def rank(self, stage: int, replica: int) -> int:
        """Of the worker that holds this stage."""
        n_devices = self.plan.job.n_stages
        return replica * n_devices + stage % n_devices

    def device(self, stage: int, replica: int) -> int:
        """Index in the topology of the device that holds this stage."""
        return int(self.plan.placement.devices[stage % self.plan.job.n_stages, replica])

    def device_name(self, stage: int, replica: int) -> str:
        return self.plan.topology.names[self.device(stage, replica)]
