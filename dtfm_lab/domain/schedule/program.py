"""Lower a schedule to programs: each device's passes, messages, synchronisation and optimizer step.

Both the simulator and the workers follow these programs. A program lists steps in order, each with the steps of the
same device that it needs. Every receive comes directly before its consumer and every send directly after its producer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.schedule.schedule import (
    ACROSS_STAGES,
    COMPUTE,
    RECEIVES,
    SENDS,
    Action,
    Kind,
    Schedule,
    Step,
)
from dtfm_lab.domain.schedule.sharing import Absent, Sharing
from dtfm_lab.domain.schedule.synchronisation import (
    LAST,
    Averaging,
    Bucket,
    SynchronisationPart,
    Synchronise,
    parts_by,
    parts_of,
    tail_of,
)
from dtfm_lab.domain.units import counted

AVERAGING = Averaging()
"""The default: uncompressed gradients, in shards, before the optimizer step."""
MOST_STEPS = 10**7
"""Maximum number of actions per iteration. Simulating that many takes about 4 GB."""


@dataclass(frozen=True, eq=False)
class Programs:
    """The steps of every device of every replica in one iteration.

    ``lower`` caches programs, so they are compared by identity. A pipeline with fewer micro-batches than the schedule
    runs the same order without the missing ones.
    """

    schedule: Schedule
    """The order for the largest number of micro-batches."""
    microbatch_counts: tuple[int, ...]
    """(replicas,) micro-batches of each pipeline."""
    pipelines: tuple[tuple[tuple[Step, ...], ...], ...]
    """Passes and their messages, by distinct number of micro-batches (largest first) and by position in the pipeline.
    Replicas with equally many micro-batches share them."""
    tails: tuple[tuple[tuple[Step, ...], ...], ...]
    """Steps after the passes, by position and replica. Positions in their ``needs`` count from the first step of the
    whole program, passes included. If devices are absent, no two programs are alike, and the passes are here, too."""
    blocking: bool = False
    """True if devices wait until what they send along the pipeline has arrived (``Step.arrivals``)."""
    takes_turns: bool = False
    """True if the two directions between two devices of a pipeline take turns."""

    @property
    def n_replicas(self) -> int:
        return len(self.microbatch_counts)

    @property
    def n_positions(self) -> int:
        """Number of devices in one pipeline."""
        return len(self.tails)

    @cached_property
    def replicas(self) -> tuple[tuple[int, ...], ...]:
        """For each of ``pipelines``, the replicas that run it."""
        numbers = range(len(self.pipelines))
        return tuple(tuple(r for r, number in enumerate(self.number) if number == one) for one in numbers)

    @cached_property
    def number(self) -> tuple[int, ...]:
        """(replicas,) which entry of ``pipelines`` each replica runs."""
        distinct = sorted(set(self.microbatch_counts), reverse=True)
        return tuple(distinct.index(count) for count in self.microbatch_counts)

    def pipeline(self, position: int, replica: int) -> tuple[Step, ...]:
        """Return the passes of one device and their messages, in order."""
        return self.pipelines[self.number[replica]][position]

    def of(self, position: int, replica: int) -> tuple[Step, ...]:
        """Return all steps of one device, in order."""
        return self.pipeline(position, replica) + self.tails[position][replica]


@lru_cache(maxsize=8)
def lower(
    schedule: Schedule,
    n_replicas: int,
    averaging: Averaging = AVERAGING,
    *,
    tied: bool = False,
    synchronise: bool = True,
    microbatch_counts: tuple[int, ...] | None = None,
    transport: str = "overlapped",
    absent: Absent = (),
    whole_rings: bool = False,
    period: int | None = None,
) -> Programs:
    """Return the programs of one iteration.

    Parameters
    ----------
    averaging
        How replicas average.
    tied
        The first and the last stage share one embedding and exchange its gradient.
    synchronise
        False for an iteration in which each replica only updates itself.
    microbatch_counts
        (replicas,) micro-batches of each pipeline; None for the schedule's number. A pipeline with fewer runs the
        schedule's order without the last micro-batches.
    transport
        Unless it is ``overlapped``, a device waits until a pipeline's message has arrived before it continues.
    absent
        (position, replica) of devices that have left. Devices that hold the same stage share their passes: see
        ``sharing``. Requires sharding ``none``, no buckets, and neither ``tied`` nor ``averaging.locally``.
    whole_rings
        Combine the rounds of a ring into one action of each kind per replica. For simulation only.
    period
        Make programs only for the first ``period`` replicas. Replica r does what replica r + ``period`` does. Requires
        no ``absent``.

    Raises ScheduleError for more than MOST_STEPS steps, if a device orders a pass before one that it needs, or if a
    count is not between 1 and the schedule's.
    """
    counts = (schedule.n_microbatches,) * n_replicas if microbatch_counts is None else microbatch_counts
    if len(counts) != n_replicas or not all(1 <= count <= schedule.n_microbatches for count in counts):
        raise ScheduleError(
            f"schedule {schedule.name}: micro-batches of the pipelines are {shortened(list(counts))}; wanted one "
            f"count for each of {counted(n_replicas, 'replica')}, from 1 to the schedule's {schedule.n_microbatches}"
        )
    synchronise = synchronise and averaging.sharding != "zero-3"
    blocking = transport != "overlapped"
    # no buckets if there is nothing to average, or if the averages travel during all passes anyway
    buckets = averaging.buckets if synchronise and n_replicas > 1 and not averaging.delayed else ()
    cut = buckets or ((),) * schedule.n_devices
    counts = counts[:period]
    parts_at = parts_by(averaging.synchronisation, whole_rings)
    regions = averaging.regions
    groups_of = (("",) * n_replicas,) * schedule.n_devices if regions is None else regions
    _check_size(schedule, counts, parts_at if synchronise else None, groups_of, cut)
    whole = _with_messages(schedule)
    pipelines = {
        count: tuple(_in_parts(_restricted(steps, count, schedule), of) for steps, of in zip(whole, cut, strict=True))
        for count in sorted(set(counts), reverse=True)
    }
    if blocking:
        pipelines = {count: tuple(map(_blocking, devices)) for count, devices in pipelines.items()}
    tail_at = partial(tail_of, schedule, averaging)
    if absent:
        sharing = Sharing(schedule.n_devices, counts, absent)

        def shared(position: int, replica: int) -> tuple[Step, ...]:
            if replica not in (members := sharing.members[position]):
                return ()
            passes = sharing.passes(position, replica, whole[position])
            in_group = tuple("" if regions is None else regions[position][member] for member in members)
            among = parts_at(members.index(replica), in_group) if synchronise else ()
            parts = sharing.synchronising(position, replica, among)
            steps = passes + tail_at(position, passes, parts, len(members), None, ())
            return _blocking(steps) if blocking else steps

        every = tuple(tuple(shared(s, r) for r in range(n_replicas)) for s in range(schedule.n_devices))
        nothing = (((),) * schedule.n_devices,) * len(pipelines)
        return Programs(schedule, counts, nothing, every, blocking, transport == "blocking")
    last = schedule.n_devices - 1
    tails = []
    for position in range(schedule.n_devices):
        in_group = groups_of[position]
        partner = {0: last, last: 0}.get(position) if tied and last > 0 else None
        # without synchronisation, each replica counts as alone and averages nothing
        groups = [(replica, in_group) if synchronise else (0, ("",)) for replica in range(len(counts))]
        made: dict[tuple[int, tuple[SynchronisationPart, ...]], tuple[Step, ...]] = {}
        """(micro-batches, synchronisation parts) -> the tail. Replicas that do the same, such as all of a ring, share
        it."""
        of_position = []
        for n, (replica, in_region) in zip(counts, groups, strict=True):
            key = n, tuple(parts_at(replica, in_region))
            if key not in made:
                pipeline = pipelines[n][position]
                tail = tail_at(position, pipeline, key[1], len(in_region), partner, cut[position])
                made[key] = _blocking(pipeline + tail)[len(pipeline) :] if blocking else tail
            of_position.append(made[key])
        tails.append(tuple(of_position))
    return Programs(schedule, counts, tuple(pipelines.values()), tuple(tails), blocking, transport == "blocking")


def _check_size(
    schedule: Schedule,
    counts: tuple[int, ...],
    parts_at: Synchronise | None,
    groups: tuple[tuple[str, ...], ...],
    buckets: tuple[tuple[Bucket, ...], ...],
) -> None:
    """Raise ScheduleError for more than MOST_STEPS steps, before any is made.

    Each pass counts with two messages. Synchronisation is counted for two replicas of each stage: the first, and the
    last, which stands for all others.
    """
    n_replicas = len(groups[0])
    n_passes = sum(len(program) for program in schedule.programs) * sum(counts) // schedule.n_microbatches
    n_steps = n_passes if schedule.n_devices == 1 else 3 * n_passes
    for in_group, of_device in zip(groups, buckets, strict=True):
        # the first replica may be a root with more parts; the last one stands for all others
        for replica, times in ((0, 1), (n_replicas - 1, len(counts) - 1)):
            parts = () if parts_at is None else parts_at(replica, in_group)
            n_steps += times * max(len(of_device), 1) * sum(1 for _ in parts)
    _refuse_many(n_steps, schedule.name, schedule.n_microbatches, schedule.n_devices, n_replicas)


def check_passes(name: str, n_devices: int, counts: tuple[int, ...], stages_per_device: int = 1) -> None:
    """Raise ScheduleError for a schedule that would have more than MOST_STEPS steps, before it is built.

    ``counts`` has the micro-batches of each pipeline. Each one passes every stage forward and backward, with two
    messages per pass.
    """
    n_passes = 2 * n_devices * stages_per_device * sum(counts)
    _refuse_many(n_passes if n_devices == 1 else 3 * n_passes, name, max(counts), n_devices, len(counts))


def _refuse_many(n_steps: int, name: str, n_microbatches: int, n_devices: int, n_replicas: int) -> None:
    if n_steps > MOST_STEPS:
        raise ScheduleError(
            f"schedule {name}: {counted(n_microbatches, 'micro-batch')} on {counted(n_devices, 'stage')} x "
            f"{counted(n_replicas, 'replica')} are some {counted(n_steps, 'action')} an iteration; wanted at most "
            f"{MOST_STEPS:,}, such as fewer micro-batches of more sequences"
        )


@lru_cache(maxsize=8)
def _with_messages(schedule: Schedule) -> tuple[tuple[Step, ...], ...]:
    """Return the passes of each device of a pipeline, with their messages."""
    last, alone = schedule.n_stages - 1, schedule.n_devices == 1
    return tuple(tuple(_passes_of(schedule, program, last, alone)) for program in schedule.programs)


def _passes_of(schedule: Schedule, program: Sequence[Action], last: int, alone: bool) -> list[Step]:
    steps: list[Step] = []
    at: dict[tuple[int, Kind, int | None], int] = {}
    """(stage, kind, micro-batch) of each pass so far -> its position in ``steps``."""
    for action in program:
        stage, kind, m, _ = action
        if kind is Kind.BACKWARD_WEIGHT:
            steps.append(Step(action, (at[stage, Kind.BACKWARD_INPUT, m],)))
            continue
        forward = kind is Kind.FORWARD
        needs: tuple[int, ...] = () if forward else (at[stage, Kind.FORWARD, m],)
        source, target = (stage - 1, stage + 1) if forward else (stage + 1, stage - 1)
        if 0 <= source <= last:
            # One worker holds both stages, so nothing is sent between them.
            if alone:
                needs += (_on_the_same_device(schedule, at, action, source),)
            else:
                needs += (len(steps),)
                steps.append(Step(Action(stage, Kind.RECV_F if forward else Kind.RECV_B, m)))
        at[stage, kind, m] = len(steps)
        steps.append(Step(action, needs))
        if 0 <= target <= last and not alone:
            steps.append(Step(Action(stage, Kind.SEND_F if forward else Kind.SEND_B, m), (len(steps) - 1,)))
    return steps


def _restricted(steps: tuple[Step, ...], n_microbatches: int, schedule: Schedule) -> tuple[Step, ...]:
    """Return a device's steps for the first ``n_microbatches`` micro-batches, in order."""
    if n_microbatches == schedule.n_microbatches:
        return steps
    place: dict[int, int] = {}
    kept: list[Step] = []
    for i, (action, needs, *_) in enumerate(steps):
        if action.microbatch is not None and action.microbatch < n_microbatches:
            place[i] = len(kept)
            kept.append(Step(action, tuple([place[need] for need in needs])))
    return tuple(kept)


def _in_parts(steps: tuple[Step, ...], buckets: tuple[Bucket, ...]) -> tuple[Step, ...]:
    """Return the steps with each stage's last backward cut into the parts that its buckets need."""
    # With one bucket, nothing is averaged before the backward ends.
    if len(buckets) < 2:
        return steps
    last = {step.action.stage: step.action for step in steps if step.action.kind in LAST}
    cut = {action: parts_of(buckets, action) for action in last.values()}
    place: list[int] = []
    kept: list[Step] = []
    for action, needs, *_ in steps:
        moved = tuple([place[need] for need in needs])
        for part, fraction in cut.get(action, ()):
            kept.append(Step(part, moved, fraction=fraction, whole=None if part is action else action.kind))
            moved = (len(kept) - 1,)
        if action not in cut:
            kept.append(Step(action, moved))
        place.append(len(kept) - 1)
    return tuple(kept)


def _blocking(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps with ``arrivals`` filled in, for devices that block until their messages have arrived.

    After sending along the pipeline, a device's next computation and next send wait for the arrival, and so does
    everything after them. Receives never wait, because they are posted early. Synchronisation of buckets during the
    passes does not wait either.
    """
    sent: tuple[int, ...] = ()
    waiting: list[Step] = []
    for i, step in enumerate(steps):
        kind = step.action.kind
        if step.bucket is not None:
            waiting.append(step)
            continue
        waiting.append(Step(*step[:-1], sent) if sent and kind not in RECEIVES else step)  # the quick way to replace
        if kind in COMPUTE:
            sent = ()
        elif kind in SENDS and kind in ACROSS_STAGES:
            sent = (i,)
    return tuple(waiting)


def _on_the_same_device(
    schedule: Schedule, at: dict[tuple[int, Kind, int | None], int], action: Action, source: int
) -> int:
    """Return the position of the pass at stage ``source`` whose result ``action`` needs, in a pipeline of one device.

    Raises ScheduleError if that pass has not come yet.
    """
    kinds = (Kind.FORWARD,) if action.kind is Kind.FORWARD else (Kind.BACKWARD, Kind.BACKWARD_INPUT)
    for kind in kinds:
        if (source, kind, action.microbatch) in at:
            return at[source, kind, action.microbatch]
    wanted = Action(source, kinds[0], action.microbatch)
    raise ScheduleError(f"schedule {schedule.name}: {action} comes before {wanted}, which it needs")
