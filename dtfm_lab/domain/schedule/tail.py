"""What a device does after its passes: it averages its gradients and takes the optimiser's step."""

from dtfm_lab.domain.schedule.schedule import PASSES, SENDS, Action, Kind, Schedule, Step
from dtfm_lab.domain.schedule.synchronisation import LAST, Bucket, SynchronisationPart, parts_of


def tail_of(
    schedule: Schedule,
    compressed: bool,
    locally: bool,
    shards_states: bool,
    averaged: float,
    delayed: bool,
    position: int,
    pipeline: tuple[Step, ...],
    parts: tuple[SynchronisationPart, ...],
    rounds: int,
    partner: int | None,
    buckets: tuple[Bucket, ...],
) -> tuple[Step, ...]:
    """Synchronisation, the exchange of a tied embedding's gradient with ``partner``'s device, and the step.

    Rounds are counted on from bucket to bucket, so that every action has a name of its own.
    """
    n_before, n_buckets = len(pipeline), max(len(buckets), 1)
    done = max(i for i, step in enumerate(pipeline) if step.action.kind in PASSES)
    steps: list[Step] = []
    last_sum = next((part.key for part in reversed(parts) if part.kind is Kind.REDUCE), None) if shards_states else None
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
    exchanged = exchange_embedding(done) if locally or last_sum is not None else ()
    for number, whole in enumerate(_ready(pipeline, buckets)):
        several = n_buckets > 1
        share = buckets[number].share if several else 1.0
        bucket = number if several else None
        fraction = share * n_buckets  # the mean over buckets is a profile's time
        share *= averaged
        step = Action(position, Kind.STEP, bucket)
        ready = (*whole, *exchanged)
        if locally:
            ready = stepped = (add(Step(step, ready, bucket=bucket, fraction=fraction)),)
        if delayed:
            ready, bucket = (), 0
        if compressed and packed:
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
            if part.key == last_sum:  # what waits for it waits for the step that it is used in
                needs = (*ready, at[part.key])
                at[part.key] = add(Step(step, needs, bucket=bucket, fraction=fraction))
        arrived += [at[part.key] for part in parts if part.kind in (Kind.REDUCE, Kind.RECV_P)]
    if last_sum is not None:
        add(Step(Action(position, Kind.REDUCE, n_buckets * rounds), (*ready, *arrived)))
    elif not locally:
        arrived += exchange_embedding(done, *arrived)
        add(Step(Action(position, Kind.STEP), (done, *arrived), coded=unpacked))
    elif parts:
        add(Step(Action(position, Kind.REDUCE, n_buckets * rounds), (*stepped, *arrived), coded=unpacked))
    return tuple(steps)


def _ready(pipeline: tuple[Step, ...], buckets: tuple[Bucket, ...]) -> list[tuple[int, ...]]:
    """Of each bucket, the computations after which its gradients are whole; of the whole where there is one bucket."""
    computed = [i for i, step in enumerate(pipeline) if step.action.kind in PASSES]
    if len(buckets) < 2:
        return [(computed[-1],)]  # computations keep their order: with the last one done, all gradients are whole
    last = {pipeline[i].action.stage: pipeline[i].action for i in computed if pipeline[i].action.kind in LAST}
    at = {step.action: i for i, step in enumerate(pipeline)}
    left = {stage: [at[part] for part, _ in parts_of(buckets, action)] for stage, action in last.items()}
    return [tuple([left[stage].pop(0) for stage, _ in bucket.parts]) for bucket in buckets]
