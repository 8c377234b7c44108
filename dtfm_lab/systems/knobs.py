"""What of a job may be changed so that a network computes more of the time, each on a plan that keeps its devices."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import COMPRESSIONS, Job
from dtfm_lab.domain.job.model.completion import family_sizes, rebuilt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.systems.axes import Bandwidth, axis_of

MOST_BATCH, MOST_WIDTH, MOST_EVERY, MOST_BANDWIDTH = 1024, 16, 1024, 1024
"""Most times of its own that a batch, a width, the iterations between two averages or a bandwidth is tried at."""
MOST_TOKENS = 65_536
"""Longest sequence that is tried, where the job's own is shorter."""


@dataclass(frozen=True)
class Knob(ABC):
    """One thing of a plan's job that may be larger."""

    plan: Plan
    name: ClassVar[str]
    noun: ClassVar[str]
    """What a sentence calls it."""
    mathematics: ClassVar[str] = ""
    """What it changes of the training itself; empty where losses stay what they were."""
    continuous: ClassVar[bool] = True
    """Whether it has a value between any two."""

    @property
    @abstractmethod
    def own(self) -> float:
        """The plan's value."""

    @property
    @abstractmethod
    def most(self) -> float:
        """The largest value that is tried."""

    @abstractmethod
    def set(self, plan: Plan, value: float) -> Plan:
        """A plan with the same devices and shape at a value. Raises LabError where there is none."""

    @abstractmethod
    def text(self, value: float) -> str:
        """A value in words, such as ``a batch of 1,024``."""

    @property
    def doubled(self) -> list[float]:
        """The values that are tried in turn, each twice the one before."""
        values = []
        value = self.own * 2
        while value <= self.most:
            values.append(value)
            value *= 2
        return values

    @property
    def halved(self) -> list[float]:
        """Smaller values, tried where the plan's own suffices; none where less of it means nothing."""
        return []

    def middle(self, low: float, high: float) -> float | None:
        """A value about halfway between two; None where none is left."""
        return None


def _whole_middle(low: float, high: float, grain: int) -> float | None:
    middle = float(round((low + high) / 2 / grain) * grain)
    return middle if low < middle < high else None


class Batch(Knob):
    """The global batch, in more micro-batches of the size that they have, each replica's share as it is."""

    name = "batch"
    noun = "batch"
    mathematics = (
        "a larger batch takes fewer, larger steps a token: the learning rate has to follow, and beyond the critical "
        "batch size (McCandlish et al. 2018) tokens are wasted"
    )

    @property
    def own(self) -> float:
        return float(self.plan.job.global_batch)

    @property
    def most(self) -> float:
        return self.own * MOST_BATCH

    @property
    def grain(self) -> int:
        """Sequences of the least batch of which every replica has its share."""
        counts = self.plan.job.microbatch_counts
        return sum(counts) // reduce(math.gcd, counts) * int(self.plan.job.microbatch)

    @property
    def halved(self) -> list[float]:
        values = []
        value = self.own / 2
        while value >= self.grain and not value % self.grain:
            values.append(value)
            value /= 2
        return values

    def set(self, plan: Plan, value: float) -> Plan:
        return plan.changed(job=with_batch(plan.job, int(value)))

    def text(self, value: float) -> str:
        return f"a batch of {value:,.0f}"

    def middle(self, low: float, high: float) -> float | None:
        return _whole_middle(low, high, self.grain)


def with_batch(job: Job, batch: int) -> Job:
    """The job with another batch, replicas in the proportions that they have, warm-ups as they are."""
    counts = job.microbatch_counts
    total, over = divmod(batch, int(job.microbatch))
    share, rest = divmod(total * reduce(math.gcd, counts), sum(counts))
    even = None if rest or over else tuple(count // reduce(math.gcd, counts) * share for count in counts)
    if even is not None and len(set(even)) == 1:
        even = None
    return job.with_fields(global_batch=batch, microbatches_per_replica=even, warmups=job.warmups)


class Width(Knob):
    """The model's width: more heads of the size that they have, and an MLP as many times as wide."""

    name = "width"
    noun = "width"
    mathematics = "a wider model is another model"

    @property
    def own(self) -> float:
        return float(self.plan.job.modelled().d_model)

    @property
    def most(self) -> float:
        return self.own * MOST_WIDTH

    def set(self, plan: Plan, value: float) -> Plan:
        model = plan.job.modelled()
        sizes = family_sizes(model)
        times = value / model.d_model
        scaled = {what: sizes[what] * times for what in ("n_heads", "n_kv_heads", "d_ff") if sizes.get(what)}
        if broken := next((what for what, size in scaled.items() if size != int(size)), ""):
            raise JobError(f"model {model.name}: {broken} of width {value:g} is {scaled[broken]:g}; wanted a whole one")
        whole = {what: int(size) for what, size in scaled.items()}
        wider = rebuilt(model, d_model=int(value), **whole)
        return plan.changed(job=plan.job.with_fields(model=wider, warmups=plan.job.warmups))

    def text(self, value: float) -> str:
        return f"a width of {value:,.0f}"

    def middle(self, low: float, high: float) -> float | None:
        return _whole_middle(low, high, self._grain)

    @property
    def _grain(self) -> int:
        """The least width of whole heads, keys' heads and MLP."""
        sizes = family_sizes(self.plan.job.modelled())
        parts = [sizes[what] for what in ("n_heads", "n_kv_heads", "d_ff", "d_model") if sizes.get(what)]
        return int(sizes["d_model"] // reduce(math.gcd, parts))


class Length(Knob):
    """Tokens of a sequence, as many sequences; a table of learned positions grows with them."""

    name = "sequence"
    noun = "sequence length"
    mathematics = "longer sequences are other examples, and as many of them are a batch of more tokens"

    @property
    def own(self) -> float:
        return float(self.plan.job.modelled().seq_len)

    @property
    def most(self) -> float:
        return float(MOST_TOKENS)

    def set(self, plan: Plan, value: float) -> Plan:
        model, length = plan.job.modelled(), int(value)
        if 0 < model.n_positions < length:
            longer = rebuilt(model, seq_len=length, n_positions=length)
            if longer is None:
                raise JobError(f"model {model.name} has {model.n_positions} learned positions, and is of no family")
        else:
            longer = model.with_seq_len(length)
        return plan.changed(job=plan.job.with_fields(model=longer, warmups=plan.job.warmups))

    def text(self, value: float) -> str:
        return f"sequences of {value:,.0f} tokens"

    def middle(self, low: float, high: float) -> float | None:
        return _whole_middle(low, high, max(1, int(self.own) // 16))


class Compression(Knob):
    """What messages are rounded to, those of pipelines and of gradients; a value is its number in ``compressions``."""

    name = "compression"
    noun = "compression"
    mathematics = "messages are rounded"
    continuous = False

    @property
    def own(self) -> float:
        return float(COMPRESSIONS.index(self.plan.job.compression))

    @property
    def most(self) -> float:
        return float(len(COMPRESSIONS) - 1)

    @property
    def doubled(self) -> list[float]:
        """Only those that make a message smaller."""
        job = self.plan.job
        bytes_before = job.activation_bytes, job.stage_gradient_bytes[0]
        values = []
        for i in range(int(self.own) + 1, len(COMPRESSIONS)):
            one = job.with_fields(compression=COMPRESSIONS[i], gradient_compression=None)
            if (one.activation_bytes, one.stage_gradient_bytes[0]) < bytes_before:
                values.append(float(i))
        return values

    def set(self, plan: Plan, value: float) -> Plan:
        how = {"compression": COMPRESSIONS[int(value)], "gradient_compression": None}
        return plan.changed(job=plan.job.with_fields(**how))

    def text(self, value: float) -> str:
        return f"messages in {COMPRESSIONS[int(value)]}" if value else "messages as they are"


class Every(Knob):
    """Iterations from one average of the replicas to the next."""

    name = "every"
    noun = "averaging every H iterations"
    mathematics = "replicas step alone between two averages, as in local SGD and DiLoCo"

    @property
    def own(self) -> float:
        return float(self.plan.job.synchronise_every)

    @property
    def most(self) -> float:
        return float(MOST_EVERY)

    @property
    def doubled(self) -> list[float]:
        return [] if self.plan.job.n_replicas == 1 else super().doubled

    def set(self, plan: Plan, value: float) -> Plan:
        return plan.changed(job=plan.job.with_fields(synchronise_every=int(value)))

    def text(self, value: float) -> str:
        return f"averaging every {value:,.0f} iterations" if value > 1 else "averaging every iteration"

    def middle(self, low: float, high: float) -> float | None:
        return _whole_middle(low, high, 1)


class Faster(Knob):
    """The bandwidth of all links between hosts, in Gbit/s of the median one."""

    name = "bandwidth"
    noun = "bandwidth"

    @property
    def _axis(self) -> Bandwidth:
        axis = axis_of("bandwidth", self.plan.topology, self.plan.job)
        assert isinstance(axis, Bandwidth), "of its name"
        return axis

    @property
    def own(self) -> float:
        return self._axis.own

    @property
    def most(self) -> float:
        return self.own * MOST_BANDWIDTH

    @property
    def halved(self) -> list[float]:
        return [self.own / 2**i for i in range(1, MOST_BANDWIDTH.bit_length())]

    def set(self, plan: Plan, value: float) -> Plan:
        axis = axis_of("bandwidth", plan.topology, plan.job)
        return plan.changed(topology=axis.network(plan.topology, value))

    def text(self, value: float) -> str:
        return f"{value:.3g} Gbit/s between hosts"

    def middle(self, low: float, high: float) -> float | None:
        middle = math.sqrt(low * high)
        return middle if low * 1.01 < middle < high / 1.01 else None


KNOBS: dict[str, type[Knob]] = {one.name: one for one in (Batch, Width, Length, Compression, Every, Faster)}
"""Knobs by name, in the order in which a sentence names them."""


def knobs_of(plan: Plan, names: Sequence[str]) -> list[Knob]:
    """The knobs of these names, of a plan."""
    return [KNOBS[name](plan) for name in names]
