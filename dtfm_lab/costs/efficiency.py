"""The share of its peak FLOP/s that a GPU reaches over a forward and a backward, and how certain that is.

**Matrix products.** A product has m x n results, each a sum over k. A library cuts it into tiles of 256 x 128 results.
The GPU computes as many tiles at a time as it has multiprocessors, in waves. The last wave takes as long as a full one.
A tile reaches the share ``most`` x k / (k + k0) of the peak, which is close to ``most`` if k is large. A forward
multiplies the activations of tokens by the weights. A backward multiplies twice: for the gradient of the inputs, where
n and k change places, and for the gradient of the weights, which sums over tokens.

**Memory traffic.** Some operators only move memory. If a job counts them separately (``Job.memory_traffic``), the share
covers only the products. Otherwise their seconds are part of the share. The optimizer step is never part of it.

**Attention.** Fused attention skips the masked blocks, half of the causal square, and recomputes the scores in its
backward. That makes two products over half a square in the forward and five in the backward (Dao 2023,
"FlashAttention-2", sections 3.1 and 4.1). A model's FLOP count six products over the whole square instead. The speed of
the kernel is published per GPU (``FusedAttention``). For a GPU without such an entry, attention counts as six products
over the whole square, at the share ``most`` of large k. This is close on A100s, because fused attention skips about as
much work as it loses in speed. It is roughly right on Hopper for FlashAttention-2, which torch uses there. cuDNN and
FlashAttention-3 take half of that time there (Shah et al. 2024, "FlashAttention-3", figures 5 and 6). Unfused attention
consists of two products per head. Each head is a grid of tiles, and every tile is computed.

One share covers the whole model. A layer or pass takes seconds in proportion to its FLOP, including attention.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import (
    BYTES_PER_ELEMENT,
    Job,
    Layer,
    LayerKind,
    ModelSpec,
    gpt,
    moved_elements,
)
from dtfm_lab.domain.job.model.experts import expert_width
from dtfm_lab.domain.network import Device, MeasuredBlock, MeasuredGpu, as_number, hardware_of, shortened
from dtfm_lab.domain.network.device import OTHER_NAMES, spelling_of

EFFICIENCY = 0.4
"""Share of the peak assumed for a device if only its peak is known. Megatron-LM reaches 44 to 52 % on A100s (Narayanan
et al. 2021, table 1). Models up to a billion parameters, and GPUs without fast memory, reach less than this share."""
GUESS_SPREAD = 0.3
"""One standard deviation of the logarithm of seconds if only the peak is known."""
BACKWARD_READS = 1.5
"""Numbers moved in a backward for each number moved in a forward. An operator that reads one number and writes one in
the forward moves three in the backward. It reads the gradient of its output and the number that it kept, and writes a
gradient."""
TILE = 256, 128
"""Rows and columns of the largest tile of NVIDIA's libraries (its "Matrix Multiplication Background User's Guide")."""
HALVES = "fp16", "bf16"
ALIGNED_SIDE = 64
"""The fast kernels need sides of a block's weight matrices that are multiples of this: 128 bytes in half precision
(NVIDIA's "Matrix Multiplication Background User's Guide", on A100s)."""
ALIGNED_HEAD = 8
"""The fast kernels need attention heads whose width is a multiple of this: 16 bytes (the same guide)."""
UNALIGNED = 0.7
"""Speed of the kernels for unaligned sides, as a fraction of the speed of the fast kernels. Fitted to BigScience's
measurements of width 14,400, whose eighth is not a multiple of 64, compared with widths of 13,824 and 14,336 on the
same A100s. The product with the vocabulary (the output head) is always aligned, because frameworks pad the
vocabulary."""
NARROWEST = 2048
"""Minimum width of a model for which the share is modelled. Narrower models get ``EFFICIENCY``. The narrowest measured
model has a width of 2304. In narrower ones, starting kernels takes as long as computing."""


KERNEL_HEAD = 128
"""Maximum width of attention heads for which ``FusedAttention`` is used. Narrower heads take as long as heads of this
width, because a kernel on a B200 waits for the exponentials of the scores, not for products. (With heads of 64,
FlashAttention-4 reaches 56 to 65 % of its FLOP/s with heads of 128: pull request 2605 of Dao-AILab/flash-attention.)
Wider heads, such as those of latent attention, count as having no kernel. The measured version of cuDNN cannot train
them on Blackwell, but its 9.11 can (fused_attn.cpp of NVIDIA/TransformerEngine)."""
UNMASKED = 7 / 12
"""FLOP of a causal kernel's forward and backward, as a fraction of the FLOP that a model counts. The kernel has seven
products over half a square, a model counts six over the whole square."""


MEASURED_SPREAD = 0.06
"""Minimum spread of predictions that are based on timed blocks. It is the spread of predicted seconds after a
calibration with one measured iteration of another plan (Megatron-LM's measurements on one machine, each predicted from
one other)."""
FAR_WIDTH = 4.0
"""Timed blocks cover models up to this many times narrower than the narrowest block, or wider than the widest."""
FEW_BLOCKS = 1000
"""Number of blocks in the model that represents a timed block. With this many, the embedding and the head are
negligible."""


class Efficiency(NamedTuple):
    """The share of its peak FLOP/s that a device reaches with a job."""

    share: float
    """Share of the peak in the job's precision, over a forward and a backward of the whole model."""
    spread: float
    """One standard deviation of the logarithm of the seconds that follow from the share."""
    source: str
    """The measurements that the share comes from."""


GUESS = Efficiency(EFFICIENCY, GUESS_SPREAD, "a guess: only the peak is known")


class FusedAttention(NamedTuple):
    """Speed of a causal attention kernel on a kind of GPU, in half precision."""

    most: float
    """Share of the peak that it reaches in long sequences, forward and backward together. Masked FLOP are not
    counted."""
    half_length: float
    """Sequence length in tokens at which it reaches half of ``most``."""


class Products(NamedTuple):
    """Constants for the speed of matrix products in half precision on a kind of GPU."""

    multiprocessors: int
    most: float
    """Share of the peak that tiles reach if the depth k is large."""
    half_depth: float
    """Depth k0 at which tiles reach half of ``most``."""
    spread: float
    """Spread of errors on measurements that ``most`` and ``half_depth`` were not fitted to, as one standard deviation
    of the logarithm of seconds: ``python benchmarks efficiency``."""
    source: str
    fused: FusedAttention | None = None
    """Constants for heads up to ``KERNEL_HEAD`` wide; None if attention counts at ``most`` over the whole square."""


class Product(NamedTuple):
    """A matrix product on one GPU: rows x columns results, each a sum of ``depth`` terms. A forward computes it
    ``times`` times."""

    rows: float
    columns: float
    depth: float
    times: float = 1.0
    fused: bool = False
    """True for attention in one kernel, which writes no product to memory."""
    aligned: bool = True
    """True if its sides suit the fast kernels (``ALIGNED_SIDE``, ``ALIGNED_HEAD``)."""


SC21 = "Megatron-LM's 16 rows on A100s (Narayanan et al. 2021, tables 1 and 2)"
SIMUMAX = "SimuMax's six rows on B200s without tensor parallelism"
TORCHTITAN = "torchtitan's four rows on H100s (Liang et al. 2024)"
FSDP_QLORA = (
    "two rows of fine-tuning on RTX 3090s without sharding (AnswerDotAI's fsdp_qlora, 2024); the depth from Megatron-LM"
)
CUDNN = "attention as NVIDIA's cuDNN 9.10.2 (cudnn-frontend's table)"
_AMPERE = Products(108, 0.804, 443.0, 0.1, SC21)
_HOPPER = Products(132, 0.477, 443.0, 0.12, f"{SIMUMAX}; the depth from {SC21}")
_GEFORCE = Products(82, 0.85, 443.0, 0.15, FSDP_QLORA)
PRODUCTS = {
    "RTX 3090": _GEFORCE,
    "RTX 4090": _GEFORCE._replace(multiprocessors=128, spread=0.25, source=f"as an RTX 3090: {FSDP_QLORA}"),
    "A100": _AMPERE,
    "A100 40GB": _AMPERE,
    "H100": _HOPPER,
    "H100 PCIe": _HOPPER._replace(multiprocessors=114),
    "H200": _HOPPER,
    "GH200": _HOPPER,
    "B200": Products(
        148, 0.442, 443.0, 0.12, f"{TORCHTITAN}; the depth from {SC21}; {CUDNN}", FusedAttention(0.542, 2324.0)
    ),
}
"""Constants by the GPU's name in the table of hardware. ``python benchmarks efficiency`` fits them to published
measurements, and tests each on other sources. The constants of fused attention are fitted to published speeds of the
kernel alone. Numbers of multiprocessors come from NVIDIA's data sheets and whitepapers. Other kinds of GPU have no
source, or sources that contradict each other. On V100s, for example, DT-FM's authors report 28 to 30 % of the peak for
single pipelines, and about 40 % on their five networks."""


class Calibrated(Protocol):
    """Calibration from your own measurements. ``factor`` multiplies the share of ``efficiency_of``. Without a factor
    (None), ``float()`` of this object is the share itself."""

    @property
    def factor(self) -> float | None: ...

    def __float__(self) -> float: ...


class ShareFactor(NamedTuple):
    """A calibration that multiplies the share of ``efficiency_of`` by a factor. The result is at most 1."""

    factor: float

    def __float__(self) -> float:
        return self.factor


GivenEfficiency = float | Calibrated | None
"""Type of an argument for the efficiency: a share of the peak for every device, a calibration, or None for
``efficiency_of``."""


def efficiency_of(job: Job, device: Device, microbatch: int | None = None) -> Efficiency:
    """Return the share of its peak that a device reaches with a job's model, precision and attention.

    ``microbatch`` is the number of sequences of a micro-batch; None for the job's, or 1 if the job leaves it open. If
    blocks were timed on the device's GPU (``Device.measured``), the share follows from these, for all models that they
    cover (``why_not_measured``). Otherwise it comes from ``PRODUCTS``. It is ``EFFICIENCY`` if the GPU is not listed
    there, if the precision is neither fp16 nor bf16, or if the model is narrower than ``NARROWEST`` or of unknown
    shape. Your own torch module has an unknown shape.
    """
    modelled = _modelled(job, device, microbatch)
    if device.measured is None or why_not_measured(job, device.measured):
        return modelled
    share, spread = _measured_share(job, device, modelled)
    return Efficiency(share, spread, device.measured.sentence)


def why_not_measured(job: Job, measured: MeasuredGpu) -> str:
    """Return why the timed blocks say nothing about the speed of a job's model; empty if they do say something."""
    if job.model is None or job.model.source:
        return "blocks of a transformer were timed, and the model is a module of your own"
    if job.dtype != measured.dtype and not {job.dtype, measured.dtype} <= {*HALVES}:
        return f"blocks were timed in {measured.dtype}, and the job computes in {job.dtype}"
    least, most = (measured.blocks[end].d_model for end in (0, -1))
    if not least / FAR_WIDTH <= job.model.d_model <= most * FAR_WIDTH:
        return f"blocks {least} to {most:,} wide were timed, and the model's are {job.model.d_model:,}"
    return ""


def _measured_share(job: Job, device: Device, modelled: Efficiency) -> tuple[float, float]:
    """Return the share of the peak that follows from the timed blocks, and the spread of the seconds.

    The share is interpolated over the logarithm of the block's width. Outside the timed widths it stays constant. If
    the share of this GPU is modelled as well, the ratio of the timed to the modelled share is interpolated instead.
    This ratio also holds for other micro-batches and for groups of GPUs.
    """
    assert device.measured is not None, "its blocks were timed"
    peak = peak_of(device, job.dtype) / device.gpus
    timed = [(block, _block_share(block, job.dtype, peak)) for block in device.measured.blocks]
    wide = [] if modelled == GUESS else [each for each in timed if each[0].d_model >= NARROWEST]
    widths = [math.log(block.d_model) for block, _ in wide or timed]
    logs = [math.log(share) for _, share in timed]
    if wide:
        one = replace(device, gpus=1)
        logs = [math.log(share / _modelled(job_of_block(block, job.dtype), one, None).share) for block, share in wide]
    found = math.exp(_between(widths, logs, math.log(job.modelled().d_model)))
    inner = range(1, len(widths) - 1)
    # leave one out: how far each inner block is from the line through its neighbours
    off = [logs[i] - _between([widths[i - 1], widths[i + 1]], [logs[i - 1], logs[i + 1]], widths[i]) for i in inner]
    return min((modelled.share if wide else 1.0) * found, 1.0), max(MEASURED_SPREAD, *map(abs, off), 0.0)


def _between(at: Sequence[float], values: Sequence[float], where: float) -> float:
    """Interpolate linearly at ``where``: between the two nearest points, or the end point's value outside all
    points."""
    if where <= at[0] or len(at) == 1:
        return values[0]
    for i in range(1, len(at)):
        if where <= at[i]:
            return values[i - 1] + (values[i] - values[i - 1]) * (where - at[i - 1]) / (at[i] - at[i - 1])
    return values[-1]


@lru_cache(maxsize=64)
def job_of_block(block: MeasuredBlock, dtype: str, n_blocks: int = FEW_BLOCKS) -> Job:
    """Return a job whose model repeats the timed block. Next to many blocks, its embedding and head hardly count."""
    sizes: dict[str, Any] = {name: getattr(block, name) for name in ("d_model", "n_heads", "seq_len")}
    model = gpt(name="block", n_layers=n_blocks, vocab_size=1, **sizes)
    shape: dict[str, Any] = {"n_stages": 1, "n_replicas": 1}
    shape |= {"global_batch": block.microbatch, "microbatch": block.microbatch}
    return Job(name="block", model=model, dtype=dtype, attention="fused", **shape)


def _block_share(block: MeasuredBlock, dtype: str, peak_flop_per_s: float) -> float:
    """Return the share of the peak that one GPU reached in a forward and a backward of a block."""
    model = job_of_block(block, dtype).modelled()
    one = next(layer for layer in model.layers if layer.kind is LayerKind.BLOCK)
    flop = block.microbatch * one.forward_flop * (1 + model.backward.whole)
    return min(flop / (block.forward_s + block.backward_s) / peak_flop_per_s, 1.0)


def _modelled(job: Job, device: Device, microbatch: int | None) -> Efficiency:
    """Return the share by the lab's own model of a GPU, which does not use timed blocks."""
    name = spelling_of(device.gpu) or ""
    known, hardware = PRODUCTS.get(OTHER_NAMES.get(name, name)), hardware_of(device.gpu)
    if known is None or hardware is None or job.dtype not in HALVES:
        return GUESS
    if job.model is None or job.model.source or job.model.d_model < NARROWEST:
        return GUESS
    size = microbatch or job.microbatch or 1
    per_byte = hardware.peak_of(job.dtype) / hardware.memory_bytes_per_s  # FLOP at the peak while one byte moves
    share = _reached(job, known, per_byte, device.gpus, size)
    return Efficiency(share, known.spread, known.source) if 0 < share <= 1 else GUESS


@lru_cache(maxsize=256)
def _reached(job: Job, known: Products, per_byte: float, gpus: int, microbatch: int) -> float:
    """Return the share of the peak in a forward and a backward of the whole model; 0 for a model without FLOP."""
    flop = taken = 0.0
    model = job.modelled()
    backward, frozen = model.backward.whole, bool(model.frozen_elements)
    for layer, n in Counter(model.layers).items():
        flop += n * (1 + backward) * microbatch * layer.forward_flop / gpus
        taken += n * sum(_passes_flop(one, known, frozen) for one in products_of(job, layer, microbatch, gpus))
        taken += n * (1 + backward) * microbatch * model.adapter_flop(layer) / gpus / known.most
        if not job.memory_traffic:
            moved = (1 + BACKWARD_READS) * microbatch * moved_elements(job, layer) * BYTES_PER_ELEMENT[job.dtype]
            taken += n * per_byte * moved / gpus
    return flop / taken if taken > 0 else 0.0


def products_of(job: Job, layer: Layer, microbatch: int, gpus: int = 1) -> Iterator[Product]:
    """Yield the matrix products of a layer's forward on one of ``gpus`` GPUs that share it.

    With tensor parallelism, GPUs divide the matrices as Megatron-LM does. The matrices that read the input of the
    attention or the MLP are cut by columns. The matrices that make its output are cut by rows (the depth). With context
    and expert parallelism, GPUs divide the tokens instead. All experts on a GPU, each with the tokens sent to it, count
    as one kernel. In a family other than gpt and llama, a block without its experts counts as one product whose depth
    is the model's width.
    """
    model = job.modelled()
    gpus = max(gpus // job.data_gpus, 1)
    tokens = float(microbatch * model.seq_len) / job.data_gpus
    if layer.kind is LayerKind.HEAD:
        yield Product(tokens, model.vocab_size / gpus, model.d_model)
    if layer.kind is not LayerKind.BLOCK:
        return
    known = model.family in ("gpt", "llama")  # of other families the sides of the matrices are unknown
    for columns, depth in _weights(model, layer, gpus):
        if min(columns, depth) > 0:
            aligned = not known or not (columns % ALIGNED_SIDE or depth % ALIGNED_SIDE)
            yield Product(tokens, columns, depth, aligned=aligned)
    if layer.expert_elements:
        inner = expert_width(model, layer)
        routed = tokens * model.experts_per_token * job.expert_parallel / model.n_experts
        here = model.n_experts / job.expert_parallel
        yield Product(routed, 2 * inner / gpus, model.d_model, here)
        yield Product(routed, model.d_model, inner / gpus, here)
    if not layer.attention_elements:  # a block without attention, or with one of unknown shape
        return
    # each context-parallel GPU has a part of the queries and gets all keys, one part after the other
    heads, length, width = microbatch * model.n_heads / gpus / job.data_gpus, model.seq_len, model.head_dim
    if job.attention == "fused":
        yield Product(length, 2 * length, width, heads, fused=True)
    else:
        aligned = not width % ALIGNED_HEAD
        yield Product(length, length, width, heads, aligned=aligned)
        yield Product(length, width, length, heads, aligned=aligned)


def _weights(model: ModelSpec, layer: Layer, gpus: int) -> list[tuple[float, float]]:
    """Return (columns, depth) of the products with a block's weights. They follow from its FLOP, which ``families``
    counts."""
    width, heads = model.d_model, model.n_heads * model.head_dim
    attention = model.attention_flop if layer.attention_elements else 0.0
    own_flop = layer.forward_flop - attention - model.adapter_flop(layer) - _expert_flop(model, layer)
    each = own_flop / (2 * model.seq_len * width)  # number of weights divided by the width
    selective = layer.selective_flop / (2 * model.seq_len * width)
    if model.family == "gpt":
        both = layer.kv_elements / model.seq_len  # columns of keys and values
        inner = (each - 2 * heads - both) / 2
        queries, inward = heads + both, inner
    elif model.family == "llama":
        inner = each - 2 * selective
        queries, inward = heads + 2 * (selective - heads - inner), 2 * inner
    else:
        return [(each / gpus, width)]
    return [(queries / gpus, width), (width, heads / gpus), (inward / gpus, width), (width, inner / gpus)]


def _expert_flop(model: ModelSpec, layer: Layer) -> float:
    """Return the FLOP of a block's experts in a forward of one sequence."""
    if not layer.expert_elements:
        return 0.0
    return 2.0 * model.seq_len * model.experts_per_token * layer.expert_elements / model.n_experts


def _passes_flop(product: Product, known: Products, frozen: bool) -> float:
    """Return the time that a product takes in the forward and the backward, as the FLOP that the GPU would compute at
    its peak in that time.

    The backward has two products, or one if the weights are frozen.
    """
    rows, columns, depth, times, fused, aligned = product
    if fused:
        kernel, whole = known.fused, 3 * 2 * rows * columns * depth * times
        if kernel is None or depth > KERNEL_HEAD:
            return whole / known.most
        reached = kernel.most * rows / (rows + kernel.half_length)
        return UNMASKED * whole * KERNEL_HEAD / depth / reached
    there, back, weights = (rows, columns, depth), (rows, depth, columns), (depth, columns, rows)
    passes = (there, back) if frozen and times == 1.0 else (there, back, weights)  # attention has no weights
    return sum(_flop_in_waves(*sizes, times, known) for sizes in passes) / (1.0 if aligned else UNALIGNED)


def _flop_in_waves(rows: float, columns: float, depth: float, times: float, known: Products) -> float:
    tiles = math.ceil(times * math.ceil(rows / TILE[0]) * math.ceil(columns / TILE[1]))
    # the last wave takes as long as a full one
    waves = math.ceil(tiles / known.multiprocessors)
    reached = known.most * depth / (depth + known.half_depth)
    return 2 * waves * known.multiprocessors * TILE[0] * TILE[1] * depth / reached


def share_of(job: Job, device: Device, efficiency: GivenEfficiency = None, microbatch: int | None = None) -> float:
    """Return the share of its peak that a device reaches. ``microbatch`` is as in ``efficiency_of``.

    Raises JobError for an efficiency that is not above 0 and at most 1.
    """
    factor = getattr(efficiency, "factor", 1.0 if efficiency is None else None)
    if factor is not None:
        return min(efficiency_of(job, device, microbatch).share * factor, 1.0)
    share = as_number(efficiency)
    if share is None or not 0 < share <= 1:
        raise JobError(f"efficiency is {shortened(efficiency)}; wanted more than 0 and at most 1")
    return share


def speeds_of(
    job: Job, devices: Iterable[Device], efficiency: GivenEfficiency = None, microbatch: int | None = None
) -> list[float]:
    """Return the FLOP/s that each device reaches in a job's passes. ``microbatch`` is as in ``efficiency_of``.

    Raises JobError for an efficiency that is not above 0 and at most 1.
    """
    speed_of: dict[tuple[object, ...], float] = {}
    speeds = []
    for device in devices:
        kind = device.gpu, device.gpus, device.peak_flop_per_s, id(device.measured)
        if kind not in speed_of:
            speed_of[kind] = peak_of(device, job.dtype) * share_of(job, device, efficiency, microbatch)
        speeds.append(speed_of[kind])
    return speeds


def peak_of(device: Device, dtype: str) -> float:
    """Return the peak FLOP/s in this dtype: from the hardware table if the device's peak comes from there, otherwise
    the device's own peak.

    A group of GPUs has the sum of its members' peaks. A dtype without a figure in the table counts as fp32. fp64 counts
    as half of fp32, as on GPUs of data centres; other GPUs reach less.
    """
    known = hardware_of(device.gpu)
    if known is None or device.peak_flop_per_s != device.gpus * known.peak_flop_per_s:
        return device.peak_flop_per_s
    if dtype in known.peak:
        return device.gpus * known.peak_of(dtype)
    return device.gpus * known.peak_of("fp32") / (2 if dtype == "fp64" else 1)
