"""Llama-like models trained by nanotron on hosts of eight H100s: configurations, their predictions, and the sweep's
file.

The sweep is from Hugging Face's Ultra-Scale Playbook (Tazi et al. 2025). Its rows of the models 1B and 3B are
``data/ultra_scale_sweep.csv``. The rows of 8B and 80B have not been looked at. The head of that file gives the
shapes, the batch, and the collectives that the authors measured on the same cluster.

Constants of the framework are medians over the rows of 1B and 3B. So these rows only show how well the constants
fit; rows of other models show how well they transfer.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import accumulate
from pathlib import Path

import numpy as np

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import BYTES_PER_ELEMENT, Job, LayerKind, ModelSpec, llama
from dtfm_lab.domain.network import CollectiveSpeed, Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import GB
from dtfm_lab.extensions.published.row import DATA
from dtfm_lab.extensions.published.units import hosts_of
from dtfm_lab.files.reading import read_text
from dtfm_lab.planning.iteration.structured.candidates import unpriced_plan
from dtfm_lab.planning.iteration.structured.layouts import in_order
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import MOST_USED, memory

SWEEP = DATA / "ultra_scale_sweep.csv"
SEQUENCE = 4096
"""Tokens per sequence."""
VOCABULARY = 131072
PER_HOST = 8
"""GPUs per host."""
GPU = "H100"
ONE_GPU = Device(name=GPU, gpu=GPU)
"""The GPU of the cluster. Its peak and memory come from the hardware table."""
SHAPES = {
    "1B": (16, 2048, 32, 8192),
    "3B": (28, 3072, 32, 8192),
    "8B": (32, 4096, 32, 14336),
    "80B": (80, 8192, 64, 28672),
}
"""Layers, width, heads and MLP width, by model name."""
FITTED = ("1B", "3B")
"""Models whose rows the framework's constants were fitted to."""
TIED_BELOW = 10_000
"""Models with an MLP narrower than this share one matrix between embedding and head."""

HOSTS = (1, 2, 4, 8, 16, 32, 64)
ALL_REDUCE_GB_PER_S = (436.0, 361.7, 160.1, 99.6, 84.7, 64.9, 32.9)
ALL_GATHER_GB_PER_S = (249.8, 184.6, 119.0, 69.0, 55.0, 28.0, 11.0)
REDUCE_SCATTER_GB_PER_S = (249.7, 181.6, 115.8, 68.6, 54.5, 27.9, 11.1)
ALL_REDUCE_BAND = ((422, 462), (302, 436), (45, 219), (42, 193), (31, 188), (25, 194), (12, 177))
"""5th and 95th percentile of the measured all-reduce in GB/s, for each number of hosts in ``HOSTS``.

It was measured on the cluster with messages of 256 MB, like the three means above.
"""
SEND_GB_PER_S = {"inside": 200.0, "between": 50.0}
"""GB/s of a message between two GPUs. Inside a host it is about half of NVLink's 450 GB/s. Between hosts each GPU has
its own NIC of 400 Gbit/s."""
LATENCY_S = 10e-6
"""Latency of a message in seconds. A guess, which matters little for large messages."""
SHARED_EXPONENT = 0.6
"""Several data-parallel groups may share hosts, with k GPUs of each per host. Each group then has (k / 8) **
``SHARED_EXPONENT`` times the bandwidth of a single group with all eight GPUs. Fitted."""

LAUNCH_S = {1: 3.0e-3, 2: 4.4e-3, 4: 4.4e-3, 8: 4.4e-3, 16: 8.0e-3, 32: 16.0e-3}
"""Minimum seconds of a block's forward and backward together, by tensor-parallel degree: the time to launch its
kernels.

Each is the median over the rows that would otherwise compute faster.
"""
LAUNCH_IN_PIPELINE_S = {1: 3.0e-3, 2: 7.8e-3, 4: 12.0e-3, 8: 20.0e-3, 16: 44.0e-3, 32: 120.0e-3}
"""The same as ``LAUNCH_S``, for pipelines that span hosts. There, a host that waits for blocking sends cannot launch
kernels in advance."""

MOST_TENSOR = 32
"""GPUs per layer in the largest measured tensor-parallel groups, which ``Configuration.is_slow`` treats separately."""

GATHERED_BYTES = {"alone": 4.0, "pipeline": 0.5}
"""Bytes of gathered inputs that each GPU of a tensor-parallel group keeps, to be multiplied by the tokens of all
micro-batches in flight, the width (d_model) and the number of blocks.

Without pipelines these are the inputs of the two products. With pipelines almost nothing is kept (fitted).
"""
LOGITS_BYTES = {"alone": 6.0, "pipeline": 2.0}
"""Bytes per logit that nanotron keeps in addition to the four that the lab counts. Fitted."""
WHOLE_GRADIENT_BYTES = 2
"""Bytes per parameter of the bf16 gradients that nanotron keeps in addition to those accumulated in fp32."""

SLOW_MODE_S = 0.75
"""Median extra seconds per micro-batch in the cluster's slow mode (5 to 95 %: 0.3 to 1.1). The slow mode is our name
for runs whose micro-batches take much longer than in the fastest run of the same kind (``slow_mode``)."""
SLOW_MODE_MOST_S = 1.1
"""95th percentile of the extra seconds per micro-batch in the slow mode."""
SLOW_FROM_HOSTS = {0: 2, 1: 16}
"""Number of hosts from which runs with pipelines were often in slow mode, by ZeRO stage."""
SLOW_SHARE = {0: 0.25, 1: 0.15}
"""Share of runs that were in slow mode, by ZeRO stage, among those with pipelines on at least ``SLOW_FROM_HOSTS``
hosts."""
ALWAYS_SLOW_FROM_HOSTS = 64
"""Number of hosts from which most runs were in slow mode, with or without pipelines.

Exceptions are runs with 32 GPUs per layer and few stages, and runs without pipelines whose optimizer states are
sharded.
"""
MODEL_SPREAD = 0.12
"""One standard deviation of the log of the seconds, for the errors of the lab's values for H100s and of the fits. The
network's spread is separate."""
CONFIDENCE_SPREADS = 1.645
"""Number of standard deviations to either side that covers 90 %."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """How a model is trained on ``nodes`` hosts of eight H100s: data (``dp``), tensor (``tp``) and pipeline parallelism
    (``pp``), sequences per micro-batch (``mbs``), micro-batches per replica (``grad_acc``) and the stage of ZeRO.
    Raises LabError for values that do not fit together."""

    model: str
    nodes: int
    dp: int
    tp: int
    pp: int
    mbs: int
    grad_acc: int
    zero: int

    def __post_init__(self) -> None:
        if self.model not in SHAPES:
            raise LabError(f"model is {self.model}; wanted one of {', '.join(SHAPES)}")
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < (field.name != "zero"):
                raise LabError(f"{field.name} is {value!r}; wanted a whole number from {int(field.name != 'zero')}")
        if self.zero not in SLOW_FROM_HOSTS:
            raise LabError(f"zero is {self.zero}; wanted 0 or 1")
        if self.dp * self.tp * self.pp != PER_HOST * self.nodes:
            raise LabError(
                f"dp {self.dp} x tp {self.tp} x pp {self.pp} are {self.dp * self.tp * self.pp} GPUs; wanted "
                f"{PER_HOST * self.nodes}, {PER_HOST} on each of {self.nodes} nodes"
            )
        if self.tp not in LAUNCH_S:
            raise LabError(f"tp is {self.tp}; wanted one of {', '.join(map(str, LAUNCH_S))}")

    @property
    def setting(self) -> str:
        """The configuration in words."""
        return (
            f"{self.model}, {self.nodes} x 8 H100, DP {self.dp} TP {self.tp} PP {self.pp}, micro-batch {self.mbs} x "
            f"{self.grad_acc}, ZeRO-{self.zero}"
        )

    @property
    def batch(self) -> int:
        """Sequences per iteration."""
        return self.dp * self.mbs * self.grad_acc

    @property
    def n_gpus(self) -> int:
        return PER_HOST * self.nodes

    @property
    def slots(self) -> int:
        """Number of time slots in an iteration, each for one micro-batch in one stage: its micro-batches, plus filling
        and draining the pipeline."""
        return self.grad_acc + self.pp - 1

    @property
    def in_pipeline(self) -> bool:
        """True if stages are on several hosts."""
        return self.pp > 1 and self.nodes > 1

    @property
    def may_be_slow(self) -> bool:
        """True if runs like it were often in the cluster's slow mode."""
        return self.is_slow or (self.in_pipeline and self.nodes >= SLOW_FROM_HOSTS[self.zero])

    @property
    def is_slow(self) -> bool:
        """True if most runs like it were in the cluster's slow mode."""
        if self.nodes < ALWAYS_SLOW_FROM_HOSTS:
            return False
        few_messages = self.tp == MOST_TENSOR and self.pp <= 2
        return not few_messages if self.pp > 1 else self.zero == 0 and self.tp < MOST_TENSOR

    def tokens_per_s_per_gpu(self, iteration_s: float) -> float:
        """Return the throughput for these seconds per iteration. The same formula turns a throughput into seconds."""
        return self.batch * SEQUENCE / iteration_s / self.n_gpus


@cache
def model_of(name: str, *, tied: bool = False) -> ModelSpec:
    """Return a model of the sweep, by name. Each attention head has its own keys and values. ``tied`` lets a narrow
    model share one matrix between embedding and head."""
    n_layers, width, heads, inner = SHAPES[name]
    return llama(
        name=name,
        n_layers=n_layers,
        d_model=width,
        n_heads=heads,
        d_ff=inner,
        n_kv_heads=heads,
        seq_len=SEQUENCE,
        vocab_size=VOCABULARY,
        tied=tied and inner < TIED_BELOW,
    )


def cut_of(name: str, n_stages: int) -> tuple[int, ...]:
    """Return the blocks of each stage, as nanotron cuts the model: equal numbers of multiplications. The head counts,
    the embedding does not.

    A stage takes layers until it exceeds its part. Stages after the head would be empty and are left out. The last
    stage may have no block.
    """
    n_layers, width, _, inner = SHAPES[name]
    # Multiplications per token of a block: four projections of attention and three of the MLP.
    of_block = 4 * width * width + 3 * width * inner
    layers = [of_block] * n_layers + [VOCABULARY * width]
    done = list(accumulate(layers))
    blocks, stage = [0] * n_stages, 0
    for i, end in enumerate(done):
        blocks[stage] += i < n_layers
        if i == n_layers:
            return tuple(blocks[: stage + 1])
        if end > done[-1] * (stage + 1) / n_stages:
            stage += 1
    raise AssertionError("the head is the last layer")


def job_of(one: Configuration) -> Job:
    """Return the job of a configuration, as nanotron trains it."""
    launches = LAUNCH_IN_PIPELINE_S if one.in_pipeline else LAUNCH_S
    blocks = cut_of(one.model, one.pp)
    return Job(
        name="nanotron",
        model=model_of(
            one.model, tied=one.pp == 1
        ),  # in a pipeline both ends hold a copy, whose exchange is not counted
        n_stages=len(blocks),
        blocks_per_stage=blocks,
        n_replicas=one.dp,
        global_batch=one.batch,
        microbatch=one.mbs,
        dtype="bf16",
        gradient_dtype="fp32",
        tensor_parallel=one.tp,
        sequence_parallel=one.tp > 1,
        sharding="zero-1" if one.zero and one.dp > 1 else "none",
        synchronisation="ring",
        overlap=False,
        schedule="1f1b",
        transport="batched",
        checkpointing="none",
        memory_traffic=True,
        block_launch_s=launches[one.tp],
    )


def network_of(one: Configuration) -> Topology:
    """Return the network, with one device per tensor-parallel group. Consecutive ranks fill a tensor-parallel group,
    then the replicas of a stage, then the next stage.

    Links within a stage have the bandwidth of measured collectives inside one host, times the group's GPUs. It is lower
    if several data-parallel groups share hosts. ``Topology.collectives`` states how much slower collectives are over
    more hosts. Links between stages have the speed of a single message, times the group's GPUs.
    """
    n_groups, n_hosts = one.n_gpus // one.tp, one.tp / PER_HOST
    inner = ALL_REDUCE_GB_PER_S[0]
    if n_hosts > 1:  # a sequence-parallel sum over hosts is a reduce-scatter and an all-gather
        inner = 2 / (1 / _at(ALL_GATHER_GB_PER_S, n_hosts) + 1 / _at(REDUCE_SCATTER_GB_PER_S, n_hosts))
    speed = {"inside_bytes_per_s": inner * GB, "between_bytes_per_s": inner * GB}
    devices = hosts_of(one.n_gpus, GPU, **speed, per_host=max(one.tp, PER_HOST)).grouped(one.tp).devices
    if n_hosts > 1:
        devices = tuple(replace(device, inner_latency_s=LATENCY_S) for device in devices)
    stage = np.arange(n_groups) // one.dp
    within = stage[:, None] == stage[None, :]
    sent = SEND_GB_PER_S["between" if one.nodes > 1 else "inside"] * one.tp * GB
    averaged = one.tp * _averaging_gb_per_s(one, 1.0) * _shared(one) * GB
    bandwidth = np.where(within, averaged, sent)
    return Topology(
        devices,
        np.where(np.eye(n_groups, dtype=bool), 0.0, LATENCY_S),
        bandwidth,
        name=f"{one.nodes} hosts",
        link_spread=_link_spread(_hosts_of_stage(one)),
        collectives=_collectives(one),
    )


def _hosts_of_stage(one: Configuration) -> float:
    return max(one.dp * one.tp / PER_HOST, 1.0)


def _collectives(one: Configuration) -> tuple[CollectiveSpeed, ...]:
    """Return the speed of averaging relative to one host, and its spread, by number of hosts. A tensor-parallel group
    that spans several hosts counts as one host."""
    n_hosts = max(one.tp // PER_HOST, 1)
    alone = _averaging_gb_per_s(one, 1.0)
    return tuple(
        CollectiveSpeed(hosts // n_hosts, _averaging_gb_per_s(one, hosts) / alone, _link_spread(hosts))
        for hosts in HOSTS
        if hosts >= n_hosts
    )


def _shared(one: Configuration) -> float:
    """Return the bandwidth of each of several data-parallel groups that share hosts, divided by the bandwidth of a
    single group with all GPUs of each host. 1 for a group within one host."""
    here = min(max(PER_HOST // one.tp, 1), one.dp)
    return (here / PER_HOST) ** SHARED_EXPONENT if _hosts_of_stage(one) > 1 else 1.0


def _averaging_gb_per_s(one: Configuration, hosts: float) -> float:
    """Return the GB/s at which one GPU averages over this number of hosts."""
    gradient, parameter = BYTES_PER_ELEMENT["fp32"], BYTES_PER_ELEMENT["bf16"]
    if one.zero:  # gradients are scattered in fp32, parameters gathered in bf16
        seconds = gradient / _at(REDUCE_SCATTER_GB_PER_S, hosts) + parameter / _at(ALL_GATHER_GB_PER_S, hosts)
        return (gradient + parameter) / seconds
    return _at(ALL_REDUCE_GB_PER_S, hosts)


def _at(measured: Sequence[float], hosts: float) -> float:
    """Return a measured speed for this number of hosts. ``measured`` has one value for each of ``HOSTS``, between which
    it interpolates on a log-log scale."""
    return float(np.exp(np.interp(np.log(hosts), np.log(HOSTS), np.log(measured))))


def _link_spread(hosts: float) -> float:
    """Return one standard deviation of the log of the network's speed, from the band of the measured all-reduce."""
    spreads = [float(np.log(high / low)) / 2 / CONFIDENCE_SPREADS for low, high in ALL_REDUCE_BAND]
    return float(np.interp(np.log(hosts), np.log(HOSTS), spreads))


@dataclass(frozen=True)
class Predicted:
    """Predicted seconds and memory of a configuration."""

    one: Configuration
    simulated_s: float
    """Seconds of an iteration outside the cluster's slow mode."""
    simulated_between_s: tuple[float, float]
    """Range of ``simulated_s`` in nine of ten cases, given what is known about the network."""
    memory_bytes: float
    """Peak bytes on the GPU that holds the most."""

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration. They include the delay of the cluster's slow mode if most runs of such a
        configuration were in that mode (``Configuration.is_slow``)."""
        return self.simulated_s + (SLOW_MODE_S * self.one.slots if self.one.is_slow else 0.0)

    @property
    def expected_s(self) -> float:
        """Seconds of an iteration, averaged over runs in and outside the slow mode. A choice by prediction minimises
        them per sequence."""
        if not self.one.may_be_slow or self.one.is_slow:
            return self.iteration_s
        return self.iteration_s + SLOW_SHARE[self.one.zero] * SLOW_MODE_S * self.one.slots

    @property
    def interval_s(self) -> tuple[float, float]:
        """Range of an iteration's seconds in nine of ten cases. It includes the slow mode if runs like it were often in
        it."""
        least, most = (math.exp(way * CONFIDENCE_SPREADS * MODEL_SPREAD) for way in (-1, 1))
        low_s, high_s = self.simulated_between_s
        slow_s = SLOW_MODE_MOST_S * self.one.slots if self.one.may_be_slow else 0.0
        return min(low_s, least * self.simulated_s), max(high_s, most * self.simulated_s) + slow_s

    @property
    def tokens_per_s_per_gpu(self) -> float:
        return self.one.tokens_per_s_per_gpu(self.iteration_s)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about this prediction."""
        said = []
        if self.one.is_slow:
            said.append("most runs like it on 64 hosts were in the cluster's slow mode: 0.75 s more per micro-batch")
        elif self.one.may_be_slow:
            said.append(
                "pipelines on this many hosts may be in the cluster's slow mode: 0.3 to 1.1 s more per micro-batch"
            )
        if not self.fits:
            said.append("predicted not to fit: more than nine tenths of a GPU's memory")
        return tuple(said)

    @property
    def fits(self) -> bool:
        """True if it needs less than nine tenths of a GPU's memory. Above that, allocators thrash."""
        return self.memory_bytes < MOST_USED * ONE_GPU.memory_bytes


def predict(one: Configuration) -> Predicted:
    """Return the predicted seconds and memory of a configuration, from a simulation."""
    topology, job = network_of(one), job_of(one)
    used = np.arange(job.n_stages * job.n_replicas)
    plan = unpriced_plan(topology, job, in_order(job, used, "dp-pp"))
    trace = simulate(plan)
    return Predicted(one, trace.iteration_s, trace.interval(), _memory_bytes(one, plan))


def _memory_bytes(one: Configuration, plan: Plan) -> float:
    """Return the memory of the GPU that holds the most at its peak: what the lab counts, plus what nanotron keeps in
    addition."""
    job, tp = plan.job, one.tp
    held = memory(plan, "1f1b").peak_bytes.max(axis=1) / tp
    where = "pipeline" if one.pp > 1 else "alone"
    tokens = one.mbs * SEQUENCE
    for stage, layers in enumerate(job.stage_layers):
        n_blocks = sum(layer.kind is LayerKind.BLOCK for layer in layers)
        in_flight = min(job.n_stages - stage, one.grad_acc)  # 1F1B holds one micro-batch per stage from here to the end
        held[stage] += WHOLE_GRADIENT_BYTES * job.stage_parameters[stage] / tp
        if tp > 1:
            held[stage] += GATHERED_BYTES[where] * tokens * job.modelled().d_model * n_blocks * in_flight
        if layers[-1].kind is LayerKind.HEAD:
            held[stage] += LOGITS_BYTES[where] * tokens * VOCABULARY / tp
    return float(held.max())


# ---------------------------------------------------------------------------------------------------------------------
# The sweep's file.


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """A row of the sweep: a configuration and its measurements, if it ran."""

    one: Configuration
    tokens_per_s_per_gpu: float | None
    """Measured throughput; None if the run failed or was not measured."""
    peak_memory_bytes: float | None
    failed: bool
    global_batch: int | None = None
    """Sequences per iteration that the file states; None if it states none."""

    @property
    def is_comparable(self) -> bool:
        """True if its micro-batches add up to the batch that the file states, or if the file states none."""
        return self.global_batch in (None, self.one.batch)

    @property
    def iteration_s(self) -> float | None:
        """Measured seconds of an iteration; None without a measured throughput."""
        speed = self.tokens_per_s_per_gpu
        return None if speed is None else self.one.tokens_per_s_per_gpu(speed)


COLUMNS = frozenset(field.name for field in fields(Configuration))


def is_sweep(path: str | os.PathLike[str]) -> bool:
    """True if a file has the columns of a sweep. Raises FileError if it cannot be read."""
    file = Path(path)
    return file.suffix.lower() == ".csv" and set(_reader(file).fieldnames or ()) >= COLUMNS


def _reader(file: Path) -> csv.DictReader[str]:
    lines = [line for line in read_text(file).splitlines() if line.strip() and not line.startswith("#")]
    return csv.DictReader(lines)


def read_sweep(path: str | os.PathLike[str] = SWEEP) -> tuple[SweepRow, ...]:
    """Return the rows of a CSV file in the format of the packaged sweep. Measurements are optional.

    If a configuration occurs several times, its first row whose run did not fail counts. Raises FileError for missing
    columns, and for a row that is not a valid configuration.
    """
    file = Path(path)
    reader = _reader(file)
    if not set(reader.fieldnames or ()) >= COLUMNS:
        wanted = ", ".join(field.name for field in fields(Configuration))
        raise FileError(f"{file.name} has the columns {', '.join(reader.fieldnames or ['none'])}; wanted {wanted}")
    found: dict[Configuration, SweepRow] = {}
    for number, row in enumerate(reader, 1):
        one = _measured(row, f"{file.name}, row {number}")
        # A run that failed may have been repeated, and then the repetition counts.
        known = found.get(one.one)
        if known is None or known.failed:
            found[one.one] = one
    return tuple(found.values())


def _measured(row: dict[str, str], where: str) -> SweepRow:
    def number(column: str) -> float | None:
        text = (row.get(column) or "").strip()
        try:
            value = float(text) if text else None
        except ValueError:
            value = -1.0
        if value is not None and not 0 < value < float("inf"):
            raise FileError(f"{where}, column {column}: {text}; wanted a number above 0, or nothing")
        return value

    try:
        sizes = {field.name: int(row[field.name]) for field in fields(Configuration)[1:]}
        one = Configuration(model=row["model"].strip(), **sizes)
    except (TypeError, ValueError):
        raise FileError(f"{where}: wanted whole numbers for dp, tp, pp, mbs, grad_acc, zero and nodes") from None
    except LabError as error:
        raise FileError(f"{where}: {error}") from None
    speed, memory_gb = number("tokens_per_s_per_gpu"), number("peak_memory_gb")
    return SweepRow(
        one=one,
        tokens_per_s_per_gpu=speed,
        peak_memory_bytes=None if memory_gb is None else memory_gb * GB,
        failed=(row.get("status") or "").strip() == "failed",
        global_batch=int(batch) if (batch := number("gbs")) is not None else None,
    )


SLOW_BY_S = 0.3
"""A row is in slow mode if a micro-batch takes more than this many seconds longer than in the fastest row of its
kind."""
SLOW_SHARE_OF_PEAK = 0.2
"""Share of the GPUs' peak at which a micro-batch takes its reference time. With up to 8 GPUs per layer, a row is also
in slow mode if it takes ``SLOW_BY_S`` longer than that."""


def slow_mode(rows: Sequence[SweepRow]) -> Iterator[bool]:
    """Yield, for each row, True if it was in the cluster's slow mode. Only measurements decide.

    A row with pipelines was in slow mode if a micro-batch takes 0.3 s longer than in the fastest row with the same
    model, tensor and pipeline parallelism and micro-batch. With up to 8 GPUs per layer, 0.3 s longer than at a fifth of
    the GPUs' peak also counts.
    """
    slots = {row.one: row.iteration_s / row.one.slots for row in rows if row.iteration_s is not None}
    fastest: dict[tuple[str, int, int, int], float] = {}
    # The fastest of its kind is what the cluster can do in its usual mode.
    for one, seconds in slots.items():
        kind = one.model, one.tp, one.pp, one.mbs
        fastest[kind] = min(seconds, fastest.get(kind, seconds))
    for row in rows:
        one = row.one
        # Only runs with pipelines showed the mode.
        if one.pp == 1 or one not in slots:
            yield False
            continue
        flop = 3 * one.mbs * model_of(one.model).forward_flop / one.pp / one.tp
        own_s = flop / SLOW_SHARE_OF_PEAK / ONE_GPU.peak_flop_per_s
        slower_s = slots[one] - fastest[one.model, one.tp, one.pp, one.mbs]
        yield slower_s > SLOW_BY_S or (one.tp <= PER_HOST and slots[one] - own_s > SLOW_BY_S)
