"""Measured iterations in the format of Sailor's evaluation, as plans that anyone can simulate.

A record gives the measured seconds of a forward, a backward and an update of each tensor-parallel group, and the
seconds of messages between kinds of groups by message size. So each group is one device. What the record does not
measure follows from how the system works. None of these choices is fitted:

- **Blocking sends.** DeepSpeed's pipeline engine sends with torch's ``send`` on the stream that computes (Sailor's
  ``deepspeed/pipe_engine.py``, ``_exec_send_activations``).
- **Gathered inputs.** Each tensor-parallel rank sends its part of an activation or a gradient. The receiving group
  gathers the whole inside its host before it computes (the same file, ``reconstruct_tensor`` in
  ``_exec_forward_pass`` and ``_exec_backward_pass``; Narayanan et al. 2021, section 4.1). Each of ``t`` ranks receives
  (t - 1) / t of the message, at the bandwidth of ``INSIDE_A_HOST``.
- **Shared NICs.** Each rank of a group averages its gradients with its peers in the other replicas, all ranks at once.
  If the GPUs of a host share its NIC, these messages take turns. The curves show it: if each GPU has its own NIC, a
  group of k GPUs is k times as fast as one.
- **Ring.** NCCL's ring averages gradients in numbers of 4 bytes, like activations (``hop_bytes`` are 4 bytes per
  number of GPT-Neo's 2560 x 2048 x 4).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import ConfigDict

from dtfm_lab.costs.seconds import ring_gather_s
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.extensions.published.row import assumptions
from dtfm_lab.extensions.published.units import measured_model
from dtfm_lab.files.reading import parse
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

BYTES = 4
"""Bytes per number of an activation or a gradient."""
INSIDE_A_HOST = {"GH-96": 150e9, "A100-40": 300e9, "A100-80": 300e9, "V100-16": 150e9}
"""Bytes/s from one GPU of a host to another, one way.

Four GH200 of a host are linked pair by pair, by six of their eighteen NVLink 4 links of 25 GB/s each way (Fusco et al.
2024, "Understanding Data Movement in Tightly Coupled Heterogeneous Systems"; De Sensi et al., SC 2024). The others have
half of the total on their data sheets.
"""
PCIE_3 = 15.75e9
"""Bytes/s of PCIe 3.0 with 16 lanes, one way (PCI-SIG). Used for any GPU without a known faster link."""
ASSUMPTIONS = assumptions()["sailor"]["iteration"]

ONLY_KNOWN = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class TensorGroup:
    """GPUs of one host that compute a stage of a replica together."""

    __pydantic_config__ = ONLY_KNOWN

    stage: int
    replica: int
    gpu: str
    tensor_parallel: int
    forward_s: float
    backward_s: float
    update_s: float
    gpus_in_its_host: int = 0
    hop: str | None = None
    """Name of the curve with the seconds of messages to the next stage; None if there is no next stage."""
    gradients: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """One measured iteration: its groups of GPUs, and the seconds of their passes and messages."""

    __pydantic_config__ = ONLY_KNOWN

    case: str
    model: str
    n_stages: int
    n_replicas: int
    tensor_parallel: int
    microbatch: int
    global_batch: int
    hop_bytes: float
    """Bytes of the activations of a micro-batch between two stages, over all ranks."""
    stage_parameters: tuple[int, ...]
    """For each stage, the parameters on one tensor-parallel rank."""
    devices: tuple[TensorGroup, ...]
    curves: dict[str, tuple[float, ...]]
    """Seconds of a message from one group to another, such as ``T4 x2 -> T4 x2``, at the document's message sizes."""
    measured_iteration_s: float | None = None
    """Seconds of the measured iteration; None if the record is predicted blind."""
    n_microbatches: int = 0
    layers_per_stage: tuple[int, ...] = ()
    measured_synchronisation_s: float | None = None
    measured_memory_bytes: float | None = None
    sailor_predicts_iteration_s: float | None = None
    sailor_predicts_memory_bytes: float | None = None

    def __post_init__(self) -> None:
        for name in ("n_stages", "n_replicas", "tensor_parallel", "microbatch", "global_batch", "hop_bytes"):
            if not 0 < getattr(self, name) < math.inf:
                raise FileError(f"{self.case}: {name} is {shortened(getattr(self, name))}; wanted more than 0")
        if any(group.tensor_parallel < 1 for group in self.devices):
            raise FileError(f"{self.case}: tensor_parallel of a device is below 1; wanted its number of GPUs")
        cells = ((s, r) for s in range(self.n_stages) for r in range(self.n_replicas))
        n_cells = self.n_stages * self.n_replicas
        if len(self.devices) != n_cells or {(d.stage, d.replica) for d in self.devices} != set(cells):
            raise FileError(f"{self.case}: {len(self.devices)} devices; wanted one of each stage and replica")
        if len(self.stage_parameters) != self.n_stages:
            raise FileError(f"{self.case}: {len(self.stage_parameters)} stage_parameters; wanted {self.n_stages}")
        for group in self.devices:
            if group.hop is not None and group.hop not in self.curves:
                raise FileError(f"{self.case}: no curve {group.hop!r}; wanted the seconds of its messages")
        if self.measured_iteration_s is not None and not 0 < self.measured_iteration_s < math.inf:
            raise FileError(f"{self.case}: measured_iteration_s is {self.measured_iteration_s}; wanted more than 0")

    @property
    def measured_s(self) -> float:
        """Seconds of the measured iteration. Raises FileError if missing."""
        if self.measured_iteration_s is None:
            raise FileError(f"{self.case}: no measured_iteration_s; wanted one, or a blind prediction (--blind)")
        return self.measured_iteration_s

    @cached_property
    def group(self) -> dict[tuple[int, int], TensorGroup]:
        """The tensor-parallel group of each (stage, replica)."""
        return {(group.stage, group.replica): group for group in self.devices}


@dataclass(frozen=True)
class Document:
    """A file of records."""

    __pydantic_config__ = ONLY_KNOWN

    message_bytes: tuple[float, ...]
    rows: tuple[Record, ...]
    source: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        sizes = self.message_bytes
        if not sizes or not all(low < high < math.inf for low, high in zip((0.0, *sizes), sizes, strict=False)):
            raise FileError("message_bytes is empty or not rising; wanted sizes above 0, each larger than the last")
        for row in self.rows:
            for name, seconds in row.curves.items():
                if len(seconds) != len(sizes) or not all(0 < second < math.inf for second in seconds):
                    raise FileError(
                        f"{row.case}, curve {name}: {len(seconds)} values; "
                        f"wanted {len(sizes)}, seconds above 0 for each of message_bytes"
                    )


def is_document(data: Any) -> bool:
    """True if the JSON holds records of this format."""
    rows = data.get("rows") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not rows or "message_bytes" not in data:
        return False
    return all(isinstance(row, dict) and "curves" in row for row in rows)


def document_of(data: Any, where: str) -> Document:
    """Return the records of a file. Raises FileError, one line that starts with ``where``."""
    return parse(Document, data, where)


CURVE = re.compile(r"(.+) x(\d+) -> (.+) x(\d+)")


def shared_nics(records: Iterable[Record]) -> set[str]:
    """Return the kinds of GPU whose hosts share one NIC among all GPUs, judged from the curves.

    If each GPU has its own NIC, k GPUs send a message k times as fast as one. With one NIC, they are only as fast as
    one. The threshold is the geometric mean of the two: the square root of k times as fast.
    """
    slowness: dict[str, list[float]] = {}
    curves = {name: seconds for record in records for name, seconds in record.curves.items()}
    for name, seconds in curves.items():
        if not (parts := CURVE.fullmatch(name)) or (k := min(int(parts[2]), int(parts[4]))) == 1:
            continue
        if (alone := curves.get(f"{parts[1]} x1 -> {parts[3]} x1")) is not None:
            faster = float(np.median(np.array(alone) / np.array(seconds)))
            for gpu in {parts[1], parts[3]}:
                slowness.setdefault(gpu, []).append(math.log(faster) / math.log(k))
    return {gpu for gpu, exponents in slowness.items() if float(np.median(exponents)) < 0.5}


def plan_of(record: Record, message_bytes: Sequence[float], sharing: set[str]) -> Plan:
    """Return the plan of a record: its job, with each group as the device of its stage and replica. ``sharing`` are the
    kinds of GPU whose hosts have one NIC.

    Raises LabError for an impossible record.
    """
    sizes = np.array(message_bytes, dtype=float)
    cells = [(s, r) for s in range(record.n_stages) for r in range(record.n_replicas)]
    n = len(cells)
    message_s = np.full((n, n, len(sizes)), np.nan)
    for i, here in enumerate(cells):
        for j, there in enumerate(cells):
            if i != j and (seconds := _seconds(record, here, there, sharing)) is not None:
                message_s[i, j] = seconds
    # pairs without a curve exchange no messages: any bandwidth will do
    bandwidth = np.full((n, n), sizes[-1] / np.nanmin(message_s[:, :, -1])) if n > 1 else np.ones((n, n))
    known = ~np.isnan(message_s[:, :, -1])
    bandwidth[known] = sizes[-1] / message_s[:, :, -1][known]
    topology = Topology(
        tuple(_device(record.group[cell]) for cell in cells),
        np.zeros((n, n)),
        bandwidth,
        name=record.case,
        message_bytes=sizes if known.any() else None,
        message_s=message_s if known.any() else None,
    )
    ranks = [replica * record.n_stages + stage for stage, replica in cells]
    return evaluate(topology, _job(record), rank_map=ranks)


def profile_of(record: Record) -> list[ComputeTime]:
    """Return the record's compute times, including gathering. A pass that it does not measure takes no time."""
    rows = []
    for group in record.devices:
        gather_s = gathering_s(group, record.hop_bytes)
        seconds = {
            # The first stage receives nothing, so it has nothing to gather.
            Kind.FORWARD: group.forward_s + gather_s * (group.stage > 0),
            Kind.BACKWARD: group.backward_s + gather_s * (group.stage < record.n_stages - 1),
            Kind.STEP: group.update_s,
        }
        kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.STEP, Kind.PACK, Kind.REDUCE)
        rows += [ComputeTime(group.stage, group.replica, kind, seconds.get(kind, 0.0)) for kind in kinds]
    return rows


def gathering_s(group: TensorGroup, n_bytes: float) -> float:
    """Return the seconds of the all-gather in which a tensor-parallel group's ranks exchange the parts of a message
    that each received."""
    return ring_gather_s(n_bytes, group.tensor_parallel, INSIDE_A_HOST.get(group.gpu, PCIE_3), 0.0)


def predicted_s(record: Record, message_bytes: Sequence[float], sharing: set[str]) -> float:
    """Return the seconds of the record's iteration. Raises FileError that names the record."""
    try:
        plan = plan_of(record, message_bytes, sharing)
        return simulate(plan, "1f1b", profile=profile_of(record)).iteration_s
    except LabError as error:
        raise FileError(f"{record.case}: {error}") from None


def _seconds(
    record: Record, here: tuple[int, int], there: tuple[int, int], sharing: set[str]
) -> Sequence[float] | np.ndarray | None:
    """Return the seconds of messages from one group to another; None if the two exchange no messages. Raises FileError
    if the record names no curve for these messages, or an unknown one."""
    (stage, replica), (other_stage, other_replica) = here, there
    if replica == other_replica and abs(stage - other_stage) == 1:
        if (hop := record.group[min(here, there)].hop) is None:
            raise FileError(f"{record.case}: stage {min(stage, other_stage)} has no hop; wanted the name of a curve")
        # Where only one direction was measured, it stands for the other.
        return record.curves.get(_back(hop) if stage > other_stage else hop, record.curves[hop])
    if stage != other_stage:
        return None
    sender, receiver = record.group[here], record.group[there]
    name = f"{sender.gpu} x1 -> {receiver.gpu} x1"
    # if this pair was not measured, take the slowest curve that the record names for the sender
    named = [record.curves[other] for other in sender.gradients if other in record.curves]
    slowest = max(named, key=lambda seconds: seconds[-1], default=None)
    curve = record.curves.get(name, record.curves.get(_back(name), slowest))
    if curve is None:
        raise FileError(f"{record.case}: no curve {name!r}; wanted the seconds of its messages")
    # GPUs of a group share the host's network card, so their messages take turns.
    in_turn = max(g.tensor_parallel if g.gpu in sharing else 1 for g in (sender, receiver))
    return np.array(curve) * in_turn


def _back(name: str) -> str:
    """Return the name of the curve in the other direction."""
    return " -> ".join(reversed(name.split(" -> ")))


def _device(group: TensorGroup) -> Device:
    """Return a device named after the group's GPUs. Its peak and memory are not used, because all times are
    measured."""
    name = f"{group.gpu} x{group.tensor_parallel}, stage {group.stage}, replica {group.replica}"
    return Device(name=name, gpu=group.gpu, peak_flop_per_s=1e12, memory_bytes=1e12)


def _job(record: Record) -> Job:
    """Return a job with the record's message and gradient sizes, and one block per stage. Raises FileError unless the
    messages are whole numbers of ``BYTES`` bytes."""
    elements = record.hop_bytes / (BYTES * record.microbatch)
    if elements != int(elements):
        raise FileError(f"{record.case}: hop_bytes is {record.hop_bytes:g}; wanted whole numbers of {BYTES} bytes")
    return Job(
        name=record.case,
        model=measured_model(record.model, record.stage_parameters, int(elements)),
        n_stages=record.n_stages,
        n_replicas=record.n_replicas,
        global_batch=record.global_batch,
        microbatch=record.microbatch,
        dtype="fp32",
        schedule="1f1b",
        synchronisation="ring",
        transport="blocking",
    )
