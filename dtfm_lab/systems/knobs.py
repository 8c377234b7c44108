"""What of a plan's job or network may be larger, so that it computes more of the time, its devices as they are."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import COMPRESSIONS, Job, ModelSpec
from dtfm_lab.domain.job.model.completion import family_sizes, rebuilt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.systems.variations import Variation, between_in_ratio, variation

MOST_BATCH, MOST_WIDTH, MOST_EVERY, MOST_BANDWIDTH = 1024, 16, 1024, 1024
"""Most times of its own that a batch, a width, the iterations between two averages or a bandwidth is tried at."""
MOST_TOKENS = 65_536
"""Longest sequence that is tried, where the job's own is shorter."""
CLOSE = 1.01
"""Factor to either end from which on a bandwidth between two is not looked at."""


def _batch(plan: Plan) -> Variation:
    """The global batch, in more micro-batches of the size that they have, each replica's share as it is."""
    counts, own = plan.job.microbatch_counts, float(plan.job.global_batch)
    grain = sum(counts) // reduce(math.gcd, counts) * int(plan.job.microbatch)  # the least of which all have a share
    return Variation(
        name="batch",
        noun="batch",
        words="a batch of {:,.0f}",
        mathematics="a larger batch takes fewer, larger steps a token: the learning rate has to follow, and beyond the "
        "critical batch size (McCandlish et al. 2018) tokens are wasted",
        own=own,
        job=with_batch,
        middle=partial(_whole_middle, grain),
        most=own * MOST_BATCH,
        least=grain,
        grain=grain,
    )


def with_batch(job: Job, batch: float) -> Job:
    """The job with another batch, replicas in the proportions that they have, warm-ups as they are."""
    counts = job.microbatch_counts
    total, over = divmod(int(batch), int(job.microbatch))
    share, rest = divmod(total * reduce(math.gcd, counts), sum(counts))
    even = None if rest or over else tuple(count // reduce(math.gcd, counts) * share for count in counts)
    if even is not None and len(set(even)) == 1:
        even = None
    return job.with_fields(global_batch=int(batch), microbatches_per_replica=even, warmups=job.warmups)


def _whole_middle(grain: int, low: float, high: float) -> float | None:
    middle = float(round((low + high) / 2 / grain) * grain)
    return middle if low < middle < high else None


def _no_middle(low: float, high: float) -> None:
    return None


def _width(plan: Plan) -> Variation:
    """The model's width: more heads of the size that they have, and an MLP as many times as wide."""
    own = float(plan.job.modelled().d_model)
    return Variation(
        name="width",
        noun="width",
        words="a width of {:,.0f}",
        mathematics="a wider model is another model",
        own=own,
        job=_wider,
        middle=partial(_middle_width, plan.job.modelled()),
        most=own * MOST_WIDTH,
    )


def _wider(job: Job, value: float) -> Job:
    model = job.modelled()
    sizes = family_sizes(model)
    times = value / model.d_model
    scaled = {what: sizes[what] * times for what in ("n_heads", "n_kv_heads", "d_ff") if sizes.get(what)}
    if broken := next((what for what, size in scaled.items() if size != int(size)), ""):
        raise JobError(f"model {model.name}: {broken} of width {value:g} is {scaled[broken]:g}; wanted a whole one")
    wider = rebuilt(model, d_model=int(value), **{what: int(size) for what, size in scaled.items()})
    return job.with_fields(model=wider, warmups=job.warmups)


def _middle_width(model: ModelSpec, low: float, high: float) -> float | None:
    """A multiple of the least width of whole heads, keys' heads and MLP."""
    sizes = family_sizes(model)
    parts = [sizes[what] for what in ("n_heads", "n_kv_heads", "d_ff", "d_model") if sizes.get(what)]
    return _whole_middle(int(sizes["d_model"] // reduce(math.gcd, parts)), low, high)


def _sequence(plan: Plan) -> Variation:
    """Tokens of a sequence, as many sequences; a table of learned positions grows with them."""
    own = float(plan.job.modelled().seq_len)
    return Variation(
        name="sequence",
        noun="sequence length",
        words="sequences of {:,.0f} tokens",
        mathematics="longer sequences are other examples, and as many of them are a batch of more tokens",
        own=own,
        job=_longer,
        middle=partial(_whole_middle, max(1, int(own) // 16)),
        most=float(MOST_TOKENS),
    )


def _longer(job: Job, value: float) -> Job:
    model, length = job.modelled(), int(value)
    if 0 < model.n_positions < length:
        longer = rebuilt(model, seq_len=length, n_positions=length)
        if longer is None:
            raise JobError(f"model {model.name} has {model.n_positions} learned positions, and is of no family")
    else:
        longer = model.with_seq_len(length)
    return job.with_fields(model=longer, warmups=job.warmups)


def _compression(plan: Plan) -> Variation:
    """What messages are rounded to, those of pipelines and of gradients; a value is its number in ``COMPRESSIONS``."""
    return Variation(
        name="compression",
        noun="compression",
        named={i: f"messages in {name}" if i else "messages as they are" for i, name in enumerate(COMPRESSIONS)},
        mathematics="messages are rounded",
        own=float(COMPRESSIONS.index(plan.job.compression)),
        job=_rounded,
        middle=_no_middle,
        larger=partial(_smaller_messages, plan.job),
    )


def _rounded(job: Job, value: float) -> Job:
    return job.with_fields(compression=COMPRESSIONS[int(value)], gradient_compression=None)


def _smaller_messages(job: Job) -> list[float]:
    """Only those that make a message smaller."""
    bytes_before = job.activation_bytes, job.stage_gradient_bytes[0]
    values = []
    for i in range(COMPRESSIONS.index(job.compression) + 1, len(COMPRESSIONS)):
        one = _rounded(job, i)
        if (one.activation_bytes, one.stage_gradient_bytes[0]) < bytes_before:
            values.append(float(i))
    return values


def _every(plan: Plan) -> Variation:
    """Iterations from one average of the replicas to the next."""
    return Variation(
        name="every",
        noun="averaging every H iterations",
        words="averaging every {:,.0f} iterations",
        named={1.0: "averaging every iteration"},
        mathematics="replicas step alone between two averages, as in local SGD and DiLoCo",
        own=float(plan.job.synchronise_every),
        job=_rarer,
        middle=partial(_whole_middle, 1),
        most=0.0 if plan.job.n_replicas == 1 else float(MOST_EVERY),
    )


def _rarer(job: Job, value: float) -> Job:
    return job.with_fields(synchronise_every=int(value))


def _bandwidth(plan: Plan) -> Variation:
    """The bandwidth of all links between hosts, in Gbit/s of the median one."""
    links = variation("bandwidth", plan.topology, plan.job)
    return replace(
        links,
        unit="",
        words="{:.3g} Gbit/s between hosts",
        middle=partial(between_in_ratio, margin=CLOSE),
        most=links.own * MOST_BANDWIDTH,
        least=links.own / MOST_BANDWIDTH,
    )


KNOBS: dict[str, Callable[[Plan], Variation]] = {
    "batch": _batch,
    "width": _width,
    "sequence": _sequence,
    "compression": _compression,
    "every": _every,
    "bandwidth": _bandwidth,
}
"""What may be turned, by name, in the order in which a sentence names it."""
