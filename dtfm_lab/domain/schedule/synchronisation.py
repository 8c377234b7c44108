"""The ways in which replicas of a stage average their gradients, by name.

Each way is a function of a replica and of the regions of all replicas. It yields that replica's messages and
computations in order. Peers are served in ring order, so that not all replicas send to the same one first.

If synchronisation overlaps, a device's gradient is cut into buckets that are synchronised while its last backwards
still run. A bucket holds whole layers, the last layers first. It can leave when the last backward has computed its
gradients (Li et al. 2020, "PyTorch Distributed", section 3.2). So if a stage fills several buckets, its last backward
is computed in parts. All parts but the last are actions ``PART``. The last is the backward itself, which covers the
rest.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.schedule.schedule import PASSES, SENDS, Action, Kind, Schedule, Step
from dtfm_lab.domain.units import by_key

Key = tuple[Kind, int | None, int | None]
"""Kind, round and peer. They identify a part of one replica's synchronisation."""


class SynchronisationPart(NamedTuple):
    """A message or computation that one replica performs for synchronisation.

    A send or a computation starts when the replica's own gradients are complete and all parts in ``after`` have ended.
    A receive follows its send.
    """

    kind: Kind
    round: int | None = None
    peer: int | None = None
    """Offset of the other end: replica + peer for sends, replica - peer for receives, modulo replicas."""
    share: float = 0.0
    """Fraction of the gradient that a message carries."""
    coded: float = 0.0
    """Amount that a computation compresses or restores if gradients are compressed: 1 for each whole gradient."""
    after: tuple[Key, ...] = ()
    in_turn: bool = False
    """True if it waits until this replica's previous ``in_turn`` message has arrived."""
    rounds: int = 1
    """Number of consecutive messages or sums that it stands for."""

    @property
    def key(self) -> Key:
        return self.kind, self.round, self.peer


Synchronise = Callable[[int, tuple[str, ...]], Iterator[SynchronisationPart]]
"""A function of (replica, region of each replica's device) that yields the replica's parts."""
BY_SHARDS = ("sharded", "sharded-at-once", "ring")
"""The ways in which every replica averages one shard, in its last REDUCE, and then sends it to the others. Replicas
that split the optimizer states step the shard in between."""

synchronisations: Registry[Synchronise] = Registry("synchronisation")


@synchronisations.register("sharded")
def sharded(replica: int, regions: tuple[str, ...]) -> Iterator[SynchronisationPart]:
    """A parameter server spread over the replicas; each serves its peers one after the other (Yuan et al. 2022,
    equation 2).

    Each replica owns one shard. It receives that shard of its peers' gradients, averages, and sends the average to
    every peer.
    """
    yield from _exchange(list(range(len(regions))), replica, in_turn=True)


@synchronisations.register("sharded-at-once")
def sharded_at_once(replica: int, regions: tuple[str, ...]) -> Iterator[SynchronisationPart]:
    """A parameter server spread over the replicas; each serves all its peers at once."""
    yield from _exchange(list(range(len(regions))), replica, in_turn=False)


@synchronisations.register("central")
def central(replica: int, regions: tuple[str, ...]) -> Iterator[SynchronisationPart]:
    """Replica 0 is the parameter server. It receives whole gradients and sends whole averages."""
    yield from _gather(list(range(len(regions))), replica, len(regions))
    yield from _spread(list(range(len(regions))), replica, len(regions), after=())


@synchronisations.register("ring")
def ring(replica: int, regions: tuple[str, ...]) -> Iterator[SynchronisationPart]:
    """Ring all-reduce (Patarasu and Yuan 2009): with D replicas, D - 1 rounds of summing and D - 1 of distributing, one
    shard per round."""
    n = len(regions)
    for i in range(n - 1):
        before: tuple[Key, ...] = ((Kind.REDUCE, i - 1, None),) if i else ()
        yield SynchronisationPart(Kind.SEND_G, i, 1, share=1 / n, after=before)
        yield SynchronisationPart(Kind.RECV_G, i, 1, share=1 / n)
        yield SynchronisationPart(Kind.REDUCE, i, coded=2 / n, after=((Kind.RECV_G, i, 1),))
    for i in range(n - 1):
        # shards that are only passed on also wait for the replica's last sum, so that rounds leave in order
        before = ((Kind.REDUCE, n - 2, None), *(((Kind.RECV_P, i - 1, 1),) if i else ()))
        yield SynchronisationPart(Kind.SEND_P, i, 1, share=1 / n, after=before)
        yield SynchronisationPart(Kind.RECV_P, i, 1, share=1 / n)


def whole_ring(replica: int, regions: tuple[str, ...]) -> Iterator[SynchronisationPart]:
    """The parts of ``ring`` with its rounds combined, for simulation: one part of each kind, in round 0.

    ``share`` is the size of one round. RECV_P is an exception: it counts all rounds, in which a replica receives
    everything but its own shard. ``coded`` also counts all rounds.
    """
    n = len(regions)
    yield SynchronisationPart(Kind.SEND_G, 0, 1, share=1 / n, rounds=n - 1)
    yield SynchronisationPart(Kind.RECV_G, 0, 1, share=1 / n, rounds=n - 1)
    summed, received = (Kind.REDUCE, 0, None), (Kind.RECV_G, 0, 1)
    yield SynchronisationPart(*summed, coded=2 * (n - 1) / n, after=(received,), rounds=n - 1)
    yield SynchronisationPart(Kind.SEND_P, 0, 1, share=1 / n, after=(summed,), rounds=n - 1)
    yield SynchronisationPart(Kind.RECV_P, 0, 1, share=(n - 1) / n, rounds=n - 1)


LEAST_IN_RING = 3
"""From this many replicas on, a ring has several rounds that can be combined."""


def parts_by(synchronisation: str, whole_rings: bool) -> Synchronise:
    """Return the registered function that yields this synchronisation's parts. Raises UnknownName for an unknown
    synchronisation.

    With ``whole_rings``, the rounds of a ``ring`` are combined.
    """
    chosen = synchronisations[synchronisation]
    if not whole_rings or synchronisation != "ring":
        return chosen
    return lambda replica, regions: (whole_ring if len(regions) >= LEAST_IN_RING else chosen)(replica, regions)


@synchronisations.register("tree")
def tree(replica: int, regions: tuple[str, ...]) -> Iterator[SynchronisationPart]:
    """A binary tree. Whole gradients are summed from the leaves to replica 0, and the average returns the same way.

    The tree is the same as in NCCL's tree algorithm (Jeaugey 2019, "Massively Scale Your Deep Learning Training with
    NCCL 2.4"; ``ncclGetBtree``), of depth log2(replicas). NCCL also pipelines the gradient in chunks and uses a second
    tree for half of them. Here a replica passes on whole gradients.
    """
    n = len(regions)
    children = _children(n)[replica]
    summed: tuple[Key, ...] = ()
    if children:
        received = [SynchronisationPart(Kind.RECV_G, 0, (replica - child) % n, share=1.0) for child in children]
        yield from received
        whole = SynchronisationPart(
            Kind.REDUCE, 0, coded=len(children) + 1.0, after=tuple(part.key for part in received)
        )
        yield whole
        summed = (whole.key,)
    if replica:
        parent = _parent(replica, n)
        yield SynchronisationPart(Kind.SEND_G, 0, (parent - replica) % n, share=1.0, after=summed)
        averaged = SynchronisationPart(Kind.RECV_P, 0, (replica - parent) % n, share=1.0)
        yield averaged
        summed = (averaged.key,)
    yield from (
        SynchronisationPart(Kind.SEND_P, 0, (child - replica) % n, share=1.0, after=summed) for child in children
    )


@lru_cache(maxsize=8)
def _children(n_replicas: int) -> tuple[tuple[int, ...], ...]:
    """Return each replica's children in the tree."""
    below: list[list[int]] = [[] for _ in range(n_replicas)]
    for replica in range(1, n_replicas):
        below[_parent(replica, n_replicas)].append(replica)
    return tuple(map(tuple, below))


def _parent(replica: int, n_replicas: int) -> int:
    """Return the parent of a replica other than 0: clear its lowest bit, and set the next one if that is a replica."""
    lowest = replica & -replica
    above = (replica - lowest) | (2 * lowest)
    return above if above < n_replicas else replica - lowest


@synchronisations.register("hierarchical")
def hierarchical(replica: int, regions: tuple[str, ...]) -> Iterator[SynchronisationPart]:
    """Average inside each region first, then across regions.

    Each region's first replica sums the gradients of its region. These first replicas exchange shards, and each sends
    the average to the others of its region. A device without a region counts as a separate region.
    """
    n = len(regions)
    members_of = by_key((region or f" {member}", member) for member, region in enumerate(regions))
    own = next(members for members in members_of.values() if replica in members)
    leaders = [members[0] for members in members_of.values()]
    summed: tuple[Key, ...] = ()
    d = len(leaders)
    for part in _gather(own, replica, n, coded_again=(d - 1) / d if d > 1 else 1.0):
        summed = (part.key,) if part.kind is Kind.REDUCE else summed
        yield part
    averaged = summed
    if replica in leaders and len(leaders) > 1:
        shared = list(_exchange(leaders, replica, in_turn=False, n_replicas=n, round=1, after=summed))
        averaged = tuple(part.key for part in shared if part.kind in (Kind.REDUCE, Kind.RECV_P))
        yield from shared
    yield from _spread(own, replica, n, after=averaged)


def _exchange(
    group: list[int],
    replica: int,
    *,
    in_turn: bool,
    n_replicas: int | None = None,
    round: int | None = None,
    after: tuple[Key, ...] = (),
) -> Iterator[SynchronisationPart]:
    """Yield the parts of an exchange: every member averages one shard of all members' gradients and sends it to the
    others."""
    d, n = len(group), len(group) if n_replicas is None else n_replicas
    here = group.index(replica)
    onward = [(group[(here + k) % d] - replica) % n for k in range(1, d)]
    backward = [(replica - group[(here - k) % d]) % n for k in range(1, d)]
    yield from (SynchronisationPart(Kind.SEND_G, round, k, share=1 / d, after=after, in_turn=in_turn) for k in onward)
    received = [SynchronisationPart(Kind.RECV_G, round, k, share=1 / d) for k in backward]
    yield from received
    if d > 1:
        whole = SynchronisationPart(Kind.REDUCE, round, coded=1.0, after=(*after, *(part.key for part in received)))
        yield whole
        yield from (
            SynchronisationPart(Kind.SEND_P, round, k, share=1 / d, after=(whole.key,), in_turn=in_turn) for k in onward
        )
        yield from (SynchronisationPart(Kind.RECV_P, round, k, share=1 / d) for k in backward)


def _gather(group: list[int], replica: int, n_replicas: int, coded_again: float = 1.0) -> Iterator[SynchronisationPart]:
    """Yield the parts in which the group's first replica receives whole gradients and sums them.

    ``coded_again`` is the fraction of the sum that it then compresses for sending.
    """
    leader = group[0]
    if replica != leader:
        yield SynchronisationPart(Kind.SEND_G, 0, (leader - replica) % n_replicas, share=1.0)
        return
    received = [SynchronisationPart(Kind.RECV_G, 0, (leader - member) % n_replicas, share=1.0) for member in group[1:]]
    yield from received
    if received:
        coded = len(received) + coded_again
        yield SynchronisationPart(Kind.REDUCE, 0, coded=coded, after=tuple(part.key for part in received))


def _spread(group: list[int], replica: int, n_replicas: int, after: tuple[Key, ...]) -> Iterator[SynchronisationPart]:
    """Yield the parts in which the group's first replica sends the whole average to all others."""
    leader = group[0]
    if replica != leader:
        yield SynchronisationPart(Kind.RECV_P, 0, (replica - leader) % n_replicas, share=1.0)
        return
    summed = after or ((Kind.REDUCE, 0, None),)
    yield from (
        SynchronisationPart(Kind.SEND_P, 0, (member - leader) % n_replicas, share=1.0, after=summed)
        for member in group[1:]
    )


LAST = (Kind.BACKWARD, Kind.BACKWARD_WEIGHT)
"""The passes that complete a stage's gradient."""


class Bucket(NamedTuple):
    """A part of a device's gradient that is synchronised separately."""

    share: float
    """Fraction of the device's gradient."""
    parts: tuple[tuple[int, float], ...]
    """(stage, fraction) of each stage whose layers the bucket holds, in the order in which their gradients become
    ready.

    The bucket's layers take that fraction of the stage's last backward.
    """


def parts_of(buckets: tuple[Bucket, ...], last: Action) -> list[tuple[Action, float]]:
    """Return the parts of a stage's last backward in order, the pass itself last, each with its fraction of the whole
    pass."""
    fractions = [fraction for bucket in buckets for of, fraction in bucket.parts if of == last.stage]
    actions = [Action(last.stage, Kind.PART, number) for number in range(len(fractions) - 1)]
    return list(zip([*actions, last], fractions or [1.0], strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# What a device does after its passes: it averages its gradients and takes the optimizer's step.


class Averaging(NamedTuple):
    """How replicas average."""

    synchronisation: str = "sharded"
    """The name of a way in which replicas average, see ``synchronisations``."""
    regions: tuple[tuple[str, ...], ...] | None = None
    """(positions, replicas) region of each device; None if the synchronisation does not depend on regions."""
    compressed: bool = False
    """True if gradients are compressed in a separate step before they are sent."""
    locally: bool = False
    """True if replicas first update themselves and then average their parameters, instead of averaging gradients before
    the step.

    A last REDUCE, in a separate round, writes the averages into the parameters.
    """
    sharding: str | None = "none"
    """How replicas split what they hold (Rajbhandari et al. 2020).

    With ``zero-1`` and ``zero-2``, each replica steps the shard that it averages and sends the updated parameters
    instead of the averages. A last REDUCE, in a separate round, writes the parameters from the other replicas. The
    gradient of a tied embedding is exchanged before it is averaged. Requires a synchronisation of ``BY_SHARDS``, and
    not ``locally``. With ``zero-3`` the passes scatter the gradients, and nothing is synchronised after them. With a
    single replica nothing changes.
    """
    averaged: float = 1.0
    """Fraction of each device's parameters that is averaged after local updates."""
    delayed: bool = False
    """True to average the changes up to the beginning of the iteration. They travel during all passes, and the average
    is due at the end."""
    buckets: tuple[tuple[Bucket, ...], ...] = ()
    """By position, the parts of the gradient that are synchronised while the last backwards still run. Empty if
    synchronisation follows the last pass."""

    @property
    def shards_states(self) -> bool:
        """True if each replica updates only the shard of the parameters that it averages."""
        return self.sharding in ("zero-1", "zero-2")


def tail_of(
    schedule: Schedule,
    how: Averaging,
    position: int,
    pipeline: tuple[Step, ...],
    parts: tuple[SynchronisationPart, ...],
    rounds: int,
    partner: int | None,
    buckets: tuple[Bucket, ...],
) -> tuple[Step, ...]:
    """Return the steps after the passes: synchronisation, the exchange of a tied embedding's gradient, and the
    optimizer step.

    ``partner`` is the position at the other end of a tied embedding; None without one. Each bucket takes ``rounds``
    consecutive round numbers, so that every action has a unique name.
    """
    n_before, n_buckets = len(pipeline), max(len(buckets), 1)
    done = max(i for i, step in enumerate(pipeline) if step.action.kind in PASSES)
    steps: list[Step] = []
    last_sum = (
        next((part.key for part in reversed(parts) if part.kind is Kind.REDUCE), None) if how.shards_states else None
    )
    packed = sum(part.share for part in parts if part.kind is Kind.SEND_G and not part.after)
    arrived: list[int] = []
    stepped: tuple[int, ...] = ()
    unpacked = 0.0

    def add(step: Step) -> int:
        steps.append(step)
        return n_before + len(steps) - 1

    def exchange_embedding(*needs: int) -> tuple[int, ...]:
        if partner is None:
            return ()
        # the stages at the two ends, which hold the embedding and the head
        here, there = (0, schedule.n_stages - 1) if position == 0 else (schedule.n_stages - 1, 0)
        add(Step(Action(here, Kind.SEND_E, peer=there - here), needs))
        return (add(Step(Action(here, Kind.RECV_E, peer=here - there))),)

    # with split states no replica has the average of a whole embedding afterwards
    exchanged = exchange_embedding(done) if how.locally or last_sum is not None else ()
    for number, whole in enumerate(_ready(pipeline, buckets)):
        several = n_buckets > 1
        share = buckets[number].share if several else 1.0
        bucket = number if several else None
        fraction = share * n_buckets  # 1 on average over the buckets, because a profile has the mean time
        share *= how.averaged
        step = Action(position, Kind.STEP, bucket)
        ready = (*whole, *exchanged)
        if how.locally:
            ready = stepped = (add(Step(step, ready, bucket=bucket, fraction=fraction)),)
        if how.delayed:
            ready, bucket = (), 0
        if how.compressed and packed:
            pack = Action(position, Kind.PACK, bucket)
            ready = (add(Step(pack, ready, share, packed * share, bucket=bucket, fraction=fraction)),)
        at: dict[tuple[Kind, int | None, int | None], int] = {}
        for part in parts:
            waits = part.kind in SENDS or part.kind is Kind.REDUCE
            needs = (*ready, *(at[k] for k in part.after)) if waits else ()
            unpacked += part.share * share if part.kind is Kind.RECV_P else 0.0
            round = number * rounds + (part.round or 0) if several else part.round
            action = Action(position, part.kind, round, part.peer)
            carried, coded = part.share * share, part.coded * share
            if part.key == last_sum:  # the average is not sent, so it is not coded
                coded -= share / rounds
            at[part.key] = add(Step(action, needs, carried, coded, part.in_turn, bucket, fraction, rounds=part.rounds))
            if part.key == last_sum:  # what waits for this sum has to wait for its step
                needs = (*ready, at[part.key])
                at[part.key] = add(Step(step, needs, bucket=bucket, fraction=fraction))
        arrived += [at[part.key] for part in parts if part.kind in (Kind.REDUCE, Kind.RECV_P)]
    if last_sum is not None:
        add(Step(Action(position, Kind.REDUCE, n_buckets * rounds), (*ready, *arrived)))
    elif not how.locally:
        arrived += exchange_embedding(done, *arrived)
        add(Step(Action(position, Kind.STEP), (done, *arrived), coded=unpacked))
    elif parts:
        add(Step(Action(position, Kind.REDUCE, n_buckets * rounds), (*stepped, *arrived), coded=unpacked))
    return tuple(steps)


def _ready(pipeline: tuple[Step, ...], buckets: tuple[Bucket, ...]) -> list[tuple[int, ...]]:
    """Return, for each bucket, the indices of the steps that complete its gradients.

    With fewer than two buckets, this is the last pass, which completes the whole gradient.
    """
    computed = [i for i, step in enumerate(pipeline) if step.action.kind in PASSES]
    if len(buckets) < 2:
        return [(computed[-1],)]  # computations keep their order: with the last one done, all gradients are whole
    last = {pipeline[i].action.stage: pipeline[i].action for i in computed if pipeline[i].action.kind in LAST}
    at = {step.action: i for i, step in enumerate(pipeline)}
    left = {stage: [at[part] for part, _ in parts_of(buckets, action)] for stage, action in last.items()}
    return [tuple([left[stage].pop(0) for stage, _ in bucket.parts]) for bucket in buckets]
