"""What a trace's numbers mean: what ran, on which devices, by which clock, and what failed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, cast

from dtfm_lab.domain.schedule import Bucket, Kind, Schedule

Swings = tuple[tuple[float, float], ...]
Clock = Literal["virtual", "paced", "real", "model"]
"""How seconds were measured: see RunContext.clock."""

PETA = 1e15
SWING = 2.0
"""Number of standard deviations by which times are shortened and lengthened for ``RunContext.swings``."""
BY_MODEL = "by the link model"
"""Label for message seconds that were not timed but follow from the link model: see ``RunContext.links_by_model``."""
AS_SPECIFIED = ("model", "paced")
"""Clocks that count seconds of the specified devices, whose peaks and prices then apply."""


class Basis(NamedTuple):
    """How reliable a number is, in one word, and why."""

    word: str
    """``measured``, ``calibrated``, ``modelled`` or ``guessed``; empty if unknown."""
    because: str = ""
    """For ``calibrated``, the measurement behind it. For ``guessed``, what has not been tested. Empty otherwise."""

    @property
    def sentence(self) -> str:
        """``guessed: the model has 100 million parameters; 1 to 1,100 billion were tested``."""
        return f"{self.word}: {self.because}" if self.because else self.word


MEASURED = Basis("measured")
UNSAID = Basis("")
"""Basis of a trace that does not state one, such as files of earlier versions."""


class ComputeTime(NamedTuple):
    """Seconds that one kind of computation takes on the device of one stage and replica."""

    stage: int
    replica: int
    kind: Kind
    seconds: float


class Fault(NamedTuple):
    """A worker that was lost and replaced during a run."""

    iteration: int
    """The iteration that was repeated."""
    device: str
    how: str
    """How it was lost: ``was killed by SIGKILL``, ``stood still``, ``came back`` and so on."""
    state_from: str
    """Source of the restored parameters and optimizer states: a device, or a checkpoint."""
    lost_s: float
    """Wall seconds from detecting the loss until the run continued."""


class Subplan(NamedTuple):
    """The stages and pipelines of a larger plan that ran."""

    stages: tuple[int, ...]
    pipelines: tuple[int, ...]
    of_stages: int
    of_pipelines: int

    @property
    def sentence(self) -> str:
        """Say which part ran, such as "all 4 stages, pipelines 0 to 2 of 8"."""
        stages = _numbered("stage", self.stages, self.of_stages)
        return f"{stages}, {_numbered('pipeline', self.pipelines, self.of_pipelines)}"

    @property
    def words(self) -> str:
        """Which part ran, in few words for a button: "one pipeline of 8", "4 of 8 stages, 2 of 8 pipelines"."""
        n, of = len(self.pipelines), self.of_pipelines
        if len(self.stages) == self.of_stages:
            return f"one pipeline of {of}" if n == 1 else f"{n} pipelines of {of}"
        return f"{len(self.stages)} of {self.of_stages} stages, {n} of {of} pipelines"


SMALL_MODEL = "stand-in"
"""Name of the small model that is trained if the job's own model cannot be."""


def part_words(part: Subplan | None, stand_in: str) -> str:
    """Return what runs, if that is less than the whole plan, such as "one pipeline of 8, with a small model".

    Empty for a whole plan with its own model. ``stand_in`` names the model that is trained instead; empty for none.
    """
    if part is None and not stand_in:
        return ""
    ran = "the whole plan" if part is None else part.words
    model = "a small model" if stand_in == SMALL_MODEL else stand_in
    return f"{ran}, with {model}" if model else ran


def deferred(compute: Callable[[], Swings]) -> Swings:
    """Wrap a function that computes the swings when they are first read."""
    return cast(Swings, compute)


class _Swings:
    """The field ``swings``, which holds a value, or a function that is called when it is first read.

    Dataclasses use this descriptor's value on the class as the default. Pickles and copies hold only values, through
    ``RunContext.__getstate__``.
    """

    def __get__(self, context: Any, owner: type | None = None) -> Swings:
        if context is None:
            return ()
        value: Any = context.__dict__["swings"]
        if callable(value):
            value = context.__dict__["swings"] = value()
        return cast(Swings, value)

    def __set__(self, context: Any, value: Swings) -> None:
        context.__dict__["swings"] = value


@dataclass(frozen=True, kw_only=True)
class TracedPlan:
    """What a trace keeps of its plan, job and schedule, so that it can be read without them.

    ``simulation.simulate.traced_plan`` makes it from a plan. A trace file holds its fields next to the context's
    fields.
    """

    devices: tuple[tuple[str, ...], ...]
    """(stages, replicas) device names."""
    topology: str = ""
    topology_fingerprint: str = ""
    job: str = ""
    n_microbatches: int = 1
    """Micro-batches per iteration of each pipeline; the largest number if pipelines differ."""
    microbatches_per_replica: tuple[int, ...] = ()
    """(replicas,) micro-batches of each pipeline if they differ; empty if all are equal."""
    stages_per_device: int = 1
    orders: tuple[str, ...] = ()
    """The schedule: each pipeline device's passes in order, as written by ``Schedule.orders``."""
    synchronisation: str = "sharded"
    synchronise_every: int = 1
    """Iteration i synchronises if i + 1 is a multiple of this."""
    fragments: int = 1
    """Number of parts of the parameters that replicas average one after the other."""
    fragment_delay: int = 0
    """Number of iterations that a fragment's average may take."""
    sharding: str = "none"
    """What replicas split among themselves: see ``Job.sharding``."""
    buckets: tuple[tuple[Bucket, ...], ...] = ()
    """By position in the pipeline, the parts of the gradient that are synchronised while the last backwards run.
    Empty if synchronisation follows the last pass."""
    transport: str = "overlapped"
    """Whether devices wait until what they send has arrived: see ``Job.transport``."""
    absent: tuple[str, ...] = ()
    """Names of devices that had left: see ``Plan.absent``."""
    tokens: int = 0
    """Tokens per iteration over all replicas; 0 if unknown."""
    counted: str = "tokens"
    """What ``tokens`` counts: tokens, or samples for a module of your own."""
    flop: float = 0.0
    """The model's FLOP per iteration over all replicas, without recomputation; 0 if unknown."""
    peak_flop_per_s: tuple[tuple[float, ...], ...] = ()
    """(stages, replicas) peak FLOP/s of each device in the job's dtype; empty if unknown."""
    price_per_hour: tuple[tuple[float, ...], ...] = ()
    """(stages, replicas) US dollars per hour of each device; empty if unknown."""

    @property
    def microbatch_counts(self) -> tuple[int, ...]:
        """(replicas,) micro-batches per iteration of each pipeline."""
        return self.microbatches_per_replica or (self.n_microbatches,) * len(self.devices[0])

    @property
    def absent_at(self) -> tuple[tuple[int, int], ...]:
        """(stage, replica) of each absent device."""
        grid = enumerate(self.devices if self.absent else ())
        return tuple((s, r) for s, group in grid for r, name in enumerate(group) if name in self.absent)

    @property
    def microbatches(self) -> str:
        """Micro-batches of a pipeline as text: ``8``, or ``2 to 8`` if they differ."""
        least, most = min(self.microbatch_counts), max(self.microbatch_counts)
        return str(most) if least == most else f"{least} to {most}"


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What a trace's numbers mean and where they come from. Trace files use the same field names."""

    source: Literal["simulated", "measured"]
    clock: Clock
    """``model``: simulated from FLOP and peak. ``virtual``: nothing sleeps; each worker's logical clock adds its own
    CPU time. ``paced``: real time, with each computation padded to the specified device's. ``real``: wall time,
    real links."""
    schedule: str
    links: Literal["specified", "emulated", "real"]
    plan: TracedPlan
    """What ran where, under which schedule."""
    queueing: str = "pairs"
    """Which messages wait for each other: see ``domain.network.topology``."""
    nics: tuple[tuple[str, ...], ...] = ()
    """(stages, replicas) name of the first device of each device's host, if devices share a NIC; empty if none do."""
    compute_spread: tuple[tuple[float, ...], ...] = ()
    """(stages, replicas) standard deviation of the logarithm of a device's computation seconds; empty if not stated."""
    link_spread: float = 0.0
    """Standard deviation of the logarithm of the seconds of messages."""
    swings: tuple[tuple[float, float], ...] = cast(Swings, _Swings())
    """Two pairs (shorter, longer) of simulated iteration times in seconds. In the first, all computations are ``SWING``
    standard deviations shorter or longer, in the second all messages. Empty if unknown. A prediction simulates them
    when they are first read."""
    time_scale: float = 1.0
    """Wall seconds per recorded second (paced clock)."""
    profile: tuple[ComputeTime, ...] = ()
    """Compute times known before the first iteration. They come from calibration (virtual: CPU time, real: wall time),
    or from the specified devices (paced clock)."""
    message_s: float = 0.0
    """Calibrated seconds that a message over real links is in flight. They include what a worker does between
    computations, and its waiting for a core if there are fewer cores than workers."""
    stretched: int = 0
    """Number of profile rows that are longer than on the specified device, because this machine is too slow (paced
    clock)."""
    losses: tuple[float, ...] = ()
    """Mean training loss of each iteration: nats per byte of text, or your own module's loss."""
    late_messages: int = 0
    """Number of messages whose bytes arrived later than the emulated link should have delivered them (paced clock)."""
    overruns: int = 0
    """Number of computations that took longer than on the specified device, because this machine is too slow (paced
    clock)."""
    faults: tuple[Fault, ...] = ()
    """Lost workers from which the run recovered."""
    rehearsed: Subplan | None = None
    """The part of a larger plan that ran; None if all of it did."""
    stand_in: str = ""
    """Name of the model that was trained instead of the job's own; empty if the job's own was trained. Messages have
    the sizes of the job's own."""
    runs_on: str = "cpu"
    """The hardware that the workers computed on: ``cpu`` or ``cuda``."""
    held_out: tuple[tuple[int, float], ...] = ()
    """(iterations done, mean loss on held-out text) of each evaluation, in the unit of ``losses``."""
    unigram_entropy: float | None = None
    """Entropy of the held-out text in nats per byte if bytes are independent: the best loss without any context."""
    notes: tuple[str, ...] = ()
    """What went wrong, one sentence each: a checkpoint that was not written or is damaged, connections that were made
    again, a loss that is not a number."""
    versions: Mapping[str, str] = field(default_factory=dict)
    basis: Basis = UNSAID
    """What a prediction rests on. A measured trace is ``measured``."""

    def __post_init__(self) -> None:
        if self.source == "measured":
            # the dataclass is frozen
            object.__setattr__(self, "basis", MEASURED)

    def __getstate__(self) -> dict[str, Any]:
        # reads the swings, so that a pickle holds values and no function
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def devices(self) -> tuple[tuple[str, ...], ...]:
        """(stages, replicas) device names."""
        return self.plan.devices

    @property
    def topology(self) -> str:
        """The network's name."""
        return self.plan.topology

    @property
    def job(self) -> str:
        """The job's name."""
        return self.plan.job

    @property
    def orders(self) -> tuple[str, ...]:
        """Each pipeline device's passes in order, as written by ``Schedule.orders``."""
        return self.plan.orders

    @property
    def stages_per_device(self) -> int:
        return self.plan.stages_per_device

    @property
    def synchronise_every(self) -> int:
        """Iteration i synchronises if i + 1 is a multiple of this."""
        return self.plan.synchronise_every

    @property
    def links_by_model(self) -> bool:
        """True if a measured trace's messages take exactly what the link model says, so a prediction with it cannot
        miss them.

        The virtual clock does not wait for messages. The paced clock delivers each message at the model's time,
        or later if its bytes came late (``late_messages``).
        """
        return self.source == "measured" and self.links == "emulated"

    @property
    def has_nics(self) -> bool:
        """True if messages of different pairs waited for each other anywhere."""
        return self.queueing == "nics" or bool(self.nics)

    @property
    def recorded_schedule(self) -> Schedule:
        """Return the schedule of ``plan.orders``. Raises ScheduleError if the orders are missing or incomplete."""
        return Schedule.from_orders(self.schedule, self.plan.orders)

    @property
    def part(self) -> str:
        """What ran, if that is less than the whole plan: see ``part_words``. Its seconds are not the plan's."""
        return part_words(self.rehearsed, self.stand_in)

    @property
    def provenance(self) -> str:
        """Where the numbers come from: ``virtual clock, messages by the link model, on CPU``, plus the subplan and the
        substitute model (``stand_in``) if there are any."""
        parts = [f"{self.clock} clock", f"messages {BY_MODEL}" if self.links_by_model else f"{self.links} links"]
        if self.source == "measured":
            parts.append(f"on {self.runs_on.upper()}")
        if self.rehearsed is not None:
            parts.append(f"rehearsing {self.rehearsed.sentence}")
        if self.stand_in:
            parts.append(f"{self.stand_in} as model")
        return ", ".join(parts)

    def metrics(self, iteration_s: float) -> dict[str, float | None]:
        """Return throughput, utilisation and price. None if a number is unknown. For an iteration that takes no time,
        known prices are 0 and the other numbers None.

        - ``tokens_per_s``
        - ``pflops``: the model's FLOP per second in units of 1e15, nothing counted twice
        - ``mfu``: the same as a share of the peak of all the plan's devices (Chowdhery et al. 2022, appendix B)
        - ``price_per_iteration`` and ``price_per_million_tokens``: of all the plan's devices. Idle devices of the
          network do not count. Unknown if any device has no price.

        Utilisation and prices are unknown if the seconds come from the machine that ran it, not from the specified
        devices (clocks ``virtual`` and ``real``). With these clocks, everything is unknown if a substitute model
        (``stand_in``) was trained.
        """
        peak_flop_per_s = _sum_over_devices(self, self.plan.peak_flop_per_s)
        price_per_hour = _sum_over_devices(self, self.plan.price_per_hour)
        price = None if price_per_hour is None else price_per_hour * iteration_s / 3600
        # On the machine's own clock, a stand-in's tokens and FLOP are not the job's.
        known = not self.stand_in or self.clock in AS_SPECIFIED
        flop, tokens = (self.plan.flop or None, self.plan.tokens or None) if known else (None, None)
        return {
            "tokens_per_s": _ratio(tokens, iteration_s),
            "pflops": _ratio(flop, iteration_s * PETA),
            "mfu": None if peak_flop_per_s is None else _ratio(flop, iteration_s * peak_flop_per_s),
            "price_per_iteration": price,
            "price_per_million_tokens": None if price is None or tokens is None else price / tokens * 1e6,
        }


def _numbered(noun: str, numbers: tuple[int, ...], of: int) -> str:
    if len(numbers) == of:
        return f"all {of} {noun}s" if of > 1 else f"its one {noun}"
    if len(numbers) == 1:
        return f"{noun} {numbers[0]} of {of}"
    return f"{noun}s {numbers[0]} {'and' if len(numbers) == 2 else 'to'} {numbers[-1]} of {of}"


def _sum_over_devices(context: RunContext, of_device: tuple[tuple[float, ...], ...]) -> float | None:
    known = [value for group in of_device for value in group]
    if context.clock not in AS_SPECIFIED or not known or min(known) <= 0:
        return None
    return sum(known)


def _ratio(value: float | None, by: float) -> float | None:
    return value / by if value is not None and by > 0 else None
