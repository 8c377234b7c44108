"""One accelerator with its peak FLOP/s, memory and price, and the table of common GPUs."""

import csv
import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from dtfm_lab.domain.errors import TopologyError, UnknownName
from dtfm_lab.domain.registry import in_a_row, nearest, unknown
from dtfm_lab.domain.units import TERA, FloatArray, GiB, IntArray, by_key, counted


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A kind of device: one row of ``hardware.csv``."""

    peak: Mapping[str, float]
    """Dense FLOP/s by dtype (integer operations for int8). A dtype without hardware support has no entry."""
    memory_bytes: float
    memory_bytes_per_s: float
    """Memory bandwidth."""
    price_per_hour: float
    """US dollars to rent one for an hour; 0 if none is for rent."""
    source: str
    """Source of the peaks, the memory, its bandwidth and the power."""
    price_source: str = ""
    other_names: tuple[str, ...] = ()
    watts: float | None = None
    """Board power at full load, as stated by the maker. The number was recalled, not copied from the data sheet; None
    if unsure."""

    @property
    def peak_flop_per_s(self) -> float:
        """FLOP/s in half precision, which training uses; in fp32 for CPUs."""
        return self.peak.get("fp16", self.peak["fp32"])

    def peak_of(self, dtype: str) -> float:
        """FLOP/s in one dtype; raises UnknownName for a dtype without hardware units."""
        if dtype not in self.peak:
            raise unknown("dtype of this device", dtype, self.peak)
        return self.peak[dtype]


def _hardware() -> dict[str, Hardware]:
    """The rows of ``hardware.csv``, by GPU."""
    found = {}
    with Path(__file__).with_name("hardware.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            tflops = {column.removesuffix("_tflops"): row[column] for column in row if column.endswith("_tflops")}
            found[row["gpu"]] = Hardware(
                peak={dtype: float(peak) * TERA for dtype, peak in tflops.items() if peak},
                memory_bytes=float(row["memory_gib"]) * GiB,
                memory_bytes_per_s=float(row["memory_gb_per_s"]) * 10.0**9,
                price_per_hour=float(row["price_per_hour"] or 0),
                source=row["source"],
                price_source=row["price_source"],
                other_names=tuple(filter(None, row["other_names"].split("; "))),
                watts=float(row["watts"]) if row["watts"] else None,
            )
    return found


HARDWARE = _hardware()
"""The table of GPUs.

Data sheets and whitepapers are NVIDIA's unless another maker is named. "halved" marks tensor figures that the maker
states only with sparsity. A GeForce with fp32 accumulation does twice its fp32 rate in half precision on its tensor
cores, the same in tf32 and eight times as much in int8. The watts of Apple chips are for the whole computer (Mac Studio
at the wall, Apple's support page 102027). For a GH200 they are for the whole module. A GPU may be configured to use
less. Prices are list prices per GPU. They change monthly and differ between sellers, often by a factor of two.
"""


OTHER_NAMES = {other: gpu for gpu, row in HARDWARE.items() for other in row.other_names}
"""Other name of a GPU -> its name in the table."""

MAKERS_WORDS = "nvidia", "tesla", "geforce", "amd", "instinct", "radeon", "apple"
"""Words that may come before a GPU's own name."""


def _bare(gpu: str) -> str:
    """Return the letters and digits of a GPU's name in lower case, without the maker's words."""
    words = re.findall(r"[^\W_]+", gpu.casefold())
    while len(words) > 1 and words[0] in MAKERS_WORDS:
        words.pop(0)
    return "".join(words)


_SPELLINGS = {_bare(gpu): gpu for gpu in (*HARDWARE, *OTHER_NAMES)}


@lru_cache(maxsize=256)
def spelling_of(gpu: str) -> str | None:
    """Return the table's spelling of a GPU's name (``a100``, ``RTX4090``, ``NVIDIA T4``), or None if it has no row.

    Case, blanks, hyphens and the maker's words at the beginning do not matter.
    """
    return _SPELLINGS.get(_bare(gpu))


NOISE = re.compile(
    rf"{'|'.join(MAKERS_WORDS)}|quadro|generation|workstation|server|edition|gpu|sxm\d?|oam|vf|hgx|dgxs?|nvlink|nvl\d+|ac|mega|"
    r"active|pcie|hbm\d?e?|3e|\d+gb|\d{2,3}g"
)
"""Words in a driver's name of a GPU that the table's names leave out."""
MEMORY_WORD = re.compile(r"(\d{1,5})gb")
OTHER_WORDS = {"a800": "a100", "h800": "h100", "mi325": "mi325x"}
"""Word in a driver's name -> the table's word for the same GPU."""


def known_gpu(driver_name: str, memory_bytes: float | None = None) -> str | None:
    """Return the table's name for a driver's name such as ``NVIDIA A100-SXM4-40GB``.

    If rows differ only in their memory, choose the one nearest to ``memory_bytes``, or the size in the name. Return
    None if any word of the name is unexplained, such as Ti, Super, Laptop or MIG, unless the table has that variant.
    """
    name = _row_of(driver_name)  # rtx4090, as a cluster's manager may write it
    if name is not None and "fp16" in HARDWARE[name].peak and (memory_bytes is None or len(_variants(name)) == 1):
        return name
    words = {OTHER_WORDS.get(word, word) for word in _words(driver_name)}
    stated = [int(found[1]) * 2**30 for word in words if (found := MEMORY_WORD.fullmatch(word))]
    n_bytes = memory_bytes or (stated[0] if stated else None)
    fits = []
    for key, row in HARDWARE.items():
        own = {word for word in _words(key) if not MEMORY_WORD.fullmatch(word)}
        left = [word for word in words - own if not NOISE.fullmatch(word)]
        if "fp16" in row.peak and own <= words and not left:  # the others are whole computers
            plain = n_bytes is None and MEMORY_WORD.search(key.lower()) is None
            fits.append((len(own), plain, -abs(row.memory_bytes - (n_bytes or row.memory_bytes)), key))
    return max(fits)[-1] if fits else None


def variants_of(driver_name: str) -> tuple[str, ...]:
    """Return the names of the table's rows that a driver's name may mean, which differ only in their memory. Empty if
    the name is unknown, states its memory, or means a single row."""
    known = known_gpu(driver_name)
    if known is None or any(MEMORY_WORD.fullmatch(word) for word in _words(driver_name)):
        return ()
    found = _variants(known)
    return found if len(found) > 1 else ()


@lru_cache(maxsize=256)
def _variants(row: str) -> tuple[str, ...]:
    """Return the rows whose names differ from this one only in their memory size, including the row itself."""
    own = {word for word in _words(row) if not MEMORY_WORD.fullmatch(word)}
    return tuple(k for k in HARDWARE if {word for word in _words(k) if not MEMORY_WORD.fullmatch(word)} == own)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name[:1000].lower()))


def hardware_of(gpu: str) -> Hardware | None:
    """Return the table's row of a GPU, in any spelling that ``spelling_of`` accepts; None if there is no row."""
    name = _row_of(gpu)
    return None if name is None else HARDWARE[name]


def _row_of(gpu: str) -> str | None:
    """Return the name of a GPU's row, in any spelling; None if the table has no row for it."""
    name = spelling_of(gpu)
    return None if name is None else OTHER_NAMES.get(name, name)


def typical_price(gpu: str) -> float:
    """Return the table's US dollars per hour for a GPU, in any spelling; 0 if the table has no price."""
    row = hardware_of(gpu)
    return 0.0 if row is None else row.price_per_hour


def hardware_fields(gpu: object) -> dict[str, float]:
    """Return the peak and memory of a GPU as fields of a Device; empty if the table does not have it."""
    known = hardware_of(gpu) if isinstance(gpu, str) else None
    return {} if known is None else {"peak_flop_per_s": known.peak_flop_per_s, "memory_bytes": known.memory_bytes}


PAPERS_GPU = "V100"
OF_THE_GPU = cast(float, None)
"""Default for a number that a device takes from the hardware table."""

MOST_NAMED = 12
"""Number of GPUs that an error message names at most, so that it stays on one line."""
LONGEST_NAME = 200
"""Maximum number of characters in the name of a device, region, GPU, host or topology."""
MOST_DEVICES = 4096
"""Maximum number of devices in a network. Networks are dense: 4,096 devices fill matrices of 134 MB each."""


NUMBERS: dict[str, tuple[Callable[[float], bool], str]] = {
    "peak_flop_per_s": (lambda number: 0 < number < math.inf, "a number above 0"),
    "memory_bytes": (lambda number: 0 < number < math.inf, "a number above 0"),
    "price_per_hour": (lambda number: 0 <= number < math.inf, "0 or more"),
    "gpus": (lambda number: number >= 1 and number.is_integer(), "a whole number, 1 or more"),
    "inner_latency_s": (lambda number: 0 <= number < math.inf, "0 or more"),
    "inner_bandwidth_bytes_per_s": (lambda number: number > 0, "a number above 0"),
}
"""Number fields of a device, each with a check and the allowed range as text."""


@dataclass(frozen=True, kw_only=True)
class MeasuredBlock:
    """Seconds that one GPU took for the forward and the backward of a transformer block."""

    d_model: int
    n_heads: int
    seq_len: int
    microbatch: int
    """Sequences of a pass."""
    forward_s: float
    backward_s: float


@dataclass(frozen=True, kw_only=True)
class MeasuredGpu:
    """What `dtfm-lab calibrate` measured of one kind of GPU, on which host, when and with which versions.

    Raises TopologyError without a block, if blocks are not ordered by width, if a width is not a multiple of its heads,
    or for a value that is not a number or is out of range.
    """

    dtype: str
    """Precision of the timed blocks' weights and activations."""
    blocks: tuple[MeasuredBlock, ...]
    """Blocks that were timed, one for each width, the narrowest first."""
    block_launch_s: float = 0.0
    """Seconds that the host needs to launch the kernels of a block's forward and backward. No block takes less."""
    step_bytes: float = 0.0
    """Peak bytes of a training step of the widest block that fits, with Adam's states in fp32; 0 if unknown."""
    host: str = ""
    date: str = ""
    """Day of the measurement, as 2026-11-30."""
    versions: str = ""
    """Versions of the software that computed, such as ``torch 2.13.0, CUDA 13.0``."""

    def __post_init__(self) -> None:
        if not self.blocks:
            raise TopologyError("a measured GPU has no blocks; wanted one or more")
        numbers = {"block_launch_s": self.block_launch_s, "step_bytes": self.step_bytes}
        if bad := [what for what, value in numbers.items() if not 0 <= (as_number(value) or 0.0) < math.inf]:
            raise TopologyError(f"{bad[0]} of a measured GPU is {shortened(numbers[bad[0]])}; wanted 0 or more")
        for block in self.blocks:
            for what in MeasuredBlock.__dataclass_fields__:
                if not 0 < (as_number(getattr(block, what)) or 0.0) < math.inf:
                    found = shortened(getattr(block, what))
                    raise TopologyError(f"{what} of a measured block is {found}; wanted a number above 0")
            if block.d_model % block.n_heads:
                raise TopologyError(
                    f"d_model {block.d_model} of a measured block is not a multiple of its {block.n_heads} heads; "
                    "wanted one that is"
                )
        # Between two widths seconds are interpolated, which needs an order.
        widths = [block.d_model for block in self.blocks]
        if any(a >= b for a, b in itertools.pairwise(widths)):
            raise TopologyError(f"measured blocks have d_model {widths}; wanted each wider than the last")

    @property
    def sentence(self) -> str:
        """What was measured, where and when: ``blocks timed on ada, 2026-11-30``."""
        return ", ".join(filter(None, [f"blocks timed on {self.host}" if self.host else "blocks timed", self.date]))


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator that can hold one pipeline stage.

    Raises
    ------
    TopologyError
        A name is empty or unprintable, or a value is not a number or is out of range.
    UnknownName
        The GPU is not in the table, and peak or memory is missing.
    """

    name: str
    region: str = ""
    gpu: str = PAPERS_GPU
    """A GPU of the hardware table, in any spelling. The table then supplies the peak and the memory if you leave them
    out. With any other name, you must give both."""
    peak_flop_per_s: float = OF_THE_GPU
    """FLOP/s in half precision; the table's by default."""
    memory_bytes: float = OF_THE_GPU
    """Memory in bytes; the table's by default."""
    price_per_hour: float = 0.0
    """US dollars per hour; 0 if unknown."""
    position: tuple[float, float] | None = None
    """(x, y) on the canvas in pixels, y downwards. It affects no cost."""
    host: str = ""
    """The machine that holds the device. Devices of one host share its NIC. Empty if the device has its own NIC.
    """
    gpus: int = 1
    """GPUs of one host that act as one device through tensor, context or expert parallelism. ``peak_flop_per_s``,
    ``memory_bytes`` and ``price_per_hour`` are their totals. ``Topology.grouped`` makes such devices."""
    inner_latency_s: float = 0.0
    """Latency in seconds, one way, between two of its GPUs."""
    inner_bandwidth_bytes_per_s: float = math.inf
    """Bytes per second between two of its GPUs; infinite if it has only one."""
    measured: MeasuredGpu | None = None
    """Measurements of its GPU. In a network they apply to all devices with that GPU."""

    def __post_init__(self) -> None:
        # plain types, so that equal devices write and hash alike whatever array they came from
        for what in ("name", "region", "gpu", "host"):
            object.__setattr__(self, what, self._text(what, getattr(self, what)))
        if not self.name:
            raise TopologyError("a device has an empty name; every device needs its own name")
        self._fill_in()
        for what, (is_allowed, wanted) in NUMBERS.items():
            number = as_number(getattr(self, what))
            if number is None or not is_allowed(number):
                found = shortened(getattr(self, what))
                raise TopologyError(f"device {self.name}: {what} is {found}; wanted {wanted}")
            object.__setattr__(self, what, number)
        object.__setattr__(self, "gpus", int(self.gpus))
        if self.position is not None:
            given = self.position if isinstance(self.position, Iterable) and not isinstance(self.position, str) else ()
            parts = tuple(number for part in given if (number := as_number(part)) is not None and math.isfinite(number))
            if len(parts) != 2 or len(tuple(given)) != 2:
                raise TopologyError(f"device {self.name}: position is {shortened(self.position)}; wanted two numbers")
            object.__setattr__(self, "position", parts)

    def with_gpu(self, gpu: str, **numbers: float) -> Self:
        """Return the device with another GPU and that GPU's peak and memory, or with the given ``numbers``.

        ``dataclasses.replace`` would keep the numbers of the old GPU.
        """
        fields: dict[str, Any] = {"gpu": gpu, "peak_flop_per_s": OF_THE_GPU, "memory_bytes": OF_THE_GPU}
        fields |= {} if gpu == self.gpu else {"measured": None}
        return replace(self, **fields | numbers)

    def _fill_in(self) -> None:
        """Fill missing numbers from the table, and spell the GPU's name as the table does."""
        missing = [what for what in ("peak_flop_per_s", "memory_bytes") if getattr(self, what) is OF_THE_GPU]
        if not missing:
            return
        name = spelling_of(self.gpu)
        if name is None:
            near = nearest(self.gpu, HARDWARE, n=3)
            known = f"known: {in_a_row(sorted(HARDWARE), MOST_NAMED)};"
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else known
            raise UnknownName(
                f"device {self.name}: no GPU named {shortened(self.gpu)}; {hint} a GPU that is not in the table needs "
                f"peak_flop_per_s and memory_bytes (or peak_tflops and memory_gib)"
            )
        # One spelling, so that equal GPUs are seen to be equal.
        object.__setattr__(self, "gpu", name)
        for what, number in hardware_fields(name).items():
            if what in missing:
                object.__setattr__(self, what, number)

    def _text(self, what: str, value: Any) -> str:
        if value is None:
            raise TopologyError(f"a device's {what} is None; wanted text")
        try:
            text = str(value)
        except ValueError:  # an integer of thousands of digits
            raise TopologyError(f"a device's {what} is a number too long to write; wanted text") from None
        check_text("device" if what == "name" else f"device {self.name}: {what}", text)
        return text


def check_text(what: str, text: str) -> None:
    """Raise TopologyError unless the text fits on one line of any error message and any file."""
    if len(text) > LONGEST_NAME:
        raise TopologyError(
            f"{what} {shortened(text)} has {counted(len(text), 'character')}; wanted at most {LONGEST_NAME:,}"
        )
    if not is_plain(text):
        raise TopologyError(f"{what} {shortened(text)} holds a character that cannot be printed; wanted plain text")


def is_plain(text: str) -> bool:
    """Return True if the text has no control characters, line breaks or lone surrogates."""
    return not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in "\ufffe\uffff" for c in text)


def with_measured(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices, each with the measurement of its GPU if any device of that GPU has one.

    Raises TopologyError if two measurements of one GPU differ.
    """
    measured: dict[str, MeasuredGpu] = {}
    for device in devices:
        if device.measured is not None and measured.setdefault(device.gpu, device.measured) != device.measured:
            raise TopologyError(
                f"{device.gpu} was measured twice ({measured[device.gpu].sentence}; {device.measured.sentence}); "
                "wanted one measurement of a GPU"
            )
    if not measured:
        return tuple(devices)
    return tuple(d if d.gpu not in measured else replace(d, measured=measured[d.gpu]) for d in devices)


def nics_of(hosts: Sequence[str]) -> IntArray | None:
    """Return (N,) the index of the first device of each device's host; None if no host has several devices.

    A device without a host gets its own index.
    """
    first: dict[str, int] = {}
    nic_of = np.array([first.setdefault(host, i) if host else i for i, host in enumerate(hosts)])
    return None if (nic_of == np.arange(len(hosts))).all() else nic_of


def check_count(n: int) -> None:
    """Raise TopologyError if there are too many devices, before anything of size (N, N) is allocated."""
    if n > MOST_DEVICES:
        raise TopologyError(f"{counted(n, 'device')}; wanted at most {MOST_DEVICES:,}")


def as_number(value: Any) -> float | None:
    """Return a real number as a float; None for anything else, including text and booleans."""
    if isinstance(value, str | bytes | bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def matrix_of(what: str, given: Any) -> FloatArray:
    """Return anything rectangular and numeric as an array of floats. Raises TopologyError, naming ``what``, for
    anything else."""
    try:
        if not np.iscomplexobj(given):
            return np.asarray(given, dtype=float)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TopologyError(f"{what} is not a matrix of numbers; wanted one row per device, all of one length")


def shortened(value: object) -> str:
    """Return a value as short text for a one-line error message."""
    try:
        text = repr(value.item() if isinstance(value, np.generic) else value)
    except (ValueError, RecursionError):  # an integer of thousands of digits; nested too deeply
        return f"an unwieldy {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


# ---------------------------------------------------------------------------------------------------------------------
# GPUs of one host as one device, for tensor parallelism: each holds a part of every layer of a stage.
#
# Megatron-LM keeps tensor parallelism within a host, whose links between GPUs are many times faster than its
# NIC (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters", section 5.4,
# takeaway 1).


GROUP_FIELDS = ("gpus", "inner_latency_s", "inner_bandwidth_bytes_per_s")
"""Fields that matter only for a device with several GPUs."""
MOST_GPUS = 8
"""Maximum number of GPUs per group in ``group_sizes``."""


def gpus_of(devices: Iterable[Device]) -> Counter[str]:
    """Return the number of GPUs of each kind. Every GPU of a group counts."""
    counts: Counter[str] = Counter()
    for device in devices:
        counts[device.gpu] += device.gpus
    return counts


def groups_of(name: str, devices: Sequence[Device], gpus: object) -> list[list[int]]:
    """Return the device indices of each group of ``gpus`` identical devices of one host. Devices left over are skipped.

    If devices already are groups of this size, each is returned alone. Raises TopologyError, naming the network, if no
    host has that many, or if devices already are groups of another size.
    """
    if isinstance(gpus, bool) or not isinstance(gpus, int | np.integer) or gpus < 1:
        raise TopologyError(f"groups of {shortened(gpus)} GPUs; wanted a whole number, 1 or more")
    sizes = {device.gpus for device in devices}
    # Grouped so already.
    if sizes == {int(gpus)}:
        return [[i] for i in range(len(devices))]
    if sizes != {1}:
        found = " and ".join(map(str, sorted(sizes)))
        raise TopologyError(f"{name} has devices of {found} GPUs each; wanted groups of {gpus}, or single GPUs")
    groups = list(_groups(devices, int(gpus)))
    if not groups:
        most = max(map(len, _by_host(devices)))
        raise TopologyError(
            f"{name} has no host of {counted(int(gpus), 'GPU')} that are alike, at most {most}; wanted {most} or less, "
            "of tensor_parallel x context_parallel x expert_parallel, or devices that name their host"
        )
    return groups


def group_sizes(devices: Sequence[Device]) -> list[int]:
    """Return the powers of two up to 8 (including 1) for which some host has a group.

    For devices that already are groups, return their size.
    """
    sizes = {device.gpus for device in devices}
    if sizes != {1}:
        return sorted(sizes)
    powers = [2**i for i in range(MOST_GPUS.bit_length())]
    return [size for size in powers if size == 1 or next(_groups(devices, size), None) is not None]


def group_device(devices: Sequence[Device], members: list[int], latency_s: FloatArray, bandwidth: FloatArray) -> Device:
    """Merge the devices of a group into one, named after its first. Its inner link is the slowest link between them."""
    first, n = devices[members[0]], len(members)
    if n == 1:
        return first
    inside, between = ~np.eye(n, dtype=bool), np.ix_(members, members)
    # A group is as fast as all together, but its links are only as good as the slowest.
    return replace(
        first,
        name=f"{first.name}+{n - 1}",
        peak_flop_per_s=n * first.peak_flop_per_s,
        memory_bytes=n * first.memory_bytes,
        price_per_hour=n * first.price_per_hour,
        gpus=n,
        inner_latency_s=float(latency_s[between][inside].max()),
        inner_bandwidth_bytes_per_s=float(bandwidth[between][inside].min()),
    )


def between_groups(best: np.ufunc, matrix: FloatArray, groups: list[list[int]]) -> FloatArray:
    """Return (G, G): for every two groups, the ``best`` entry (minimum or maximum) among the pairs of their devices.

    All groups have the same size.
    """
    order, size = np.concatenate(groups), len(groups[0])
    if not np.array_equal(order, np.arange(len(matrix))):
        matrix = matrix[np.ix_(order, order)]
    blocks = matrix.reshape(len(groups), size, len(groups), size)
    found: FloatArray = best.reduce(best.reduce(blocks, axis=3), axis=1)
    return found


def _by_host(devices: Sequence[Device]) -> list[list[int]]:
    """Return lists of identical devices of one host, which may form groups. A device without a host is alone."""
    alike = by_key(
        ((d.host or i, d.region, d.gpu, d.peak_flop_per_s, d.memory_bytes, d.price_per_hour), i)
        for i, d in enumerate(devices)
    )
    return list(alike.values())


def _groups(devices: Sequence[Device], gpus: int) -> Iterator[list[int]]:
    for members in _by_host(devices):
        for first in range(0, len(members) - gpus + 1, gpus):
            yield members[first : first + gpus]
